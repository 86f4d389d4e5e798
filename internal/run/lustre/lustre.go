// Package lustre has the procedures for a running Lustre file system: pools, layouts
// of directories, draining an OST, checks. A procedure first queries the servers and
// refuses if it would fail. Then it returns a plan, which package procedure carries
// out.
//
// The package does not build a file system (package plan does), does not judge
// health, and prints nothing.
package lustre

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// Plan and Step are those of package procedure, which carries a plan out.
type (
	Plan = procedure.Plan
	Step = procedure.Step
)

// command makes a step of one command, and the step reports its output. The command may take so
// many seconds; 0: the default.
func command(host, title string, seconds int, argv ...string) Step {
	return Step{Title: title, On: host, Action: &resource.Action{Title: title, Cmd: argv, Seconds: seconds},
		Judge: func(out resource.Output) (string, error) { return strings.TrimSpace(out.Stdout), nil }}
}

// Grace is how long a step may take that puts a service back after an interrupt.
const Grace = 2 * settleTime * time.Second

// FS is a running file system.
type FS struct {
	d     *design.Design
	hosts host.ByName
	// at maps Lustre devices (MGS, testfs-MDT0000, testfs-OST0000) to their
	// servers.
	at map[string]string
	// silent has the errors of servers that do not answer.
	silent host.Errors
}

// Open asks every server for its Lustre devices. Silent servers are no error; the
// procedures refuse if they need one.
//
// Source: lctl(8), device_list
func Open(ctx context.Context, d *design.Design, hosts host.ByName) (*FS, error) {
	if d.Lustre == nil {
		return nil, resource.Refuse("brick-no-lustre", resource.With{"brick": d.Name})
	}
	f := &FS{d: d, hosts: hosts, at: map[string]string{}}
	all, silent := host.All(ctx, d.Servers(), func(ctx context.Context, name string) (resource.Output, error) {
		return hosts(name).Query(ctx, "lctl", "dl")
	})
	f.silent = silent
	for name, out := range all {
		for _, dev := range devices(out.Stdout) {
			f.at[dev] = name
		}
	}
	return f, ctx.Err()
}

// With connects to the file system of a spec, and keeps apply out meanwhile.
func With(ctx context.Context, c *cli.Console, file string, timeout time.Duration, dryRun bool, use func(procedure.Hosts, *FS) error) error {
	return c.WithServers(ctx, file, timeout, dryRun, func(d *design.Design, hosts *observe.Collector) error {
		fs, err := Open(ctx, d, hosts.Session)
		if err != nil {
			return cli.Fail(cli.BadInput, err)
		}
		return use(hosts, fs)
	})
}

// devices returns the names of targets in the output of `lctl dl`, whose lines have
// index, state, type, name, UUID and a count.
func devices(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) > 4 && w[1] == "UP" && slices.Contains([]string{"mgs", "mdt", "obdfilter"}, w[2]) {
			out = append(out, w[3])
		}
	}
	return out
}

// server returns the server of a Lustre device.
func (f *FS) server(device string) (string, error) {
	if s := f.at[device]; s != "" {
		return s, nil
	}
	if len(f.silent) > 0 {
		return "", resource.Refuse("lustre-device-unknown", resource.With{"device": device, "error": f.silent})
	}
	return "", resource.Refuse("lustre-device-stopped", resource.With{"device": device})
}

// client returns the first client that answers and has the file system mounted, and
// the mount point.
func (f *FS) client(ctx context.Context) (name, mount string, err error) {
	var last error
	for _, m := range f.d.Mounts {
		out, err := f.query(ctx, m.Client, "lfs", "df", "-N", "--output=source", m.Path)
		if err == nil && out != "" {
			return m.Client, m.Path, nil
		}
		last = err
	}
	return "", "", resource.Refuse("lustre-no-client", resource.With{"error": last})
}

// query runs a query on a host; a non-zero exit code is an error.
func (f *FS) query(ctx context.Context, host string, argv ...string) (string, error) {
	text, err := f.hosts(host).Text(ctx, argv...)
	if err != nil {
		err = fmt.Errorf("%s: %w", host, err)
	}
	return text, err
}

// askMDS runs a query on the server of the first MDT.
func (f *FS) askMDS(ctx context.Context, argv ...string) (text, server string, err error) {
	if server, err = f.server(f.mdt()); err == nil {
		text, err = f.query(ctx, server, argv...)
	}
	return text, server, err
}

// ost finds an OST of the design by its index, its hexadecimal name (OST000a) or its
// full name.
func (f *FS) ost(word string) (design.Target, error) {
	return f.choose(word, "OST", func(t design.Target, short string) (kind, named bool) {
		return t.Kind == "ost", slices.Contains([]string{t.Name, short, strings.ToLower(short), fmt.Sprint(t.Index)}, word)
	})
}

// choose finds the target of a kind that word names. is reports whether a target is
// of that kind and has that name; short is its name without the file system's.
func (f *FS) choose(word, what string, is func(t design.Target, short string) (kind, named bool)) (design.Target, error) {
	var names []string
	for _, p := range f.d.Pairs {
		for _, t := range p.Targets() {
			short := strings.TrimPrefix(t.Name, f.d.Lustre.FSName+"-")
			kind, named := is(t, short)
			switch {
			case kind && named:
				return t, nil
			case kind:
				names = append(names, short)
			}
		}
	}
	return design.Target{}, resource.Refuse("target-no-such", resource.With{"word": word, "what": what, "fs": f.d.Lustre.FSName, "targets": names})
}
