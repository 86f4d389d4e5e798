package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/sshtest"
)

// The test binary is what Connect pushes and starts as the agent.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" {
		if err := agent.ServeLogin(context.Background(), agent.NewCore(agent.HostSys{}, nil, "")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// setup gives a running server, a target that fits it and options that keep
// the pushed binary in the test's own directory.
func setup(t *testing.T, with ...func(*ssh.ServerConfig, ssh.Signer)) (*sshtest.Server, Target, Options) {
	t.Helper()
	t.Setenv("SSH_AUTH_SOCK", "")
	s := sshtest.Start(t, with...)
	dir := t.TempDir()
	return s, Target{Name: "h1", Address: "127.0.0.1", Port: s.Addr.Port, Identity: s.Identity, HostKey: s.HostKey(), SSHConfig: "none"},
		Options{LibDir: dir + "/lib", Link: dir + "/sbin/mortar", Timeout: 20 * time.Second, AnyUser: os.Getuid() != 0}
}

func TestConnectPushesOnce(t *testing.T) {
	s, target, opts := setup(t)
	ctx := t.Context()
	h, err := Connect(ctx, target, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	hello, err := h.Hello(ctx)
	if err != nil || hello.UID != os.Getuid() || hello.Protocol != agent.Protocol || hello.MemBytes == 0 {
		t.Errorf("hello: %+v", hello)
	}
	if got := s.Execs.Load(); got != 3 { // try, push, start
		t.Errorf("%d commands for the first connection, want 3", got)
	}
	if got, err := os.Readlink(opts.Link); err != nil || got != hello.Binary {
		t.Errorf("link %s -> %q (%v), want %q", opts.Link, got, err, hello.Binary)
	}
	if out, err := h.Query(ctx, "ls", "-U", "-d", "/proc", "/nowhere"); err != nil || out.Stdout != "/proc\n" || out.Code != 2 {
		t.Errorf("query: %+v %v", out, err)
	}
	h2, err := Connect(ctx, target, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer h2.Close()
	if got := s.Execs.Load(); got != 4 {
		t.Errorf("%d commands after the second connection, want 4: the binary was there", got)
	}
	if left, _ := filepath.Glob(opts.LibDir + "/.push*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What a power cut left of a binary that was just pushed is pushed again.
func TestTornBinary(t *testing.T) {
	_, target, opts := setup(t)
	for _, size := range []int64{0, 4096} {
		h, err := Connect(t.Context(), target, opts)
		if err != nil {
			t.Fatal(err)
		}
		hello, err := h.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		remote := hello.Binary
		h.Close()
		whole, err := os.ReadFile(remote)
		if err != nil {
			t.Fatal(err)
		}
		// A new file: the agent may not have ended yet, and runs from the old one.
		if err := errors.Join(os.Remove(remote), os.WriteFile(remote, whole[:size], 0o755)); err != nil {
			t.Fatal(err)
		}
		if h, err = Connect(t.Context(), target, opts); err != nil {
			t.Fatalf("%d bytes left of %d: %v", size, len(whole), err)
		}
		h.Close()
		if st, err := os.Stat(remote); err != nil || st.Size() != int64(len(whole)) {
			t.Errorf("%d bytes left: still so (%v)", size, err)
		}
	}
}

func TestLinkIsLeftAlone(t *testing.T) {
	_, target, opts := setup(t)
	if err := os.MkdirAll(filepath.Dir(opts.Link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/true", opts.Link); err != nil {
		t.Fatal(err)
	}
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	if got, _ := os.Readlink(opts.Link); got != "/bin/true" {
		t.Errorf("link now leads to %s", got)
	}
}

func TestOldBinariesAreRemoved(t *testing.T) {
	_, target, opts := setup(t)
	old, linked := filepath.Join(opts.LibDir, "mortar-0000"), filepath.Join(opts.LibDir, "mortar-1111")
	for _, d := range []string{opts.LibDir, filepath.Dir(opts.Link)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{old, linked} {
		if err := os.WriteFile(f, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(linked, opts.Link); err != nil {
		t.Fatal(err)
	}
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	if _, err := os.Stat(old); err == nil {
		t.Error("the old one is still there")
	}
	if _, err := os.Stat(linked); err != nil {
		t.Error("the one in use is gone")
	}
}

func TestNotRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: the server below could not become nobody")
		return
	}
	s, target, opts := setup(t)
	s.Nobody.Store(true)
	opts.LibDir = "/no-such-dir-of-mortar-tests" // no user has this folder
	_, err := Connect(t.Context(), target, opts)
	if !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "login as root does not get root's rights") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(opts.LibDir); err == nil {
		t.Error("something was written")
	}
}

func TestWrongHostKey(t *testing.T) {
	_, target, opts := setup(t)
	other, _ := sshtest.NewKey(t)
	right := target.HostKey
	target.HostKey = sshtest.Authorized(other.PublicKey())
	_, err := Connect(t.Context(), target, opts)
	if !errors.Is(err, ErrHostKey) {
		t.Fatalf("got %v", err)
	}
	key, _, _, _, _ := ssh.ParseAuthorizedKey([]byte(right))
	for _, want := range []string{"h1", ssh.FingerprintSHA256(key), ssh.FingerprintSHA256(other.PublicKey())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestKnownHosts(t *testing.T) {
	s, target, opts := setup(t)
	other, _ := sshtest.NewKey(t)
	file := filepath.Join(t.TempDir(), "known_hosts")
	name := fmt.Sprintf("[127.0.0.1]:%d", s.Addr.Port)
	line := func(k ssh.PublicKey) string { return name + " " + sshtest.Authorized(k) + "\n" }
	target.HostKey, target.KnownHosts = "", file

	_, err := Connect(t.Context(), target, opts)
	if !errors.Is(err, ErrHostKey) || !strings.Contains(err.Error(), "not known") || !strings.Contains(err.Error(), ssh.FingerprintSHA256(s.Key.PublicKey())) {
		t.Errorf("without a file: %v", err)
	}
	for _, tc := range []struct {
		name, content, want string
	}{
		{"right", line(s.Key.PublicKey()), ""},
		{"other host", "example.org " + sshtest.Authorized(s.Key.PublicKey()) + "\n", "not known"},
		{"changed", line(other.PublicKey()), "wrong host key"},
		{"garbage", name + " nonsense\n", "known_hosts file"},
	} {
		if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := Connect(t.Context(), target, opts)
		switch {
		case err == nil:
			h.Close()
			if tc.want != "" {
				t.Errorf("%s: connected", tc.name)
			}
		case tc.want == "" || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), file):
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestUserIsRefused(t *testing.T) {
	_, target, opts := setup(t)
	_, priv := sshtest.NewKey(t)
	right := target.Identity
	target.Identity = sshtest.WriteKey(t, priv, 0o600)
	if _, err := Connect(t.Context(), target, opts); !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "root") {
		t.Errorf("wrong key: %v", err)
	}
	if err := os.Chmod(right, 0o644); err != nil {
		t.Fatal(err)
	}
	target.Identity = right
	if _, err := Connect(t.Context(), target, opts); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("readable key: %v", err)
	}
	target.Identity = "/nowhere/id"
	if _, err := Connect(t.Context(), target, opts); err == nil || !strings.Contains(err.Error(), "/nowhere/id") {
		t.Errorf("missing key: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	_, target, opts := setup(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target.Port = ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	_, err = Connect(t.Context(), target, opts)
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), fmt.Sprintf("h1 (127.0.0.1:%d)", target.Port)) {
		t.Errorf("closed port: %v", err)
	}

	// A port that accepts and says nothing.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	target.Port = mute.Addr().(*net.TCPAddr).Port
	opts.Timeout = 200 * time.Millisecond
	if _, err = Connect(t.Context(), target, opts); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("mute port: %v", err)
	}
}

func TestFrozenHostIsNoticed(t *testing.T) {
	s, target, opts := setup(t)
	opts.KeepAlive, opts.Missed = 200*time.Millisecond, 3 // a busy machine logs in meanwhile
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s.Freeze()
	_, err = h.Clock(t.Context())
	if !errors.Is(err, agent.ErrLost) || !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "h1") {
		t.Errorf("got %v", err)
	}
}

// A session with a host that is silent on purpose lasts until it is excused no longer.
func TestExcusedHostIsAwaited(t *testing.T) {
	s, target, opts := setup(t)
	opts.KeepAlive, opts.Missed, opts.Excused = 20*time.Millisecond, 3, &Excused{}
	opts.Excused.Set("h1", true)
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 20*opts.KeepAlive)
	defer cancel()
	if _, err := h.Clock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("excused: %v", err)
	}
	opts.Excused.Set("h1", false)
	if _, err := h.Clock(t.Context()); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("no longer excused: %v", err)
	}
}

func TestCallEndsWithContext(t *testing.T) {
	_, target, opts := setup(t)
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx, cancel := context.WithCancel(t.Context())
	lines := 0
	file := filepath.Join(t.TempDir(), "two lines")
	if err := os.WriteFile(file, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = h.Follow(ctx, func(string) {
		if lines++; lines == 2 {
			cancel()
		}
	}, "tail", "-n", "+1", "-F", file)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := h.Clock(t.Context()); err != nil {
		t.Errorf("the session did not survive: %v", err)
	}
}

func TestConnectAllNamesEveryFailure(t *testing.T) {
	_, target, opts := setup(t)
	bad1, bad2 := target, target
	bad1.Name, bad1.Port = "b1", 1
	bad2.Name, bad2.HostKey = "b2", "nonsense"
	hosts, err := ConnectAll(t.Context(), map[string]Target{"h1": target, "b1": bad1, "b2": bad2}, opts)
	if hosts != nil || err == nil || !strings.Contains(err.Error(), "b1 (") || !strings.Contains(err.Error(), "b2 (") {
		t.Errorf("got %v, %v", hosts, err)
	}
}

func TestDialFromNetNS(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: a network namespace cannot be made")
		return
	}
	name := fmt.Sprintf("mortar-test-%d", os.Getpid())
	run := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	run("ip", "netns", "add", name)
	t.Cleanup(func() { run("ip", "netns", "del", name) })
	run("ip", "-n", name, "link", "set", "lo", "up")

	_, target, opts := setup(t)
	target.NetNS = name
	// The server listens in the home namespace: not to be seen from there.
	if _, err := Connect(t.Context(), target, opts); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), name) {
		t.Fatalf("from the namespace: %v", err)
	}
	// And one that listens there is.
	ln, err := listenIn(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	target.Port = ln.Addr().(*net.TCPAddr).Port
	for range 20 { // no thread may be left in the namespace
		c, err := dialIn(t.Context(), target.NetNS, target.Address, fmt.Sprint(target.Port))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	away := func() (out []string) {
		tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(tasks) == 0 {
			t.Fatal(err, tasks)
		}
		for _, task := range tasks {
			if ns, err := os.Readlink(task); err == nil && ns != home {
				out = append(out, task)
			}
		}
		return out
	}
	for range 1000 { // a thread's end is the kernel's to finish
		if len(away()) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if left := away(); left != nil {
		t.Errorf("threads %s are not in %s, which is home", left, home)
	}
	target.Address = "localhost"
	if _, err := dialIn(t.Context(), target.NetNS, target.Address, fmt.Sprint(target.Port)); err == nil || !strings.Contains(err.Error(), "IP address") {
		t.Errorf("a name in a namespace: %v", err)
	}
	target.NetNS, target.Address = "../x", "127.0.0.1"
	if _, err := dialIn(t.Context(), target.NetNS, target.Address, fmt.Sprint(target.Port)); err == nil {
		t.Error("a path was taken for a name")
	}
}

// listenIn listens in a network namespace.
func listenIn(name string) (net.Listener, error) {
	var ln net.Listener
	err := netns.Do(name, func() (err error) {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	return ln, err
}
