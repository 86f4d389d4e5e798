package host

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/host/agent"
)

// route is how a host is logged in to: what the target says, else what ssh(1) would use for its
// address.
type route struct {
	user, host string
	port       int
	lookup     string   // host:port in files of known hosts
	known      []string // files of known hosts
	identities []string // private keys, the first one first; nil: the usual ones
	only       bool     // no other key than these
	agent      string   // socket of the SSH agent; "": none
	sudo       bool     // root's rights come from sudo -n
	proxy      []string // the command whose standard input and output lead to the host; nil: TCP
	by         string   // what of this is ssh's configuration, for messages; "" if nothing is
}

func (r *route) addr() string { return net.JoinHostPort(r.host, strconv.Itoa(r.port)) }

// because tells what of a route ssh's configuration says.
func (r *route) because() string {
	if r.by == "" {
		return ""
	}
	return " (ssh's configuration: " + r.by + ")"
}

// routeTo resolves a target. A host in a network namespace is a rack's: ssh's configuration is
// not for it.
func routeTo(ctx context.Context, t Target, opts Options) (*route, error) {
	r := &route{user: t.user(), host: t.Address, port: t.port(), agent: os.Getenv("SSH_AUTH_SOCK")}
	r.known = []string{expandHome("~/.ssh/known_hosts")}
	if t.NetNS == "" {
		limited, cancel := context.WithTimeout(ctx, opts.Timeout) // "Match exec" may hang
		defer cancel()
		if err := r.obey(limited, t); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &Error{Host: t.Name, Address: r.addr(), What: "ssh's configuration", Err: kindError{ErrLogin, err}, Mend: "`ssh -G " + t.Address + "` shows the same"}
		}
	}
	r.sudo = r.user != "root" && !opts.AnyUser
	if r.lookup == "" {
		r.lookup = r.addr()
	}
	if t.KnownHosts != "" {
		r.known = []string{t.KnownHosts}
	}
	if t.Identity != "" {
		r.identities, r.only = []string{t.Identity}, true
	}
	return r, nil
}

// obey takes what ssh's configuration says of the target's address, where the target does not
// say it. Source: ssh_config(5).
func (r *route) obey(ctx context.Context, t Target) error {
	is, err := sshRules(ctx, t.SSHConfig, t.Address)
	if is == nil || err != nil {
		return err
	}
	usual, err := usualRules(ctx)
	if err != nil {
		return err
	}
	var by []string
	// says gives the values of a keyword that is not as without any configuration.
	says := func(keyword string) []string {
		if strings.Join(is[keyword], "\n") == strings.Join(usual[keyword], "\n") {
			return nil
		}
		by = append(by, keyword+" "+strings.Join(is[keyword], ", "))
		return is[keyword]
	}
	if h := is["hostname"]; len(h) == 1 && h[0] != t.Address {
		r.host = says("hostname")[0]
	}
	if p := says("port"); p != nil && t.Port == 0 {
		if r.port, err = strconv.Atoi(p[0]); err != nil {
			return err
		}
	}
	if u := says("user"); u != nil && t.User == "" {
		r.user = u[0]
	}
	for _, f := range says("identityfile") {
		if f = expandHome(f); f != "none" {
			r.identities = append(r.identities, f)
		}
	}
	r.only = says("identitiesonly") != nil
	if a := says("identityagent"); a != nil {
		switch name, variable := strings.CutPrefix(a[0], "$"); {
		case a[0] == "none":
			r.agent = ""
		case variable:
			r.agent = os.Getenv(name)
		case a[0] != "SSH_AUTH_SOCK":
			r.agent = expandHome(a[0])
		}
	}
	if k := says("userknownhostsfile"); k != nil {
		r.known = nil
		for _, f := range strings.Fields(k[0]) {
			r.known = append(r.known, expandHome(f))
		}
	}
	if g := is["globalknownhostsfile"]; g != nil {
		r.known = append(r.known, strings.Fields(g[0])...)
	}
	if a := says("hostkeyalias"); a != nil {
		r.lookup = net.JoinHostPort(a[0], "22") // a name without a port
	}
	if j := says("proxyjump"); j != nil && j[0] != "none" {
		r.proxy = jumpCommand(t.SSHConfig, j[0], r.addr())
	}
	if c := says("proxycommand"); c != nil && c[0] != "none" {
		r.proxy = []string{"/bin/sh", "-c", "exec " + strings.NewReplacer("%h", r.host, "%p", strconv.Itoa(r.port), "%r", r.user, "%n", t.Address, "%%", "%").Replace(c[0])}
	}
	r.by = strings.Join(by, ", ")
	return nil
}

// jumpCommand is the command that reaches addr through bastions, as ssh(1) itself makes it of
// ProxyJump: the last one connects, the others lead to it. Their host keys must be known.
func jumpCommand(config, bastions, addr string) []string {
	argv := []string{"ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"}
	if config != "" {
		argv = append(argv, "-F", config)
	}
	last := bastions
	if i := strings.LastIndex(bastions, ","); i >= 0 {
		argv, last = append(argv, "-J", bastions[:i]), bastions[i+1:]
	}
	if !strings.HasPrefix(last, "ssh://") {
		last = "ssh://" + last
	}
	return append(argv, "-W", addr, "--", last)
}

// sshRules asks ssh(1) what it uses for an address: the values of each keyword, in small
// letters; nil if this machine has no ssh. Rules for a host and "Match exec" are evaluated by it:
// what such a command leaves running may keep the output open.
func sshRules(ctx context.Context, config, address string) (map[string][]string, error) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, nil
	}
	argv := []string{program, "-G"}
	if config != "" {
		argv = append(argv, "-F", config)
	}
	out, err := command.Cmd{Argv: append(argv, "--", address), Env: os.Environ(), Group: command.OwnSession}.Text(ctx)
	if err != nil {
		return nil, err
	}
	rules := map[string][]string{}
	for line := range strings.Lines(out) {
		keyword, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		rules[keyword] = append(rules[keyword], value)
	}
	return rules, nil
}

var usual struct {
	sync.Mutex
	rules map[string][]string
}

// usualRules are those of a host without any configuration, asked once.
func usualRules(ctx context.Context) (map[string][]string, error) {
	usual.Lock()
	defer usual.Unlock()
	if usual.rules == nil {
		rules, err := sshRules(ctx, "none", "localhost")
		if err != nil {
			return nil, err
		}
		usual.rules = rules
	}
	return usual.rules, nil
}

// dial opens the connection for a login. complaint is what a proxy wrote to standard error, once
// the connection is closed; "" of a connection without proxy.
func (r *route) dial(ctx context.Context, netNS string) (conn net.Conn, complaint func() string, err error) {
	if r.proxy != nil {
		return dialProxy(r.proxy)
	}
	conn, err = dialIn(ctx, netNS, r.host, strconv.Itoa(r.port))
	return conn, func() string { return "" }, err
}

// dialProxy starts a route's proxy command. Closing the connection ends it.
func dialProxy(argv []string) (net.Conn, func() string, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "proxy"), os.NewFile(uintptr(pair[1]), "proxy")
	defer ours.Close()
	defer theirs.Close()
	said := &lastBytes{limit: 4 << 10}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, said
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	return conn, func() string {
		select {
		case <-ended:
		case <-time.After(2 * time.Second): // it hangs: what it said so far must do
		}
		return strings.TrimSpace(said.String())
	}, nil
}

// shellCommand has root run a script of sh(1), whatever the user's login shell is.
func (r *route) shellCommand(script string) string {
	sh := "exec sh -c "
	if r.sudo {
		sh = "exec sudo -n -- sh -c "
	}
	return sh + "'" + strings.ReplaceAll(script, "'", `'\''`) + "'"
}

// behindBegin removes from a stream what stands before and in the line agent.Begin: a login shell
// may print something.
type behindBegin struct {
	from  interface{ Read([]byte) (int, error) }
	seen  []byte
	found bool
}

// maxNoise bounds what a login shell may print, in bytes.
const maxNoise = 1 << 20

func (b *behindBegin) Read(p []byte) (int, error) {
	for !b.found {
		buf := make([]byte, 4096)
		n, err := b.from.Read(buf)
		b.seen = append(b.seen, buf[:n]...)
		if i := bytes.Index(b.seen, []byte("\n"+agent.Begin+"\n")); i >= 0 {
			b.seen, b.found = b.seen[i+len(agent.Begin)+2:], true
			break
		}
		switch {
		case err != nil:
			return 0, err
		case len(b.seen) > maxNoise:
			return 0, errors.New("the login shell prints too much: nothing of ours came in the first MiB")
		}
	}
	if len(b.seen) > 0 {
		n := copy(p, b.seen)
		b.seen = b.seen[n:]
		return n, nil
	}
	return b.from.Read(p)
}

// certificateOf is the file of a private key's certificate, as ssh(1) finds it.
func certificateOf(identity string) string { return filepath.Clean(identity) + "-cert.pub" }
