// Package sshtest is an SSH server on loopback for tests: the real protocol,
// whose sessions run commands with the real shell of this machine. Only tests
// import it.
package sshtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Server is an SSH server.
type Server struct {
	Addr *net.TCPAddr
	Key  ssh.Signer
	// Identity is the file of the private key that may log in.
	Identity string
	// Execs counts the commands that were started.
	Execs atomic.Int32
	// Nobody: commands run as uid 65534.
	Nobody atomic.Bool

	conns  sync.Map // net.Conn
	frozen chan struct{}
}

// HostKey is the server's key as a spec pins it.
func (s *Server) HostKey() string { return Authorized(s.Key.PublicKey()) }

// Freeze stops all answers, as a host that froze does: connections stay.
func (s *Server) Freeze() { close(s.frozen) }

// Authorized is a public key as in authorized_keys.
func Authorized(k ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
}

// NewKey makes a key pair.
func NewKey(t testing.TB) (ssh.Signer, ed25519.PrivateKey) {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return s, priv
}

// WriteKey writes a private key to a file of the test's.
func WriteKey(t testing.TB, priv ed25519.PrivateKey, mode os.FileMode) string {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(priv, "test")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

// Start starts a server that ends with the test. with changes its configuration before; it gets
// the server's key.
func Start(t testing.TB, with ...func(*ssh.ServerConfig, ssh.Signer)) *Server {
	t.Helper()
	key, _ := NewKey(t)
	userKey, priv := NewKey(t)
	user := userKey.PublicKey()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: ln.Addr().(*net.TCPAddr), Key: key, Identity: WriteKey(t, priv, 0o600), frozen: make(chan struct{})}
	cfg := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) == string(user.Marshal()) {
			return nil, nil
		}
		return nil, errors.New("unknown user key")
	}}
	cfg.AddHostKey(key)
	for _, f := range with {
		f(cfg, key)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.conns.Store(c, true)
			go s.serve(freezer{c, s.frozen}, cfg)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		s.conns.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
	})
	return s
}

// freezer is a connection whose other end can stop to answer, as a host that
// froze does.
type freezer struct {
	net.Conn
	frozen chan struct{}
}

func (f freezer) Write(p []byte) (int, error) {
	select {
	case <-f.frozen:
		return len(p), nil // lost
	default:
		return f.Conn.Write(p)
	}
}

func (s *Server) serve(c net.Conn, cfg *ssh.ServerConfig) {
	conn, chans, reqs, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		_ = c.Close()
		return
	}
	defer conn.Close()
	go func() { // answers keep-alives, as sshd does: with a failure
		for r := range reqs {
			_ = r.Reply(false, nil)
		}
	}()
	for nc := range chans {
		if nc.ChannelType() == "direct-tcpip" { // it is a bastion: RFC 4254, section 7.2
			go forward(nc)
			continue
		}
		ch, creqs, err := nc.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range creqs {
				if r.Type != "exec" {
					_ = r.Reply(false, nil)
					continue
				}
				var p struct{ Command string }
				_ = ssh.Unmarshal(r.Payload, &p)
				_ = r.Reply(true, nil)
				s.Execs.Add(1)
				go s.exec(ch, p.Command)
			}
		}()
	}
}

func forward(nc ssh.NewChannel) {
	var to struct {
		Host   string
		Port   uint32
		Origin string
		From   uint32
	}
	_ = ssh.Unmarshal(nc.ExtraData(), &to)
	c, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer c.Close()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	go func() { _, _ = io.Copy(c, ch); _ = c.Close() }()
	_, _ = io.Copy(ch, c)
	_ = ch.Close()
}

func (s *Server) exec(ch ssh.Channel, command string) {
	cmd := exec.Command("/bin/sh", "-c", command)
	if s.Nobody.Load() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
	code := 0
	if err := cmd.Start(); err != nil {
		code = 127
	} else {
		go func() { _, _ = io.Copy(stdin, ch); _ = stdin.Close() }()
		if err := cmd.Wait(); err != nil {
			code = cmd.ProcessState.ExitCode()
		}
	}
	_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ N uint32 }{uint32(code)}))
	_ = ch.Close()
}
