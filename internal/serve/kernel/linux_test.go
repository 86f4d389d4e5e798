package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/test/ownprocess"
)

// TestMain runs the tests in user, network and mount namespaces of their own,
// where they may do what the agent does as root, without any privilege and
// without a trace on the machine.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "ocf" && os.Args[2] == AnswerAction {
		if err := AnswerFor(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	ownprocess.Namespaces(m)
}

// publicLink is a name of an interface in a namespace.
const publicLink = "public"

// atOnce has a lock be tried once.
func atOnce(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func sh(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
}

func TestAddressReal(t *testing.T) {
	other := inOtherNet(t)
	k := New()
	own := netip.MustParseAddr("10.9.0.1")
	service := netip.MustParsePrefix("10.9.0.9/24")
	ifc, err := k.Interface(own)
	if err != nil || ifc.Name != "va" {
		t.Fatalf("%+v, %v", ifc, err)
	}
	link, err := arpLinkOf(ifc)
	if err != nil || net.HardwareAddr(link.broadcast).String() != "ff:ff:ff:ff:ff:ff" {
		t.Fatalf("%+v, %v", link, err)
	}
	if who, err := k.ProbeARP(t.Context(), ifc, service.Addr(), 50*time.Millisecond); err != nil || who != "" {
		t.Fatalf("somebody answers: %q, %v", who, err)
	}
	for range 2 { // the second time it is there already
		if err := k.AddAddress(ifc, service); err != nil {
			t.Fatal(err)
		}
	}
	all, err := k.Addresses()
	if err != nil || all[service] != "va" {
		t.Fatalf("%v, %v", all, err)
	}
	// From the other side: it answers, and is announced.
	err = other(func() error {
		if err := exec.Command("ip", "addr", "add", "10.9.0.2/24", "dev", "vb").Run(); err != nil {
			return err
		}
		peer, err := k.Interface(netip.MustParseAddr("10.9.0.2"))
		if err != nil {
			return err
		}
		who, err := k.ProbeARP(t.Context(), peer, service.Addr(), 5*time.Second)
		if err != nil {
			return err
		}
		if want := net.HardwareAddr(link.addr).String(); who != want {
			return fmt.Errorf("answered by %s, want %s", who, want)
		}
		there, err := arpLinkOf(peer)
		if err != nil {
			return err
		}
		fd, err := there.socket()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			return err
		}
		announced := make(chan error, 1)
		go func() { announced <- k.AnnounceARP(ifc, service.Addr()) }()
		if err := <-announced; err != nil {
			return err
		}
		seen := map[byte]bool{}
		buf := make([]byte, 128)
		for len(seen) < 2 {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				return fmt.Errorf("no announcement: %w (seen %v)", err, seen)
			}
			if mac := there.claim(buf[:n], service.Addr()); mac != nil && bytes.Equal(buf[24:28], buf[14:18]) {
				seen[buf[7]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Taken by the other side: the probe names it.
	if err := k.DelAddress("va", service); err != nil {
		t.Fatal(err)
	}
	if err := k.DelAddress("va", service); err != nil {
		t.Fatalf("removing what is not there: %v", err)
	}
	if all, _ := k.Addresses(); all[service] != "" {
		t.Error("the address is still there")
	}
	if err := other(func() error { return exec.Command("ip", "addr", "add", "10.9.0.9/24", "dev", "vb").Run() }); err != nil {
		t.Fatal(err)
	}
	if who, err := k.ProbeARP(t.Context(), ifc, service.Addr(), 5*time.Second); err != nil || who == "" {
		t.Errorf("nobody answers: %v", err)
	}
}

// ipoib is an interface of IP over InfiniBand: its addresses are those of the
// examples of RFC 4391, section 9.1.1, in form.
func ipoib(index int) arpLink {
	return arpLink{
		index: index, hatype: unix.ARPHRD_INFINIBAND,
		addr:      []byte{0x80, 0, 2, 8, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xe4, 0x1d, 0x2d, 3, 0, 0xa5, 0xf0, 0x51},
		broadcast: []byte{0, 0xff, 0xff, 0xff, 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
	}
}

func TestARPPacketsOfInfiniBand(t *testing.T) {
	l, a := ipoib(7), netip.MustParseAddr("10.20.0.100")
	const own = "80000208fe80000000000000e41d2d0300a5f051"
	if got, want := fmt.Sprintf("%x", l.packet(arpRequest, netip.IPv4Unspecified(), l.nobody(), a)),
		"0020"+"0800"+"14"+"04"+"0001"+own+"00000000"+strings.Repeat("00", 20)+"0a140064"; got != want {
		t.Errorf("probe %s\nwant  %s", got, want)
	}
	to := l.sockaddr()
	if len(to) != 32 || binary.NativeEndian.Uint32(to[4:]) != 7 || binary.NativeEndian.Uint16(to[8:]) != 32 || to[11] != 20 || !bytes.Equal(to[12:], l.broadcast) {
		t.Errorf("sent to %x", to)
	}
	l.addr = bytes.Repeat([]byte{9}, 20)
	other := l.packet(arpReply, a, l.nobody(), a)
	if who := ipoib(7).claim(other, a); !bytes.Equal(who, l.addr) {
		t.Errorf("claimed by %s", who)
	}
	for _, cut := range []int{0, 8, 55} {
		if who := ipoib(7).claim(other[:cut], a); who != nil {
			t.Errorf("%d bytes: claimed by %s", cut, who)
		}
	}
	if who := ipoib(7).claim(other, a.Next()); who != nil {
		t.Errorf("another address: claimed by %s", who)
	}
}

// tun makes an interface of a hardware type; packets sent there are read from the
// file, and what is written to it is received. Each packet has two words before
// it, of which the second is its protocol.
// Source: Documentation/networking/tuntap.rst of the kernel.
func tun(t *testing.T, name string, hatype int) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	ifr.SetUint16(unix.IFF_TUN)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETLINK, hatype); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	sh(t, "ip", "link", "set", name, "up")
	return f
}

// The kernel has no fake InfiniBand interface: its tun devices take that hardware
// type, but have no hardware addresses then. One of type tunnel6 has addresses of
// 16 bytes, more than Ethernet's struct sockaddr_ll has room for.
func TestARPOfInfiniBandReal(t *testing.T) {
	const tunnel6 = 769 // ARPHRD_TUNNEL6
	a := netip.MustParseAddr("10.20.0.100")
	for name, hatype := range map[string]int{"ib0": unix.ARPHRD_INFINIBAND, "long0": tunnel6} {
		t.Run(name, func(t *testing.T) {
			f := tun(t, name, hatype)
			ifc, err := netlink{}.Link(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := arpLinkOf(ifc); err == nil || !strings.Contains(err.Error(), "hardware type "+strconv.Itoa(hatype)) {
				t.Errorf("an interface without addresses of InfiniBand: %v", err)
			}
			l, partner := ipoib(ifc.Index), ipoib(ifc.Index)
			partner.addr = bytes.Repeat([]byte{9}, 20)
			seen := make(chan []byte)
			go func() {
				defer close(seen)
				for buf := make([]byte, 2048); ; {
					n, err := f.Read(buf)
					if err != nil {
						return
					}
					if binary.BigEndian.Uint16(buf[2:]) == unix.ETH_P_ARP {
						seen <- bytes.Clone(buf[4:n])
					}
				}
			}()
			probed := make(chan error)
			go func() {
				who, err := l.probe(t.Context(), a, 20*time.Second)
				if err == nil && who != net.HardwareAddr(partner.addr).String() {
					err = fmt.Errorf("answered by %q", who)
				}
				probed <- err
			}()
			if got, want := <-seen, l.packet(arpRequest, netip.IPv4Unspecified(), l.nobody(), a); !bytes.Equal(got, want) {
				t.Errorf("asked  %x\nwanted %x", got, want)
			}
			answer := append([]byte{0, 0, 8, 6}, partner.packet(arpReply, a, l.addr, netip.IPv4Unspecified())...)
			if _, err := f.Write(answer); err != nil {
				t.Fatal(err)
			}
			if err := <-probed; err != nil {
				t.Fatal(err)
			}
			announced := make(chan error, 1)
			go func() { announced <- l.announce(a) }()
			for _, want := range [][]byte{l.packet(arpRequest, a, l.nobody(), a), l.packet(arpReply, a, l.broadcast, a)} {
				if got := <-seen; !bytes.Equal(got, want) {
					t.Errorf("announced %x\nwanted    %x", got, want)
				}
			}
			if err := <-announced; err != nil {
				t.Error(err)
			}
		})
	}
}

// Connections to the address end at both sides' next word, those to others
// stay.
func TestResetReal(t *testing.T) {
	sh(t, "ip", "link", "set", "lo", "up")
	k := New()
	dial := func(family, addr, to string) (client, server net.Conn, port uint16) {
		l, err := net.Listen(family, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		client, err = net.Dial("tcp4", net.JoinHostPort(to, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)))
		if err != nil {
			t.Fatal(err)
		}
		server, err = l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return client, server, uint16(l.Addr().(*net.TCPAddr).Port)
	}
	c1, s1, port := dial("tcp4", "127.0.0.9:0", "127.0.0.9")
	c2, s2, _ := dial("tcp4", fmt.Sprintf("127.0.0.8:%d", port), "127.0.0.8")
	c3, s3, mapped := dial("tcp", ":0", "127.0.0.9") // a socket of IPv6
	defer c3.Close()
	defer s3.Close()
	defer c1.Close()
	defer c2.Close()
	defer s2.Close()
	// As nfsd leaves them: closed, the other side does not know yet.
	defer s1.Close()
	if err := k.ResetConnections(netip.MustParseAddr("127.0.0.9"), port); err != nil {
		t.Fatal(err)
	}
	if err := k.ResetConnections(netip.MustParseAddr("127.0.0.9"), mapped); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{c1, c3} {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection was not reset: %v", err)
		}
	}
	if _, err := s2.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	c2.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c2.Read(make([]byte, 1)); err != nil {
		t.Errorf("a connection to another address was hit: %v", err)
	}
}

func TestRunReal(t *testing.T) {
	k := New()
	ctx := t.Context()
	out, err := k.Run(ctx, Command{Argv: []string{"cat"}, Stdin: "hello\n"})
	if err != nil || out != "hello" {
		t.Errorf("%q, %v", out, err)
	}
	_, err = k.Run(ctx, Command{Argv: []string{"ls", "/does/not/exist"}})
	if err == nil || !strings.Contains(err.Error(), "ls /does/not/exist: exit status 2: ") || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("%v", err)
	}
	if _, err := k.Run(ctx, Command{Argv: []string{"no-such-program"}}); err == nil {
		t.Error("ran a program that is not there")
	}
	// A daemon that keeps its output open is not waited for.
	pidfile := t.TempDir() + "/pid"
	if _, err := k.Run(ctx, Command{Argv: []string{"sh", "-c", `sleep 300 & echo $! >"$0"`, pidfile}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(pidfile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Kill(pid, 0); err != nil {
		t.Errorf("the daemon did not live on: %v", err)
	}
	k.Kill(pid, unix.SIGKILL)
	// One that is late is given up.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := k.Run(short, Command{Argv: []string{"sleep", "300"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	// A name of its own, for the process only.
	out, err = k.Run(ctx, Command{Argv: []string{"uname", "-n"}, Nodename: "brick-scope"})
	if err != nil || out != "brick-scope" {
		t.Errorf("%q, %v", out, err)
	}
	if own, err := k.Hostname(); err != nil || own == "brick-scope" {
		t.Errorf("own name %q, %v", own, err)
	}
	// It has a group of its own, unless it ends together with this process.
	for _, together := range []bool{true, false} {
		group, err := k.Run(ctx, Command{Argv: []string{"cut", "-d ", "-f5", "/proc/self/stat"}, Together: together})
		if err != nil || (group == strconv.Itoa(unix.Getpgrp())) != together {
			t.Errorf("together %v: group %s of %d, %v", together, group, unix.Getpgrp(), err)
		}
	}
	// The environment is the agent's, not Pacemaker's.
	t.Setenv("OCF_RESKEY_x", "1")
	out, err = k.Run(ctx, Command{Argv: []string{"env"}, Env: []string{"A=b"}})
	if err != nil || strings.Contains(out, "OCF_") || !strings.Contains(out, "A=b") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestFilesReal(t *testing.T) {
	k := New()
	dir := t.TempDir()
	p := dir + "/f"
	for _, want := range []string{"one", "", "three"} {
		if err := k.Save(p, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := k.ReadFile(p); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	if names, err := k.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left behind: %q, %v", names, err)
	}
	for _, f := range []string{"z", "b", "y", "a", "c"} {
		if err := k.Save(dir+"/"+f, nil); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := k.ReadDir(dir); err != nil || !slices.Equal(names, []string{"a", "b", "c", "f", "y", "z"}) {
		t.Errorf("not sorted: %q, %v", names, err)
	}
	if err := k.Save(dir+"/none/f", nil); err == nil {
		t.Error("saved into a directory that is not there")
	}
	if err := k.Poke(dir+"/g", "x"); err == nil {
		t.Error("poked a file that is not there")
	}
	if err := k.Access(dir); err != nil {
		t.Error(err)
	}
	if err := writeRead(dir + "/check"); err != nil {
		t.Error(err)
	}
	b, err := k.ReadBlocks(dir+"/check", 0, 4096)
	if err != nil || len(b) != 4096 || bytes.Count(b, []byte{0}) > 1000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := k.ReadBlocks(dir+"/check", 4096, 4096); err == nil {
		t.Error("read beyond the end")
	}
}

// A reserve takes up room, only ever grows, and is given back when the
// file is emptied.
func TestReserve(t *testing.T) {
	k := &Linux{}
	p := t.TempDir() + "/reserve"
	blocks := func() int64 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	for _, size := range []int64{1 << 16, 1 << 20, 1 << 18} {
		if err := k.Reserve(p, size); err != nil {
			t.Fatal(err)
		}
		if got := blocks(); got < size {
			t.Errorf("reserved %d bytes, takes up %d", size, got)
		}
	}
	if got := blocks(); got < 1<<20 {
		t.Errorf("a smaller reserve shrank it to %d", got)
	}
	if err := k.Empty(p); err != nil {
		t.Fatal(err)
	}
	if got := blocks(); got != 0 {
		t.Errorf("emptied, and takes up %d", got)
	}
	if free, err := k.Free(p); err != nil || free <= 0 {
		t.Errorf("free: %d, %v", free, err)
	}
}

// inOtherNet runs a thread in another network namespace, connected by a pair
// of interfaces: here va with 10.9.0.1/24, there vb. do runs f there.
func inOtherNet(t *testing.T) (do func(func() error) error) {
	t.Helper()
	tid := make(chan int)
	work := make(chan func() error)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			tid <- -1
			return
		}
		tid <- unix.Gettid()
		for f := range work {
			result <- f()
		}
	}()
	id := <-tid
	if id < 0 {
		t.Fatal("no second network namespace")
	}
	do = func(f func() error) error { work <- f; return <-result }
	t.Cleanup(func() {
		exec.Command("ip", "link", "del", "va").Run()
		close(work)
	})
	sh(t, "ip", "link", "set", "lo", "up")
	sh(t, "ip", "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", strconv.Itoa(id))
	sh(t, "ip", "link", "set", "va", "up")
	sh(t, "ip", "addr", "add", "10.9.0.1/24", "dev", "va")
	if err := do(func() error { return exec.Command("ip", "link", "set", "vb", "up").Run() }); err != nil {
		t.Fatal(err)
	}
	return do
}

// Messages of the kernel wake the watcher.
func TestEventsReal(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := netlink{}.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, "ip", "link", "add", "ev0", "type", "veth", "peer", "name", "ev1")
	defer sh(t, "ip", "link", "del", "ev0")
	<-events
	// An address that something takes away: no link changes.
	sh(t, "ip", "address", "add", "192.0.2.9/32", "dev", "lo")
	if events, err = (netlink{}).Events(ctx); err != nil {
		t.Fatal(err)
	}
	sh(t, "ip", "address", "del", "192.0.2.9/32", "dev", "lo")
	<-events
}

// followFile tells of a file of /proc when it begins to look, and at each event.
func TestFollowFile(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	events, ended := make(chan struct{}), make(chan struct{})
	go func() {
		followFile(ctx, "/proc/self/mounts", func() {
			select {
			case events <- struct{}{}:
			case <-ctx.Done():
			}
		})
		close(ended)
	}()
	<-events
	for range 2 {
		at := t.TempDir()
		if err := unix.Mount("test", at, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, 0) })
		<-events
	}
	end()
	<-ended
}

// A process that was started and has ended is gone: as a zombie it would have a name.
func TestStartedProcessEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	if err := New().Start(Command{Argv: []string{"sh", "-c", `echo $$ >"$0.new"; mv "$0.new" "$0"`, file}}); err != nil {
		t.Fatal(err)
	}
	for {
		if b, err := os.ReadFile(file); err == nil {
			if _, err := os.Stat("/proc/" + strings.TrimSpace(string(b))); errors.Is(err, fs.ErrNotExist) {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// A file system that lacks the room loses no block to a file that will not fit.
func TestFillAsksForRoomFirst(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	file := filepath.Join(dir, "image")
	var st unix.Stat_t
	if err := New().Fill(file, 8<<20); !errors.Is(err, unix.ENOSPC) || unix.Stat(file, &st) != nil || st.Blocks != 0 {
		t.Errorf("%v; the file has %d blocks", err, st.Blocks)
	}
	if err := New().Fill(file, 2<<20); err != nil || unix.Stat(file, &st) != nil || st.Blocks != 2<<20/512 {
		t.Errorf("%v; the file has %d blocks", err, st.Blocks)
	}
}
