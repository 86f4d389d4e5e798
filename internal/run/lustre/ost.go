package lustre

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Usage is how full a target is.
type Usage struct {
	Target string `json:"target"` // small-OST0000
	KiB    int64  `json:"kib"`
	Used   int64  `json:"used_kib"`
	Free   int64  `json:"free_kib"` // for users
	Inodes int64  `json:"inodes"`
	IUsed  int64  `json:"inodes_used"`
	// Creates: the target gets new files; always true for an MDT.
	Creates bool `json:"creates"`
	// Unread is why there are no numbers: what lfs says of the target, if that is not
	// understood.
	Unread string `json:"unread,omitempty"`
}

// Percent is the used share of the space in percent, as df(1) computes it.
func (u Usage) Percent() float64 { return 100 * float64(u.Used) / float64(max(u.Used+u.Free, 1)) }

// createCount is the name of the parameter for how many objects an MDT preallocates
// on an OST at a time: with 0 the OST gets no new files. allOn is Lustre's default.
//
// Source: lfs_migrate(1); lustre-release, lustre/include/lustre/lustre_idl.h, OST_MAX_PRECREATE
func (f *FS) createCount(t design.Target) string {
	return fmt.Sprintf("osp.%s-osc-MDT*.max_create_count", t.Name)
}

const allOn = 20000

// Balance returns the usage of all targets.
//
// Source: lfs-df(1); recorded with Lustre 2.17.57
func (f *FS) Balance(ctx context.Context) ([]Usage, error) {
	client, mount, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	text, err := f.query(ctx, client, "lfs", "df", "-N", "--output=source,size,used,avail,itotal,iused", mount)
	if err != nil {
		return nil, err
	}
	all := parseUsage(text)
	for _, t := range f.d.Targets() {
		if t.Kind != "mgs" && !slices.ContainsFunc(all, func(u Usage) bool { return u.Target == t.Name }) {
			all = append(all, Usage{Target: t.Name, Unread: "lfs df does not list it"})
		}
	}
	params, _, err := f.askMDS(ctx, "lctl", "get_param", "osp.*.max_create_count")
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Creates = creates(params, all[i].Target)
	}
	return all, nil
}

// parseUsage reads lines of source, size, used, avail, itotal and iused. A line that is
// not understood is a target without numbers; those before the first target are a banner.
func parseUsage(text string) []Usage {
	var out []Usage
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		w := strings.Fields(line)
		if len(w) == 0 || len(out) == 0 && !strings.Contains(w[0], "_UUID") && !strings.Contains(line, "-OST") && !strings.Contains(line, "-MDT") {
			continue
		}
		u := Usage{Target: strings.TrimSuffix(strings.TrimSuffix(w[0], ":"), "_UUID")}
		for i, p := range []*int64{&u.KiB, &u.Used, &u.Free, &u.Inodes, &u.IUsed} {
			if i+1 < len(w) {
				var err error
				if *p, err = strconv.ParseInt(w[i+1], 10, 64); err == nil {
					continue
				}
			}
			u = Usage{Target: u.Target, Unread: line}
			break
		}
		out = append(out, u)
	}
	return out
}

// creates looks for a create count of 0 among lines like
// osp.small-OST0000-osc-MDT0000.max_create_count=20000.
func creates(params, target string) bool {
	for line := range strings.Lines(params) {
		if strings.HasPrefix(line, "osp."+target+"-osc-") && strings.HasSuffix(strings.TrimSpace(line), "=0") {
			return false
		}
	}
	return true
}

// Drain plans to give an OST no new files and to move its files to other OSTs.
func (f *FS) Drain(ctx context.Context, word string) (*Plan, error) {
	t, err := f.ost(word)
	if err != nil {
		return nil, err
	}
	all, err := f.Balance(ctx)
	if err != nil {
		return nil, err
	}
	var used, free int64
	open := 0
	for _, u := range all {
		switch {
		case u.Target == t.Name && u.Unread != "":
			return nil, resource.Refuse("ost-unread", resource.With{"ost": t.Name, "unread": u.Unread})
		case u.Target == t.Name:
			used = u.Used
		case strings.Contains(u.Target, "-OST") && u.Creates:
			free, open = free+u.Free, open+1
		}
	}
	switch {
	case open == 0:
		return nil, resource.Refuse("ost-last", nil)
	case used > free:
		return nil, resource.Refuse("ost-no-room", resource.With{"ost": t.Name, "holds_gib": used >> 20, "free_gib": free >> 20})
	}
	server, err := f.server(f.mdt())
	if err != nil {
		return nil, err
	}
	client, mount, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	return &Plan{What: "drain " + t.Name, Steps: []Step{
		command(server, "no new files on "+t.Name, 0, "lctl", "set_param", f.createCount(t)+"=0"),
		{Title: "move its files to other OSTs", On: client, Work: func(ctx context.Context, say func(string)) error {
			return f.moveFiles(ctx, client, mount, t, say)
		}},
	}, Notes: []string{
		"applications that use a file wait while it is moved; files on several OSTs keep their layout where enough OSTs are left",
		"the MDS forgets that the OST is closed when it fails over; `mortar lustre ost fill` opens it again",
	}}, nil
}

// batch is how many files one command moves; each command gives one event of
// progress.
const batch = 100

// moveFiles moves the files with an object on an OST, until none is left. If a pass
// over all files moved none, it returns an error that names one of them.
func (f *FS) moveFiles(ctx context.Context, client, mount string, t design.Target, say func(string)) error {
	before := -1
	for {
		names, err := f.filesOn(ctx, client, mount, t)
		switch {
		case err != nil:
			return err
		case len(names) == 0:
			return nil
		case len(names) == before:
			return fmt.Errorf("%d files stay on %s, e.g. %s: lfs migrate moved none of them", len(names), t.Name, names[0])
		}
		before = len(names)
		var last error
		for len(names) > 0 {
			say(fmt.Sprintf("%d files left", len(names)))
			n := min(batch, len(names))
			var list bytes.Buffer
			for _, name := range names[:n] {
				list.WriteString(name + "\x00")
			}
			names = names[n:]
			if _, last = f.hosts(client).Run(ctx, resource.Action{
				Title: fmt.Sprintf("move %d files off %s", n, t.Name), Cmd: []string{"lfs", "migrate", "--block", "--null"}, Stdin: list.Bytes(), Seconds: 6 * 3600,
			}); last != nil {
				if ctx.Err() != nil {
					return last
				}
				say(last.Error())
			}
		}
	}
}

// filesOn returns the files with an object on an OST.
// Source: lfs-find(1)
func (f *FS) filesOn(ctx context.Context, client, mount string, t design.Target) ([]string, error) {
	text, err := f.query(ctx, client, "lfs", "find", mount, "--ost", strconv.Itoa(t.Index), "--type", "f", "--print0")
	if err != nil {
		return nil, err
	}
	var out []string
	for name := range strings.SplitSeq(text, "\x00") {
		if name = strings.TrimPrefix(name, "\n"); name != "" {
			out = append(out, name)
		}
	}
	return out, nil
}

// Fill plans to give an OST new files again.
func (f *FS) Fill(ctx context.Context, word string) (*Plan, error) {
	t, err := f.ost(word)
	if err != nil {
		return nil, err
	}
	if _, err := f.server(t.Name); err != nil {
		return nil, err
	}
	params, server, err := f.askMDS(ctx, "lctl", "get_param", "osp.*.max_create_count")
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "fill " + t.Name}
	if creates(params, t.Name) {
		p.Nothing = t.Name + " gets new files already"
		return p, nil
	}
	p.Steps = []Step{command(server, "new files on "+t.Name+" again", 0, "lctl", "set_param", fmt.Sprintf("%s=%d", f.createCount(t), allOn))}
	return p, nil
}

// Retire plans to disable an OST without files permanently: no MDS gives it new
// files, even after a failover, and clients stop using it.
//
// Source: Lustre Operations Manual, 14.9.3 (removing an OST)
func (f *FS) Retire(ctx context.Context, word string) (*Plan, error) {
	t, err := f.ost(word)
	if err != nil {
		return nil, err
	}
	client, mount, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	names, err := f.filesOn(ctx, client, mount, t)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		return nil, resource.Refuse("ost-in-use", resource.With{"ost": t.Name, "files": len(names), "example": names[0]})
	}
	pools, err := f.Pools(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pools {
		if slices.Contains(p.OSTs, t.Name) {
			return nil, resource.Refuse("ost-in-pool", resource.With{"ost": t.Name, "pool": p.Name})
		}
	}
	server, err := f.server("MGS")
	if err != nil {
		return nil, err
	}
	return &Plan{What: "retire " + t.Name, Steps: []Step{
		command(server, "no new files on "+t.Name+", for good", 300, "lctl", "set_param", "-P", f.createCount(t)+"=0"),
		command(server, "clients stop asking "+t.Name, 300, "lctl", "set_param", "-P", "osc."+t.Name+"-*.active=0"),
	}, Notes: []string{t.Name + " stays mounted and in the spec, so that the indices of the other OSTs stay"}}, nil
}
