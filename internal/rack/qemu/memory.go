package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// MachineRunning is QEMU's run state of a machine that is not stopped.
const MachineRunning = "running"

// MemoryTime bounds saving or loading one machine's memory, some seconds on a quiet
// machine.
const MemoryTime = 5 * time.Minute

// SaveMemory writes memory and devices of a stopped machine to a file. The file is
// open here and passed to QEMU, so no shell and no limit of a path's length matters.
//
// Source: docs/devel/migration/main.rst of QEMU, "fd migration"
func (q *Client) SaveMemory(ctx context.Context, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// Without a limit: by default it is 128 MiB/s.
	if _, err := q.Call("migrate-set-parameters", Props{"max-bandwidth": int64(1) << 40}); err != nil {
		return err
	}
	if err := q.pass("memory", f); err != nil {
		return err
	}
	if _, err := q.Call("migrate", Props{"uri": "fd:memory"}); err != nil {
		return err
	}
	if err := q.wait(ctx, func() (bool, error) {
		out, err := q.Call("query-migrate", nil)
		if err != nil {
			return false, err
		}
		var s struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := json.Unmarshal(out, &s); err != nil {
			return false, err
		}
		if s.Status == "failed" || s.Status == "cancelled" {
			return false, fmt.Errorf("saving the memory: %s %s", s.Status, s.Error)
		}
		return s.Status == "completed", nil
	}); err != nil {
		_, cancelled := q.Call("migrate_cancel", nil)
		return errors.Join(err, cancelled)
	}
	return f.Close()
}

// LoadMemory reads memory and devices of a machine that waits for them, and leaves
// the machine stopped. QEMU ends if it cannot read them.
func (q *Client) LoadMemory(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := q.pass("memory", f); err != nil {
		return err
	}
	if _, err := q.Call("migrate-incoming", Props{"uri": "fd:memory"}); err != nil {
		return err
	}
	return q.wait(ctx, func() (bool, error) {
		s, err := q.Status()
		return s != "inmigrate", err
	})
}

func (q *Client) wait(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, MemoryTime)
	defer cancel()
	return tool.Poll(ctx, 20*time.Millisecond, done)
}

// pass gives QEMU an open file under a name.
func (q *Client) pass(name string, f *os.File) error {
	conn, ok := q.conn.(*net.UnixConn)
	if !ok {
		return errors.New("QEMU's machine protocol is not on a Unix socket")
	}
	if err := q.limit(); err != nil {
		return err
	}
	text, err := json.Marshal(Props{"execute": "getfd", "arguments": Props{"fdname": name}})
	if err != nil {
		return err
	}
	if _, _, err := conn.WriteMsgUnix(append(text, '\n'), unix.UnixRights(int(f.Fd())), nil); err != nil {
		return fmt.Errorf("qmp getfd: %w", err)
	}
	_, err = q.reply("getfd")
	return err
}

// GoOn lets a machine go on. A machine that runs is not affected.
func (q *Client) GoOn() error {
	s, err := q.Status()
	if err != nil || s == MachineRunning {
		return err
	}
	_, err = q.Call("cont", nil)
	return err
}
