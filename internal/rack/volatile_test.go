package rack

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
	"github.com/mortarhpc/mortar/internal/rack/vdisk"
)

// An order works on a disk with its cache, and leaves nothing in the cache.
func TestOrders(t *testing.T) {
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
	l, err := net.Listen("unix", filepath.Join(tool.RunDir(r.dir), disksSocket(hw.Shelves)))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = tool.ServeConns(l, func(c net.Conn) error { return obey(c, map[string]*vdisk.Drive{"sd0": {Disk: d}}) })
	}()
	want := bytes.Repeat([]byte{7}, int(d.Size()))
	if _, err := d.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.order(t.Context(), hw.Shelves, "flush"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after a flush, the file is not the disk (%v)", err)
	}
	if _, err := d.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.order(t.Context(), hw.Shelves, "zero sd0"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, make([]byte, len(want))) || allocated(file) > 0 {
		t.Errorf("%d bytes on disk, %v", allocated(file), err)
	}
	for _, bad := range []string{"zero sd9", "zero", "format"} {
		if err := r.order(t.Context(), hw.Shelves, bad); err == nil {
			t.Errorf("%s: no error", bad)
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
