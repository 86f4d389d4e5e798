package drill

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// daemons has the daemons that a drill can kill, with the unit that starts the
// daemon again if nothing else does.
var daemons = map[string]string{"nfsd": "", "rpc.mountd": "", "rpc.statd": "", "nfsdcld": "", "pacemakerd": "pacemaker.service", "corosync": "pacemaker.service"}

// ofCluster are the daemons of the cluster software.
var ofCluster = []string{"pacemakerd", "corosync"}

func mayKill(e *engine, f Fault) error {
	if _, ok := daemons[f.Args[0]]; !ok {
		return fmt.Errorf("%s is not among the daemons that are killed", f.Args[0])
	}
	if !slices.Contains(ofCluster, f.Args[0]) && !slices.Contains(kind.Of(e.env.Design).Daemons(), f.Args[0]) {
		return fmt.Errorf("this brick has no %s", f.Args[0])
	}
	return nil
}

func (e *engine) kill(ctx context.Context, f Fault) error {
	a := resource.Action{Title: "kill " + f.Args[0], Cmd: []string{"pkill", "-KILL", "-x", f.Args[0]}}
	if f.Args[0] == "nfsd" {
		// pkill cannot signal kernel threads by name; writing 0 ends them.
		// Source: nfsd(7)
		a.Cmd, a.Stdin = []string{"tee", ocf.NFSDDir(e.service.Namespace) + "/threads"}, []byte("0\n")
	}
	return e.do(ctx, f.On, a)
}

// mayHang: nfsd is no process, and the cluster's daemons are not the service's.
func mayHang(e *engine, f Fault) error {
	if f.Args[0] == "nfsd" || slices.Contains(ofCluster, f.Args[0]) {
		return fmt.Errorf("%s is not among the daemons that are stopped by a signal", f.Args[0])
	}
	return mayKill(e, f)
}

func (e *engine) hang(ctx context.Context, f Fault) error {
	return e.do(ctx, f.On, resource.Action{Title: "stop " + f.Args[0] + " by a signal", Cmd: []string{"pkill", "-STOP", "-x", f.Args[0]}})
}

// goOn lets daemons go on that were not replaced. pkill ends with 1 if there is none.
func (e *engine) goOn(ctx context.Context, f Fault) error {
	return e.do(ctx, f.On, resource.Action{Title: "let " + f.Args[0] + " go on", Cmd: []string{"pkill", "-CONT", "-x", f.Args[0]}, OKCodes: []int{1}})
}

// startDaemon starts a daemon's unit if the daemon belongs to the cluster software
// or the brick has no cluster. Otherwise the cluster starts the daemon.
func (e *engine) startDaemon(ctx context.Context, f Fault) error {
	if !e.env.Design.Clustered() {
		return e.restart(ctx, f.On, f.Args[0])
	}
	unit := daemons[f.Args[0]]
	if unit == "" {
		return nil
	}
	out, err := e.query(ctx, f.On, "systemctl", "is-active", unit)
	if err != nil || out.Code == 0 {
		return nil // the server was fenced and boots, or the daemon runs
	}
	return e.do(ctx, f.On, resource.Action{Title: "start " + unit, Cmd: []string{"systemctl", "start", unit}})
}

// mayRot asks the Injector whether it can corrupt a disk, as spoil needs.
func mayRot(e *engine, _ Fault) error {
	return e.env.Injector.Can(Fault{Kind: Corrupt, Args: []string{"", "0", "0"}})
}

// spoil corrupts data, and drops the page cache so that the next read comes from
// the disk.
func (e *engine) spoil(ctx context.Context, _ Fault) error {
	f, err := e.spoilable(ctx)
	if err != nil {
		return err
	}
	e.say("spoiling %s bytes of disk %s at offset %s", f.Args[2], f.Args[0], f.Args[1])
	e.injected = append(e.injected, f)
	if err := e.env.Injector.Inject(ctx, f); err != nil {
		return err
	}
	// Source: Documentation/admin-guide/sysctl/vm.rst
	return e.do(ctx, e.active, resource.Action{Title: "forget clean pages", File: &resource.File{Path: "/proc/sys/vm/drop_caches", Content: []byte("1")}})
}

func filler(f Fault) string { return path.Join(f.Args[0], ".mortar-fill") }

// fill fills the file system: most of it by allocation, which costs nothing, the
// rest by writing until no block is free.
func (e *engine) fill(ctx context.Context, f Fault) error {
	out, err := e.query(ctx, f.On, "df", "--output=avail", "-B1", f.Args[0])
	if err != nil {
		return err
	}
	fields := strings.Fields(out.Stdout)
	if len(fields) == 0 {
		return fmt.Errorf("df of %s said %q", f.Args[0], out.Stderr)
	}
	avail, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if err != nil {
		return fmt.Errorf("df of %s: %w", f.Args[0], err)
	}
	const rest = 32 << 20
	if avail > rest {
		a := resource.Action{Title: "take the free blocks", Cmd: []string{"fallocate", "-l", strconv.FormatInt(avail-rest, 10), filler(f)}}
		if err := e.do(ctx, f.On, a); err != nil {
			return err
		}
	}
	for _, bs := range []string{"1M", "4k"} {
		a := resource.Action{Title: "take the last blocks", OKCodes: []int{1},
			Cmd: []string{"dd", "if=/dev/zero", "of=" + filler(f), "bs=" + bs, "oflag=append", "conv=notrunc,fsync", "status=none"}}
		if err := e.do(ctx, f.On, a); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps the service's storage in use with a loop device on a file, or on a volume:
// there is no process to kill, and no unmount, or no deactivation, succeeds.
func (e *engine) hold(ctx context.Context, f Fault) error {
	loop := []string{"losetup", "--find", "--read-only", f.Args[0]}
	if !isDevice(f.Args[0]) {
		if err := e.do(ctx, f.On, resource.Action{Title: "make a file", Cmd: []string{"fallocate", "-l", "1M", filler(f)}}); err != nil {
			return err
		}
		loop = []string{"losetup", "--find", filler(f)}
	}
	return e.do(ctx, f.On, resource.Action{Title: "make a loop device of it", Cmd: loop})
}

func isDevice(held string) bool { return strings.HasPrefix(held, "/dev/") }

// letGo ends what hold has left.
func (e *engine) letGo(ctx context.Context, f Fault) error {
	held := f.Args[0]
	if !isDevice(held) {
		held = filler(f)
	}
	if err := e.unloop(ctx, f.On, held); err != nil || isDevice(f.Args[0]) {
		return err
	}
	return e.empty(ctx, f)
}

// unloop detaches the loop devices on a file or device. A server that boots has none.
func (e *engine) unloop(ctx context.Context, server, held string) error {
	argv := []string{"losetup", "--noheadings", "--output", "NAME", "--associated", held}
	if err := resource.ReadOnly(argv); err != nil {
		return err
	}
	out, err := e.query(ctx, server, argv...)
	if err != nil {
		return ctx.Err() // it does not answer
	}
	for _, loop := range strings.Fields(out.Stdout) {
		if err := e.do(ctx, server, resource.Action{Title: "let go of " + held, Cmd: []string{"losetup", "--detach", loop}}); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the drill's file, on the server that has the volume now.
func (e *engine) empty(ctx context.Context, f Fault) error {
	v := e.view()
	errs := []error{fmt.Errorf("%s is mounted on no server: the drill's file could not be removed", f.Args[0])}
	for _, server := range e.servers {
		if !v.mounted(ctx, server) {
			continue
		}
		err := e.do(ctx, server, resource.Action{Title: "remove the drill's file", Cmd: []string{"rm", "-f", "--", filler(f)}})
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	return errors.Join(errs...)
}
