package failover

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	indoubt "github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/test/example"
)

// keepers are servers with a file in /run/mortar: doubt-home.json, or what called says.
type keepers struct {
	Hosts
	files  map[string]string // by server
	called string
}

func (k keepers) Session(name string) *host.Session {
	return hosttest.Play(func(_ context.Context, on, op string, params, result any) error {
		text, there := k.files[on]
		switch params.(type) {
		case agent.QueryParams:
			out := "ocf-home.log\n"
			if there {
				out += cmp.Or(k.called, "doubt-home.json") + "\n"
			}
			return hosttest.Answer(result, resource.Output{Stdout: out})
		case agent.ReadParams:
			return hosttest.Answer(result, agent.ReadResult{Content: []byte(text)})
		}
		return errors.New(op)
	}).Session(name)
}

func TestInDoubt(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	doubt := func(at string) string {
		return `{"service": "home", "at": "` + at + `", "arrays": [{"name": "r0", "uuid": "u", "events": 9, "blocks": [4096]}]}`
	}
	for _, c := range []struct {
		name, situation string
		files           map[string]string
		node, fault     string
	}{
		{"nobody has refused", "healthy", nil, "", ""},
		{"one has", "healthy", map[string]string{"nfs1": doubt("2026-11-26T12:00:00Z")}, "nfs1", ""},
		{"the newer one counts", "healthy", map[string]string{"nfs1": doubt("2026-11-26T12:00:00Z"), "nfs2": doubt("2026-11-26T12:00:01Z")}, "nfs2", ""},
		{"a complete one counts more", "healthy", map[string]string{"nfs1": doubt("2026-11-26T12:00:00Z"), "nfs2": strings.Replace(doubt("2026-11-26T12:00:01Z"), `"blocks"`, `"remaining_bytes": 9, "blocks"`, 1)}, "nfs1", ""},
		{"one that could not start it does not", "standby", map[string]string{"nfs1": doubt("2026-11-26T12:00:00Z")}, "", ""},
		{"half a file", "healthy", map[string]string{"nfs2": doubt("2026-11-26T12:00:00Z")[:60]}, "", "nfs2: /run/mortar/doubt-home.json: "},
	} {
		r, err := InDoubt(t.Context(), d, facts(t, c.situation, nil), keepers{files: c.files}, "")
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)), c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.node == "" && r != nil, c.node != "" && (r == nil || r.Node != c.node || string(r.raw) != c.files[c.node] || r.Doubt.Arrays[0].Blocks[0] != 4096):
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// What a start has written down of the doubt that a person accepted is added to it; a list of
// another crash is not. Of a service that runs the newest list is shown.
func TestNameDoubt(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	named := func(at, path string) string {
		return `{"service": "home", "at": "` + at + `", "arrays": [{"name": "r0", "uuid": "u", "events": 9, "blocks": [4096]}], "owners": {"files": [{"inode": 5, "path": "` + path + `"}]}}`
	}
	const first, second = "2026-11-26T12:00:00Z", "2026-11-27T12:00:00Z"
	accepted := func(at string, blocks ...int64) *indoubt.Doubt {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		return &indoubt.Doubt{Service: "home", At: when, Arrays: []indoubt.ArrayInDoubt{{Name: "r0", Blocks: blocks}}}
	}
	for _, c := range []struct {
		name     string
		accepted *indoubt.Doubt
		files    map[string]string
		path     string // of the only file; "": no list
		why      string
	}{
		{"the server that started it", accepted(first, 4096), map[string]string{"nfs2": named(first, "/a")}, "/a", ""},
		{"a list of another crash", accepted(second, 4096), map[string]string{"nfs1": named(first, "/a")}, "", "no server that answers"},
		{"both have one", accepted(first, 4096), map[string]string{"nfs1": named(second, "/b"), "nfs2": named(first, "/a")}, "/a", ""},
		{"half a file", accepted(first, 4096), map[string]string{"nfs1": named(first, "/a")[:40]}, "", "nfs1: /run/mortar/named-home.json: "},
		{"any block", accepted(first), nil, "", "any block may be wrong"},
		{"the service runs", nil, map[string]string{"nfs1": named(first, "/a"), "nfs2": named(second, "/b")}, "/b", ""},
		{"the service runs, and nothing was accepted", nil, nil, "", ""},
	} {
		p := &Plan{Service: "home", Doubt: c.accepted}
		NameDoubt(t.Context(), d, facts(t, "healthy", nil), keepers{files: c.files, called: "named-home.json"}, p)
		switch {
		case c.path != "" && (p.Doubt == nil || p.Doubt.Owners == nil || p.Doubt.Owners.Files[0].Path != c.path),
			c.path == "" && c.accepted != nil && (p.Doubt.Owners != nil || !strings.Contains(p.Doubt.Unnamed, c.why)),
			c.path == "" && c.accepted == nil && p.Doubt != nil:
			t.Errorf("%s: %+v", c.name, p.Doubt)
		}
	}
}

// clients answer lfs fid2path as Lustre 2.17.57 does.
type clients struct {
	Hosts
	paths map[string]string // by FID
}

func (c clients) Session(name string) *host.Session {
	return hosttest.Play(func(ctx context.Context, on, _ string, params, result any) error {
		if on == "off" {
			return errors.New("no route to host")
		}
		if on == "hangs" {
			<-ctx.Done()
			return ctx.Err()
		}
		if _, mounts := params.(agent.ReadParams); mounts {
			text := "10.0.0.1@tcp:/small /mnt/small lustre rw 0 0\n"
			if on == "unmounted" {
				text = ""
			}
			return hosttest.Answer(result, map[string][]byte{"content": []byte(text)})
		}
		argv := params.(agent.QueryParams).Argv
		fid := argv[len(argv)-1]
		if p := c.paths[fid]; p != "" {
			return hosttest.Answer(result, resource.Output{Stdout: p + "\n"})
		}
		if fid == "[0x200000404:0x1:0x0]" {
			return hosttest.Answer(result, resource.Output{Code: 19, Stderr: "lfs fid2path: cannot find /mnt/small " + fid + ": No such device\n"})
		}
		return hosttest.Answer(result, resource.Output{Code: 2, Stderr: "lfs fid2path: cannot find /mnt/small " + fid + ": No such file or directory\n"})
	}).Session(name)
}

// A client that answers tells the paths of objects' files; a removed file has none.
func TestNameObjects(t *testing.T) { synctest.Test(t, testNameObjects) }

func testNameObjects(t *testing.T) {
	known := map[string]string{"[0x200000401:0x5:0x0]": "/mnt/small/a name", "[0x200000401:0x6:0x0]": "/mnt/small/b\nc"}
	for _, c := range []struct {
		name    string
		clients []string
		fids    []string
		paths   []string
		why     string
	}{
		{"the first that answers", []string{"off", "unmounted", "node02"}, []string{"[0x200000401:0x5:0x0]", "[0x200000401:0x7:0x0]", "", "[0x200000401:0x6:0x0]", "[0x200000401:0x5:0x0]"},
			[]string{"/mnt/small/a name", "", "", "/mnt/small/b\nc", "/mnt/small/a name"}, ""},
		{"all removed", []string{"node02"}, []string{"[0x200000401:0x7:0x0]", "[0x200000401:0x8:0x0]"}, []string{"", ""}, ""},
		{"none answers", []string{"off", "unmounted"}, []string{"[0x200000401:0x5:0x0]"}, []string{""}, "unmounted: /mnt/small is not mounted"},
		{"after one that hangs", []string{"hangs", "node02"}, []string{"[0x200000401:0x5:0x0]"}, []string{"/mnt/small/a name"}, ""},
		{"after one that is unknown", []string{"node02"}, []string{"[0x200000404:0x1:0x0]", "[0x200000401:0x5:0x0]"}, []string{"", "/mnt/small/a name"}, "No such device"},
		{"one of three", []string{"off", "off", "unmounted", "node02"}, []string{"[0x200000401:0x5:0x0]"}, []string{""}, "unmounted: /mnt/small is not mounted"},
		{"no client", nil, []string{"[0x200000401:0x5:0x0]"}, []string{""}, "no client"},
		{"no FID", nil, []string{""}, []string{""}, ""},
	} {
		d, o := &design.Design{}, &indoubt.Owners{}
		for _, name := range c.clients {
			d.Mounts = append(d.Mounts, design.ClientMount{Client: name, Path: "/mnt/small"})
		}
		for _, fid := range c.fids {
			o.Files = append(o.Files, indoubt.FileInDoubt{FID: fid})
		}
		nameObjects(t.Context(), d, clients{paths: known}, o)
		var paths []string
		for _, f := range o.Files {
			paths = append(paths, f.Path)
		}
		if !slices.Equal(paths, c.paths) || !strings.Contains(o.Unsearched, c.why) || c.why == "" && o.Unsearched != "" {
			t.Errorf("%s: %q, %q", c.name, paths, o.Unsearched)
		}
	}
}
