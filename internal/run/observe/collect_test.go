package observe

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// realLine answers with the real handlers, on this machine.
type realLine struct{ closed chan struct{} }

func (realLine) Call(ctx context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	out, err := Handlers()[op](ctx, raw, nil)
	if err != nil {
		return err
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

func (c realLine) Close() { close(c.closed) }

// deafLine never answers, even after the end of its context.
type deafLine chan struct{}

func (d deafLine) Call(context.Context, string, any, any, func(json.RawMessage)) error {
	<-d
	return nil
}

func (deafLine) Close() {}

func TestCollect(t *testing.T) {
	d := theDesign(t)
	closed := make(chan struct{})
	deaf := make(deafLine)
	defer close(deaf)
	c := NewCollector(d, func(ctx context.Context, name string) (*host.Session, error) {
		switch name {
		case "nfs1":
			return host.New(name, realLine{closed}), nil
		case "nfs2":
			return host.New(name, deaf), nil
		}
		return nil, errors.New("no route to host")
	}, time.Second)
	f := c.Collect(t.Context())
	if h := f.Hosts["nfs1"].Host; h == nil || h.Hostname == "" || h.NowNS == 0 || h.Files["/proc/uptime"] == "" {
		t.Errorf("nfs1: %+v", f.Hosts["nfs1"])
	}
	if got := f.Hosts["nfs2"].Err; got != "no answer within 1s" {
		t.Errorf("nfs2: %q", got)
	}
	if got := f.Hosts["c1"].Err; got != "no route to host" {
		t.Errorf("c1: %q", got)
	}
	Judge(d, f) // of this very machine
	c.Close()
	<-closed
}

func TestGather(t *testing.T) {
	pool := &statfsPool{waiting: map[string]time.Time{}}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(comm))
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h := gather(t.Context(), agent.HostSys{}, pool, Request{
		Files: []string{"/proc/self/mounts", "/proc/sys/kernel/ostyp?", "/does/not/exist"}, Links: []string{"/proc/self/exe"},
		Run: [][]string{{"readlink", "-e", dir}, {"no-such-command-here"}, {"tail", "-n", "0", "-F", "/dev/null"}}, FS: []string{"/", "/does/not/exist"},
		Processes: []string{name, "no-such-process"}, Disks: true, CIB: true, TimeoutMS: 500})
	if h.Files["/proc/sys/kernel/ostype"] != "Linux\n" || h.Files["/proc/self/mounts"] == "" {
		t.Errorf("files: %q", h.Files)
	}
	if _, ok := h.Files["/does/not/exist"]; ok {
		t.Error("a file that is not there was read")
	}
	if exe, _ := os.Executable(); h.Links["/proc/self/exe"] != exe {
		t.Errorf("links: %q, want %s", h.Links, exe)
	}
	if r := h.Run["readlink -e "+dir]; r.Stdout != dir+"\n" || r.Err != "" {
		t.Errorf("readlink: %+v", r)
	}
	if r := h.Run["no-such-command-here"]; r.Err == "" {
		t.Errorf("no-such-command-here: %+v", r)
	}
	if r := h.Run["tail -n 0 -F /dev/null"]; r.Err == "" {
		t.Errorf("tail -F: %+v", r)
	}
	if fs := h.FS["/"]; fs.Size == 0 || fs.Err != "" {
		t.Errorf("statfs /: %+v", fs)
	}
	if fs := h.FS["/does/not/exist"]; fs.Err == "" {
		t.Errorf("statfs of nothing: %+v", fs)
	}
	if h.Processes[name] < 1 || h.Processes["no-such-process"] != 0 {
		t.Errorf("processes: %v", h.Processes)
	}
}

// While a statfs hangs, the pool starts no second one for the same path.
func TestStatfsStuck(t *testing.T) {
	p := &statfsPool{waiting: map[string]time.Time{"/hangs": time.Now()}}
	if fs := p.statfs(t.Context(), "/hangs", time.Hour); !fs.TimedOut {
		t.Errorf("%+v", fs)
	}
}

// The host refuses a query that is not on the list of read-only ones. Then status
// would lack its output, so every query must be on the list.
func TestRequestsOnlyRead(t *testing.T) {
	for _, flavour := range []string{"nfs", "nfs-ha", "nfs-ha-xl"} {
		for host, r := range requests(designOf(t, flavour), time.Minute) {
			for _, argv := range r.Run {
				if err := resource.ReadOnly(argv); err != nil {
					t.Errorf("%s: %s: %v", flavour, host, err)
				}
			}
		}
	}
}
