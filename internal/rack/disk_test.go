package rack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

func TestDistributionArgs(t *testing.T) {
	c := testConfig()
	c.Nodes[0].Boot = hw.BootDistribution
	args, err := qemu.NodeArgs(&c, "/rack", 0, &nodeimage.Image{Dir: "/cache/0123"}, "tcg", &hw.Hardware{}, 20)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "args-s1-distribution.txt", strings.Join(args, "\n")+"\n")
}

// A node's system disk has the node's identity, and only root can read its key.
func TestSystemDisk(t *testing.T) {
	c := testConfig()
	n := &c.Nodes[0]
	n.Boot = hw.BootDistribution
	r := &rack{dir: t.TempDir(), cfg: &c}
	for _, d := range []string{"ssh", "nodes/" + n.Name, "root/etc/ssh", "root/etc/network", "root/root"} {
		if err := os.MkdirAll(filepath.Join(r.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	base := filepath.Join(r.dir, "base.raw")
	if err := tool.MakeSparse(base, hw.DiskBytes); err != nil {
		t.Fatal(err)
	}
	if err := tool.Run(t.Context(), "mkfs.ext4", "-q", "-F", "-J", "size=4", "-E", fmt.Sprintf("offset=%d,lazy_itable_init=1", hw.PartitionStart),
		"-d", filepath.Join(r.dir, "root"), base, fmt.Sprintf("%dk", (hw.DiskBytes-hw.PartitionStart)>>10)); err != nil {
		t.Fatal(err)
	}
	if _, err := tool.EnsureKey(hostKeyFile(r.dir, n.Name), "root@"+n.Name); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time the disk exists
		if err := ensureSystemDisk(t.Context(), r, n, base, "ssh-ed25519 AAAA admin"); err != nil {
			t.Fatal(err)
		}
	}
	disk := hw.SystemDisksOf(r.dir, n)[0].Image
	show := func(request string) string {
		t.Helper()
		out, err := tool.Output(t.Context(), nil, "debugfs", "-R", request, fmt.Sprintf("%s?offset=%d", disk, hw.PartitionStart))
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
	if a := allocated(disk); a > hw.DiskBytes/8 {
		t.Errorf("%s takes %d bytes", disk, a)
	}
	golden(t, "interfaces.txt", interfacesFile(&c, n))
}
