package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	rtnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/netns"
)

// A program within a namespace has its network and sees directories where
// the command says; the host sees nothing of either, and what it unmounts is
// gone in there too.
func TestWithinReal(t *testing.T) {
	k := New()
	ctx := t.Context()
	if err := k.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // writable for any user
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Unmount("/run"); err != nil {
			t.Error(err)
		}
	})
	name := fmt.Sprintf("mortar-test-%d", os.Getpid())
	if err := netns.Make(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Remove(name); err != nil {
			t.Error(err)
		}
	})
	id, err := k.Namespace(name)
	if err != nil {
		t.Fatal(err)
	}
	in := k.Within(name)
	if out, err := in.Run(ctx, Command{Argv: []string{"readlink", "/proc/self/ns/net"}}); err != nil || out != id {
		t.Errorf("ran in %q instead of %q: %v", out, id, err)
	}
	if all, err := in.Addresses(); err != nil || len(all) != 0 {
		t.Errorf("addresses %v, %v", all, err)
	}
	if _, err := in.Link(publicLink); err == nil {
		t.Error("an interface that is not there")
	}
	if _, err := in.Interface(netip.MustParseAddr("127.0.0.1")); err == nil {
		t.Error("the host's lo was found within")
	}
	if b, err := in.ReadFile("/proc/thread-self/net/dev"); err != nil || strings.Count(string(b), ":") != 1 {
		t.Errorf("interfaces %q, %v", b, err)
	}
	if k.Within("") != Host(k) {
		t.Error("no name is another place")
	}

	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil { // as systemd has it
		t.Fatal(err)
	}
	dir := t.TempDir()
	from, at, volume := dir+"/from", dir+"/at", dir+"/volume"
	for _, d := range []string{from, at, volume} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(from+"/file", []byte("of the service"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := k.Mount("tmpfs", volume, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	out, err := in.Run(ctx, Command{Argv: []string{"cat", at + "/file"}, Binds: []Bind{{From: from, At: at}}})
	if err != nil || out != "of the service" {
		t.Errorf("%q, %v", out, err)
	}
	pid, err := in.Run(ctx, Command{Argv: []string{"sh", "-c", "sleep 300 >/dev/null & echo $!"}, Binds: []Bind{{From: from, At: at}}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Kill(n, unix.SIGKILL)
	mounted := func(at string) bool {
		b, err := os.ReadFile("/proc/" + pid + "/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		_, there := linux.MountAt(linux.ParseMountInfo(string(b)), at)
		return there
	}
	if !mounted(at) || !mounted(volume) {
		t.Error("the process does not see what it should")
	}
	if _, err := os.Stat(at + "/file"); err == nil {
		t.Error("the host sees what is bound for the process")
	}
	if err := k.Unmount(volume); err != nil {
		t.Fatal(err)
	}
	if mounted(volume) {
		t.Error("a mount is kept alive by a process of a service")
	}
	if _, err := in.Run(ctx, Command{Argv: []string{"true"}, Binds: []Bind{{From: dir + "/none", At: at}}}); err == nil || !strings.Contains(err.Error(), "mount --rbind") {
		t.Errorf("a bind of nothing: %v", err)
	}
}

// Routes over gateways go along; the interface and the name go in the end,
// whatever else keeps the namespace.
func TestRoutesReal(t *testing.T) {
	k := New()
	if err := k.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Unmount("/run") })
	name := fmt.Sprintf("mortar-test-r%d", os.Getpid())
	if err := k.DelNamespace(name, publicLink); err != nil {
		t.Errorf("one that is not there: %v", err)
	}
	if err := netns.Make(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Remove(name) })
	sh(t, "ip", "link", "set", "lo", "up")
	sh(t, "ip", "link", "add", "vr", "type", "veth", "peer", "name", publicLink, "netns", name)
	t.Cleanup(func() { exec.Command("ip", "link", "del", "vr").Run() })
	sh(t, "ip", "link", "set", "vr", "up")
	sh(t, "ip", "addr", "add", "10.8.0.1/24", "dev", "vr")
	sh(t, "ip", "route", "add", "10.55.0.0/16", "via", "10.8.0.254")
	sh(t, "ip", "route", "add", "default", "via", "10.8.0.253")
	parent, err := k.Interface(netip.MustParseAddr("10.8.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	in := k.Within(name)
	ifc, err := in.Link(publicLink)
	if err != nil {
		t.Fatalf("%+v, %v", ifc, err)
	}
	sh(t, "ip", "-n", name, "link", "set", publicLink, "up")
	if err := in.AddAddress(ifc, netip.MustParsePrefix("10.8.0.9/24")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time they are there
		if err := k.CopyRoutes(name, publicLink, parent); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("ip", "-n", name, "route").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.55.0.0/16 via 10.8.0.254 dev public", "default via 10.8.0.253 dev public"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// A process stays inside.
	pid, err := in.Run(t.Context(), Command{Argv: []string{"sh", "-c", "sleep 300 >/dev/null & echo $!"}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Kill(n, unix.SIGKILL)
	if err := k.DelNamespace(name, publicLink); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Namespace(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the name is still there: %v", err)
	}
	if b, err := os.ReadFile("/proc/" + pid + "/net/dev"); err != nil || strings.Contains(string(b), publicLink) {
		t.Errorf("the interface is still there: %s, %v", b, err)
	}
	// An interface that is neither Ethernet nor InfiniBand is refused, before anything is made.
	lo, err := k.Link("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.AddNamespace(name, publicLink, lo); err == nil || !strings.Contains(err.Error(), "only be made on Ethernet or InfiniBand") {
		t.Errorf("%v", err)
	}
	if _, err := k.Namespace(name); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a namespace was made for nothing")
	}
}

// The parent's link type decides. There is no fake of IPoIB in the kernel: a tun
// device only has its hardware type, and is refused for that.
func TestChildOf(t *testing.T) {
	eth := &rtnl.Device{LinkAttrs: rtnl.LinkAttrs{Name: "eth1", Index: 3, EncapType: "ether"}}
	c, err := childOf(eth, publicLink)
	if v, ok := c.(*rtnl.IPVlan); err != nil || !ok || v.Mode != rtnl.IPVLAN_MODE_L2 || v.ParentIndex != 3 || v.Name != publicLink {
		t.Errorf("%+v, %v", c, err)
	}
	ib := &rtnl.IPoIB{LinkAttrs: rtnl.LinkAttrs{Name: "ib0", Index: 7, EncapType: "infiniband"}, Pkey: 0xffff, Mode: rtnl.IPOIB_MODE_CONNECTED}
	for parent, want := range map[int]int{0: 7, 5: 5} { // a partition's interface has a parent
		ib.ParentIndex = parent
		c, err := childOf(ib, publicLink)
		if v, ok := c.(*rtnl.IPoIB); err != nil || !ok || v.Pkey != 0xffff || v.Mode != rtnl.IPOIB_MODE_CONNECTED || v.ParentIndex != want || v.Name != publicLink {
			t.Errorf("parent %d: %+v, %v", parent, c, err)
		}
	}
	tun := &rtnl.Tuntap{LinkAttrs: rtnl.LinkAttrs{Name: "ib0", Index: 7, EncapType: "infiniband"}}
	if _, err := childOf(tun, publicLink); err == nil || !strings.Contains(err.Error(), "kernel's ipoib") {
		t.Errorf("%v", err)
	}
}
