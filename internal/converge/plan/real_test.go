package plan

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// realHost is this machine behind a real agent; cut ends the session as the
// death of the administrator's machine would.
func realHost(t *testing.T) (h *host.Session, cut func()) {
	t.Helper()
	reqR, reqW := io.Pipe()
	respR, respW := io.Pipe()
	served := make(chan struct{})
	go func() {
		_ = agent.Serve(context.Background(), reqR, respW, agent.Core(""))
		close(served)
	}()
	cut = func() {
		_ = reqW.Close()
		_ = respR.Close()
		<-served
	}
	t.Cleanup(cut)
	return host.New("here", agent.NewClient(respR, reqW)), cut
}

// Real files on this machine, through a real agent whose session dies after
// each action in turn: the next apply finishes, and one more changes nothing.
func TestResumeWithRealAgent(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: the agent cannot lock the host")
		return
	}
	for kill := 1; ; kill++ {
		dir := t.TempDir()
		p := func(n string) string { return filepath.Join(dir, n) }
		var steps []Step
		for _, r := range []resource.Resource{
			&resource.Directory{Path: p("d"), Mode: 0o700},
			&resource.TextFile{Path: p("d/secret"), Content: []byte("hunter2\n"), Mode: 0o600, Secret: true},
			&resource.TextFile{Path: p("conf"), Content: []byte("a = 1\n"), Mode: 0o644},
			&resource.Symlink{Path: p("link"), Target: p("conf")},
		} {
			steps = append(steps, Step{Stage: "files", Title: "a file", Host: "here", Resource: r})
		}
		h, cut := realHost(t)
		hosts := map[string]*host.Session{"here": h}
		killed := false
		_, err := mustBuild(t, steps, hosts).Apply(t.Context(), hosts, ApplyOptions{AfterAction: func(n int) {
			if n == kill {
				killed = true
				cut()
			}
		}})
		if killed && !errors.Is(err, agent.ErrLost) || !killed && err != nil {
			t.Fatalf("killed after %d: %v", kill, err)
		}
		h, cut = realHost(t)
		hosts["here"] = h
		if _, err := mustBuild(t, steps, hosts).Apply(t.Context(), hosts, ApplyOptions{}); err != nil {
			t.Fatalf("killed after %d: %v", kill, err)
		}
		if n := len(mustBuild(t, steps, hosts).Pending()); n != 0 {
			t.Errorf("killed after %d: %d still pending", kill, n)
		}
		if b, err := os.ReadFile(p("link")); err != nil || string(b) != "a = 1\n" {
			t.Errorf("%q %v", b, err)
		}
		if fi, err := os.Stat(p("d/secret")); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", fi, err)
		}
		cut()
		if !killed {
			if kill < len(steps) {
				t.Errorf("only %d actions", kill-1)
			}
			return
		}
	}
}
