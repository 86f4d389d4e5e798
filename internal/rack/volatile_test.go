package rack

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
	"github.com/mortarhpc/mortar/internal/rack/vdisk"
)

// qemuIO works on a disk with its cache, and leaves nothing in the cache.
func TestQEMUIO(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk.raw")
	if err := tool.MakeSparse(file, 164352); err != nil {
		t.Fatal(err)
	}
	d, err := vdisk.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &rack{dir: t.TempDir()}
	if err := os.Mkdir(tool.RunDir(r.dir), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(tool.RunDir(r.dir), qemu.NBDSocket(hw.Shelves)))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = vdisk.Serve(t.Context(), l, map[string]*vdisk.Disk{"sd0": d, "sd1": d}) }()
	want := make([]byte, d.Size())
	for i := range want {
		want[i] = 7
	}
	if _, err := d.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.qemuIO(t.Context(), hw.Shelves, []string{"sd0", "sd1"}, "flush"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after a flush, the file is not the disk (%v)", err)
	}
	if _, err := d.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.qemuIO(t.Context(), hw.Shelves, []string{"sd0"}, "write -z 0 80k", "write -z 80k 82432"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, make([]byte, len(want))) || allocated(file) > 0 {
		t.Errorf("%d bytes on disk, %v", allocated(file), err)
	}
	for _, bad := range [][]string{{"sd9"}, {"sd0", "sd9", "sd1"}} {
		if err := r.qemuIO(t.Context(), hw.Shelves, bad, "flush"); err == nil {
			t.Errorf("%v: no error for a disk that is not there", bad)
		}
	}
}

func TestShelvesHangOnAllPDUs(t *testing.T) {
	c := testConfig()
	h := &hw.Hardware{Off: map[string]bool{"pdu1/1": true, "pdu1/2": true, "pdu2/1": true}}
	if !h.ShelvesPowered(&c) {
		t.Error("servers that are off take the shared disks' power")
	}
	h.Off["pdu2/2"] = true
	if h.ShelvesPowered(&c) {
		t.Error("without any power the shared disks run")
	}
}
