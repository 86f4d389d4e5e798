package ocf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

const testFSID = "5d1f7f66-63a4-4f5c-9d25-5f9d3b6f8a01"

// changed is a configuration in which one export is new, one has other options
// and one is gone.
func changed(c *Config) *Config {
	c.Exports = []nfs.Export{
		{Dir: "/srv/home/data", Clients: "10.0.0.0/24", FSID: testFSID, Options: []string{"ro", "sync"}},
		{Dir: "/srv/home/new", Clients: "10.0.0.0/24", FSID: "5d1f7f66-63a4-4f5c-9d25-5f9d3b6f8a02", Options: []string{"rw", "sync"}},
	}
	return c
}

func before(c *Config) *Config {
	c.Exports = []nfs.Export{
		{Dir: "/srv/home/data", Clients: "10.0.0.0/24", FSID: testFSID, Options: []string{"rw", "sync"}},
		{Dir: "/srv/home/old", Clients: "10.0.0.0/24", FSID: "5d1f7f66-63a4-4f5c-9d25-5f9d3b6f8a03", Options: []string{"rw", "sync"}},
	}
	return c
}

// serve starts a service, as far as the first monitor.
func serve(t *testing.T, h *fakeHost, c *Config) {
	t.Helper()
	s := h.service(c)
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if st, err := s.monitor(context.Background()); err != nil || st != unit.Running {
		t.Fatalf("state %d, %v", st, err)
	}
}

// The configuration of a running service changes: a monitor brings the table in
// line and finds no fault, whether one export stays or none does, also if an
// action was killed anywhere before.
func TestExportsChangeInPlace(t *testing.T) { flavours(t, testExportsChangeInPlaceIn) }

func testExportsChangeInPlaceIn(t *testing.T, cfg func() *Config) {
	ctx := context.Background()
	for name, now := range map[string]*Config{"some": changed(cfg()), "all": cfg()} {
		t.Run(name, func(t *testing.T) {
			for kill := 0; ; kill++ {
				sh := newShared(t)
				h := sh.hosts["nfs1"]
				serve(t, h, before(cfg()))
				was, n := sh.volume["/.nfs/etab"], len(h.changes)
				if kill > 0 {
					h.failAt = n + kill
				}
				err := h.service(now).kind.Change(ctx)
				h.failAt = 0
				if kill > 0 && err == nil {
					break // it has fewer changes
				}
				if kill == 0 && (err != nil || h.mountd != sh.volume["/.nfs/etab"]) {
					t.Errorf("%v; rpc.mountd has %q", err, h.mountd)
				}
				table := nfs.ParseETab(sh.volume["/.nfs/etab"])
				if sh.volume["/.nfs/etab"] != was && len(nfs.CompareExports(table, now.Exports)) > 0 {
					t.Errorf("killed at %d: table %v is neither old nor new", kill, table)
				}
				s := h.service(now)
				if st, err := s.monitor(ctx); err != nil || st != unit.Running {
					t.Fatalf("killed at %d: state %d, %v", kill, st, err)
				}
				if d := nfs.CompareExports(nfs.ParseETab(sh.volume["/.nfs/etab"]), now.Exports); len(d) > 0 {
					t.Fatalf("killed at %d: %v", kill, d)
				}
				if h.mountd != sh.volume["/.nfs/etab"] {
					t.Errorf("killed at %d: the kernel was not told of the table", kill)
				}
				for _, c := range h.changes[n:] {
					if !strings.HasPrefix(c, "exportfs") && !strings.Contains(c, "etab") && !strings.Contains(c, "/run/mortar/exports-home") {
						t.Errorf("killed at %d: %s", kill, c)
					}
				}
				n = len(h.changes)
				if st, err := s.monitor(ctx); err != nil || st != unit.Running || len(h.changes) > n {
					t.Errorf("a second monitor: state %d, %v, %q", st, err, h.changes[n:])
				}
				if err := s.stop(ctx); err != nil || h.left() != "" {
					t.Fatalf("stop: %v, left %s", err, h.left())
				}
			}
		})
	}
}

// What cannot be exported leaves all as it is, and the service where it is, as
// long as clients are served; without any export that is left it is a fault.
func TestExportsThatCannotChange(t *testing.T) { flavours(t, testExportsThatCannotChangeIn) }

func testExportsThatCannotChangeIn(t *testing.T, cfg func() *Config) {
	ctx := context.Background()
	named := func(c *Config) *Config {
		c = changed(c)
		c.Exports[1].Clients = "@nobody"
		return c
	}
	for name, tc := range map[string]struct {
		cfg   *Config
		fault func(*shared, *fakeHost)
		want  string
	}{
		"client":      {named(cfg()), func(_ *shared, h *fakeHost) { h.badClient = "@nobody" }, "exportfs: Failed to resolve @nobody"},
		"full volume": {changed(cfg()), func(sh *shared, _ *fakeHost) { sh.room = 0 }, "make room on /srv/home"},
	} {
		if name == "full volume" && tc.cfg.StateImage != "" {
			continue // the table has room of its own
		}
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			serve(t, h, before(cfg()))
			was := sh.volume["/.nfs/etab"]
			tc.fault(sh, h)
			s := h.service(tc.cfg)
			if err := s.kind.Change(ctx); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if st, err := s.monitor(ctx); err != nil || st != unit.Running {
				t.Errorf("state %d, %v", st, err)
			}
			if got := sh.volume["/.nfs/etab"]; got != was {
				t.Errorf("the table became %q", got)
			}
			sh.volume["/.nfs/etab"] = ""
			if st, err := s.monitor(ctx); err == nil || st != unit.Broken || !strings.Contains(err.Error(), "/srv/home/data is not exported") {
				t.Errorf("without exports: state %d, %v", st, err)
			}
		})
	}
}

// A host name that does not resolve keeps its own export from being served, and no other: the
// service starts, runs, and stays where it is. The watcher exports to the name once it
// resolves.
func TestNameThatDoesNotResolve(t *testing.T) { flavours(t, testNameThatDoesNotResolveIn) }

func testNameThatDoesNotResolveIn(t *testing.T, config func() *Config) {
	ctx := context.Background()
	const name = "build7.example.org"
	for how, fault := range map[string]func(h *fakeHost, name string){
		"exportfs says so":      func(h *fakeHost, name string) { h.badClient = name },
		"exportfs says nothing": func(h *fakeHost, name string) { h.lax = name }, // a resolver that is dead
	} {
		for alone, exports := range map[string][]nfs.Export{
			"beside another export": changed(config()).Exports,
			"alone":                 changed(config()).Exports[1:],
		} {
			t.Run(how+", "+alone, func(t *testing.T) {
				sh := newShared(t)
				h := sh.hosts["nfs1"]
				cfg := config()
				cfg.Exports = exports
				cfg.Exports[len(exports)-1].Clients = name
				fault(h, name)
				s := h.service(cfg)
				if err := s.start(ctx); err != nil {
					t.Fatal(err)
				}
				if st, err := s.monitor(ctx); st != unit.Running || err != nil {
					t.Errorf("state %d, %v", st, err)
				}
				if err := s.kind.Change(ctx); !errors.As(err, new(nfs.Unresolved)) || !strings.Contains(err.Error(), name) {
					t.Errorf("apply is told: %v", err)
				}
				table := func() int { return len(nfs.ParseETab(sh.volume["/.nfs/etab"])) }
				if table() != len(exports)-1 {
					t.Errorf("table %q", sh.volume["/.nfs/etab"])
				}
				w := h.watcher(s)
				var said []string
				w.record = func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) }
				look := func() {
					h.clock = h.clock.Add(30 * time.Second)
					w.reacts(ctx, s, "nfs")
				}
				look()
				if len(said) > 0 || table() != len(exports)-1 {
					t.Errorf("it still does not resolve: %q, table %q", said, sh.volume["/.nfs/etab"])
				}
				fault(h, "")
				w.reacts(ctx, s, "nfs") // too early
				if table() != len(exports)-1 {
					t.Error("the watcher tries at each look")
				}
				look()
				if len(said) != 1 || table() != len(exports) || h.mountd != sh.volume["/.nfs/etab"] {
					t.Errorf("it resolves: %q, table %q", said, sh.volume["/.nfs/etab"])
				}
				n := len(h.changes)
				look()
				if len(h.changes) > n {
					t.Errorf("and all is well: %q", h.changes[n:])
				}
				if err := s.stop(ctx); err != nil || h.left() != "" {
					t.Errorf("%v, left %s", err, h.left())
				}
			})
		}
	}
}

// deadResolver is a host whose exportfs waits for as long as it may for each name.
type deadResolver struct {
	*fakeHost
	waiting atomic.Int32
}

func (d *deadResolver) Run(ctx context.Context, c kernel.Command) (string, error) {
	if c.Argv[0] != "exportfs" || !strings.Contains(strings.Join(c.Argv, " "), ".example.org") {
		return d.fakeHost.Run(ctx, c)
	}
	if _, ok := ctx.Deadline(); !ok {
		d.t.Error("exportfs may wait for ever")
		return "", nil
	}
	for d.waiting.Add(1); d.waiting.Load() < 3; { // until all wait, side by side
		runtime.Gosched()
	}
	return "", context.DeadlineExceeded
}

// A resolver that answers nothing is waited for once for all names.
func TestNamesAreResolvedSideBySide(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	cfg := testConfig()
	for i := range 3 {
		e := cfg.Exports[0]
		e.Clients = fmt.Sprintf("build%d.example.org", i)
		cfg.Exports = append(cfg.Exports, e)
	}
	s := h.service(cfg)
	nfsOf(s).In = &deadResolver{fakeHost: h}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Beside another fault exports are left alone, as those of a service that does
// not run here.
func TestExportsOfOthers(t *testing.T) {
	ctx := context.Background()
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	serve(t, h, before(testConfig()))
	h.nfsd = 0
	n := len(h.changes)
	s := h.service(changed(testConfig()))
	if st, err := s.monitor(ctx); st != unit.Broken || err == nil {
		t.Errorf("without nfsd: state %d, %v", st, err)
	}
	for _, host := range []*fakeHost{h, sh.hosts["nfs2"]} {
		if err := host.service(changed(testConfig())).kind.Change(ctx); err != nil {
			t.Error(err)
		}
	}
	if len(h.changes) > n || len(sh.hosts["nfs2"].changes) > 0 {
		t.Errorf("changes %q, %q", h.changes[n:], sh.hosts["nfs2"].changes)
	}
}

// The configuration counts as it is once no other action changes the service.
func TestExportsOfTheLatestConfig(t *testing.T) {
	ctx := context.Background()
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	serve(t, h, before(testConfig()))
	latest := changed(testConfig())
	s := h.service(testConfig()) // read before apply wrote the latest
	s.hold = func(context.Context) (*Config, func(), error) { return latest, func() {}, nil }
	if st, err := s.monitor(ctx); err != nil || st != unit.Running {
		t.Fatalf("state %d, %v", st, err)
	}
	if d := nfs.CompareExports(nfs.ParseETab(sh.volume["/.nfs/etab"]), latest.Exports); len(d) > 0 {
		t.Error(d)
	}
}

// Exports are tried without the volume, on any server, and nothing of the
// service is touched.
func TestTryExports(t *testing.T) { flavours(t, testTryExportsIn) }

func testTryExportsIn(t *testing.T, cfg func() *Config) {
	sh := newShared(t)
	h := sh.hosts["nfs2"]
	if err := h.service(changed(cfg())).kind.Try(context.Background()); err != nil {
		t.Error(err)
	}
	h.badClient = "nobody.invalid"
	c := changed(cfg())
	c.Exports[1].Clients = h.badClient
	if err := h.service(c).kind.Try(context.Background()); err == nil || !strings.Contains(err.Error(), "resolve nobody.invalid") {
		t.Errorf("%v", err)
	}
	h.badClient, h.lax = "", "nobody.invalid" // as nfs-utils 2.8.3: no error, no export
	if err := h.service(c).kind.Try(context.Background()); err == nil || !strings.Contains(err.Error(), "/srv/home/new is not exported to nobody.invalid") {
		t.Errorf("%v", err)
	}
	for _, c := range h.changes {
		if !strings.HasPrefix(c, "exportfs -i ") && !strings.HasPrefix(c, "empty /run/mortar/exports-home.try/") {
			t.Errorf("change %q", c)
		}
	}
}
