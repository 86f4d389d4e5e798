package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// flushServers are two servers with a cache, of which active serves.
type flushServers struct {
	active string
	flush  string                 // the server on which the command waits
	stats  map[string]cache.Stats // by server
	config string                 // of the cache
	mu     sync.Mutex
	ran    []string // commands, each after its server
}

func (p *flushServers) dial(ctx context.Context, name string) (*host.Session, error) {
	mux := agent.Mux{
		"time": func(context.Context, json.RawMessage, func(any)) (any, error) {
			return map[string]int64{"now_ns": 1}, nil
		},
		"hello": func(context.Context, json.RawMessage, func(any)) (any, error) {
			return map[string]string{"os_name": "Debian"}, nil
		},
		"read": func(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) {
			text := "proc /proc proc rw 0 0\n"
			if strings.Contains(string(raw), "cache-home.json") {
				text = p.config
			} else if name == p.active {
				text += "/dev/mapper/b.cached /srv/home xfs rw 0 0\n"
			}
			return map[string][]byte{"content": []byte(text)}, nil
		},
		"query": func(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) {
			var q agent.QueryParams
			if err := json.Unmarshal(raw, &q); err != nil {
				return nil, err
			}
			switch {
			case q.Argv[0] == "systemctl" && p.flush == name:
				return resource.Output{Stdout: "active\n"}, nil
			case q.Argv[0] == "systemctl":
				return resource.Output{Stdout: "inactive\n", Code: 3}, nil
			}
			st, ok := p.stats[name]
			if !ok {
				return nil, errors.New("no route to host")
			}
			b, err := json.Marshal(st)
			return resource.Output{Stdout: string(b)}, err
		},
		"run": func(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) {
			var r agent.RunParams
			if err := json.Unmarshal(raw, &r); err != nil {
				return nil, err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ran = append(p.ran, name+": "+strings.Join(r.Action.Cmd, " "))
			return resource.Output{}, nil
		},
	}
	toAgent, fromUs := io.Pipe()
	toUs, fromAgent := io.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); _ = agent.Serve(context.WithoutCancel(ctx), toAgent, fromAgent, mux) }()
	return host.New(name, session{agent.NewClient(toUs, fromUs), sync.OnceFunc(func() { _ = fromUs.Close(); <-done; _ = fromAgent.Close() })}), nil
}

// flushScene is a pair with a cache.
func flushScene(t *testing.T, mode string) (*design.Design, fault.Scene) {
	d := newPair(t).design()
	s := d.Services()[0]
	s.Storage.Cache = &design.Cache{Mode: mode, SSDs: []design.Disk{{Serial: "A"}, {Serial: "B"}}}
	return d, fault.Scene{Design: d, Service: s, Active: "nfs1", Passive: "nfs2"}
}

// The mirror is full and a flush waits before the service leaves.
func TestCacheFlushMoveSteps(t *testing.T) {
	d, s := flushScene(t, cache.WriteBack)
	all := slices.DeleteFunc(Suits(mustChoose(t), d), func(c Choice) bool { return c.Drill.Name != "cache-flush-move" })
	var got []string
	for _, c := range all {
		steps, err := c.Variant.Steps(s)
		if err != nil {
			t.Fatal(err)
		}
		text, shown := c.Variant.How+":", 0
		for _, st := range steps {
			if f, _ := actOf(st); f.Kind != "" {
				_, before := st.(Prepare)
				text += fmt.Sprintf(" [%s, before %v]", f, before)
				shown--
			}
			if _, ok := st.(Until); ok {
				shown++
			}
		}
		if shown != 0 {
			t.Errorf("%s: %d conditions more than faults", c.Name(), shown)
		}
		got = append(got, text)
	}
	const fill, flush = "[cache-fill nfs1 home /srv/home, before true] ", "[cache-flush nfs1 home "
	want := []string{
		"mode: " + fill + flush + "mode write-through, before true] [move nfs2 home, before false]",
		"off: " + fill + flush + "off, before true] [move nfs2 home, before false]",
		"freeze: " + fill + flush + "mode write-through, before true] [freeze nfs1, before false]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	d, s = flushScene(t, cache.WriteThrough)
	if slices.ContainsFunc(Suits(mustChoose(t), d), func(c Choice) bool { return c.Drill.Name == "cache-flush-move" }) {
		t.Error("a write-through cache has nothing to flush")
	}
	if _, err := flushMove(fault.OffFlush, toPassive)(s); err == nil {
		t.Error("no refusal")
	}
}

// The flush begins as its command does, with the disks held up, and is taken back on the
// server that has the volume then.
func TestCacheFlushFault(t *testing.T) {
	d, s := flushScene(t, cache.WriteBack)
	p := &flushServers{active: "nfs1", stats: map[string]cache.Stats{}}
	c := &cache.Config{Service: "home", VG: "b", LV: "data", Mode: cache.WriteBack, SSDs: []cache.SSD{{Serial: "A"}, {Serial: "B"}}, MirrorBytes: 1 << 20,
		DirtyUUIDs: make([]string, cache.Generations), CleanUUIDs: make([]string, cache.Generations)}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p.config = string(b)
	e := &fault.Site{Scene: fault.Scene{Design: d, Service: s.Service, Active: "nfs1", Passive: "nfs2"}, Env: fault.Env{Dial: p.dial}, Watch: fault.NewWatcher(func(string) {}, nil)}
	defer e.Hosts.Close()
	for _, name := range e.Servers() {
		if _, err := e.Hosts.Connect(t.Context(), e.Env.Dial, name); err != nil {
			t.Fatal(err)
		}
	}
	through := *c
	through.Mode = cache.WriteThrough
	b, err = json.Marshal(through)
	if err != nil {
		t.Fatal(err)
	}
	const file, begin = "/etc/mortar/cache-home.json", "systemd-run --quiet --collect --service-type=exec --unit=mortar-drill-flush.service /usr/local/sbin/mortar host-cache "
	ran := func(want ...string) {
		t.Helper()
		if !slices.Equal(p.ran, want) {
			t.Errorf("ran %q\nwant %q", p.ran, want)
		}
		p.ran = nil
	}
	stall := "nfs1: /usr/local/sbin/mortar host-cache stall " + file
	for command, run := range map[string]string{fault.ModeFlush: "apply " + string(b), fault.OffFlush: "off " + file} {
		f := fault.Fault{Kind: fault.CacheFlush, On: "nfs1", Args: []string{"home", command}}
		if err := e.InjectorOf(f).Inject(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		ran(stall, "nfs1: "+begin+run)
	}

	// The conditions.
	f := fault.Fault{Kind: fault.CacheFlush, On: "nfs1", Args: []string{"home", fault.OffFlush}}
	sees := func(c *fault.Condition, want bool, why string) {
		t.Helper()
		if ok, text := c.Look(t.Context(), e); ok != want {
			t.Errorf("%s: %v: %s", why, ok, text)
		}
	}
	whole := cache.Stats{Up: true, Dirty: 1 << 20, Mirror: cache.Mirror{Members: 2, InSync: []string{"A", "B"}}}
	p.stats["nfs1"] = whole
	sees(flushWaits, false, "the command has ended")
	p.flush = "nfs1"
	sees(flushWaits, true, "it waits")
	sees(flushCut(s, true), false, "the service is still on nfs1")
	p.active, p.stats = "nfs2", map[string]cache.Stats{"nfs2": whole}
	sees(flushCut(s, true), false, "the command still waits")
	sees(flushCut(s, false), true, "its server is off")
	p.flush = ""
	sees(flushCut(s, true), true, "the partner goes on")
	for why, st := range map[string]cache.Stats{
		"the flush has ended": {Up: true}, "a fault": {Up: true, Error: "label", Dirty: 1, Mirror: whole.Mirror}, "one SSD": {Up: true, Dirty: 1, Mirror: cache.Mirror{Members: 2, InSync: []string{"A"}}},
	} {
		p.stats["nfs2"] = st
		sees(flushCut(s, true), false, why)
	}

	if err := e.InjectorOf(f).Heal(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	ran("nfs2: /usr/local/sbin/mortar host-cache apply " + file)
	p.flush, p.active = "nfs1", "nfs1"
	if err := e.InjectorOf(f).Heal(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	ran("nfs1: systemctl stop "+fault.FlushUnit, "nfs1: /usr/local/sbin/mortar host-cache apply "+file)
	p.active = ""
	if err := e.InjectorOf(f).Heal(t.Context(), f); err == nil {
		t.Error("the service runs nowhere, and its cache is healed")
	}
}
