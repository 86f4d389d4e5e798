package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"github.com/mortarhpc/mortar/internal/host/sshtest"
)

// configured writes ssh's configuration for a target, which itself says no more than its address.
func configured(t *testing.T, target *Target, lines ...string) {
	t.Helper()
	target.SSHConfig = filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(target.SSHConfig, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func knownHosts(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A host is reached by an alias, with port, key and known hosts of ssh's configuration.
func TestConfigIsObeyed(t *testing.T) {
	s, target, opts := setup(t)
	known := knownHosts(t, "storage "+s.HostKey())
	configured(t, &target,
		"Host nfs1", "  HostName 127.0.0.1", "  User root", "  IdentityFile "+target.Identity, "  HostKeyAlias storage", "  UserKnownHostsFile "+known,
		`Match originalhost nfs1 exec "true"`, fmt.Sprintf("  Port %d", s.Addr.Port))
	target.Address, target.Port, target.Identity, target.HostKey = "nfs1", 0, "", ""
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()

	// What the spec says counts more.
	target.Port = 1
	if _, err := Connect(t.Context(), target, opts); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v", err)
	}
	// Its own commands have a limit.
	configured(t, &target, `Match exec "sleep 60"`)
	short := opts
	short.Timeout = 200 * time.Millisecond
	if _, err := Connect(t.Context(), target, short); !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "ssh -G") {
		t.Errorf("%v", err)
	}
	configured(t, &target, "NoSuchKeyword yes")
	if _, err := Connect(t.Context(), target, opts); !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "nosuchkeyword") {
		t.Errorf("%v", err)
	}
}

// The answer of ssh counts when ssh has ended: nothing waits for the end of its output, which what
// it has left running keeps open, or which a busy machine has not read yet.
func TestConfigOfSSHThatLeavesAProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\nsleep 5 &\necho port 2222\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	rules, err := sshRules(t.Context(), "", "nfs1")
	if err != nil || len(rules["port"]) != 1 || rules["port"][0] != "2222" {
		t.Errorf("%q, %v", rules, err)
	}
}

// The way leads over two bastions, whose host keys must be known.
func TestJump(t *testing.T) {
	_, target, opts := setup(t)
	first, last := sshtest.Start(t), sshtest.Start(t)
	at := func(s *sshtest.Server) string { return fmt.Sprintf("[127.0.0.1]:%d %s", s.Addr.Port, s.HostKey()) }
	write := func(known string) {
		configured(t, &target,
			"Host bastion1", "  HostName 127.0.0.1", fmt.Sprintf("  Port %d", first.Addr.Port), "  User me", "  IdentityFile "+first.Identity,
			"Host bastion2", "  HostName 127.0.0.1", fmt.Sprintf("  Port %d", last.Addr.Port), "  IdentityFile "+last.Identity,
			"Host 127.0.0.1", "  ProxyJump bastion1,bastion2",
			"Host *", "  UserKnownHostsFile "+known, "  GlobalKnownHostsFile /dev/null", "  IdentitiesOnly yes")
	}
	write(knownHosts(t, at(first), at(last)))
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Hello(t.Context()); err != nil {
		t.Error(err)
	}
	h.Close()

	write(knownHosts(t, at(first)))
	_, err = Connect(t.Context(), target, opts)
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "Host key verification failed") || !strings.Contains(err.Error(), "proxyjump bastion1,bastion2") {
		t.Errorf("an unknown bastion: %v", err)
	}
	configured(t, &target, "Host *", "  ProxyCommand /nowhere/command %h %p")
	if _, err = Connect(t.Context(), target, opts); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "/nowhere/command") {
		t.Errorf("a command that is not there: %v", err)
	}
}

// An authority's certificate is accepted for the names that its line has, and no other
// authority's is.
func TestHostCertificate(t *testing.T) {
	authority, _ := sshtest.NewKey(t)
	other, _ := sshtest.NewKey(t)
	_, target, opts := setup(t, func(c *ssh.ServerConfig, key ssh.Signer) {
		cert := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity}
		if err := cert.SignCert(rand.Reader, authority); err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.NewCertSigner(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		c.AddHostKey(signer)
	})
	target.HostKey = ""
	line := func(k ssh.Signer) string {
		return "@cert-authority 127.0.0.1,[127.0.0.1]:* " + sshtest.Authorized(k.PublicKey())
	}
	target.KnownHosts = knownHosts(t, line(authority))
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	target.KnownHosts = knownHosts(t, line(other))
	if _, err := Connect(t.Context(), target, opts); !errors.Is(err, ErrHostKey) || !strings.Contains(err.Error(), "is not one of an authority that "+target.KnownHosts) {
		t.Errorf("%v", err)
	}
}

// Eight keys in the SSH agent do not keep the one out that ssh's configuration names. Without
// a name they do, and the error says so.
func TestNamedKeyFirst(t *testing.T) {
	_, target, opts := setup(t, func(c *ssh.ServerConfig, _ ssh.Signer) { c.MaxAuthTries = 6 })
	ring := sshagent.NewKeyring()
	for range 8 {
		_, priv := sshtest.NewKey(t)
		if err := ring.Add(sshagent.AddedKey{PrivateKey: priv}); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(t.TempDir(), "agent")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _ = sshagent.ServeAgent(ring, c) }()
		}
	}()
	t.Setenv("SSH_AUTH_SOCK", socket)
	identity := target.Identity
	target.Identity = ""
	configured(t, &target, "IdentityFile "+identity)
	h, err := Connect(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	t.Setenv("HOME", t.TempDir()) // without keys
	target.SSHConfig = "none"
	if _, err := Connect(t.Context(), target, opts); !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "8 of the SSH agent") {
		t.Errorf("%v", err)
	}
}

// Another user works by sudo; what a login shell prints before does not matter.
func TestSudo(t *testing.T) {
	_, target, opts := setup(t)
	opts.AnyUser = false
	target.User = "admin"
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	sudo := func(script string) {
		if err := os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\necho Welcome to this site\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sudo("echo 'sudo: a password is required' >&2; exit 1\n")
	if _, err := Connect(t.Context(), target, opts); !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "a password is required") || !strings.Contains(err.Error(), "sudoers") {
		t.Errorf("%v", err)
	}
	sudo(`[ "$1 $2" = "-n --" ] && shift 2 && exec "$@"` + "\n")
	h, err := Connect(t.Context(), target, opts)
	if os.Getuid() != 0 { // the script above makes no root
		if !errors.Is(err, ErrLogin) {
			t.Errorf("%v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Hello(t.Context()); err != nil {
		t.Error(err)
	}
	h.Close()
}
