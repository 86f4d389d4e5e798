package unit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// notes is a host that has files, and a device that is read while reads is set.
type notes struct {
	kernel.Host
	mu    sync.Mutex
	files map[string][]byte
	reads bool
}

func (n *notes) ReadFile(name string) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == "/proc/diskstats" {
		sectors := int64(0)
		if n.reads {
			sectors = time.Now().Unix()
		}
		return fmt.Appendf(nil, " 254 3 dm-3 1 0 %d 0 0 0 0 0 0 0 0 0 0 0 0\n", sectors), nil
	}
	if b, ok := n.files[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (n *notes) Save(name string, b []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files[name] = b
	return nil
}

func (n *notes) Remove(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.files, name)
	return nil
}

// A mount of a quarter of an hour is waited for while it reads, by an action of three minutes;
// one that stands still is given up.
func TestLongPieceHasTime(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := &notes{files: map[string][]byte{}, reads: reads}
			h := &Host{K: n, Service: "home", Log: &Steps{Stderr: io.Discard, Now: time.Now}}
			ctx, cancel := h.Budget(t.Context(), 3*time.Minute)
			defer cancel()
			begun, seen := time.Now(), ""
			err := h.Long("mount /srv/home", h.Moved(func() []string { return []string{"dm-3"} }), func() error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(15 * time.Minute):
					var p Progress
					if err := h.progressNote().Load(&p); err != nil {
						t.Error(err)
					}
					seen = p.String()
					return nil
				}
			})
			took := time.Since(begun)
			switch {
			case reads && (err != nil || !strings.HasPrefix(seen, "mount /srv/home, 900 s, 450 KiB read") && !strings.HasPrefix(seen, "mount /srv/home, 898 s, 449 KiB read")):
				t.Errorf("a mount that gets on: %v after %v, the note was %q", err, took, seen)
			case !reads && (!errors.Is(err, context.DeadlineExceeded) || took < 3*time.Minute || took > 4*time.Minute):
				t.Errorf("a mount that stands still: %v after %v", err, took)
			case h.progressNote().There():
				t.Error("the note stays")
			}
		})
	}
}

// The time after a long piece counts again.
func TestBudgetGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{files: map[string][]byte{}, reads: true}
		h := &Host{K: n, Service: "home", Log: &Steps{Stderr: io.Discard, Now: time.Now}}
		ctx, cancel := h.Budget(t.Context(), time.Minute)
		defer cancel()
		_ = h.Long("mount", h.Moved(func() []string { return []string{"dm-3"} }), func() error { time.Sleep(10 * time.Minute); return nil })
		begun := time.Now()
		<-ctx.Done()
		if took := time.Since(begun); took < 50*time.Second || took > 70*time.Second {
			t.Errorf("the action has %v after the mount", took)
		}
	})
}
