package nodeimage

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

func TestDiskFront(t *testing.T) {
	boot := bytes.Repeat([]byte{1}, 512)
	core := bytes.Repeat([]byte{2}, 600)
	f, err := diskFront(boot, core)
	if err != nil {
		t.Fatal(err)
	}
	if len(f) != 1112 || f[445] != 1 || f[512] != 2 || f[510] != 0x55 || f[511] != 0xaa {
		t.Errorf("% x", f[440:520])
	}
	// One active partition of Linux from sector 2048 to the end of 3 GiB.
	if got := fmt.Sprintf("% x", f[446:462]); got != "80 fe ff ff 83 fe ff ff 00 08 00 00 00 f8 5f 00" {
		t.Error(got)
	}
	if !bytes.Equal(f[462:510], make([]byte, 48)) {
		t.Error("more partitions than one")
	}
	if _, err := diskFront(boot, make([]byte, hw.PartitionStart)); err == nil {
		t.Error("a core that reaches into the partition is taken")
	}
}
