package host

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/mortarhpc/mortar/internal/host/agent"
)

// Options of Connect; the zero value is what commands use.
type Options struct {
	// Timeout bounds dialling, logging in and starting the agent; 0: 30 s.
	// Pushing the binary is not counted.
	Timeout time.Duration
	// KeepAlive is how often the host is asked for a sign of life, and
	// Missed how many unanswered ones mean that it is gone; 0: 2 s and 3.
	KeepAlive time.Duration
	Missed    int
	Excused   *Excused // may be nil
	// Binary is pushed and started as the agent; "": this very program.
	Binary string
	// LibDir and Link are where the binary goes on the host, and the name it
	// is found by there; "": /usr/local/lib/mortar and /usr/local/sbin/mortar.
	LibDir, Link string
	// AnyUser goes on although the login is not root's, who alone can do
	// what the agent is there for. Tests need it.
	AnyUser bool
	// Progress is told what is being done; may be nil.
	Progress func(host, what string)
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 2 * time.Second
	}
	if o.Missed <= 0 {
		o.Missed = 3
	}
	if o.Binary == "" {
		o.Binary = "/proc/self/exe"
	}
	if o.LibDir == "" {
		o.LibDir = "/usr/local/lib/mortar"
	}
	if o.Link == "" {
		o.Link = "/usr/local/sbin/mortar"
	}
	if o.Progress == nil {
		o.Progress = func(string, string) {}
	}
	return o
}

// conn is the line of a session over SSH. When the connection ends, however it
// does, every call fails with an *Error that wraps agent.ErrLost; connecting
// again is the caller's business.
type conn struct {
	name  string
	hello agent.Hello // what the agent said first

	client atomic.Pointer[agent.Client] // set once the agent has answered
	ssh    *ssh.Client
	route  *route
	stop   func() // ends the keep-alive
}

// Connect logs in, pushes the binary where that very content is not there
// yet, and starts the agent. Its errors are *Error.
func Connect(ctx context.Context, t Target, opts Options) (*Session, error) {
	h, err := connect(ctx, t, opts)
	if err != nil {
		return nil, err
	}
	return New(t.Name, h), nil
}

func connect(ctx context.Context, t Target, opts Options) (*conn, error) {
	opts = opts.withDefaults()
	r, err := routeTo(ctx, t, opts)
	if err != nil {
		return nil, err
	}
	addr := r.addr()
	bin, err := loadBinary(opts.Binary)
	if err != nil {
		return nil, &Error{Host: t.Name, Address: addr, What: "own binary", Err: err}
	}
	if err := plainPath(opts.LibDir, opts.Link); err != nil {
		return nil, &Error{Host: t.Name, Address: addr, What: "agent", Err: err}
	}
	opts.Progress(t.Name, "logging in")
	over, err := login(ctx, t, r, opts.Timeout)
	if err != nil {
		return nil, err
	}
	h := &conn{name: t.Name, ssh: over, route: r}
	// Until the agent answers, the connection is what ctx can end.
	defer context.AfterFunc(ctx, func() { _ = over.Close() })()
	h.keepAlive(opts.KeepAlive, opts.Missed, opts.Excused)

	remote := path.Join(opts.LibDir, "mortar-"+bin.sum[:12])
	as := "agent"
	if t.Holder == "" {
		t.Holder, err = Holder(t.LockFile)
	}
	if err != nil {
		h.Close()
		return nil, h.wrap("agent", err, "")
	}
	if t.Holder != "" {
		as += " --holder " + t.Holder
	}
	started, err := h.start(ctx, remote, as, bin.size, opts.Timeout)
	if errors.Is(err, errAbsent) {
		opts.Progress(t.Name, "pushing the agent")
		if err = h.push(ctx, bin, opts, remote); err == nil {
			started, err = h.start(ctx, remote, as, bin.size, opts.Timeout)
		}
	}
	if err != nil {
		h.Close()
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, errNotRoot):
			return nil, notRoot(t, r)
		case strings.Contains(err.Error(), "sudo: "):
			return nil, h.wrap("sudo -n as "+r.user, kindError{ErrLogin, err}, "allow "+r.user+" all commands without a password in sudoers(5), or log in as root (ssh.user)")
		}
		return nil, h.wrap("agent", err, "look at the host: is its disk full, or /usr/local mounted noexec or read-only?")
	}
	h.hello = started
	if h.hello.Protocol != agent.Protocol {
		h.Close()
		return nil, h.wrap("agent", fmt.Errorf("speaks protocol %d, this binary %d", h.hello.Protocol, agent.Protocol), "")
	}
	if h.hello.UID != 0 && !opts.AnyUser {
		h.Close()
		return nil, notRoot(t, r)
	}
	opts.Progress(t.Name, "connected")
	return h, nil
}

// login dials, checks the host key and authenticates.
func login(ctx context.Context, t Target, r *route, timeout time.Duration) (*ssh.Client, error) {
	addr := r.addr()
	p, err := hostKeyPin(t, r)
	if err != nil {
		return nil, err
	}
	methods, tried, closeAgent, err := authMethods(t, r)
	if err != nil {
		return nil, err
	}
	defer closeAgent()
	dctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, complaint, err := r.dial(dctx, t.NetNS)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		where := ""
		if t.NetNS != "" {
			where = " (network namespace " + t.NetNS + ")"
		}
		return nil, &Error{Host: t.Name, Address: addr, What: "unreachable" + where, Err: kindError{ErrUnreachable, err},
			Mend: "is it powered on, is the address right, and does sshd listen there?"}
	}
	// The handshake has no context: closing the connection ends it.
	stop := context.AfterFunc(dctx, func() { _ = raw.Close() })
	var keyErr error
	cfg := &ssh.ClientConfig{
		User: r.user, Auth: methods, HostKeyAlgorithms: p.algos, ClientVersion: "SSH-2.0-mortar",
		HostKeyCallback: func(hostname string, remote net.Addr, key ssh.PublicKey) error {
			keyErr = p.check(hostname, remote, key)
			return keyErr
		},
	}
	c, chans, reqs, err := ssh.NewClientConn(raw, addr, cfg)
	if !stop() && err == nil {
		err = dctx.Err()
	}
	if err == nil {
		return ssh.NewClient(c, chans, reqs), nil
	}
	_ = raw.Close()
	switch unlike, _ := errors.AsType[*ssh.AlgorithmNegotiationError](err); {
	case keyErr != nil:
		return nil, keyErr
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case dctx.Err() != nil:
		return nil, &Error{Host: t.Name, Address: addr, What: fmt.Sprintf("no answer from sshd within %v", timeout), Err: kindError{ErrUnreachable, nil},
			Mend: "is the host up, or very busy?"}
	case unlike != nil && unlike.What == "host key":
		// The host has keys, but not of the pinned type.
		return nil, &Error{Host: t.Name, Address: addr, What: fmt.Sprintf("wrong host key: it has none of the pinned type (%s)", strings.Join(slices.Compact(slices.Sorted(slices.Values(p.algos))), ", ")), Err: kindError{ErrHostKey, err},
			Mend: "compare with the host's console, then mend the pinned key"}
	case strings.Contains(err.Error(), "unable to authenticate"), strings.Contains(err.Error(), "too many authentication failures"):
		mend := "put the public key into that user's authorized_keys on the host"
		if strings.Contains(err.Error(), "too many") {
			mend = "name the key as ssh.identity, or in ssh's configuration with IdentitiesOnly"
		}
		return nil, &Error{Host: t.Name, Address: addr, What: "login as " + r.user + " refused" + r.because() + "; keys offered: " + tried, Err: kindError{ErrLogin, err}, Mend: mend}
	}
	if said := complaint(); said != "" {
		return nil, &Error{Host: t.Name, Address: addr, What: "unreachable" + r.because(), Err: kindError{ErrUnreachable, errors.New(said)},
			Mend: "try the same by hand: ssh " + t.Address}
	}
	return nil, &Error{Host: t.Name, Address: addr, What: "SSH", Err: kindError{ErrUnreachable, err}, Mend: "does sshd listen there?"}
}

// kindError shows a cause and is also of a kind.
type kindError struct{ kind, cause error }

func (e kindError) Error() string {
	if e.cause == nil {
		return e.kind.Error()
	}
	return e.cause.Error()
}
func (e kindError) Unwrap() []error { return []error{e.kind, e.cause} }

var errNotRoot = errors.New("not root")

func notRoot(t Target, r *route) error {
	return &Error{Host: t.Name, Address: r.addr(), What: "the login as " + r.user + " does not get root's rights" + r.because(), Err: kindError{ErrLogin, errNotRoot},
		Mend: "log in as root, or as a user whom sudo -n makes root (ssh.user)"}
}

// errAbsent says that the binary is not on the host.
var errAbsent = errors.New("binary not there")

// start runs the agent and waits for its hello. A file of another size is what
// a power cut left of one that was just pushed: a shell would run an empty
// file as a script that says nothing and succeeds.
func (h *conn) start(ctx context.Context, remote, as string, size int64, timeout time.Duration) (agent.Hello, error) {
	var hello agent.Hello
	s, err := h.ssh.NewSession()
	if err != nil {
		return hello, err
	}
	stdin, err := s.StdinPipe()
	if err != nil {
		return hello, errors.Join(err, s.Close())
	}
	stdout, err := s.StdoutPipe()
	if err != nil {
		return hello, errors.Join(err, s.Close())
	}
	stderr := &lastBytes{limit: 8 << 10}
	s.Stderr = stderr
	// exec: no shell stays behind; the path is plain (see plainPath), and a holder is hex.
	script := fmt.Sprintf("test \"$(stat -c %%s %s 2>/dev/null)\" = %d || exit 127; exec %s %s", remote, size, remote, as)
	if err := s.Start(h.route.shellCommand(script)); err != nil {
		return hello, errors.Join(err, s.Close())
	}
	client := agent.NewClient(&behindBegin{from: stdout}, stdin)
	exited := make(chan error, 1)
	go func() {
		err := s.Wait()
		exited <- err
		client.Fail(sessionError(err, stderr))
	}()
	hctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = client.Call(hctx, string(agent.OpHello), nil, &hello, nil)
	if err == nil {
		h.client.Store(client)
		return hello, nil
	}
	if errors.Is(err, agent.ErrLost) {
		select {
		case werr := <-exited:
			var ee *ssh.ExitError
			// 127: no such file; 126: there, but cannot be executed.
			if errors.As(werr, &ee) && ee.ExitStatus() == 127 {
				err = errAbsent
			} else {
				err = sessionError(werr, stderr)
			}
		case <-hctx.Done():
		}
	}
	_ = s.Close()
	return hello, err
}

func sessionError(err error, stderr *lastBytes) error {
	text := strings.TrimSpace(stderr.String())
	switch {
	case err == nil:
		err = errors.New("agent ended")
	case errors.As(err, new(*ssh.ExitMissingError)):
		err = errors.New("connection ended")
	}
	if text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// push streams the binary, compressed, to the host and moves it into place
// when it is whole. A link that is there is left alone: what runs by that
// name (Pacemaker's agent) is changed by apply, not by looking.
func (h *conn) push(ctx context.Context, bin *binary, opts Options, remote string) error {
	dir, link := opts.LibDir, opts.Link
	packed, err := bin.packed()
	if err != nil {
		return err
	}
	s, err := h.ssh.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	s.Stdin = bytes.NewReader(packed)
	var out lastBytes
	out.limit = 4 << 10
	s.Stdout, s.Stderr = &out, &out
	// Every word is a constant or a plain path. $$ keeps two pushes apart;
	// gzip notices a stream that was cut off.
	tmp := path.Join(dir, ".push-$$")
	root := "test $(id -u) = 0 || exit 77"
	if opts.AnyUser {
		root = "true"
	}
	script := strings.Join([]string{
		"{ " + root + "; }",
		"umask 022",
		"mkdir -p " + dir + " " + path.Dir(link),
		"trap 'rm -f " + tmp + "' EXIT",
		"gzip -dc > " + tmp,
		"chmod 0755 " + tmp,
		// On disk before it has its name: Pacemaker's agent is this file, and an
		// empty one would answer "ok" to everything after a power cut.
		"sync " + tmp,
		"mv -f " + tmp + " " + remote,
		"sync " + dir,
		"if ! test -e " + link + "; then ln -sf " + remote + " " + link + "; fi",
		// Older ones, but for that which the link leads to.
		"for f in " + dir + "/mortar-*; do test $f -ef " + link + " || test $f -ef " + remote + " || rm -f $f; done",
	}, " && ")
	if err := s.Run(h.route.shellCommand(script)); err != nil {
		if ee := new(ssh.ExitError); errors.As(err, &ee) && ee.ExitStatus() == 77 {
			return errNotRoot
		}
		return fmt.Errorf("push: %w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// keepAlive closes the connection when the host gives no sign of life: a
// host that froze or lost power sends no FIN.
func (h *conn) keepAlive(interval time.Duration, missed int, excused *Excused) {
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		answered := make(chan error, 1)
		outstanding, unanswered := false, 0
		for {
			select {
			case <-ctx.Done():
				return
			case err := <-answered:
				outstanding, unanswered = false, 0
				if err != nil {
					return // the connection ended; the session's end says why
				}
				continue
			case <-t.C:
			}
			if !outstanding {
				outstanding = true
				go func() {
					_, _, err := h.ssh.SendRequest("keepalive@openssh.com", true, nil)
					answered <- err
				}()
				continue
			}
			if excused.Has(h.name) {
				unanswered = 0
				continue
			}
			if unanswered++; unanswered >= missed {
				if c := h.client.Load(); c != nil {
					c.Fail(fmt.Errorf("%w for %v", ErrNoAnswer, interval*time.Duration(missed)))
				}
				_ = h.ssh.Close()
				return
			}
		}
	}()
}

// Call sends one op to the agent; see agent.Client.Call. The error of an op
// that failed is a *agent.Error, that of a lost connection, or of a host that
// gives no sign, a *Error.
func (h *conn) Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error {
	err := h.client.Load().Call(ctx, op, params, result, onEvent)
	var silent *agent.SilentError
	if errors.As(err, &silent) {
		return h.wrap("op "+op, err, "find out what hangs on "+h.name+", or restart it")
	}
	if errors.Is(err, agent.ErrLost) {
		return h.wrap("op "+op, err, "")
	}
	return err
}

// Close ends the connection. Actions under way on the host are finished there.
func (h *conn) Close() {
	h.stop()
	if c := h.client.Load(); c != nil {
		c.Close()
	}
	_ = h.ssh.Close()
}

func (h *conn) wrap(what string, err error, mend string) error {
	return &Error{Host: h.name, Address: h.route.addr(), What: what, Err: err, Mend: mend}
}

// plainPath refuses what a shell could read as more than a path.
func plainPath(paths ...string) error {
	for _, p := range paths {
		if !plain.MatchString(p) {
			return fmt.Errorf("%q is no plain absolute path", p)
		}
	}
	return nil
}

var plain = regexp.MustCompile(`^(/[A-Za-z0-9_.][A-Za-z0-9_.-]*)+$`)

// binary is a program to push.
type binary struct {
	path string
	sum  string // SHA-256, hex
	size int64
	once sync.Once
	gz   []byte
	err  error
}

var (
	binariesMu sync.Mutex
	binaries   = map[string]*binary{} // by path: hashed and packed once for all hosts
)

func loadBinary(p string) (*binary, error) {
	binariesMu.Lock()
	defer binariesMu.Unlock()
	if b := binaries[p]; b != nil {
		return b, nil
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return nil, err
	}
	b := &binary{path: p, sum: hex.EncodeToString(sum.Sum(nil)), size: size}
	binaries[p] = b
	return b, nil
}

// packed compresses the binary, fast rather than small: hosts are near.
func (b *binary) packed() ([]byte, error) {
	b.once.Do(func() {
		f, err := os.Open(b.path)
		if err != nil {
			b.err = err
			return
		}
		defer f.Close()
		var buf bytes.Buffer
		z, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
		if err != nil {
			b.err = err
			return
		}
		sum := sha256.New()
		if _, b.err = io.Copy(io.MultiWriter(z, sum), f); b.err != nil {
			return
		}
		if hex.EncodeToString(sum.Sum(nil)) != b.sum {
			b.err = fmt.Errorf("%s changed while it was read", b.path)
			return
		}
		b.err = z.Close()
		b.gz = buf.Bytes()
	})
	return b.gz, b.err
}

// lastBytes keeps the last bytes written to it.
type lastBytes struct {
	mu    sync.Mutex
	limit int
	b     []byte
}

func (t *lastBytes) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - t.limit; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *lastBytes) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
