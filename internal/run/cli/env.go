package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/release"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Writable refuses a directory --out that does not exist and cannot be made, or into which no
// file can be written. It is asked before the work, so that the results have a place.
func Writable(dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = unix.Access(dir+"/.", unix.W_OK|unix.X_OK) // of a file: not a directory
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return Writable(filepath.Dir(dir))
	}
	return Fail(BadInput, fmt.Errorf("--out: %s cannot be written to: %w", dir, err))
}

// HostTimeout is how long a host may take to answer a command without --timeout.
const HostTimeout = 30 * time.Second

// ReadSpec reads a spec from its file alone. Errors end the program with BadInput.
func ReadSpec(path string) (*spec.Spec, error) {
	s, err := spec.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, missing := fs.Stat(examples.FS, path+".yaml"); missing == nil {
			err = fmt.Errorf("%s is an example, and no file here has its name; write it into one with `mortar init %s > brick.yaml`", path, path)
		}
	}
	if err != nil {
		return nil, Fail(BadInput, err)
	}
	return s, nil
}

// Load reads a spec and derives its design; the disks get the sizes and WWNs of the virtual rack,
// if that is up. The profile of a flag is one; "" keeps the spec's. Errors end the program with
// BadInput.
func Load(path string, profile ...string) (*design.Design, error) {
	return load(path, design.New, profile)
}

// ForLoad restricts a design that was loaded to the clients that drills and benchmarks use: those
// with the key load, or all if none has it.
func ForLoad(d *design.Design, err error) (*design.Design, error) {
	loads := func(c spec.Client) bool { return c.Load }
	if err != nil || !slices.ContainsFunc(d.Spec.Clients, loads) {
		return d, err
	}
	return design.KeepClients(d, loads), nil
}

// LoadAny is Load for a brick that this version may not be able to build.
func LoadAny(path string, profile ...string) (*design.Design, error) {
	return load(path, design.Derive, profile)
}

// maxInput is more than a spec may have, so that package spec refuses what is longer.
const maxInput = 1 << 20

// LoadInput is LoadAny, but "-" is the standard input. Files that such a spec names are sought
// from the working directory.
func (c *Console) LoadInput(path string, profile ...string) (*design.Design, error) {
	if path != "-" {
		return LoadAny(path, profile...)
	}
	src, err := io.ReadAll(io.LimitReader(c.In, maxInput))
	if err != nil {
		return nil, Fail(BadInput, fmt.Errorf("standard input: %w", err))
	}
	s, err := spec.Parse("stdin", src)
	if err != nil {
		return nil, Fail(BadInput, err)
	}
	return designOf(s, design.Derive, profile)
}

// Example is the design of an example.
func Example(name string) (*design.Design, error) {
	src, err := fs.ReadFile(examples.FS, name+".yaml")
	if err != nil {
		return nil, err
	}
	s, err := spec.Parse(name+".yaml", src)
	if err != nil {
		return nil, err
	}
	return design.New(s)
}

func load(path string, derive func(*spec.Spec) (*design.Design, error), profile []string) (*design.Design, error) {
	s, err := ReadSpec(path)
	if err != nil {
		return nil, err
	}
	return designOf(s, derive, profile)
}

func designOf(s *spec.Spec, derive func(*spec.Spec) (*design.Design, error), profile []string) (*design.Design, error) {
	if err := host.Hardware(s); err != nil {
		return nil, Fail(BadInput, err)
	}
	if p := strings.Join(profile, ""); p != "" {
		if !slices.Contains(spec.Profiles, p) {
			return nil, Fail(BadInput, fmt.Errorf("--profile %q: give %s", p, strings.Join(spec.Profiles, " or ")))
		}
		s.Profile = spec.Profile(p)
	}
	d, err := derive(s)
	if err != nil {
		return nil, Fail(BadInput, err)
	}
	return d, nil
}

// Env is what every command of this program has.
type Env struct {
	Version string
	// Connect has the options of connections that allow long silences: a host that installs
	// packages or makes file systems is busy, not gone. Every connection uses its directories.
	Connect host.Options
	// Virtual reports whether the hardware of a spec is a virtual rack that is up.
	Virtual func(context.Context, *spec.Spec) bool
	// Call runs a command of this program in this process, and prints its error, an *Exit.
	Call func(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) error
}

// Patience is how long a busy host may stay silent.
func (e *Env) Patience() time.Duration {
	return e.Connect.KeepAlive * time.Duration(e.Connect.Missed)
}

// Dial connects to the hosts of a design's inventory.
func (e *Env) Dial(d *design.Design, opts host.Options) (host.Dial, error) {
	targets, err := host.Inventory(d.Spec)
	if err != nil {
		return nil, Fail(BadInput, err)
	}
	opts.LibDir, opts.Link, opts.AnyUser = e.Connect.LibDir, e.Connect.Link, e.Connect.AnyUser
	return host.Dialer(targets, opts), nil
}

// Collector returns a collector for all hosts of a design, or for those named. Any of them may
// take timeout to answer, and half of it to log in, without the time to copy the binary.
func (e *Env) Collector(d *design.Design, timeout time.Duration, names ...string) (*observe.Collector, error) {
	if timeout <= 0 {
		return nil, Fail(BadInput, errors.New("--timeout must be above 0"))
	}
	dial, err := e.Dial(d, host.Options{Timeout: timeout / 2})
	if err != nil {
		return nil, err
	}
	return observe.NewCollector(d, dial, timeout, names...), nil
}

// Open reads a spec, and returns its design and a collector for all of its hosts.
func (e *Env) Open(file string, timeout time.Duration) (*design.Design, *observe.Collector, error) {
	d, err := Load(file)
	if err != nil {
		return nil, nil, err
	}
	c, err := e.Collector(d, timeout)
	return d, c, err
}

// OpenServers is Open with a collector for the servers alone.
func (e *Env) OpenServers(file string, timeout time.Duration) (*design.Design, *observe.Collector, error) {
	d, err := Load(file)
	if err != nil {
		return nil, nil, err
	}
	c, err := e.Collector(d, timeout, d.Servers()...)
	return d, c, err
}

// WithServers connects to the servers of a brick, and keeps apply out meanwhile.
func (e *Env) WithServers(ctx context.Context, file string, timeout time.Duration, dryRun bool, use func(*design.Design, *observe.Collector) error) error {
	d, hosts, err := e.OpenServers(file, timeout)
	if err != nil {
		return err
	}
	defer hosts.Close()
	hosts.Under(host.Gate{DryRun: dryRun})
	release, err := e.Claim(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	if err = use(d, hosts); ctx.Err() != nil {
		return Fail(Interrupted, err)
	}
	return err
}

// Preparing returns how to make a plan that is only shown or compared.
func (e *Env) Preparing() plan.PrepareOptions {
	return plan.PrepareOptions{Connect: e.Connect, Progress: func(string, string) {}, Build: release.This(e.Version)}
}

// claimed marks the context of a command that is part of one which claims the brick.
type claimed struct{}

// Claimed returns the context of commands that are part of one which claims the brick.
func Claimed(ctx context.Context) context.Context { return context.WithValue(ctx, claimed{}, true) }

// Claim keeps other commands from changing the brick, on this machine and on others.
func (e *Env) Claim(ctx context.Context, s *spec.Spec) (release func(), err error) {
	if ctx.Value(claimed{}) != nil {
		return func() {}, nil
	}
	if release, err = plan.Claim(ctx, s, e.Connect); err != nil {
		return nil, Refuse(err)
	}
	return release, nil
}
