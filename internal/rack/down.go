package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// Down removes the rack in dir: every process, the network namespace, and the
// directory's content. It finds them by the rack's unique directory and name, so it
// works after an incomplete or killed Up. A second Down is no error. keepDisks keeps the disk
// images, the nodes' own state and the keys, so that the next Up powers the same machines on.
func Down(ctx context.Context, dir string, keepDisks bool) error {
	dir, err := tool.AbsDir(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return tool.Refuse("taking a rack down needs root")
	}
	unlock, err := lockRack(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()

	if err := killAll(ctx, dir); err != nil {
		return err
	}
	if cfg, err := loadConfig(dir); err == nil {
		if err := removeNetns(ctx, cfg, dir); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(tool.RunDir(dir)); err != nil {
		return err
	}
	if keepDisks {
		return nil
	}
	// Remove only files of a rack: the directory belongs to the user.
	for _, name := range []string{
		"disks", "nodes", "ssh", "inventory.json", "hardware.json", "power.lock", "state.json", "config.json", "up.lock",
	} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	// This fails, as it must, if the directory has other files.
	_ = os.Remove(dir)
	return nil
}

// killAll kills every process of the rack. Meanwhile a process may start another (a
// BMC that switches a node on), so killAll repeats until none is left.
func killAll(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("the processes of the rack in %s keep coming back", dir))
	defer cancel()
	return tool.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		procs, err := tool.RackProcesses(dir)
		for _, p := range procs {
			err = errors.Join(err, p.Kill())
		}
		return len(procs) == 0, err
	})
}
