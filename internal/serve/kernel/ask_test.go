package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/flock"
)

// A device that never answers keeps no other one's answer back.
func TestAsk(t *testing.T) {
	dir := t.TempDir()
	disk, hung, none := filepath.Join(dir, "disk"), filepath.Join(dir, "hung"), filepath.Join(dir, "none")
	if err := os.WriteFile(disk, append(make([]byte, 4096), bytes.Repeat([]byte("x"), 8192)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(hung, 0o600); err != nil { // who opens it waits for a writer
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		got := (&Linux{}).Ask(ctx, AskLimit, []Question{{Dev: hung, N: 4096}, {Dev: disk, Off: 4096, N: 8192}, {Dev: none, N: 4096}, {Dev: disk, Off: 4096, N: 4096}, {Dev: disk, Off: 1 << 20, N: 4096},
			{Dev: filepath.Join(dir, "check"), Write: true}, {Dev: filepath.Join(none, "check"), Write: true}})
		cancel()
		if !errors.Is(got[0].Err, context.DeadlineExceeded) || len(got[0].Data) > 0 {
			t.Errorf("a device that hangs: %v", got[0].Err)
		}
		for i, n := range map[int]int{1: 8192, 3: 4096} {
			if got[i].Err != nil || !bytes.Equal(got[i].Data, bytes.Repeat([]byte("x"), n)) {
				t.Errorf("%d bytes: %d, %v", n, len(got[i].Data), got[i].Err)
			}
		}
		if !errors.Is(got[2].Err, fs.ErrNotExist) {
			t.Errorf("a device that is not there: %v", got[2].Err)
		}
		if got[4].Err == nil {
			t.Error("read beyond the end")
		}
		if got[5].Err != nil || !errors.Is(got[6].Err, fs.ErrNotExist) {
			t.Errorf("a file that is written: %v, and one in no directory: %v", got[5].Err, got[6].Err)
		}
	}
	if got := (&Linux{}).Ask(t.Context(), AskLimit, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// Who asks a device that another process hangs with waits for that one's lock, in which it
// can be killed, and reads nothing.
func TestAskWhatHangs(t *testing.T) {
	dir := t.TempDir()
	asksDir = filepath.Join(dir, "asks")
	t.Cleanup(func() { asksDir = "/run/mortar/asks" })
	disk := filepath.Join(dir, "disk")
	if err := errors.Join(os.Mkdir(asksDir, 0o700), os.WriteFile(disk, make([]byte, 4096), 0o600)); err != nil {
		t.Fatal(err)
	}
	ask := func() (a Answer) {
		var out bytes.Buffer
		if err := AnswerFor(atOnce(t.Context()), strings.NewReader(fmt.Sprintf(`[{"dev":%q,"off":0,"n":4096}]`, disk)), &out); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	f, err := os.Create(asksDir + "/" + strings.ReplaceAll(disk, "/", "!"))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := flock.Try(f); !ok {
		t.Fatal(err)
	}
	if a := ask(); a.Text != context.Canceled.Error() || len(a.Data) > 0 {
		t.Errorf("it was read: %+v", a)
	}
	f.Close()
	if a := ask(); a.Text != "" || len(a.Data) != 4096 {
		t.Errorf("%s, %d bytes", a.Text, len(a.Data))
	}
}
