//go:build rack

package rack

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
	"github.com/mortarhpc/mortar/test/racktest"
)

// TestMain: BMCs and PDUs also call the test binary, and tests run it as a rack's
// builder to kill.
func TestMain(m *testing.M) {
	a := os.Args[1:]
	if len(a) > 3 && a[0] == "rack" {
		var err error
		switch a[1] {
		case "_chassis":
			err = Chassis(context.Background(), a[2], a[3], a[4:], os.Stdout)
		case "_pdu":
			err = ServePDU(context.Background(), a[2], a[3], os.Stdin, os.Stdout)
		case "_disks":
			err = ServeDisks(context.Background(), a[2], a[3])
		case "_up":
			_, err = Up(context.Background(), liveConfig(a[3], filepath.Dir(a[2])), a[2], nil)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(racktest.Main(m, func(rack string) error { return Down(context.Background(), rack, false) }))
}

// liveConfig is two servers that share two enclosures of two disks, and an
// SSD.
func liveConfig(name, secrets string) hw.Config {
	c := testConfig()
	c.Name = name
	c.Suite = cmp.Or(os.Getenv("RACK_SUITE"), c.Suite)
	c.Networks[0].MTU = 9000
	c.Nodes = c.Nodes[:2]
	for i := range c.Enclosures {
		d := c.Enclosures[i].Disks[0]
		d.IOPS, d.BytesPerSecond = 0, 0
		e := d
		e.Name, e.Serial, e.WWN = fmt.Sprintf("e%dd2", i+1), fmt.Sprintf("NL001%d", i), fmt.Sprintf("5000c50000000%d02", i+1)
		c.Enclosures[i].Disks = []hw.Disk{d, e}
	}
	for i := range c.PDUs {
		c.PDUs[i].CommunityFile = filepath.Join(secrets, "secrets", c.PDUs[i].Name)
	}
	for i := range c.Nodes {
		c.Nodes[i].BMC.PasswordFile = filepath.Join(secrets, "secrets", c.Nodes[i].Name)
		c.Nodes[i].MemoryMiB = 768
	}
	return c
}

type liveRack struct {
	t   *testing.T
	dir string
	r   *rack
}

// in runs a command inside the rack's namespace, as the admin would.
func (l *liveRack) in(argv ...string) (string, error) {
	cmd := exec.Command(tool.Path(argv[0]), argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := netns.Do(l.r.cfg.Netns(), cmd.Start); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return strings.TrimSpace(out.String()), err
}

// on runs a shell command on a node.
func (l *liveRack) on(node, command string) (string, error) {
	n, err := l.r.cfg.Node(node)
	if err != nil {
		return "", err
	}
	return l.in(append(append([]string{}, sshArgs(l.r, n)...), command)...)
}

func (l *liveRack) must(node, command string) string {
	l.t.Helper()
	out, err := l.on(node, command)
	if err != nil {
		l.t.Fatalf("%s: %s: %v\n%s", node, command, err, out)
	}
	return out
}

func (l *liveRack) fault(words string) {
	l.t.Helper()
	f := strings.Fields(words)
	if err := Fault(context.Background(), l.dir, f[0], f[1:]...); err != nil {
		l.t.Fatalf("%s: %v", words, err)
	}
}

func (l *liveRack) node(name string) NodeStatus {
	l.t.Helper()
	s, err := Status(context.Background(), l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, n := range s.Nodes {
		if n.Name == name {
			return n
		}
	}
	l.t.Fatalf("no node %s", name)
	return NodeStatus{}
}

// eventually waits until ok returns true; the limit only ends a failing test.
func (l *liveRack) eventually(what string, ok func() bool) {
	l.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(300 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("never: %s", what)
		}
	}
}

func (l *liveRack) up(node string) {
	l.t.Helper()
	l.eventually(node+" is up", func() bool { n := l.node(node); return n.Boot == stageUp && n.SSH })
}

func (l *liveRack) run(name string, fn func(l *liveRack)) {
	l.t.Run(name, func(t *testing.T) { fn(&liveRack{t: t, dir: l.dir, r: l.r}) })
}

// nothingLeft fails if any part of the rack still exists.
func nothingLeft(t *testing.T, dir, netns string) {
	t.Helper()
	procs, err := tool.RackProcesses(dir)
	if err != nil || len(procs) > 0 {
		t.Errorf("processes are left: %v, %v", procs, err)
	}
	if netnsExists(netns) {
		t.Errorf("network namespace %s is left", netns)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), dir) || strings.Contains(string(mounts), "/"+netns+" ") {
		t.Errorf("mounts are left (%v)", err)
	}
}

func TestRack(t *testing.T) {
	tmp := racktest.Dir(t)
	dir := filepath.Join(tmp, "rack")
	cfg := liveConfig("live", tmp)
	ctx := context.Background()
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range cfg.Nodes {
				t.Logf("console of %s:\n%s", n.Name, tool.Tail(filepath.Join(tool.RunDir(dir), tool.ConsoleFile(n.Name)), 30))
			}
		}
		if err := Down(ctx, dir, false); err != nil {
			t.Error(err)
		}
		nothingLeft(t, dir, cfg.Netns())
	})
	report := func(e tool.Event) {
		if e.Done {
			t.Logf("%s: %.1f s %v", e.Step, e.Elapsed.Seconds(), e.Err)
		}
	}
	if _, err := Up(ctx, cfg, dir, report); err != nil {
		t.Fatal(err)
	}
	r, err := openRack(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &liveRack{t: t, dir: r.dir, r: r}
	secret := func(name string) string {
		s, err := tool.EnsureSecret(filepath.Join(tmp, "secrets", name))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	l.run("a clean server", func(l *liveRack) {
		if out := l.must("s1", "systemctl is-system-running"); out != "running" {
			l.t.Errorf("%s\n%s", out, l.must("s1", "systemctl --failed"))
		}
		for _, unit := range []string{"multipathd", "corosync", "pacemaker", "nfs-server"} {
			if out, _ := l.on("s1", "systemctl is-enabled "+unit+"; systemctl is-active "+unit); out != "disabled\ninactive" {
				l.t.Errorf("%s: %s", unit, out)
			}
		}
		if out := l.must("s1", "cat /sys/class/net/eth0/mtu; hostname; getent hosts s2 | cut -d' ' -f1"); out != "9000\ns1\n10.9.3.2" {
			l.t.Error(out)
		}
		l.must("s1", "ping -c 1 -W 5 -M do -s 8000 10.9.1.2 && ping -c 1 -W 5 10.9.2.2 && ping -c 1 -W 5 10.9.3.101")
	})

	l.run("a second up changes nothing", func(l *liveRack) {
		before := l.must("s1", "cat /proc/sys/kernel/random/boot_id")
		if _, err := Up(ctx, cfg, dir, nil); err != nil {
			l.t.Fatal(err)
		}
		if after := l.must("s1", "cat /proc/sys/kernel/random/boot_id"); after != before {
			l.t.Error("the node was started anew")
		}
		other := cfg
		other.Suite = "bookworm"
		if cfg.Suite == "bookworm" {
			other.Suite = "trixie"
		}
		if _, err := Up(ctx, other, dir, nil); err == nil {
			l.t.Error("another rack over this one")
		}
		elsewhere := filepath.Join(tmp, "elsewhere")
		if _, err := Up(ctx, cfg, elsewhere, nil); err == nil {
			l.t.Error("the same rack elsewhere")
		}
		if _, err := os.Stat(elsewhere); err == nil {
			l.t.Error("a refused up made its directory")
		}
	})

	l.run("paths", func(l *liveRack) {
		paths := func() int {
			out, _ := l.on("s1", "cat /sys/block/sd*/device/wwid")
			return strings.Count(out, "naa.5000c50000000101")
		}
		l.eventually("two paths", func() bool { return paths() == 2 })
		l.fault("path-out s1 e1d1 1")
		l.eventually("one path", func() bool { return paths() == 1 })
		l.fault("module-out enc1 0")
		l.eventually("no path", func() bool { return paths() == 0 })
		l.fault("path-in s1 e1d1 1")
		l.fault("module-in enc1 0")
		l.eventually("two paths again", func() bool { return paths() == 2 })
		l.fault("paths-out s1 enc1")
		l.eventually("no path", func() bool { return paths() == 0 })
		l.fault("paths-in s1")
		l.eventually("two paths again", func() bool { return paths() == 2 })
		l.fault("disk-out e1d1")
		l.eventually("the disk is out", func() bool { return paths() == 0 })
		l.fault("disk-in e1d1")
		l.eventually("the disk is in", func() bool { return paths() == 2 })
	})

	l.run("an SSD", func(l *liveRack) {
		there := func(node string) bool {
			out, _ := l.on(node, "cat /sys/block/nvme*/device/serial")
			return strings.Contains(out, "NV0001")
		}
		if !there("s1") || !there("s2") {
			l.t.Fatal("the SSD is not shared")
		}
		l.fault("disk-out nv1")
		l.eventually("the SSD is out", func() bool { return !there("s1") && !there("s2") })
		l.fault("disk-in nv1")
		l.eventually("the SSD is in", func() bool { return there("s1") && there("s2") })
	})

	l.run("a system disk", func(l *liveRack) {
		mirror := func(line string) func() bool {
			return func() bool {
				out, _ := l.on("s1", "cat /proc/mdstat")
				return strings.Contains(out, line)
			}
		}
		l.eventually("a mirror of two", mirror("[UU]"))
		if out := l.must("s1", "cat /sys/block/md0/md/sync_completed /sys/block/md0/md/resync_start"); out != "none\nnone" {
			l.t.Errorf("it is synced at its first boot: %s", out)
		}
		l.fault("system-disk-out s1 0")
		l.eventually("one of two", mirror("[_U]"))
		l.must("s1", "echo one > /etc/one; sync")
		l.fault("system-disk-in s1 0")
		l.eventually("added", func() bool {
			_, err := l.on("s1", "mdadm --manage /dev/md0 --add /dev/disk/by-id/virtio-sys0-s1")
			return err == nil
		})
		l.eventually("two of two", mirror("[UU]"))
		// The returned disk has the data written while it was out.
		l.must("s1", "mdadm --wait /dev/md0; mdadm --manage /dev/md0 --fail /dev/disk/by-id/virtio-sys1-s1 --remove failed; "+
			"echo 3 > /proc/sys/vm/drop_caches; grep one /etc/one; mdadm --manage /dev/md0 --add /dev/disk/by-id/virtio-sys1-s1")
		l.eventually("two of two again", mirror("[UU]"))
	})

	l.run("shared data, corruption, throttle", func(l *liveRack) {
		l.must("s1", "d=/dev/disk/by-id/wwn-0x5000c50000000201; echo hello | dd of=$d bs=4096 count=1 conv=sync,fsync oflag=direct")
		read := "dd if=/dev/disk/by-id/wwn-0x5000c50000000201 bs=4096 count=1 iflag=direct | head -c 5"
		if out := l.must("s2", read+" 2>/dev/null"); !strings.Contains(out, "hello") {
			l.t.Errorf("s2 reads %q", out)
		}
		l.fault("corrupt e2d1 0 512")
		if out := l.must("s2", read+" 2>/dev/null | od -An -c"); strings.Contains(out, "h   e   l   l   o") {
			l.t.Errorf("s2 reads %q", out)
		}
		l.fault("throttle e2d1 20 0")
		out := l.must("s2", "dd if=/dev/disk/by-id/wwn-0x5000c50000000201 of=/dev/null bs=4096 count=60 iflag=direct 2>&1 | tail -1")
		l.t.Logf("60 reads at 20 IOPS: %s", out)
		l.fault("throttle e2d1 0 0")
	})

	// A file system that flushes keeps synced data through a power loss. One whose
	// kernel believes that the disk has no cache sends no flushes, and loses data.
	l.run("power that fails", func(l *liveRack) {
		const disk = "/dev/disk/by-id/wwn-0x5000c50000000101"
		write := "d=$(readlink -f " + disk + "); cat /sys/block/$(basename $d)/queue/write_cache; mkdir -p /p && mkfs.xfs -q -f $d && blockdev --flushbufs $d && " +
			"mount $d /p && dd if=/dev/urandom of=/p/synced bs=64k count=8 conv=fsync status=none && sync -f /p && sha256sum < /p/synced"
		look := "mkdir -p /p && mount " + disk + " /p && sha256sum < /p/synced"
		there := func() {
			l.eventually("the disk is there", func() bool { _, err := l.on("s1", "test -e "+disk); return err == nil })
		}
		cycle := func() {
			for _, f := range []string{"feed-off pdu1", "feed-off pdu2", "feed-on pdu1", "feed-on pdu2"} {
				l.fault(f)
			}
			l.up("s1")
			there()
		}
		there()
		before := l.must("s1", write)
		cycle()
		if after := l.must("s1", look); before != "write back\n"+after {
			l.t.Errorf("what was synced is lost: %s, then %s", before, after)
		}
		l.must("s1", "umount /p; echo write through > /sys/block/$(basename $(readlink -f "+disk+"))/queue/write_cache")
		before = l.must("s1", write)
		cycle()
		after, err := l.on("s1", look)
		if err == nil && before == "write through\n"+after {
			l.t.Errorf("without flushes nothing is lost: %s", after)
		}
		l.t.Logf("without flushes: %s, %v", after, err)
		l.on("s1", "umount /p")
		l.must("s1", "wipefs -q -a "+disk)
	})

	l.run("links", func(l *liveRack) {
		carrier := func() string { return l.must("s1", "cat /sys/class/net/eth1/carrier") }
		l.fault("link-down s1 private")
		l.eventually("no carrier", func() bool { return carrier() == "0" })
		l.fault("switch-down private")
		l.fault("link-up s1 private")
		l.eventually("still no carrier", func() bool { return carrier() == "0" })
		l.fault("switch-up private")
		l.eventually("carrier", func() bool { return carrier() == "1" })
		l.must("s1", "ping -c 1 -W 5 10.9.2.2")
	})

	l.run("freeze and panic", func(l *liveRack) {
		l.fault("freeze s2")
		if n := l.node("s2"); n.Machine != "paused" || n.SSH {
			l.t.Errorf("%+v", n)
		}
		l.fault("unfreeze s2")
		l.eventually("ssh", func() bool { return l.node("s2").SSH })
		l.fault("panic s2")
		l.eventually("the kernel says so", func() bool {
			text, err := os.ReadFile(filepath.Join(tool.RunDir(dir), tool.ConsoleFile("s2")))
			return err == nil && strings.Contains(string(text), "Kernel panic")
		})
		if n := l.node("s2"); n.Power != "on" || n.SSH {
			l.t.Errorf("%+v", n)
		}
	})

	bmc := func(l *liveRack, action string) (string, error) {
		return l.in("fence_ipmilan", "-a", "10.9.3.102", "-l", "admin", "-p", secret("s2"), "-P", "-C", "3", "-m", "onoff", "-o", action)
	}
	pdu := func(l *liveRack, n int, action string) (string, error) {
		return l.in("fence_apc_snmp", "-a", fmt.Sprintf("10.9.3.11%d", n), "-d", "1", "-c", secret(fmt.Sprintf("pdu%d", n)), "-n", "s2", "-o", action)
	}
	l.run("fencing by the BMC", func(l *liveRack) {
		if out, err := bmc(l, "off"); err != nil || l.node("s2").Power != "off" {
			l.t.Fatalf("%v: %s", err, out)
		}
		if out, err := bmc(l, "status"); err == nil && !strings.Contains(out, "OFF") {
			l.t.Error(out)
		}
		l.fault("bmc-dead s2")
		if out, err := bmc(l, "status"); err == nil {
			l.t.Errorf("a dead BMC answers: %s", out)
		}
		l.fault("bmc-alive s2")
		if out, err := bmc(l, "on"); err != nil {
			l.t.Fatalf("%v: %s", err, out)
		}
		l.up("s2")
	})

	l.run("fencing by both PDUs", func(l *liveRack) {
		for i, want := range []string{"on", "off"} {
			if out, err := pdu(l, i+1, "off"); err != nil || l.node("s2").Power != want {
				l.t.Fatalf("%v: %s; power %s, want %s", err, out, l.node("s2").Power, want)
			}
		}
		if l.node("s2").BMC != "dead" {
			l.t.Error("the BMC lives without power")
		}
		if err := Fault(ctx, dir, "poweron", "s2"); err == nil {
			l.t.Error("a node without power was switched on")
		}
		l.fault("pdu-dead pdu1")
		if out, err := pdu(l, 1, "on"); err == nil {
			l.t.Errorf("a dead PDU answers: %s", out)
		}
		l.fault("pdu-alive pdu1")
		if out, err := pdu(l, 1, "on"); err != nil || l.node("s2").Power != "on" {
			l.t.Fatalf("%v: %s", err, out)
		}
		l.fault("feed-on pdu2")
		l.up("s2")
	})

	l.run("state outlasts reboot and power", func(l *liveRack) {
		l.must("s1", "echo kept > /etc/kept; echo vm.swappiness=7 > /etc/sysctl.d/90-t.conf; "+
			"echo 'tmpfs /mnt tmpfs size=1m 0 0' >> /etc/fstab; systemctl enable multipathd 2>/dev/null; sync; dmesg -n 7; (sleep 1; reboot) >/dev/null 2>&1 &")
		check := func(l *liveRack) {
			l.t.Helper()
			out := l.must("s1", "cat /etc/kept /proc/sys/vm/swappiness; findmnt -no FSTYPE /mnt; systemctl is-active multipathd; systemctl is-system-running")
			if out != "kept\n7\ntmpfs\nactive\nrunning" {
				l.t.Error(out)
			}
		}
		before := l.must("s1", "cat /proc/sys/kernel/random/boot_id")
		why := func() string {
			out, err := l.on("s1", "timeout 20 systemctl list-jobs --no-pager; ps -eo pid,ppid,stat,wchan:20,args | grep -v ' \\[' ; "+
				"journalctl -b --no-pager -n 60; ps -eo pid,stat,wchan:20,args | grep ' D'")
			return fmt.Sprintf("%s\n%v\n%+v", out, err, l.node("s1"))
		}
		booted := false
		defer func() {
			if !booted {
				l.t.Log(why())
			}
		}()
		l.eventually("s1 booted anew", func() bool {
			out, err := l.on("s1", "cat /proc/sys/kernel/random/boot_id")
			return err == nil && out != before
		})
		booted = true
		l.up("s1")
		check(l)
		if _, err := l.on("s1", "(sleep 1; poweroff) >/dev/null 2>&1 &"); err != nil {
			l.t.Fatal(err)
		}
		l.eventually("s1 is off", func() bool { return l.node("s1").Power == "off" })
		l.fault("poweron s1")
		l.up("s1")
		check(l)
		l.fault("reset s1")
		l.up("s1")
		check(l)
	})

	l.run("down and up with the disks kept", func(l *liveRack) {
		if err := Down(ctx, dir, true); err != nil {
			l.t.Fatal(err)
		}
		nothingLeft(l.t, l.dir, cfg.Netns())
		if _, err := Up(ctx, cfg, dir, nil); err != nil {
			l.t.Fatal(err)
		}
		if out := l.must("s1", "cat /etc/kept"); out != "kept" {
			l.t.Error(out)
		}
	})
}

// Down removes everything that a builder killed at any moment leaves. An interrupted
// builder leaves nothing.
func TestKilledUp(t *testing.T) {
	tmp := racktest.Dir(t)
	dir := filepath.Join(tmp, "rack")
	cfg := liveConfig("killed", tmp)
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL} {
		cmd := exec.Command("/proc/self/exe", "rack", "_up", dir, "killed")
		cmd.Env = append(os.Environ(), "RACK_SUITE="+cfg.Suite)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i*i) * 250 * time.Millisecond)
		_ = cmd.Process.Signal(sig)
		_ = cmd.Wait()
		procs, _ := tool.RackProcesses(dir)
		t.Logf("killed after %d ms: %d processes, namespace %v", i*i*250, len(procs), netnsExists(cfg.Netns()))
		if i%2 == 1 {
			continue // the next up must cope
		}
		for range 2 {
			if err := Down(context.Background(), dir, false); err != nil {
				t.Fatal(err)
			}
		}
		nothingLeft(t, dir, cfg.Netns())
	}
	if err := Down(context.Background(), dir, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	go func() {
		<-started
		cancel()
	}()
	_, err := Up(ctx, cfg, dir, func(e tool.Event) {
		if e.Step == "boot s2" && !e.Done {
			close(started)
		}
	})
	if err == nil {
		t.Error("an interrupted up succeeds")
	}
	nothingLeft(t, dir, cfg.Netns())
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is left")
	}
}
