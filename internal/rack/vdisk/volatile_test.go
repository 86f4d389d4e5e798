package vdisk

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// volatileFile makes a disk whose last block is partial.
func volatileFile(t *testing.T) (string, *Disk) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(file, make([]byte, 40*CacheBlock+512), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, reopen(t, file)
}

// reopen opens the disk again after a loss of power.
func reopen(t *testing.T, file string) *Disk {
	t.Helper()
	d, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.file.Close() })
	return d
}

func TestVolatileDiskIsADisk(t *testing.T) {
	file, d := volatileFile(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, d.Size())
	for range 3000 {
		offset := rnd.Int64N(d.Size())
		b := make([]byte, min(1+rnd.Int64N(3*CacheBlock), d.Size()-offset))
		piece := want[offset : offset+int64(len(b))]
		var err error
		switch rnd.IntN(6) {
		case 0, 1, 2:
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			copy(piece, b)
			_, err = d.WriteAt(b, offset)
		case 3:
			clear(piece)
			err = d.Zero(offset, int64(len(b)))
		case 4:
			err = d.writeBack(rnd.IntN(10))
		default:
			if _, err = d.ReadAt(b, offset); !bytes.Equal(b, piece) {
				t.Fatalf("%d bytes from %d on are not what was written", len(b), offset)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after a flush, the file is not the disk (%v)", err)
	}
}

// qemuIO runs commands of qemu-io(1) on a served drive.
func qemuIO(t *testing.T, port int, commands ...string) string {
	t.Helper()
	// Without a cache of its own, and without additional flushes.
	args := []string{"-t", "none", "--image-opts", fmt.Sprintf("driver=iscsi,transport=tcp,portal=127.0.0.1:%d,target=iqn.t:sd0.path1,lun=0,initiator-name=iqn.t:nfs1", port)}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, err := exec.Command("qemu-io", args...).CombinedOutput()
	killed := strings.HasPrefix(commands[len(commands)-1], "sigraise") && err != nil && err.Error() == "signal: killed"
	if err != nil && !killed || strings.Contains(string(out), "failed") {
		t.Fatalf("qemu-io %s: %v\n%s", strings.Join(commands, "; "), err, out)
	}
	return string(out)
}

// A loss of power loses only unflushed data. The client is QEMU's.
func TestPowerLossLosesWhatWasNotFlushed(t *testing.T) {
	file, d := volatileFile(t)
	// Kill the client, since one that exits normally flushes. Here a write with FUA
	// (-f) writes all blocks back.
	qemuIO(t, target(t, &Drive{Disk: d}), "write -P 1 0 8k", "flush", "write -P 2 4k 8k", "write -f -P 3 32k 4k",
		"write -P 4 8k 512", "write -P 5 100k 4k", "read -P 4 8k 512", "read -P 5 100k 4k", "sigraise 9")
	port := target(t, &Drive{Disk: reopen(t, file)})
	qemuIO(t, port, "read -P 1 0 4k", "read -P 2 4k 8k", "read -P 3 32k 4k", "read -P 0 100k 4k",
		"write -z 0 8k", "read -P 0 0 8k", "read -P 2 8k 4k")
	if out := qemuIO(t, port, "length"); !strings.Contains(out, "160.500 KiB") {
		t.Errorf("length: %s", out)
	}
}
