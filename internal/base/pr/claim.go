package pr

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/sg"
)

// ErrTaken says that a LUN was taken from this server while it used it.
var ErrTaken = errors.New("the reservation of this server was taken away")

// ErrStrange reports that a host outside the cluster has registered a key with a LUN or a disk.
var ErrStrange = errors.New("another machine uses it")

// ErrUnable says that a LUN, or a disk, knows no persistent reservations.
var ErrUnable = errors.New("it knows no persistent reservations")

// unable makes ErrUnable of the answers by which a LUN says so. ENOTTY is the kernel's for a
// device that takes no SCSI commands, as NVMe drives.
func unable(err error) error {
	said := sg.Answer{}
	if errors.As(err, &said) && said.Illegal() || errors.Is(err, unix.ENOTTY) {
		return fmt.Errorf("%w: %w", ErrUnable, err)
	}
	return err
}

// Servers are the keys of a cluster's servers, by name.
type Servers map[string]Key

// ParseServers parses keys as Key.String writes them.
func ParseServers(text map[string]string) (Servers, error) {
	all := Servers{}
	var errs []error
	for n, t := range text {
		k, err := ParseKey(t)
		all[n], errs = k, append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Name is the server of a key; a stranger's is "key 0x…", and that of 0 is "".
func (s Servers) Name(k Key) string {
	if k == 0 {
		return ""
	}
	for n, key := range s {
		if key == k {
			return n
		}
	}
	return "key " + k.String()
}

func (s Servers) strange(k Key) bool { return s[s.Name(k)] == 0 }

// Claim is a LUN or a disk as one server reserves it: over all paths that work.
type Claim struct {
	What    string // "LUN l0", in messages
	Device  string // for Mend
	Node    string // this server
	Servers Servers
	Paths   []Path
	State
	// Err is why no path answers, after Read.
	Err error
	// Note logs what is done.
	Note func(format string, a ...any)
}

func (c *Claim) Own() Key { return c.Servers[c.Node] }

// By is the server that holds the reservation; "" for none.
func (c *Claim) By() string { return c.Servers.Name(c.Holder) }

// Read asks over the first path that answers.
func (c *Claim) Read() error {
	errs := []error{fmt.Errorf("%s: no path answers", c.What)}
	for _, p := range c.Paths {
		st, err := p.Read()
		if err == nil {
			c.State, c.Err = st, nil
			return nil
		}
		errs = append(errs, err)
	}
	c.Err = errors.Join(errs...)
	return c.Err
}

// Blank says whether the LUN has no key, and none was registered since its power came.
func (c *Claim) Blank() bool { return c.Err == nil && len(c.Keys) == 0 && c.Generation == 0 }

// Gone says whether a server of the cluster has the LUN that this one had reserved, or has had it
// since; multipathd may have registered a path of this one again. A LUN that was without power has
// forgotten all, and a stranger serves no client of the service.
func (c *Claim) Gone() bool {
	return c.Err == nil && c.Ours() == nil && (c.Holder != 0 && c.Holder != c.Own() || c.Count(c.Own()) == 0 && !c.Blank())
}

// Whole says whether this server holds the LUN, with all of its paths, and no other server has
// a registration.
func (c *Claim) Whole() bool {
	return c.Holder == c.Own() && c.Count(c.Own()) >= len(c.Paths) && len(c.Others(c.Own())) == 0
}

// register registers every path that works. One that fails is no matter: the
// kernel uses it no more, and multipathd registers it before it does again.
func (c *Claim) register() error {
	done := 0
	for _, p := range c.Paths {
		switch err := p.Register(c.Own()); {
		case err == nil:
			done++
		case errors.Is(err, ErrPath):
			c.Note("%s: %v", c.What, err)
		default:
			return fmt.Errorf("%s: %w", c.What, err)
		}
	}
	if done == 0 {
		return fmt.Errorf("%s: no path could be registered", c.What)
	}
	return c.Read()
}

// over does a command over the first path that takes it.
func (c *Claim) over(do func(Path) error) error {
	var errs []error
	for _, p := range c.Paths {
		err := do(p)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if !errors.Is(err, ErrPath) {
			break
		}
	}
	return fmt.Errorf("%s: %w", c.What, errors.Join(errs...))
}

// oust takes the registrations of the cluster's other servers away, and the
// reservation with them, and aborts their commands.
func (c *Claim) oust() error {
	for _, k := range c.Others(c.Own()) {
		if c.Servers.strange(k) {
			continue
		}
		c.Note("%s: taking it from %s", c.What, c.Servers.Name(k))
		if err := c.over(func(p Path) error { return p.Preempt(c.Own(), k) }); err != nil {
			return err
		}
	}
	return nil
}

// Ours fails with ErrStrange for a LUN that a stranger uses.
func (c *Claim) Ours() error {
	var strangers []string
	for _, k := range c.Others() {
		if c.Servers.strange(k) {
			strangers = append(strangers, k.String())
		}
	}
	what := ""
	switch {
	case len(strangers) > 0:
		what = "keys of no server of this cluster are registered: " + strings.Join(strangers, ", ")
	case c.Holder != 0 && c.Type != WriteExclusiveRegistrantsOnly:
		what = fmt.Sprintf("it has a reservation of type %d, which is not Mortar's", c.Type)
	default:
		return nil
	}
	return fmt.Errorf("%s: %s: %w; see that only the servers of this cluster reach it. %s", c.What, what, ErrStrange, Mend(c.Device))
}

// Take reserves the LUN for this server, whichever server of the cluster has it. If another
// host takes it meanwhile, a command fails.
func (c *Claim) Take() error {
	if err := c.register(); err != nil {
		return err
	}
	if err := c.oust(); err != nil {
		return err
	}
	if err := c.Read(); err != nil {
		return err
	}
	if c.Holder == 0 {
		if err := c.over(func(p Path) error { return p.Reserve(c.Own()) }); err != nil {
			return err
		}
		if err := c.Read(); err != nil {
			return err
		}
	}
	if c.Holder != c.Own() || c.Count(c.Own()) == 0 || len(c.Others(c.Own())) > 0 {
		return fmt.Errorf("%s: %s holds it although this server took it; registered are %v", c.What, c.By(), c.Keys)
	}
	return nil
}

// Keep looks after a LUN that was read and is in use here. never says that this server has not
// reserved it yet. It fails with ErrTaken if another server has it, or has had it.
func (c *Claim) Keep(never bool) error {
	switch {
	case c.Holder == c.Own():
	case c.Holder != 0:
		return fmt.Errorf("%s: %w: %s holds it", c.What, ErrTaken, c.By())
	case c.Count(c.Own()) > 0:
		// A host that takes the LUN takes the registration away first: none has.
	case c.Blank() || len(c.Keys) == 0 && never:
		// It was without power and has forgotten all, and no host has
		// registered since. A partner that had taken the LUN before that has the
		// volume group, which was looked at before this.
		c.Note("%s has no reservation: reserving it", c.What)
	default:
		return fmt.Errorf("%s: %w: no server holds it", c.What, ErrTaken)
	}
	if c.Whole() {
		return nil
	}
	if c.Count(c.Own()) < len(c.Paths) {
		c.Note("%s: %d of %d paths are registered: registering all", c.What, c.Count(c.Own()), len(c.Paths))
		if err := c.register(); err != nil {
			return err
		}
	}
	if c.Holder == 0 {
		err := c.over(func(p Path) error { return p.Reserve(c.Own()) })
		if err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		if err := c.Read(); err != nil {
			return err
		}
	}
	if c.Holder != c.Own() {
		// Another host took it between the look and the registration, which may not
		// stay: a registered path can write.
		for _, p := range c.Paths {
			_ = p.Unregister()
		}
		return fmt.Errorf("%s: %w: %s holds it", c.What, ErrTaken, c.By())
	}
	// A partner that multipathd has registered again at the moment of the take-over.
	return c.oust()
}

// Give takes all registrations of this server away over one path, which has to
// hold the reservation for that: the path that does may be dead.
func (c *Claim) Give() error {
	return c.over(func(p Path) error {
		if err := p.Register(c.Own()); err != nil {
			return err
		}
		if err := p.Preempt(c.Own(), c.Own()); err != nil {
			return err
		}
		return p.Unregister()
	})
}
