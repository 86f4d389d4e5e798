package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Look is what a resource sees of its host while it is compared. A look that fails, such as a
// file that cannot be read, ends the whole comparison with its error (Check), as a parser ends
// at its first error. So no kind writes that down again, and none decides anything by half of
// what it has to know.
type Look struct {
	Sys
	Ctx context.Context // of the comparison
}

// ended carries the error of Check up to Observe.
type ended struct{ err error }

// Check ends the comparison if there is an error.
func (l Look) Check(err error) {
	if err != nil {
		panic(ended{err})
	}
}

// Observe has f look at the host. Its error is that of f, or that which a look of f ended with.
func Observe[T any](ctx context.Context, sys Sys, f func(Look) (T, error)) (out T, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case ended:
			var none T
			out, err = none, p.err
		default:
			panic(p)
		}
	}()
	return f(Look{sys, ctx})
}

// Diff compares a resource with the host behind sys.
func Diff(ctx context.Context, sys Sys, r Resource) ([]Action, error) {
	return Observe(ctx, sys, r.Diff)
}

// File reads a file, if it is there.
func (l Look) File(p string) (text string, there bool) {
	b, err := l.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	l.Check(err)
	return string(b), true
}

// Text reads a file as one trimmed string; a missing file gives "".
func (l Look) Text(p string) string {
	text, _ := l.File(p)
	return strings.TrimSpace(text)
}

// Exists tells whether a path exists.
func (l Look) Exists(p string) bool {
	_, there := l.Info(p)
	return there
}

// Info describes a path, if it is there.
func (l Look) Info(p string) (st FileInfo, there bool) {
	st, err := l.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return st, false
	}
	l.Check(err)
	return st, true
}

// Must reads a file that has to be there.
func (l Look) Must(p string) string {
	b, err := l.ReadFile(p)
	l.Check(err)
	return string(b)
}

// Files lists paths that match a pattern, sorted.
func (l Look) Files(pattern string) []string {
	ps, err := l.Glob(pattern)
	l.Check(err)
	return ps
}

// Leads resolves a path fully; "" if it leads to nothing.
func (l Look) Leads(p string) string {
	to, err := l.Readlink(p)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	l.Check(err)
	return to
}

// Kernel resolves a device path to its kernel name (sda, dm-3, md127); "" if it does not exist. A
// logical volume is also found by its name in the kernel: with many disks udev makes its link
// minutes after it.
func (l Look) Kernel(dev string) string {
	if p, err := l.Readlink(dev); err == nil {
		return path.Base(p)
	}
	vg, lv := path.Split(strings.TrimPrefix(dev, "/dev/"))
	vg = strings.TrimSuffix(vg, "/")
	if vg == "" || strings.Contains(vg, "/") || vg == "mapper" || vg == "md" {
		return "" // no logical volume: all names would be read for each map that is not made yet
	}
	name := linux.DMName(vg, lv)
	for _, f := range l.Files("/sys/block/dm-*/dm/name") {
		if l.Text(f) == name {
			return strings.Split(f, "/")[3]
		}
	}
	return ""
}

// Node is the path by which a program opens a device: the one given or, while udev has not made
// its link, the kernel's own.
func (l Look) Node(dev string) string {
	if name := l.Kernel(dev); name != "" && !l.Exists(dev) {
		return "/dev/" + name
	}
	return dev
}

// Mounts reads /proc/self/mounts.
func (l Look) Mounts() []linux.Mount {
	ms, err := mounts(l)
	l.Check(err)
	return ms
}

// Arrays are the md arrays that are assembled on the host, each with the spares that wait
// outside of it.
func (l Look) Arrays() []linux.MDArray {
	all, err := linux.MDArrays(Tree{l})
	l.Check(err)
	spares, err := linux.MDSpares(Tree{l})
	l.Check(err)
	for dev, uuid := range spares {
		i := slices.IndexFunc(all, func(a linux.MDArray) bool { return a.UUID == uuid })
		if name := l.Kernel(dev); name != "" && i >= 0 {
			all[i].Members = append(all[i].Members, name)
		}
	}
	return all
}

// Mapped names the device mapper's devices.
func (l Look) Mapped() []string {
	names, err := mapped(l)
	l.Check(err)
	return names
}

// Command runs a command that only reads. installed is false where its program is missing:
// before the packages step, what it would show counts as not there.
func (l Look) Command(argv ...string) (out Output, installed bool) {
	out, err := l.Query(l.Ctx, argv...)
	if CauseOf(err) == NotInstalled {
		return out, false
	}
	if err != nil {
		l.Check(fmt.Errorf("%s: %w", strings.Join(argv, " "), err))
	}
	return out, true
}

// QueryDisks is how many disks a command that only reads is about at most: the agent gives it a
// second for each, and a session waits as long for a sign of the agent.
const QueryDisks = 240

// Ask runs a command that only reads, of a package that is installed, and that must succeed.
func (l Look) Ask(pkg string, argv ...string) (stdout string) {
	out, installed := l.Command(argv...)
	if !installed {
		l.Check(fmt.Errorf("%s is missing (package %s)", argv[0], pkg))
	}
	l.Succeeded(out, argv...)
	return out.Stdout
}

// Succeeded ends the comparison if the exit code of a command says that it went wrong.
func (l Look) Succeeded(out Output, argv ...string) {
	if out.Code != 0 {
		l.Check(Failed(out, argv...))
	}
}

// Failed makes an error of a query whose exit code says it went wrong.
func Failed(out Output, argv ...string) error {
	return fmt.Errorf("%s: exit code %d: %s", strings.Join(argv, " "), out.Code, strings.TrimSpace(out.Stderr))
}

// Printed is what a query printed; an exit code that says it went wrong is an error.
func Printed(out Output, err error, argv ...string) (string, error) {
	if err == nil && out.Code != 0 {
		err = Failed(out, argv...)
	}
	return out.Stdout, err
}

// Tree lets package linux read a host.
type Tree struct{ Sys }

// ReadDir names what is in a directory.
func (t Tree) ReadDir(dir string) ([]string, error) {
	ps, err := t.Glob(dir + "/*")
	for i, p := range ps {
		ps[i] = path.Base(p)
	}
	return ps, err
}

// Runs tells whether a unit has processes, without a fork.
func (l Look) Runs(unit string) bool { return unitHasProcesses(l, unit) }

// Configured are all primitives in the CIB on disk, in no state.
func (l Look) Configured() []linux.CRMResource {
	rs, err := configuredResources(l)
	l.Check(err)
	return rs
}

// Attr is an attribute of sysfs; "" if it cannot be read, as the speed of a link that is down.
func (l Look) Attr(p string) string {
	text, _ := readTrim(l, p)
	return text
}

// Links are the host's network interfaces; nil for a plan without hosts.
func (l Look) Links() []linux.Link {
	out, installed := l.Command("ip", "-json", "address", "show")
	if !installed {
		return nil
	}
	all, err := linux.ParseLinks(out.Stdout)
	if err != nil {
		l.Check(fmt.Errorf("%w: %s", err, out.Stderr))
	}
	return all
}

// Distro is what the host's distribution calls things.
func (l Look) Distro() distro.Distro {
	text, _ := l.File("/etc/os-release")
	d, err := distro.Of(linux.ParseOSRelease(text))
	l.Check(err)
	return d
}

// Want gives the actions that bring other resources to their wanted state: the files, for
// example, that one is made of.
func (l Look) Want(rs ...Resource) (as []Action) {
	for _, r := range rs {
		more, err := r.Diff(l)
		l.Check(err)
		as = append(as, more...)
	}
	return as
}
