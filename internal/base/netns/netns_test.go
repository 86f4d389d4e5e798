package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMakeUseRemove(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: a network namespace cannot be made")
		return
	}
	name := fmt.Sprintf("mortar-test-%d", os.Getpid())
	if _, err := ID(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before it is made: %v", err)
	}
	if err := Remove(name); err != nil {
		t.Fatalf("removing what is not there: %v", err)
	}
	// What an interrupted Make leaves is none.
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Path(name), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := ID(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a plain file: %v", err)
	}
	if err := Make(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Remove(name); err != nil {
			t.Error(err)
		}
	})
	id, err := ID(name)
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if id == home {
		t.Fatal("the namespace is this process's own")
	}
	for range 50 {
		if err := Do(name, func() error {
			if in, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || in != id {
				return fmt.Errorf("in %s, not in %s: %w", in, id, err)
			}
			ifs, err := net.Interfaces()
			if err != nil || len(ifs) != 1 || ifs[0].Name != "lo" {
				return fmt.Errorf("interfaces %v: %w", ifs, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	// The main thread never went there, and no other stays.
	if in, err := os.Readlink("/proc/self/ns/net"); err != nil || in != home {
		t.Errorf("the process is in %s now: %v", in, err)
	}
	var away []string
	for range 1000 { // a thread's end is the kernel's to finish
		away = nil
		tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(tasks) == 0 {
			t.Fatal(tasks, err)
		}
		for _, task := range tasks {
			if in, err := os.Readlink(task); err == nil && in != home {
				away = append(away, task)
			}
		}
		if away == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if away != nil {
		t.Errorf("threads %s stayed in the namespace", away)
	}
	if err := Do("../x", func() error { return nil }); err == nil {
		t.Error("a path was taken for a name")
	}
	if err := Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := Do(name, func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after it was removed: %v", err)
	}
}
