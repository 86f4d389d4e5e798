package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/hardware"
)

// Watcher watches bricks, serves what it sees, and tells of each finding.
type Watcher struct {
	Listen       string   // address and port; "": none
	Names        []string // by which readers call this machine
	Notify, Mail string   // program to run, address to write to; "": none
	Sendmail     string   // the program that Mail runs
	Interval     time.Duration
	Timeout      time.Duration // how long any host may take to answer
}

// Run watches bricks until ctx ends.
func (f *Watcher) Run(ctx context.Context, c *cli.Console, files []string) error {
	if f.Interval < time.Second || f.Timeout < time.Second {
		return cli.Fail(cli.BadInput, errors.New("--interval and --timeout must be 1s or more"))
	}
	if err := f.check(); err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	said := &printer{w: c.Out}
	var bricks []*Brick
	for _, file := range files {
		b, err := c.Observe(file, "", f.Timeout, nil)
		if err != nil {
			return err
		}
		defer b.Hosts.Close()
		b.Hosts.AskTraffic()
		b.Hosts.AskHardware(hardware.NewSteady())
		name := b.Design.Name
		if slices.ContainsFunc(bricks, func(x *Brick) bool { return x.Name == name }) {
			return cli.Fail(cli.BadInput, fmt.Errorf("%s: brick %s is there already", file, name))
		}
		bricks = append(bricks, New(name, func(ctx context.Context) (Look, error) { return look(ctx, b) }, func(c Change) { f.tell(ctx, said, c) }))
	}
	server, err := f.serve(bricks, said)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, b := range bricks {
		wg.Go(func() { b.Run(ctx, f.Interval) })
	}
	<-ctx.Done()
	wg.Wait()
	if server != nil {
		_ = server.Close() // readers get a closed connection
	}
	return cli.Fail(cli.Interrupted, nil)
}

// check refuses messages that could reach no reader.
func (f *Watcher) check() error {
	if f.Mail != "" {
		if !Recipient(f.Mail) {
			return fmt.Errorf("--mail %q is no mail address such as root@example.org, and no local user", f.Mail)
		}
		if _, err := exec.LookPath(f.Sendmail); err != nil {
			return fmt.Errorf("--mail: %w; install a mail server that has it, such as postfix, or msmtp-mta, which hands mail to another machine", err)
		}
	}
	if f.Notify != "" {
		if !filepath.IsAbs(f.Notify) {
			return fmt.Errorf("--notify %q: give the whole path of a program", f.Notify)
		}
		if _, err := exec.LookPath(f.Notify); err != nil {
			return fmt.Errorf("--notify: %w", err)
		}
	}
	return nil
}

// look observes a brick, and its traffic.
func look(ctx context.Context, b *cli.Brick) (Look, error) {
	status := b.Look(ctx)
	l := Look{Status: status, Traffic: traffics(b.Design, b.Facts), Silent: map[string]string{}, Hosts: len(b.Facts.Hosts)}
	for name, a := range b.Facts.Hosts {
		if a.Host == nil {
			l.Silent[name] = a.Err
		}
	}
	return l, ctx.Err()
}

// serve starts the HTTP server.
func (f *Watcher) serve(bricks []*Brick, said *printer) (*http.Server, error) {
	if f.Listen == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", f.Listen, err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	names := f.Names
	if host, _, err := net.SplitHostPort(f.Listen); err == nil {
		names = append(names, host)
	}
	if own, err := os.Hostname(); err == nil {
		names = append(names, own)
	}
	shown := make([]string, len(bricks))
	for i, b := range bricks {
		shown[i] = b.Name
	}
	said.printf("http://%s shows %s\n", l.Addr(), strings.Join(shown, ", "))
	if !ok || !addr.IP.IsLoopback() {
		said.printf("Every host that reaches this address can read what mortar status shows.\n")
	}
	s := &http.Server{Handler: Handler(bricks, names), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // Serve ends when Close is called
	return s, nil
}

func (f *Watcher) tell(ctx context.Context, said *printer, c Change) {
	said.printf("%s %s\n", c.Time.Format("2006-01-02 15:04:05"), screen.Line(c.String()))
	if c.Mend != "" && !c.Ended {
		said.printf("%20s→ %s\n", "", screen.Line(c.Mend))
	}
	var errs []error
	if f.Notify != "" {
		errs = append(errs, Command(ctx, f.Notify, c))
	}
	if f.Mail != "" {
		errs = append(errs, Mail(ctx, f.Sendmail, f.Mail, c))
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		said.printf("%20snobody was told: %s\n", "", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// printer prints whole lines from several goroutines.
type printer struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format, args...)
}
