package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
)

// coldTime bounds the emptying of the caches, which an interrupt does not cut
// short.
const coldTime = 10 * time.Minute

// startTime bounds the wait for a service after the cluster is idle.
const startTime = time.Minute

// coldTexts describe how a run empties the caches.
var coldTexts = map[string]string{
	ColdRestart: "Before each phase that works on what is there, caches are emptied as the papers do it: the clients unmount, the service is stopped, which unmounts XFS, it is started again, and the clients mount.",
	ColdDrop:    "Before each phase that works on what is there, the clients mount anew and the server drops its page cache (vm.drop_caches). The disks' own caches, and those of a RAID controller, are not emptied by that.",
	ColdNone:    "Caches are not emptied: reads may come from memory.",
}

// coldOf returns how caches are emptied on a brick: as the user asked, "" for as the
// suite has it. The servers of a brick that is not restarted drop their page caches.
func coldOf(d *design.Design, suite *Suite, asked string) (string, error) {
	if kind.Of(d).Is().Restarts {
		return cmp.Or(asked, suite.Cold), nil
	}
	if asked == ColdRestart {
		return "", &Unfit{[]string{"--cold restart: a Lustre file system is not restarted for a benchmark; use drop or none"}}
	}
	if asked == "" && suite.Cold == ColdRestart {
		return ColdDrop, nil
	}
	return cmp.Or(asked, suite.Cold), nil
}

// do runs a command that changes a host.
func (r *site) do(ctx context.Context, host, title string, argv ...string) error {
	_, err := r.host(host).Run(ctx, resource.Action{Title: title, Cmd: argv, Seconds: 300})
	return err
}

// cold empties every cache between the disks and the threads. An interrupt does
// not stop it halfway, which would leave the brick without its service.
func (r *site) cold(ctx context.Context, how string) error {
	if err := ctx.Err(); err != nil || how == ColdNone {
		return err
	}
	began := time.Now()
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coldTime)
	defer cancel()
	r.say(Progress{State: "emptying caches: clients unmount"})
	err := host.Each(cctx, r.clients, func(ctx context.Context, client string) error { return r.mount(ctx, client, false) })
	if err == nil {
		switch {
		case how == ColdDrop:
			r.say(Progress{State: "emptying caches: the server drops its page cache"})
			err = r.dropServer(cctx)
		case r.env.Design.Clustered():
			err = r.restartClustered(cctx)
		default:
			err = r.restartSingle(cctx)
		}
	}
	// Mount the clients again even after an error.
	r.say(Progress{State: "emptying caches: clients mount"})
	r.unmounted = true
	if err = errors.Join(err, r.mountAll(cctx)); err != nil {
		return fmt.Errorf("caches could not be emptied: %w", err)
	}
	r.coldSeconds += time.Since(began).Seconds()
	return ctx.Err()
}

// mount mounts the brick on a client, with the lines that apply wrote to fstab, or
// unmounts it, the last mount first.
func (r *site) mount(ctx context.Context, client string, mounted bool) error {
	ms, err := testbed.Mounts(ctx, r.host(client))
	if err != nil {
		return err
	}
	all, title, cmd := slices.Clone(r.env.Design.Mounts), "mount ", "mount"
	if !mounted {
		slices.Reverse(all)
		title, cmd = "unmount ", "umount"
	}
	for _, m := range all {
		if _, there := linux.MountAt(ms, m.Path); m.Client != client || there == mounted {
			continue
		}
		err := r.do(ctx, client, title+m.Path, cmd, m.Path)
		if !mounted && errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%s is in use on the client: stop what uses it (fuser -vm %s names it), or use --cold none", m.Path, m.Path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mountAll mounts the brick on every client again, if cold has unmounted it.
func (r *site) mountAll(ctx context.Context) error {
	if !r.unmounted {
		return nil
	}
	err := host.Each(ctx, r.clients, func(ctx context.Context, client string) error { return r.mount(ctx, client, true) })
	r.unmounted = err != nil
	return err
}

// restartClustered makes the cluster stop and start every service with its XFS,
// volume and arrays.
func (r *site) restartClustered(ctx context.Context) error {
	asked := r.active()[0]
	var failed error
	for _, s := range r.env.Design.Services() {
		r.say(Progress{State: "emptying caches: the cluster restarts service " + s.Name})
		id := resource.ServiceID(s.Name)
		if r.env.Design.Spec.Profile == spec.Stock {
			id = resource.GroupID(s.Name)
		}
		err := r.do(ctx, asked, "restart service "+s.Name, "crm_resource", "--restart", "--resource", id)
		if err == nil {
			continue
		}
		failed = errors.Join(failed, fmt.Errorf("restarting service %s: %w", s.Name, err))
		other, err := r.enable(ctx, id)
		if err != nil {
			return errors.Join(failed, fmt.Errorf("service %s may still be disabled (crm_resource --resource %s --meta --delete-parameter target-role enables it): %w", s.Name, id, err))
		}
		asked = other
	}
	// For --restart, and before Pacemaker 2.1.7 for --wait, a start under way
	// counts as done. So use both, then look for the mounts.
	// Source: https://github.com/ClusterLabs/pacemaker/pull/3256; seen with 3.0.0
	waited := r.do(ctx, asked, "wait until the cluster is idle", "crm_resource", "--wait", "--timeout", "240s")
	err := host.Wait{Limit: startTime, Poll: time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		if err := r.findActive(ctx); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	if err != nil {
		return errors.Join(failed, waited, err)
	}
	if waited != nil {
		// The cluster is busy with something else, e.g. a failing fence device.
		r.note(asked, "the services are back, but the cluster does not come to rest (mortar status shows why): %v", waited)
	}
	return failed
}

// enableTime bounds the search for a server that can enable a service again. The
// server that ran crm_resource may have been fenced.
const enableTime = 2 * time.Minute

// enable enables a service after an interrupted restart: crm_resource --restart
// disables the service first and enables it only at its end. It returns the
// server that ran the command.
func (r *site) enable(ctx context.Context, id string) (string, error) {
	r.say(Progress{State: "emptying caches: the restart was interrupted, enabling the service again"})
	enable := func(ctx context.Context, server string) error {
		return r.do(ctx, server, "enable "+id, "crm_resource", "--resource", id, "--meta", "--delete-parameter", "target-role")
	}
	by := ""
	err := host.Wait{Limit: enableTime, Poll: time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		var errs []error
		for _, s := range r.servers {
			err := enable(ctx, s)
			if errors.Is(err, agent.ErrLost) {
				if err = r.connect(ctx, s); err == nil {
					err = enable(ctx, s)
				}
			}
			if err == nil {
				by = s
				return "", nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", s, err))
		}
		return errors.Join(errs...).Error(), nil
	})
	return by, err
}

// restartSingle restarts the services of a server without a cluster. After the
// stop of the NFS server it starts everything again even if a step fails.
func (r *site) restartSingle(ctx context.Context) error {
	return host.Each(ctx, r.active(), func(ctx context.Context, server string) error {
		r.say(Progress{State: "emptying caches: the NFS server restarts"})
		stop, again := kind.Of(r.env.Design).Restart(r.env.Design.Services())
		var errs []error
		for _, a := range stop {
			if _, err := r.host(server).Run(ctx, a); err != nil {
				errs = append(errs, err)
				break
			}
		}
		for _, a := range again {
			_, err := r.host(server).Run(ctx, a)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// active lists the servers that run services, without duplicates.
func (r *site) active() []string {
	var out []string
	for _, s := range r.env.Design.Services() {
		if a := r.serves[s.Name]; a != "" && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// findActive finds the server on which each service's volume is mounted.
func (r *site) findActive(ctx context.Context) error {
	mounted := map[string][]linux.Mount{}
	var problems, unreachable []string
	for _, s := range r.servers {
		ms, err := testbed.Mounts(ctx, r.host(s))
		if err != nil {
			unreachable = append(unreachable, fmt.Sprintf("%s: %v", s, err))
			continue
		}
		mounted[s] = ms
	}
	serves := map[string]string{}
	for _, v := range r.env.Design.Services() {
		for _, s := range r.servers {
			if _, ok := linux.MountAt(mounted[s], v.MountPoints()[0]); ok {
				serves[v.Name] = s
			}
		}
		if serves[v.Name] == "" {
			problems = append(problems, fmt.Sprintf("service %s runs on no server (%s is mounted nowhere)", v.Name, v.MountPoints()[0]))
		}
	}
	if len(problems) > 0 {
		return &Unfit{append(unreachable, problems...)}
	}
	r.serves = serves
	return nil
}
