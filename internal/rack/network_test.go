package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// Up refuses a namespace in which another rack runs or is being built, but not one
// left from a reboot or a kill.
func TestNamespaceOfAnother(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: a network namespace cannot be made")
		return
	}
	ctx := context.Background()
	cfg := arrayConfig(t)
	cfg.Name = fmt.Sprintf("left-%d", os.Getpid())
	r := &rack{cfg: &cfg, dir: t.TempDir()}
	other := &rack{cfg: &cfg, dir: t.TempDir()}
	t.Cleanup(func() {
		if err := netns.Remove(cfg.Netns()); err != nil {
			t.Error(err)
		}
		_ = os.Remove(nameLock(&cfg))
	})
	if err := ensureNetwork(ctx, other); err != nil {
		t.Fatal(err)
	}
	if err := checkNetns(&cfg, r.dir); err != nil {
		t.Errorf("no process lives in it: %v", err)
	}

	sleep := exec.Command("sleep", "60")
	if err := netns.Do(cfg.Netns(), sleep.Start); err != nil {
		t.Fatal(err)
	}
	refused := (*tool.RefusedError)(nil)
	if err := ensureNetwork(ctx, r); !errors.As(err, &refused) || !strings.Contains(err.Error(), fmt.Sprint("process ", sleep.Process.Pid)) {
		t.Errorf("a process lives in it: %v", err)
	}
	if err := checkNetns(&cfg, other.dir); err != nil {
		t.Errorf("its own rack: %v", err)
	}
	if err := sleep.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sleep.Wait()

	free, err := lockName(ctx, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockName(ctx, &cfg); !errors.As(err, &refused) {
		t.Errorf("another mortar makes a rack of the name: %v", err)
	}
	free()
	if err := ensureNetwork(ctx, r); err != nil {
		t.Fatal(err)
	}
	if ours, _, err := netnsOwner(&cfg, r.dir); err != nil || !ours {
		t.Errorf("after it was made anew: ours %v, %v", ours, err)
	}
}
