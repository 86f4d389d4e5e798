package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/host/sshtest"
	"github.com/mortarhpc/mortar/internal/run/drift"
	"github.com/mortarhpc/mortar/internal/run/events"
)

// silent is a host that accepts connections and says nothing.
func silent(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// wall is two bricks; server nfs1 of the second one hangs.
func wall(t *testing.T) (one, two string) {
	s := sshtest.Start(t)
	a := newSite(t, s, nil)
	b := newSite(t, s, func(text string) string { return strings.Replace(text, "name: brick1", "name: brick2", 1) })
	b.hosts[0]["port"] = silent(t)
	b.brick = "brick2"
	b.inventory(t)
	return a.spec, b.spec
}

// A host that hangs costs its own row of several bricks: events, status and plan --drift.
func TestWallOfBricks(t *testing.T) {
	one, two := wall(t)
	silent := map[string]bool{}
	_, out, _ := mortar(t, "events", one, two, "--json", "--timeout", "3s")
	for line := range strings.Lines(out) {
		var n events.Note
		if json.Unmarshal([]byte(line), &n) == nil && strings.Contains(n.Error, "no answer from sshd within") {
			silent[n.Brick+"/"+n.Host] = true
		}
	}
	if len(silent) != 1 || !silent["brick2/nfs1"] {
		t.Errorf("events: %v\n%s", silent, out)
	}
	_, out, _ = mortar(t, "status", one, two, "--json", "--timeout", "4s")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "2 of 2 answer") || !strings.Contains(lines[1], "1 of 2 answer") || !strings.Contains(lines[1], "no answer from sshd within") {
		t.Errorf("status:\n%s", out)
	}
}

// watch shows each brick, also one with a host that hangs.
func TestWatchWall(t *testing.T) {
	one, two := wall(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		root := newRootCmd()
		root.SetOut(io.Discard)
		_ = execute(ctx, root, []string{"watch", one, two, "--listen", at, "--interval", "1s", "--timeout", "4s"})
	})
	defer wg.Wait()
	defer stop()
	var page string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		r, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			continue
		}
		b, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		page = string(b)
		if err == nil && strings.Contains(page, `brick="brick1"`) && strings.Contains(page, `brick="brick2"`) && strings.Contains(page, "nfs1") {
			return
		}
	}
	t.Errorf("the page never showed both bricks:\n%s", page)
}

// plan --drift compares its bricks at the same time: here each brick's host answers only
// once the other one has been called.
func TestDriftTogether(t *testing.T) {
	s := sshtest.Start(t)
	var called sync.WaitGroup
	var specs []string
	for _, name := range []string{"brick1", "brick2"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		called.Add(1)
		first := sync.OnceFunc(called.Done)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				first()
				go func() { called.Wait(); _ = c.Close() }()
			}
		}()
		x := newSite(t, s, func(text string) string { return strings.Replace(text, "name: brick1", "name: "+name, 1) })
		x.brick, x.hosts[0]["port"] = name, l.Addr().(*net.TCPAddr).Port
		x.inventory(t)
		specs = append(specs, x.spec)
	}
	file := filepath.Join(t.TempDir(), "metrics.prom")
	code, out, _ := mortar(t, append([]string{"plan", "--drift", "--json", "--textfile", file}, specs...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitBadInput || len(lines) != 2 {
		t.Fatalf("%d\n%s", code, out)
	}
	for i, line := range lines {
		var d drift.Drift
		if err := json.Unmarshal([]byte(line), &d); err != nil || d.Spec != specs[i] || !strings.Contains(d.Error, "nfs1") || strings.Contains(d.Error, "no answer") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
