package rack

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDistributionArgs(t *testing.T) {
	c := testConfig()
	c.Nodes[0].Boot = BootDistribution
	args, err := nodeArgs(&c, "/rack", 0, &image{Dir: "/cache/0123"}, "tcg", &hardware{}, 20)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "args-s1-distribution.txt", strings.Join(args, "\n")+"\n")
}

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
	if _, err := diskFront(boot, make([]byte, partitionStart)); err == nil {
		t.Error("a core that reaches into the partition is taken")
	}
}

// A node's system disk has the node's identity, and only root can read its key.
func TestSystemDisk(t *testing.T) {
	c := testConfig()
	n := &c.Nodes[0]
	n.Boot = BootDistribution
	r := &rack{dir: t.TempDir(), cfg: &c}
	for _, d := range []string{"ssh", "nodes/" + n.Name, "root/etc/ssh", "root/etc/network", "root/root"} {
		if err := os.MkdirAll(filepath.Join(r.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	base := filepath.Join(r.dir, "base.raw")
	if err := makeSparse(base, diskBytes); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), "mkfs.ext4", "-q", "-F", "-J", "size=4", "-E", fmt.Sprintf("offset=%d,lazy_itable_init=1", partitionStart),
		"-d", filepath.Join(r.dir, "root"), base, fmt.Sprintf("%dk", (diskBytes-partitionStart)>>10)); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureKey(hostKeyFile(r.dir, n.Name), "root@"+n.Name); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time the disk exists
		if err := ensureSystemDisk(t.Context(), r, n, base, "ssh-ed25519 AAAA admin"); err != nil {
			t.Fatal(err)
		}
	}
	disk := systemDisksOf(r.dir, n)[0].Image
	show := func(request string) string {
		t.Helper()
		out, err := output(t.Context(), nil, "debugfs", "-R", request, fmt.Sprintf("%s?offset=%d", disk, partitionStart))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for name, want := range map[string]string{
		"/etc/hostname": n.Name + "\n", "/root/.ssh/authorized_keys": "ssh-ed25519 AAAA admin\n", "/etc/network/interfaces": interfacesFile(&c, n),
	} {
		if got := show("cat " + name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, mode := range map[string]string{"/etc/ssh/ssh_host_ed25519_key": "0600", "/etc/machine-id": "0444", "/root/.ssh": "0700"} {
		if got := show("stat " + name); !strings.Contains(got, "Mode:  "+mode) || !strings.Contains(got, "User:     0") {
			t.Errorf("%s: %.200s", name, got)
		}
	}
	if a := allocated(disk); a > diskBytes/8 {
		t.Errorf("%s takes %d bytes", disk, a)
	}
	golden(t, "interfaces.txt", interfacesFile(&c, n))
}
