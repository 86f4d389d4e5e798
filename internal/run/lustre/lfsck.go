package lustre

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host"
)

// Check is the result of one part of LFSCK.
type Check struct {
	Part    string `json:"part"`   // namespace or layout
	Status  string `json:"status"` // init, scanning-phase1, completed, ...
	Checked int64  `json:"checked"`
	Found   int64  `json:"found"` // inconsistencies; LFSCK repairs them unless DryRun
	Failed  int64  `json:"failed"`
	Seconds int64  `json:"seconds"`
	DryRun  bool   `json:"dry_run"` // LFSCK repaired nothing
}

// Left is the number of remaining inconsistencies.
func (c Check) Left() int64 {
	if c.DryRun {
		return c.Found // in a dry run LFSCK counts some of them as failures too
	}
	return c.Failed
}

func (c Check) String() string {
	found := fmt.Sprintf("%d inconsistencies repaired, %d left", c.Found, c.Left())
	if c.DryRun {
		found = fmt.Sprintf("%d inconsistencies found, nothing changed", c.Found)
	}
	return fmt.Sprintf("%s: %d checked in %d s, %s", c.Part, c.Checked, c.Seconds, found)
}

// LFSCK plans a check and repair of the running file system: names and their inodes,
// files and their objects on OSTs. With dry it repairs nothing.
//
// Source: lctl-lfsck-start(8)
func (f *FS) LFSCK(dry bool) (*Plan, error) {
	server, err := f.server(f.mdt())
	if err != nil {
		return nil, err
	}
	for _, p := range f.d.Pairs {
		for _, t := range p.Targets() {
			if t.Kind == "ost" {
				if _, err := f.server(t.Name); err != nil {
					return nil, err
				}
			}
		}
	}
	// lctl reads "-n off", with a space, as "-n", and then repairs nothing (2.17.57).
	argv := []string{"lctl", "lfsck_start", "-M", f.mdt(), "-A", "-t", "namespace,layout", "-r", "--dryrun=" + onOff(dry)}
	return &Plan{What: "check the file system (LFSCK)", Steps: []Step{
		command(server, "start LFSCK", 0, argv...),
		{Title: "wait until it has checked everything", On: server, Work: func(ctx context.Context, say func(string)) error {
			return f.waitLFSCK(ctx, dry, say)
		}},
	}, Notes: []string{"the file system goes on meanwhile; `lctl lfsck_stop -M " + f.mdt() + " -A` ends it"}}, nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (f *FS) waitLFSCK(ctx context.Context, dry bool, say func(string)) error {
	return host.Wait{Limit: 30 * 24 * time.Hour, Poll: 2 * time.Second, Seen: say}.Until(ctx, func(ctx context.Context) (string, error) {
		all, _, err := f.Checks(ctx)
		if err != nil {
			return err.Error(), nil // the server may be busy, or have failed over
		}
		var left []string
		for _, c := range all {
			if c.DryRun != dry {
				return "", fmt.Errorf("LFSCK of the %s runs with dryrun %s instead of %s", c.Part, onOff(c.DryRun), onOff(dry))
			}
			switch c.Status {
			case "completed":
			case "init", "scanning-phase1", "scanning-phase2":
				left = append(left, fmt.Sprintf("%s: %s, %d checked", c.Part, c.Status, c.Checked))
			default: // failed, stopped, paused, crashed, partial, co-*
				return "", fmt.Errorf("LFSCK of the %s ended as %q", c.Part, c.Status)
			}
		}
		return strings.Join(left, "; "), nil
	})
}

// Checks returns the results of the last LFSCK, of the first MDT, and its server.
//
// Source: mdd.*.lfsck_namespace and lfsck_layout; recorded with Lustre 2.17.57
func (f *FS) Checks(ctx context.Context) (out []Check, server string, err error) {
	text, server, err := f.askMDS(ctx, "lctl", "get_param", "mdd."+f.mdt()+".lfsck_namespace", "mdd."+f.mdt()+".lfsck_layout")
	if err != nil {
		return nil, server, err
	}
	params := linux.ParseParams(text)
	for _, part := range []string{"namespace", "layout"} {
		k := linux.ParseKeys(params["mdd."+f.mdt()+".lfsck_"+part])
		if k["status"] == "" {
			return nil, server, fmt.Errorf("%s: no status of lfsck_%s", server, part)
		}
		c := Check{Part: part, Status: k["status"], DryRun: slices.Contains(strings.Split(k["param"], ","), "dryrun")}
		for key, v := range k {
			var n int64
			if _, err := fmt.Sscan(v, &n); err != nil {
				if isFinding(key) || strings.HasPrefix(key, "failed_phase") {
					return nil, server, fmt.Errorf("%s: lfsck_%s: %s: %q is no number", server, part, key, v)
				}
				continue
			}
			switch {
			case strings.HasPrefix(key, "checked_phase"):
				c.Checked += n
			case strings.HasPrefix(key, "failed_phase"):
				c.Failed += n
			case strings.HasPrefix(key, "run_time_phase"):
				c.Seconds += n
			case isFinding(key):
				c.Found += n
			}
		}
		out = append(out, c)
	}
	return out, server, nil
}

// isFinding reports whether a counter counts inconsistencies: repaired_dangling,
// nlinks_repaired; in a dry run inconsistent_dangling, nlinks_inconsistent.
func isFinding(key string) bool {
	for _, w := range []string{"repaired", "inconsistent"} {
		if strings.HasPrefix(key, w+"_") || strings.HasSuffix(key, "_"+w) {
			return true
		}
	}
	return false
}
