package main

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

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/run/hardware"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/watch"
)

// watchFlags are those of mortar watch.
type watchFlags struct {
	listen, notify, mail string
	names                []string
	sendmail             string // the program that --mail runs
	interval, timeout    time.Duration
}

func newWatchCmd() *cobra.Command {
	f := watchFlags{sendmail: watch.Sendmail}
	cmd := command("watch", func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) })
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:9880", "address and port to serve; empty: none")
	cmd.Flags().StringSliceVar(&f.names, "name", nil, "another name by which readers call this machine, such as wall.example.org; may be repeated")
	cmd.Flags().StringVar(&f.notify, "notify", "", "program to run for each finding")
	cmd.Flags().StringVar(&f.mail, "mail", "", "address or local user to send each finding to")
	cmd.Flags().DurationVar(&f.interval, "interval", 5*time.Second, "time between two looks")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
}

func (f *watchFlags) run(cmd *cobra.Command, files []string) error {
	if f.interval < time.Second || f.timeout < time.Second {
		return fail(exitBadInput, errors.New("--interval and --timeout must be 1s or more"))
	}
	if err := f.check(); err != nil {
		return fail(exitBadInput, err)
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	said := &printer{w: cmd.OutOrStdout()}
	var bricks []*watch.Brick
	for _, file := range files {
		b, err := openLooked(file, "", f.timeout)
		if err != nil {
			return err
		}
		defer b.c.Close()
		b.c.AskTraffic()
		b.c.AskHardware(hardware.NewSteady())
		if slices.ContainsFunc(bricks, func(x *watch.Brick) bool { return x.Name == b.d.Name }) {
			return fail(exitBadInput, fmt.Errorf("%s: brick %s is there already", file, b.d.Name))
		}
		bricks = append(bricks, watch.New(b.d.Name, b.watched, func(c watch.Change) { f.tell(ctx, said, c) }))
	}
	server, err := f.serve(bricks, said)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, b := range bricks {
		wg.Go(func() { b.Run(ctx, f.interval) })
	}
	<-ctx.Done()
	wg.Wait()
	if server != nil {
		_ = server.Close() // readers get a closed connection
	}
	return fail(exitInterrupted, nil)
}

// check refuses messages that could reach no reader.
func (f *watchFlags) check() error {
	if f.mail != "" {
		if !watch.Recipient(f.mail) {
			return fmt.Errorf("--mail %q is no mail address such as root@example.org, and no local user", f.mail)
		}
		if _, err := exec.LookPath(f.sendmail); err != nil {
			return fmt.Errorf("--mail: %w; install a mail server that has it, such as postfix, or msmtp-mta, which hands mail to another machine", err)
		}
	}
	if f.notify != "" {
		if !filepath.IsAbs(f.notify) {
			return fmt.Errorf("--notify %q: give the whole path of a program", f.notify)
		}
		if _, err := exec.LookPath(f.notify); err != nil {
			return fmt.Errorf("--notify: %w", err)
		}
	}
	return nil
}

// watched observes a brick, and its traffic.
func (b *looked) watched(ctx context.Context) (watch.Look, error) {
	status := b.look(ctx)
	l := watch.Look{Status: status, Traffic: observe.Traffics(b.d, b.facts), Silent: map[string]string{}, Hosts: len(b.facts.Hosts)}
	for name, a := range b.facts.Hosts {
		if a.Host == nil {
			l.Silent[name] = a.Err
		}
	}
	return l, ctx.Err()
}

// serve starts the HTTP server.
func (f *watchFlags) serve(bricks []*watch.Brick, said *printer) (*http.Server, error) {
	if f.listen == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return nil, fail(exitFailed, fmt.Errorf("--listen %s: %w", f.listen, err))
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	names := f.names
	if host, _, err := net.SplitHostPort(f.listen); err == nil {
		names = append(names, host)
	}
	if own, err := os.Hostname(); err == nil {
		names = append(names, own)
	}
	said.printf("http://%s shows %d bricks\n", l.Addr(), len(bricks))
	if !ok || !addr.IP.IsLoopback() {
		said.printf("Whoever reaches this address can read what mortar status shows.\n")
	}
	s := &http.Server{Handler: watch.Handler(bricks, names), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // Serve ends when Close is called
	return s, nil
}

func (f *watchFlags) tell(ctx context.Context, said *printer, c watch.Change) {
	said.printf("%s %s\n", c.Time.Format("2006-01-02 15:04:05"), screen.Line(c.String()))
	if c.Mend != "" && !c.Ended {
		said.printf("%20s→ %s\n", "", screen.Line(c.Mend))
	}
	var errs []error
	if f.notify != "" {
		errs = append(errs, watch.Command(ctx, f.notify, c))
	}
	if f.mail != "" {
		errs = append(errs, watch.Mail(ctx, f.sendmail, f.mail, c))
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
