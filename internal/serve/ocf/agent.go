package ocf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	cmd "github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Exit codes of a resource agent, by the OCF Resource Agent API 1.1.
const (
	Success        = 0
	ErrGeneric     = 1
	ErrArgs        = 2 // not possible on this node as configured
	ErrUnimplement = 3
	ErrPerm        = 4
	ErrInstalled   = 5
	ErrConfigured  = 6 // not possible on any node
	NotRunning     = 7
)

const usage = "usage: service {start|stop|monitor|status|validate-all|meta-data}"

// Main runs the agent as Pacemaker does: one action as argument, parameters
// in the environment (getenv), reasons on stderr. It returns the exit code.
func Main(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	a := &agent{getenv: getenv, stderr: stderr, now: time.Now}
	if len(args) == 1 && args[0] == kernel.AnswerAction {
		if err := kernel.AnswerFor(ctx, os.Stdin, stdout); err != nil {
			fmt.Fprintln(stderr, err)
			return ErrGeneric
		}
		return Success
	}
	if len(args) == 2 && args[0] == childAction {
		return a.run(ctx, args[1])
	}
	if len(args) > 1 && args[0] == HeedAction {
		return a.heed(args[1], args[2:])
	}
	if len(args) > 1 && staying[args[0]] != nil {
		if err := staying[args[0]](ctx, args[1:]); err != nil {
			fmt.Fprintln(stderr, err)
			return ErrGeneric
		}
		return Success
	}
	if len(args) > 1 && (args[0] == OnVolume || args[0] == TryMount) {
		return a.offline(ctx, args[0], args[1], args[2:], stdout)
	}
	if len(args) != 1 {
		fmt.Fprintln(stderr, usage)
		return ErrArgs
	}
	switch args[0] {
	case "meta-data":
		io.WriteString(stdout, metadata)
		return Success
	case "usage", "help":
		fmt.Fprintln(stdout, usage)
		return Success
	case "validate-all", exportsAction:
		return a.run(ctx, args[0])
	case "start":
		return a.inTime(ctx, "start")
	case "monitor", "status":
		return a.inTime(ctx, "monitor")
	case "stop":
		return a.stop(ctx)
	case configureAction:
		if err := a.configure(ctx, os.Stdin); err != nil {
			a.reason(err)
			return ErrGeneric
		}
		return Success
	}
	fmt.Fprintln(stderr, usage)
	return ErrUnimplement
}

// Actions of apply. The first changes the exports of a service that runs here
// to those of its configuration, while clients use it. The second replaces the
// configuration with standard input, after exportfs has accepted its exports.
const (
	exportsAction   = "exports"
	configureAction = "configure"
)

type agent struct {
	getenv func(string) string
	stderr io.Writer
	now    func() time.Time
}

// reason prints the reason of a failure in one line, which Pacemaker shows: its code, and its
// text.
func (a *agent) reason(err error) {
	fmt.Fprintf(a.stderr, "ocf-exit-reason:[%s] %s\n", codeOf(err), strings.ReplaceAll(err.Error(), "\n", "; "))
}

func (a *agent) run(ctx context.Context, action string) int {
	cfg, code, err := a.config(action)
	if err != nil {
		a.reason(err)
		return code
	}
	if os.Geteuid() != 0 {
		a.reason(refusal.Give(refusal.Unable, errors.New("must be run as root")))
		return ErrPerm
	}
	began := a.now()
	s, err := a.service(action, cfg)
	if err != nil {
		a.reason(err)
		return ErrGeneric
	}
	log := s.Log
	ctx, cancel := a.within(ctx, s, action, a.timeout(action))
	defer cancel()

	if action == "monitor" {
		return a.monitor(ctx, s)
	}
	if code, err := s.validate(action); err != nil {
		a.reason(refusal.Give(refusal.Unable, err))
		return code
	}
	if action == "validate-all" {
		return Success
	}
	if f, err := unit.OpenLog(cfg.Service); err != nil {
		fmt.Fprintln(a.stderr, err)
	} else {
		defer f.Close()
		log.File = f
	}
	if action == exportsAction {
		if err := log.Step(action, func() error { return s.kind.Change(ctx) }); err != nil {
			a.reason(refusal.Give("exports", err))
			return ErrGeneric
		}
		return Success
	}
	unlock, err := lock(ctx, cfg.Service)
	if err != nil {
		a.reason(refusal.Give(refusal.Busy, err))
		return ErrGeneric
	}
	defer unlock()
	log.Mark("begin", began, nil)
	if action == "start" {
		err = s.start(ctx)
	} else {
		err = s.stop(ctx)
	}
	log.Mark("end", began, err)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (out of time after %.0f s)", err, a.now().Sub(began).Seconds())
		}
		a.reason(err)
		return ErrGeneric
	}
	return Success
}

// service makes the service of a configuration on this host.
func (a *agent) service(action string, cfg *Config) (*service, error) {
	k := kernel.New()
	host, err := k.Hostname()
	if err != nil {
		return nil, err
	}
	s, err := newService(cfg, k, host)
	if err != nil {
		return nil, err
	}
	s.Log = &unit.Steps{Action: action, Stderr: a.stderr, Now: a.now}
	s.action = action
	s.hold = func(ctx context.Context) (*Config, func(), error) {
		release, err := lock(ctx, cfg.Service)
		if err != nil {
			return nil, nil, err
		}
		fresh, _, err := a.config(action) // apply may have written it since this process read it
		if err != nil {
			release()
			return nil, nil, err
		}
		return fresh, release, nil
	}
	return s, nil
}

// configure writes a configuration if exportfs accepts its exports.
func (a *agent) configure(ctx context.Context, in io.Reader) error {
	file := a.getenv("OCF_RESKEY_config")
	if !path.IsAbs(file) {
		return fmt.Errorf("parameter config is %q: an absolute path is needed", file)
	}
	src, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	cfg, err := Parse("standard input", src)
	if err == nil {
		err = cfg.Able()
	}
	if err != nil {
		return err
	}
	s, err := a.service(configureAction, cfg)
	if err != nil {
		return err
	}
	if err := s.kind.Try(ctx); err != nil {
		return fmt.Errorf("%w; %s stays as it was", err, file)
	}
	return durable.Write(file, durable.File{Content: src, Mode: 0o600, UID: os.Geteuid(), GID: os.Getegid()})
}

// childAction makes the agent run the action that follows in its own process.
const childAction = "_child"

// inTime runs an action in a child process, and returns in time even if the
// child hangs in the kernel on a disk that never answers. Pacemaker cannot do
// that: it kills a late action but learns of the failure only when the process
// ends. It would never see the result of a monitor or a start, and would wait for a stop
// for its timeout and cluster-delay.
//
// Source: Pacemaker, lib/common/mainloop.c, child_timeout_callback: "will not die!"
func (a *agent) inTime(ctx context.Context, action string) int {
	cfg, code, err := a.config(action)
	if err != nil {
		if action == "start" {
			err = errors.Join(err, noteBadConfig(kernel.New(), a.getenv("OCF_RESKEY_config"), err))
		}
		a.reason(err)
		return code
	}
	wait := a.timeout(action)
	if most := time.Duration(cfg.StartSeconds) * time.Second; action == "start" && most > 0 {
		wait = min(wait, most)
	}
	wait = max(wait-cmd.GivenUp, wait/2)
	slow := func() string { return "" }
	s, serr := a.service(action, cfg)
	ctx, cancel := a.within(ctx, s, action, wait)
	defer cancel()
	if serr == nil && action == "monitor" { // givenUp asks for no other one
		slow = s.storage.Paced()
	}
	out, err := cmd.Cmd{Argv: []string{"/proc/self/exe", "ocf", childAction, action}, Env: a.environment(wait)}.Run(ctx)
	io.WriteString(a.stderr, out.Stderr)
	if err == nil {
		return out.Code
	}
	code = a.givenUp(action, cfg, err, serr != nil || s.storage.Reachable(), slow())
	if code != Success && action != "stop" && serr == nil {
		s.tooLate(fmt.Errorf("the %s took too long: %w", action, err))
	}
	return code
}

// within is a context for an action that may take so long. A start has more time while a long
// piece of it gets on: Pacemaker's own limit is hours.
func (a *agent) within(ctx context.Context, s *service, action string, limit time.Duration) (context.Context, context.CancelFunc) {
	if action == "start" && s != nil {
		return s.Budget(ctx, limit)
	}
	return context.WithTimeout(ctx, limit)
}

// givenUp gives the exit code of an action that inTime gave up. While no path to
// the disks works, a monitor reports no failure: the multipath maps queue I/O
// for as long as the design says, and the watcher moves the service if the
// partner has paths. Nor does it while one slow disk holds I/O up: the partner would
// wait for the same disk.
func (a *agent) givenUp(action string, cfg *Config, err error, reachable bool, slow string) int {
	if action == "monitor" && !reachable {
		return Success
	}
	err = refusal.Give(refusal.Late, fmt.Errorf("%s of service %s took too long: %w", action, cfg.Service, err))
	if action == "monitor" && slow != "" {
		a.note(action, cfg, fmt.Errorf("%w; a move would not help: %s", err, slow))
		return Success
	}
	a.reason(err)
	a.note(action, cfg, err)
	return ErrGeneric
}

// environment passes Pacemaker's parameters on to a child that has less time.
func (a *agent) environment(wait time.Duration) []string {
	var out []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OCF_") {
			out = append(out, name+"="+a.getenv(name))
		}
	}
	return append(out, "OCF_RESKEY_config="+a.getenv("OCF_RESKEY_config"), fmt.Sprintf("OCF_RESKEY_CRM_meta_timeout=%d", wait.Milliseconds()))
}

// note writes the reason why an action failed to the service's log.
func (a *agent) note(action string, cfg *Config, err error) {
	if f, ferr := unit.OpenLog(cfg.Service); ferr == nil {
		defer f.Close()
		(&unit.Steps{Action: action, Stderr: a.stderr, Now: a.now, File: f}).Mark(action, a.now(), err)
	}
}

// monitor maps the state of the service to an exit code.
func (a *agent) monitor(ctx context.Context, s *service) int {
	st, err := s.monitor(ctx)
	level, _ := strconv.Atoi(a.getenv("OCF_CHECK_LEVEL"))
	if err == nil && st == unit.Running && level >= 10 {
		err = s.tryIO(ctx)
	}
	switch {
	case err != nil:
		a.reason(err)
		a.note("monitor", s.cfg, err)
		return ErrGeneric
	case st == unit.Running:
		s.OverdueNote().Forget() // an administrator has cleaned up
		return Success
	}
	if interval := a.getenv("OCF_RESKEY_CRM_meta_interval"); interval == "" || interval == "0" {
		s.warm(ctx) // this monitor is a probe
	}
	return NotRunning
}

// tryIO does I/O on the service's storage, with a time limit.
func (s *service) tryIO(ctx context.Context) error {
	if s.Waits() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, unit.IoWait, kernel.SilentFor(unit.IoWait))
	defer cancel()
	slow := s.storage.Paced()
	err := s.kind.CheckIO(ctx)
	if err == nil || s.Waits() {
		return nil
	}
	if why := slow(); why != "" && ctx.Err() != nil {
		s.Log.Note("%v; a move would not help: %s", err, why)
		return nil
	}
	return err
}

// goesOn says whether an action deals with a service that was started before. The last good
// copy of its config is enough for it: a monitor that fails moves a service that works, and
// a stop that fails has the server fenced.
func goesOn(action string) bool { return action == "monitor" || action == "stop" || action == "" }

// config loads the file that the `config` parameter names.
func (a *agent) config(action string) (*Config, int, error) {
	cfg, code, err := a.load(action)
	return cfg, code, refusal.Give(refusal.BadConfig, err)
}

func (a *agent) load(action string) (*Config, int, error) {
	if a.getenv("OCF_RESKEY_CRM_meta_clone") != "" {
		return nil, ErrConfigured, errors.New("the service must not be cloned: its file system would be mounted twice")
	}
	name := a.getenv("OCF_RESKEY_config")
	if name == "" {
		return nil, ErrConfigured, errors.New("parameter config is not set: the path of the service's JSON file")
	}
	if !path.IsAbs(name) {
		return nil, ErrConfigured, fmt.Errorf("parameter config is %q: an absolute path is needed", name)
	}
	var cfg *Config
	var err error
	switch {
	case goesOn(action):
		if cfg, err = LoadKept(name); cfg != nil && err != nil {
			fmt.Fprintf(a.stderr, "%v; the last good one since the boot counts: run mortar apply\n", err)
			err = nil
		}
	case action == "start":
		if cfg, err = LoadKept(name); err == nil { // a stop needs the copy
			err = cfg.Able()
		}
	default:
		if cfg, err = Load(name); err == nil {
			err = cfg.Able()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrInstalled, fmt.Errorf("%w: run mortar apply", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, ErrPerm, err
	case err != nil:
		return nil, ErrArgs, err
	}
	return cfg, Success, nil
}

// timeout is how long the action may take: a little less than Pacemaker grants,
// so that the agent can still report why it gave up.
func (a *agent) timeout(action string) time.Duration {
	if ms, err := strconv.Atoi(a.getenv("OCF_RESKEY_CRM_meta_timeout")); err == nil && ms > 0 {
		d := time.Duration(ms) * time.Millisecond
		return d - min(d/10, 3*time.Second)
	}
	switch action {
	case "start":
		return 170 * time.Second
	case "stop":
		return 110 * time.Second
	}
	return 25 * time.Second
}

// validate checks what a node needs to run the service, except whether its
// disks are visible now.
func (s *service) validate(action string) (int, error) {
	if action == "stop" {
		return Success, nil // a stop must be tried even if something is missing
	}
	need := s.storage.Programs()
	if s.cfg.VG != "" {
		need = append(need, "lvm")
	}
	for _, p := range append(need, s.kind.Programs()...) {
		if _, err := s.K.Executable(p); err != nil {
			d := s.Distro()
			return ErrInstalled, fmt.Errorf("%s is not installed (%s package %s)", p, d.Name, d.Programs[p])
		}
	}
	if _, ok := s.cfg.Nodes[s.Node]; !ok {
		return ErrArgs, refusal.New("not-a-node", refusal.Args{"host": s.Node, "nodes": strings.Join(s.NodeNames(), ", ")})
	}
	return Success, nil
}

// holdTime is as long as a start may take.
const holdTime = 3 * time.Minute

// ConfigPath is the file to which apply writes the config of a service.
func ConfigPath(service string) string { return "/etc/mortar/service-" + service + ".json" }

// Hold waits until no action of a service is under way on this server, and keeps others
// from beginning until release is called. It refuses if this server does not own the
// service's storage.
func Hold(ctx context.Context, service string) (release func(), err error) {
	wait, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	return hold(ctx, wait, service)
}

// TryHold is Hold that fails at once if an action is under way.
func TryHold(ctx context.Context, service string) (release func(), err error) {
	return hold(ctx, unit.AtOnce(ctx), service)
}

func hold(ctx, wait context.Context, service string) (release func(), err error) {
	release, err = lock(wait, service)
	if err != nil {
		return nil, err
	}
	if err := mayChange(ctx, ConfigPath(service)); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// mayChange says why nothing may be written to the storage of a service from here, by its
// config file. A single server has none, and one on which apply builds may have none yet:
// there is no other server then.
func mayChange(ctx context.Context, file string) error {
	cfg, err := Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := (&agent{stderr: os.Stderr, now: time.Now}).service("hold", cfg)
	if err != nil {
		return err
	}
	return s.mineToChange(ctx)
}

// mineToChange is mine, also while apply builds the storage.
func (s *service) mineToChange(ctx context.Context) error {
	if owner, err := s.owned(ctx); err == nil && s.cfg.SystemID != "" && owner == BuildingID(s.cfg.SystemID) {
		return nil
	}
	return s.Mine(ctx)
}

func lockFile(service string) string { return unit.RunDir + "/ocf-" + service + ".lock" }

// lock keeps two actions from changing the service at once, whether Pacemaker
// or an administrator started them. The kernel drops the lock when the process
// ends.
func lock(ctx context.Context, service string) (func(), error) {
	f, err := lockedFile(ctx, service)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

func lockedFile(ctx context.Context, service string) (*os.File, error) {
	if err := os.MkdirAll(unit.RunDir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockFile(service), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock.Wait(ctx, f)
	if err == nil {
		return f, nil
	}
	f.Close()
	if ctx.Err() != nil {
		return nil, unit.ErrBusy
	}
	return nil, err
}
