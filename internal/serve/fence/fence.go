package fence

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Name of the agent, a script in sbin that calls mortar with Word. A link to the binary, as
// the resource agent's, could lie: a binary that knows no such name ends with 0.
const (
	Name = "fence_mortar"
	Word = "fence-agent"
)

const (
	// hedge is how long a level may take to confirm before the next one is used beside it.
	hedge = 2 * time.Second
	// limit bounds an action. Pacemaker's own (pcmk_reboot_timeout, 40 s) is longer:
	// an agent that Pacemaker kills could leave one behind that still switches.
	limit = 30 * time.Second
	// patience is how long the power is tried to be brought back: a BMC that
	// has lost its own power boots for a minute and more.
	patience = 3 * time.Minute
	// rest is how long a server stays off that is to be switched on again: its power supplies
	// discharge, and the agents that switch it on take no processor from the takeover.
	rest = 5 * time.Second
	// again is the pause between two tries to switch on.
	again = 3 * time.Second
)

// metadata is what Pacemaker reads before it registers a device. It names no port:
// a device fences one server.
// Source: fence-agents, doc/FenceAgentAPI.md
//
//go:embed metadata.xml
var metadata string

// back is the action, of Mortar's own, of the process in the background that brings
// the power back.
const back = "back"

// device is a fence device of the cluster as its agent is called.
type device struct {
	id, agent string
	params    map[string]string
}

// agent is one call of fence_mortar.
type agent struct {
	action, server, levels string

	readCIB    func(path string) ([]byte, error)                                        // reads the cluster's configuration
	run        string                                                                   // the directory of locks
	log        func(format string, a ...any)                                            // to the host's log
	background func(lock *os.File, a *agent) error                                      // starts back
	use        func(ctx context.Context, d device, action string) (code int, err error) // runs a device's agent
	hedge      time.Duration
}

// Main is the agent. Pacemaker writes its parameters to in. The exit code is 0, 1, or 2
// for the status off.
func Main(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	a := &agent{readCIB: os.ReadFile, run: unit.RunDir, hedge: hedge, background: inBackground, use: use, log: func(string, ...any) {}}
	if l, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_NOTICE, Name); err == nil {
		a.log = func(format string, v ...any) { fmt.Fprintf(l, format, v...) }
	}
	a.read(args, in)
	code, err := a.do(ctx, out)
	if err != nil {
		a.log("%s of %s: %v", a.action, a.server, err)
		fmt.Fprintf(errs, "ERROR: %v\n", err) // Pacemaker logs it
	}
	return code
}

// read takes parameters: arguments as --name=value or -o action, without them lines of in.
// Source: fence-agents, doc/FenceAgentAPI.md
func (a *agent) read(args []string, in io.Reader) {
	a.action = "reboot"
	set := func(line string) {
		name, value, _ := strings.Cut(line, "=")
		if p := map[string]*string{"action": &a.action, "option": &a.action, "server": &a.server, "levels": &a.levels}[name]; p != nil {
			*p = value
		}
	}
	for i, arg := range args {
		if arg == "-o" && i+1 < len(args) {
			arg = "action=" + args[i+1]
		}
		set(strings.TrimPrefix(arg, "--"))
	}
	if len(args) > 0 {
		return
	}
	for s := bufio.NewScanner(in); s.Scan(); {
		set(strings.TrimSpace(s.Text()))
	}
}

func (a *agent) do(ctx context.Context, out io.Writer) (code int, err error) {
	if a.action == "metadata" {
		_, err := io.WriteString(out, metadata)
		return codeOf(err), err
	}
	bound := limit
	if a.action == back {
		bound = patience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("not done after %v", bound))
	defer cancel()
	levels, err := a.load(ctx)
	if err != nil {
		return 1, err
	}
	switch a.action {
	case "monitor": // the cluster monitors the devices themselves
		return 0, nil
	case "status":
		return a.status(ctx, levels)
	case back:
		time.Sleep(rest)
		err := a.on(ctx, levels)
		if err == nil {
			a.log("%s is switched on again", a.server)
		}
		return codeOf(err), err
	case "on", "off", "reboot":
	default:
		return 1, fmt.Errorf("action %q is not known", a.action)
	}
	lock, err := a.take(ctx)
	if err != nil {
		return 1, err
	}
	defer lock.Close()
	if a.action == "on" {
		err := a.on(ctx, levels)
		return codeOf(err), err
	}
	used, err := a.off(ctx, levels)
	if err != nil {
		return 1, err
	}
	if a.action == "reboot" {
		ids := strings.Split(a.levels, ";")
		b := *a
		b.action, b.levels = back, strings.Join(ids[:used], ";")
		// The server is off: a power that does not come back is no reason to tell
		// Pacemaker that it is not.
		if err := a.background(lock, &b); err != nil {
			a.log("nothing switches %s on again: %v", a.server, err)
		}
	}
	return 0, nil
}

// load reads the devices of each level. The daemon writes the file shortly after the
// cluster has a new configuration.
func (a *agent) load(ctx context.Context) (levels [][]device, err error) {
	if a.server == "" || strings.ContainsAny(a.server, "/\x00") || a.levels == "" {
		return nil, errors.New("the parameters server and levels are wanted")
	}
	for end := time.Now().Add(5 * time.Second); ; {
		if levels, err = a.devices(); err == nil || time.Now().After(end) {
			return levels, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (a *agent) devices() (levels [][]device, err error) {
	c, err := linux.ReadCIB(a.readCIB)
	if err != nil {
		return nil, err
	}
	for level := range strings.SplitSeq(a.levels, ";") {
		var all []device
		for one := range strings.SplitSeq(level, ",") {
			id, outlet, _ := strings.Cut(one, "=")
			d := device{id: id}
			if d.agent, d.params, err = Params(c, id); err != nil {
				return nil, err
			}
			if outlet != "" {
				d.params["port"] = outlet
			}
			all = append(all, d)
		}
		levels = append(levels, all)
	}
	return levels, nil
}

// take takes the lock of a server. It ends what still switches the server on after an
// earlier fencing: this one's "off" must be the last word.
func (a *agent) take(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(a.run, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(a.run, "fence-"+a.server+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		ok, err := flock.Try(f)
		switch {
		case ok:
			return f, f.Truncate(0)
		case err != nil:
		case ctx.Err() != nil:
			err = fmt.Errorf("another fencing of %s does not end: %w", a.server, context.Cause(ctx))
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		text := make([]byte, 20)
		n, _ := f.ReadAt(text, 0)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGTERM) // it has the lock, so it lives
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// inBackground starts a process that brings the power back and has the lock until then.
func inBackground(lock *os.File, a *agent) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, Word, "--action="+a.action, "--server="+a.server, "--levels="+a.levels)
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0)
	return err
}

// off uses the levels, the next one as soon as one is late or has failed, until one has
// confirmed that the server is off. It returns how many it has used. When it returns, none
// of their agents runs any more: one that is late must not switch off what is switched
// on again by then.
func (a *agent) off(ctx context.Context, levels [][]device) (used int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		level int
		err   error
	}
	begun := time.Now()
	results := make(chan result)
	var late <-chan time.Time
	running := 0
	next := func() {
		if used < len(levels) {
			n := used
			used++
			running++
			go func() { results <- result{n, a.each(ctx, levels[n], "off")} }()
			late = time.After(a.hedge)
		}
	}
	next()
	var failed []error
	winner := -1
	for running > 0 {
		select {
		case <-late:
			if winner < 0 {
				next()
			}
		case r := <-results:
			running--
			switch {
			case r.err == nil && winner < 0:
				winner = r.level
				a.log("%s is off: confirmed by %s after %.1f s", a.server, names(levels[r.level]), time.Since(begun).Seconds())
				stop()
			case winner < 0:
				failed = append(failed, r.err)
				next()
			}
		}
	}
	if winner < 0 {
		return used, errors.Join(failed...)
	}
	return used, nil
}

// on switches the server on by all levels, the last first: outlets before a BMC, which needs
// their power. Those that fail are tried again until ctx ends.
func (a *agent) on(ctx context.Context, levels [][]device) error {
	for {
		var left [][]device
		var errs []error
		for _, l := range slices.Backward(levels) {
			if err := a.each(ctx, l, "on"); err != nil {
				left, errs = append(left, l), append(errs, err)
			}
		}
		if len(left) == 0 {
			return nil
		}
		slices.Reverse(left)
		levels = left
		select {
		case <-ctx.Done():
			return errors.Join(errs...)
		case <-time.After(again):
		}
	}
}

// each has all devices of a level do an action, at once; all must succeed.
func (a *agent) each(ctx context.Context, level []device, action string) error {
	errs := make(chan error, len(level))
	for _, d := range level {
		go func() {
			_, err := a.use(ctx, d, action)
			errs <- err
		}()
	}
	var all []error
	for range level {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// use runs a device's agent. Only of a status 2 is no error: off.
func use(ctx context.Context, d device, action string) (code int, err error) {
	c, err := Command(d.agent, action, d.params)
	if err != nil {
		return 0, err
	}
	out, err := c.Run(ctx)
	if err == nil && out.Code != 0 && (action != "status" || out.Code != 2) {
		err = errors.New(Said(out.Stderr, out.Code, d.params))
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", d.id, action, err)
	}
	return out.Code, err
}

// status is that of the first level that answers: 0 on, 2 off. Of several outlets one
// that is on is enough for on.
func (a *agent) status(ctx context.Context, levels [][]device) (code int, err error) {
	var failed []error
	for _, l := range levels {
		codes := map[int]bool{}
		var err error
		for _, d := range l {
			code, derr := a.use(ctx, d, "status")
			codes[code], err = true, errors.Join(err, derr)
		}
		if err == nil {
			return slices.Min(slices.Collect(maps.Keys(codes))), nil
		}
		failed = append(failed, err)
	}
	return 1, errors.Join(failed...)
}

func names(level []device) string {
	ids := lists.Map(level, func(d device) string { return d.id })
	return strings.Join(ids, " + ")
}

func codeOf(err error) int {
	if err != nil {
		return 1
	}
	return 0
}
