// Package quota reads the quotas of a server's XFS and makes the actions that set
// them. XFS keeps quotas in the file system itself, so they move with it and are not
// in the spec. The spec has only the mount options that enable accounting.
//
// run.go has the commands of mortar quota.
package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Kinds are the kinds of quotas of XFS. Their initials are the options of
// xfs_quota(8).
var Kinds = []string{"user", "group", "project"}

// option is the mount option that enables the accounting of a kind. Source: xfs(5).
func option(kind string) string { return kind[:1] + "quota" }

// synonyms are other names of the mount options. Source: xfs(5).
var synonyms = map[string][]string{
	"user": {"uquota", "usrquota", "quota", "uqnoenforce", "qnoenforce"}, "group": {"gquota", "grpquota", "gqnoenforce"},
	"project": {"pquota", "prjquota", "pqnoenforce"},
}

// Entry is the usage and the limits of one user, group or project.
type Entry struct {
	Service string `json:"service"`
	Kind    string `json:"kind"`
	// ID is the name on the server, or the number if the server has no name for
	// it.
	ID    string `json:"id"`
	Space Limit  `json:"space"` // bytes
	Files Limit  `json:"files"`
	// Unread is a line of the report that is not understood; then there is nothing else.
	Unread string `json:"unread,omitempty"`
}

// Limit has the values of one counter; 0 for Soft or Hard: no limit.
type Limit struct {
	Used int64 `json:"used"`
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
	// Grace is the time left above the soft limit, as xfs_quota prints it; ""
	// below the limit.
	Grace string `json:"grace,omitempty"`
}

// Host is the part of a session with a server that quotas need.
type Host interface {
	Query(ctx context.Context, argv ...string) (resource.Output, error)
	Read(ctx context.Context, path string) (string, error)
}

// Mounted returns the kinds with accounting of the XFS mounted at a path; mounted is
// false if no XFS is mounted there.
func Mounted(ctx context.Context, h Host, at string) (kinds []string, mounted bool, err error) {
	text, err := h.Read(ctx, "/proc/mounts")
	if err != nil {
		return nil, false, err
	}
	for _, m := range linux.ParseMounts(text) {
		if m.Type != "xfs" || m.Target != path.Clean(at) {
			continue
		}
		for _, k := range Kinds {
			if slices.ContainsFunc(synonyms[k], func(o string) bool { return slices.Contains(m.Options, o) }) {
				kinds = append(kinds, k)
			}
		}
		return kinds, true, nil
	}
	return nil, false, nil
}

// Report lists the quotas of one kind of a mounted service. A line that it does not
// understand is an entry with nothing but that line.
func Report(ctx context.Context, h Host, s *design.Service, kind string) ([]Entry, error) {
	argv := []string{"xfs_quota", "-x", "-c", "report -" + kind[:1] + " -N -b -i", path.Clean(s.MountPoint)}
	out, err := h.Query(ctx, argv...)
	text, err := resource.Printed(out, err, argv...)
	if err != nil {
		return nil, err
	}
	entries, err := parse(text)
	for i := range entries {
		entries[i].Service, entries[i].Kind = s.Name, kind
	}
	return entries, err
}

// line matches a line of report: ID, and for space and files each used, soft, hard,
// warnings and the time left. Space is in KiB. The name of a group of Windows may have
// blanks.
var line = regexp.MustCompile(`^(\S.*?)\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+\s+\[([^\]]*)\]\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+\s+\[([^\]]*)\]$`)

// report matches a line that is meant to be one of a report; what precedes the first one
// is a banner.
var report = regexp.MustCompile(`\d.*\[[^\]]*\].*\d.*\[[^\]]*\]`)

// parse reads the lines of a report. An answer without any is an error.
func parse(text string) (out []Entry, err error) {
	var banner health.Unread
	unread := func(l string) {
		var u health.Unread
		u.Add(l)
		out = append(out, Entry{Unread: u[0]})
	}
	for l := range strings.Lines(text) {
		l = strings.TrimPrefix(strings.TrimSpace(l), "\ufeff")
		m := line.FindStringSubmatch(l)
		if m == nil {
			switch {
			case l == "":
			case len(out) > 0 || report.MatchString(l):
				unread(l)
			default:
				banner.Add(l)
			}
			continue
		}
		var n [6]int64
		var odd error
		for i, s := range []string{m[2], m[3], m[4], m[6], m[7], m[8]} {
			v, err := strconv.ParseInt(s, 10, 64)
			if err == nil && i < 3 && v > math.MaxInt64>>10 {
				err = strconv.ErrRange
			}
			n[i], odd = v, cmp.Or(odd, err)
		}
		if odd != nil {
			unread(l)
			continue
		}
		out = append(out, Entry{
			ID:    strings.TrimPrefix(m[1], "#"),
			Space: Limit{n[0] << 10, n[1] << 10, n[2] << 10, grace(m[5])},
			Files: Limit{n[3], n[4], n[5], grace(m[9])},
		})
	}
	if len(out) == 0 && len(banner) > 0 {
		return nil, fmt.Errorf("xfs_quota: no report: %s", banner)
	}
	return out, nil
}

// grace returns "" for dashes, which mean that no time runs.
func grace(s string) string {
	if strings.Trim(s, "-") == "" {
		return ""
	}
	return strings.Trim(s, "-")
}

// Wanted has the limits to set. A nil limit stays as it is, 0 removes the limit.
type Wanted struct {
	Kind, ID             string
	SpaceSoft, SpaceHard *int64 // bytes, rounded up to KiB
	FilesSoft, FilesHard *int64
}

// word matches a name or number that is a single word in a command of xfs_quota.
var word = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]*$`)

// Set returns the action that sets the limits.
func (w *Wanted) Set(s *design.Service) (resource.Action, error) {
	limits, err := w.limits()
	if err != nil {
		return resource.Action{}, err
	}
	return resource.Action{
		Title: fmt.Sprintf("set the quota of %s %s on %s", w.Kind, w.ID, s.Name),
		Cmd:   []string{"xfs_quota", "-x", "-c", fmt.Sprintf("limit -%s %s %s", w.Kind[:1], strings.Join(limits, " "), w.ID), path.Clean(s.MountPoint)},
	}, nil
}

// Check refuses what Set would refuse for every service, before a login.
func (w *Wanted) Check() error {
	_, err := w.limits()
	return err
}

// limits are the words of xfs_quota.
func (w *Wanted) limits() ([]string, error) {
	if !slices.Contains(Kinds, w.Kind) {
		return nil, fmt.Errorf("%q is none of %s", w.Kind, strings.Join(Kinds, ", "))
	}
	if !word.MatchString(w.ID) {
		return nil, fmt.Errorf("%q is no name and no number of a %s", w.ID, w.Kind)
	}
	if _, err := strconv.ParseUint(w.ID, 10, 32); w.Kind == "project" && err != nil {
		return nil, fmt.Errorf("project %q: projects are named by number here: the servers have no names for them", w.ID)
	}
	var limits []string
	add := func(name string, v *int64, unit int64, suffix string) {
		if v != nil {
			limits = append(limits, fmt.Sprintf("%s=%d%s", name, (*v+unit-1)/unit, suffix))
		}
	}
	add("bsoft", w.SpaceSoft, 1024, "k")
	add("bhard", w.SpaceHard, 1024, "k")
	add("isoft", w.FilesSoft, 1, "")
	add("ihard", w.FilesHard, 1, "")
	if len(limits) == 0 {
		return nil, errors.New("no limit is given; give --space, --soft-space, --files or --soft-files (0 removes a limit)")
	}
	return limits, nil
}

// Project returns the action that assigns a directory, with its present and future
// contents, to a project.
func Project(s *design.Service, id, dir string) (resource.Action, error) {
	if n, err := strconv.ParseUint(id, 10, 32); err != nil || n == 0 {
		return resource.Action{}, fmt.Errorf("project %q: choose a number from 1", id)
	}
	dir = path.Clean(dir)
	if !strings.HasPrefix(dir, path.Clean(s.MountPoint)+"/") || strings.HasPrefix(dir, path.Clean(path.Dir(s.StateDir))) {
		return resource.Action{}, fmt.Errorf("%s is no directory of users below %s", dir, s.MountPoint)
	}
	if strings.ContainsAny(dir, " \t\n\"'\\") {
		return resource.Action{}, fmt.Errorf("%q: xfs_quota takes no path with blanks or quotes", dir)
	}
	return resource.Action{
		Title: fmt.Sprintf("make %s the directory of project %s", dir, id),
		Cmd:   []string{"xfs_quota", "-x", "-c", "project -s -p " + dir + " " + id, path.Clean(s.MountPoint)}, Seconds: 3600,
	}, nil
}

// Off is the refusal for a kind without accounting, with the remedy.
func Off(s *design.Service, kind string) error {
	code := "quota-off"
	if slices.ContainsFunc(synonyms[kind], func(o string) bool { return slices.Contains(s.MountOpts, o) }) {
		code = "quota-not-mounted"
	}
	return resource.Refuse(code, resource.With{"service": s.Name, "kind": kind, "option": option(kind)})
}
