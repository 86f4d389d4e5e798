package drill

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// injector is who does a fault: the agent on the servers, the
// administrator's commands, or the hardware's injector.
func (e *engine) injector(f Fault) Injector {
	switch f.Kind {
	case Kill, FillFS, BitRot, CacheApply, CacheFill:
		return software{e}
	case Move, Standby, ConfirmOff:
		return commands{e}
	}
	return e.env.Injector
}

// software breaks what runs on the servers, through their agents.
type software struct{ e *engine }

// daemons that may be killed, and the unit that starts one again where
// nothing else does.
var daemons = map[string]string{"nfsd": "", "rpc.mountd": "", "rpc.statd": "", "nfsdcld": "", "pacemakerd": "pacemaker.service", "corosync": "pacemaker.service"}

func (s software) Can(f Fault) error {
	if f.Kind == BitRot {
		return s.e.env.Injector.Can(Fault{Kind: Corrupt, Args: []string{"", "0", "0"}})
	}
	if f.Kind == Kill {
		if _, ok := daemons[f.Args[0]]; !ok {
			return fmt.Errorf("%s is not among the daemons that are killed", f.Args[0])
		}
	}
	return nil
}

func (s software) Inject(ctx context.Context, f Fault) error {
	switch f.Kind {
	case FillFS:
		return s.fill(ctx, f)
	case BitRot:
		return s.rot(ctx)
	case CacheApply:
		return s.e.applyCache(ctx, f.On, f.Args[0])
	case CacheFill:
		return s.e.fillCache(ctx, f)
	}
	a := resource.Action{Title: "kill " + f.Args[0], Cmd: []string{"pkill", "-KILL", "-x", f.Args[0]}}
	if f.Args[0] == "nfsd" {
		// Kernel threads take no signal from pkill by name; this is how they end.
		// Source: nfsd(7)
		a.Cmd, a.Stdin = []string{"tee", ocf.NFSDDir(s.e.service.Namespace) + "/threads"}, []byte("0\n")
	}
	return s.e.do(ctx, f.On, a)
}

// Heal of a daemon is the cluster's business; where that is itself the
// victim, its unit is started.
func (s software) Heal(ctx context.Context, f Fault) error {
	switch f.Kind {
	case FillFS:
		return s.empty(ctx, f)
	case BitRot:
		return nil // the scrub has mended it, or the verdict says that it has not
	case CacheApply:
		return nil
	case CacheFill:
		return s.e.drainCache(ctx, f)
	}
	unit := daemons[f.Args[0]]
	if unit == "" {
		return nil
	}
	var out resource.Output
	if err := s.e.call(ctx, f.On, "query", map[string]any{"argv": []string{"systemctl", "is-active", unit}}, &out); err != nil || out.Code == 0 {
		return nil // fenced, and booting; or it runs
	}
	return s.e.do(ctx, f.On, resource.Action{Title: "start " + unit, Cmd: []string{"systemctl", "start", unit}})
}

// rot spoils data, and sees to it that the next reader gets it from the disk.
func (s software) rot(ctx context.Context) error {
	f, err := s.e.rot(ctx)
	if err != nil {
		return err
	}
	s.e.say("spoiling %s bytes of disk %s at offset %s", f.Args[2], f.Args[0], f.Args[1])
	s.e.injected = append(s.e.injected, f)
	if err := s.e.env.Injector.Inject(ctx, f); err != nil {
		return err
	}
	// Source: Documentation/admin-guide/sysctl/vm.rst
	return s.e.do(ctx, s.e.active, resource.Action{Title: "forget clean pages", File: &resource.File{Path: "/proc/sys/vm/drop_caches", Content: []byte("1")}})
}

func filler(f Fault) string { return path.Join(f.Args[0], ".mortar-fill") }

// fill takes every block: most of them by allocation, which costs nothing,
// the rest by writing until there is no more.
func (s software) fill(ctx context.Context, f Fault) error {
	var out resource.Output
	if err := s.e.call(ctx, f.On, "query", map[string]any{"argv": []string{"df", "--output=avail", "-B1", f.Args[0]}}, &out); err != nil {
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
		if err := s.e.do(ctx, f.On, a); err != nil {
			return err
		}
	}
	for _, bs := range []string{"1M", "4k"} {
		a := resource.Action{Title: "take the last blocks", OKCodes: []int{1},
			Cmd: []string{"dd", "if=/dev/zero", "of=" + filler(f), "bs=" + bs, "oflag=append", "conv=notrunc,fsync", "status=none"}}
		if err := s.e.do(ctx, f.On, a); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the file, on the server that has the volume now.
func (s software) empty(ctx context.Context, f Fault) error {
	v := s.e.view()
	errs := []error{fmt.Errorf("%s is mounted on no server: the file that fills it could not be removed", f.Args[0])}
	for _, server := range s.e.servers {
		if !v.mounted(ctx, server) {
			continue
		}
		err := s.e.do(ctx, server, resource.Action{Title: "remove the file that fills it", Cmd: []string{"rm", "-f", "--", filler(f)}})
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	return errors.Join(errs...)
}

// commands are what an administrator types.
type commands struct{ e *engine }

func (c commands) Can(f Fault) error {
	if c.e.env.Operator == nil {
		return fmt.Errorf("there is nobody to do %q", f.Kind)
	}
	return nil
}

func (c commands) Inject(ctx context.Context, f Fault) error {
	op := c.e.env.Operator
	switch f.Kind {
	case Move:
		return op.Move(ctx, f.Args[0], f.On)
	case Standby:
		return op.Standby(ctx, f.On, true)
	}
	return op.ConfirmOff(ctx, f.On)
}

// Heal: a service that moved may stay where it is.
func (c commands) Heal(ctx context.Context, f Fault) error {
	if f.Kind == Standby {
		return c.e.env.Operator.Standby(ctx, f.On, false)
	}
	return nil
}
