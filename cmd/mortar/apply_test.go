package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/sshtest"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// asMortar in the environment has the test binary be mortar.
const asMortar = "MORTAR_TEST_RUN"

// The test binary is what host copies over SSH: it runs the agent, and what claims run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "agent" || os.Args[1] == "host-brick") || os.Getenv(asMortar) != "" {
		os.Exit(run())
	}
	// No test may install its binary where this machine's own mortar is.
	const link = "/usr/local/sbin/mortar"
	before, _ := os.Readlink(link)
	code := runWithLib(m)
	if after, _ := os.Readlink(link); after != before {
		fmt.Fprintf(os.Stderr, "FAIL: a test has made %s a link to %s\n", link, after)
		code = 1
	}
	os.Exit(code)
}

// libDir is where the hosts of all tests keep the binary: each test would push its 50 MB
// anew. A test that runs itself in other namespaces passes the directory on.
var libDir = os.Getenv(libDirEnv)

const libDirEnv = "MORTAR_TEST_LIB_DIR"

// runWithLib runs the tests with a libDir.
func runWithLib(m *testing.M) int {
	if libDir == "" {
		dir, err := os.MkdirTemp("", "mortar-test-lib-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		libDir = dir
	}
	return m.Run()
}

// site is a directory with a spec. One SSH server of this test stands for all of its hosts.
type site struct {
	spec  string
	brick string
	hosts []map[string]any // the inventory's hosts
}

func newSite(t *testing.T, s *sshtest.Server, edit func(string) string) *site {
	t.Helper()
	t.Setenv("SSH_AUTH_SOCK", "")
	dir := t.TempDir()
	old := env.Connect
	env.Connect.LibDir, env.Connect.Link, env.Connect.AnyUser = libDir+"/lib", libDir+"/sbin/mortar", os.Getuid() != 0
	t.Cleanup(func() { env.Connect = old })
	b, err := examples.FS.ReadFile("nfs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if edit != nil {
		text = edit(text)
	}
	x := &site{spec: filepath.Join(dir, "brick.yaml"), brick: "brick1"}
	if err := os.WriteFile(x.spec, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nfs1", "c1"} {
		x.hosts = append(x.hosts, map[string]any{"name": name, "address": "127.0.0.1", "port": s.Addr.Port, "user": "root", "identity_file": s.Identity, "host_key": s.HostKey()})
	}
	x.inventory(t)
	return x
}

func (x *site) inventory(t *testing.T) {
	t.Helper()
	file := filepath.Join(filepath.Dir(x.spec), ".mortar", x.brick, "rack/inventory.json")
	b, err := json.Marshal(map[string]any{"hosts": x.hosts})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mortar runs a command and returns its exit code, stdout and error.
func mortar(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	err := runCommand(t.Context(), strings.NewReader("yes\n"), &out, io.Discard, args...)
	if err == nil {
		return 0, out.String(), ""
	}
	var ee *cli.Exit
	if !errors.As(err, &ee) {
		return exitFailed, out.String(), err.Error()
	}
	return ee.Code, out.String(), ee.Error()
}

// lineOf returns the first line of the spec that contains a text, as an error names it.
func (x *site) lineOf(t *testing.T, text string) string {
	t.Helper()
	b, err := os.ReadFile(x.spec)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(b), text)
	if !ok {
		t.Fatalf("no %q in the spec", text)
	}
	return fmt.Sprintf("%s:%d:", x.spec, strings.Count(before, "\n")+1)
}

// A fault before the first change ends plan and apply with 2. The message says where, what and
// how to mend it.
func TestRefused(t *testing.T) {
	s := sshtest.Start(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := closed.Addr().(*net.TCPAddr).Port
	_ = closed.Close()
	other, _ := sshtest.NewKey(t)
	for _, tc := range []struct {
		name string
		edit func(*site)
		at   string   // text at the place that the error names
		want []string // patterns
	}{
		{"missing disks", func(*site) {}, `serial: "MA`, []string{`nfs1`, `MA01`, `not there`, `check cabling`}},
		{"unreachable", func(x *site) { x.hosts[0]["port"] = port }, "address: 10.77.3.11", []string{`nfs1 \(127\.0\.0\.1:\d+\): unreachable`, `refused`, `is it powered on`}},
		{"wrong host key", func(x *site) { x.hosts[1]["host_key"] = sshtest.Authorized(other.PublicKey()) }, "name: c1",
			[]string{`c1 .*wrong host key: the host shows ssh-ed25519 SHA256:.* has ssh-ed25519 SHA256:`, `compare with its console`}},
		{"no login", func(x *site) { x.hosts[0]["identity_file"] = "/nowhere" }, "address: 10.77.3.11", []string{`nfs1`, `/nowhere`, `ssh\.identity`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := newSite(t, s, nil)
			tc.edit(x)
			x.inventory(t)
			for _, args := range [][]string{{"plan", x.spec}, {"apply", "--yes", x.spec}, {"apply", "--dry-run", x.spec}} {
				code, out, msg := mortar(t, args...)
				if code != exitBadInput {
					t.Errorf("%v: exit code %d, %s%s", args, code, out, msg)
				}
				if !strings.HasPrefix(msg, x.lineOf(t, tc.at)) {
					t.Errorf("%v: not at %s: %s", args, x.lineOf(t, tc.at), msg)
				}
				for _, w := range append(tc.want, "Nothing was changed") {
					if !regexp.MustCompile(w).MatchString(msg) {
						t.Errorf("%v: %s\ndoes not match %s", args, msg, w)
					}
				}
			}
			code, out, _ := mortar(t, "apply", "--yes", "--json", x.spec)
			var last map[string]any
			if err := json.Unmarshal([]byte(out), &last); err != nil || code != exitBadInput || last["changed"] != 0.0 || last["error"] == "" {
				t.Errorf("--json: exit code %d, %s (%v)", code, out, err)
			}
		})
	}
}

func TestUnsupportedUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: the server cannot become nobody")
		return
	}
	s := sshtest.Start(t)
	s.Nobody.Store(true)
	x := newSite(t, s, nil)
	env.Connect.LibDir = "/no-such-dir-of-mortar-tests"
	if code, _, msg := mortar(t, "plan", x.spec); code != exitBadInput {
		t.Errorf("%d %s", code, msg)
	}
}

func TestApplyAsks(t *testing.T) {
	x := newSite(t, sshtest.Start(t), nil)
	for _, args := range [][]string{{"apply", x.spec}, {"apply", "--json", x.spec}} {
		if code, _, msg := mortar(t, args...); code != exitBadInput {
			t.Errorf("%v: %d %s", args, code, msg)
		}
	}
}

func TestOneApplyAtATime(t *testing.T) {
	x := newSite(t, sshtest.Start(t), nil)
	d, err := cli.Load(x.spec)
	if err != nil {
		t.Fatal(err)
	}
	release, err := plan.Lock(d.Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if code, _, msg := mortar(t, "apply", "--yes", x.spec); code != exitBadInput {
		t.Errorf("%d %s", code, msg)
	}
}
