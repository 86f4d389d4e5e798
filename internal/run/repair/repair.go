// Package repair mends the XFS of a service that XFS does not mount: it has the service stopped
// and kept so, looks with xfs_repair -n, keeps a dump of the metadata, has a mount replay the log,
// runs xfs_repair and starts the service again. Each part is shown and asked for. The package
// keeps no record: a run that was cut short is taken up by running it again, and what the hosts
// have says what is done.
//
// ldiskfs of Lustre is e2fsck's, see package lustre. The package judges no health.
package repair

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// Hosts are the hosts of a brick; *observe.Collector implements it.
type Hosts interface {
	procedure.Hosts
	// Collect returns all facts of all servers.
	Collect(ctx context.Context) observe.Facts
}

// Options of Run.
type Options struct {
	Service string // "": the only one
	On      string // the server that works on the volume; "": the preferred one, if it can
	Stop    bool   // also a service that runs
	NoDump  bool   // mend without a dump of the metadata, where none can be made
	ZeroLog bool   // a log that cannot be replayed may go
	Confirm string // the service's name, typed for ZeroLog
	// Wait bounds each wait for the cluster.
	Wait time.Duration
}

// DumpDir is where a server keeps dumps of metadata.
const DumpDir = "/var/lib/mortar/metadump"

// long bounds xfs_repair, xfs_metadump and a mount that checks quotas, in seconds.
const long = 7 * 24 * 3600

// job is the repair of one service.
type job struct {
	o     Options
	d     *design.Design
	pair  *design.Pair
	svc   *design.Service
	hosts Hosts

	on  string // the server that works
	off string // its partner, if that is off
	id  string // of the service in the cluster
	// Memory and swap of on that are free, in bytes.
	ram, swap int64
	// Of the look.
	need    need
	began   time.Time
	took    time.Duration
	damaged bool
	log     bool // it has changes that are not replayed
	dumped  bool // a dump is there that no finished repair has renamed
	stopped bool // the service was told to stop
}

// Run repairs a service's file system.
func Run(ctx context.Context, c *cli.Console, d *design.Design, hosts Hosts, o Options) error {
	j, nothing, err := open(ctx, d, hosts, o)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	carry := procedure.Carry{Asks: true, Wait: o.Wait}
	look := j.look()
	switch {
	case nothing != "":
		return carry.Out(ctx, c, hosts, &procedure.Plan{What: look.What, Nothing: nothing})
	case c.DryRun:
		look.Steps = slices.Concat(look.Steps, j.mend().Steps, j.start(true).Steps)
		look.Notes = append(look.Notes, "steps after the look are left out if it finds nothing")
		return carry.Out(ctx, c, hosts, look)
	}
	if err := carry.Out(ctx, c, hosts, look); err != nil {
		return j.stays(err)
	}
	mends := j.damaged || j.log
	if mends {
		if err := j.mendNow(ctx, c, carry); err != nil {
			return j.stays(err)
		}
	}
	if err := carry.Out(ctx, c, hosts, j.start(mends)); err != nil {
		return j.stays(err)
	}
	if mends && !c.JSON {
		j.lost(ctx, c)
	}
	return nil
}

// mendNow carries out the plan that mends, and throws away a log if it must and may.
func (j *job) mendNow(ctx context.Context, c *cli.Console, carry procedure.Carry) error {
	if err := j.mayDump(ctx); err != nil {
		return cli.Fail(cli.Failed, err)
	}
	if err := carry.Out(ctx, c, j.hosts, j.mend()); err != nil {
		return err
	}
	if !j.log {
		return nil
	}
	if !j.o.ZeroLog {
		return cli.Fail(cli.Failed, fmt.Errorf("the log of %s has changes that a mount does not replay, so xfs_repair does nothing; with --zero-log it throws them away: %s", j.svc.MountPoint, lostWithLog))
	}
	if err := c.Typed(j.svc.Name, j.o.Confirm, fmt.Sprintf("The log of %s is thrown away: %s\nType the service's name to accept that: ", j.svc.MountPoint, lostWithLog),
		"a person has to accept what is lost", "the log is as it was"); err != nil {
		return err
	}
	j.log = false
	return procedure.Carry{Wait: j.o.Wait}.Out(ctx, c, j.hosts, &procedure.Plan{What: "mend " + j.svc.MountPoint + " without its log", Via: j.on, Steps: []procedure.Step{j.repair("-L")}})
}

// lostWithLog says what xfs_repair -L loses.
//
// Source: xfs_repair(8), -L
const lostWithLog = "the last changes of names, sizes and blocks that clients were told are safe. Files made, renamed or extended in the seconds before the crash may be gone, short, or in lost+found, and other files may be damaged"

// stays adds to an error that the service is stopped.
func (j *job) stays(err error) error {
	if !j.stopped {
		return err
	}
	code, why := cli.Failed, err
	if e := (*cli.Exit)(nil); errors.As(err, &e) && e.Err != nil {
		code, why = e.Code, e.Err
	}
	return cli.Fail(code, fmt.Errorf("%w; service %s is kept stopped: run the command again, which goes on", why, j.svc.Name))
}

// open asks the servers, and says what speaks against a repair.
func open(ctx context.Context, d *design.Design, hosts Hosts, o Options) (j *job, nothing string, err error) {
	j = &job{o: o, d: d, hosts: hosts}
	if err := j.pick(); err != nil {
		return nil, "", err
	}
	facts := hosts.Collect(ctx)
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	able, runs, err := j.servers(ctx, facts)
	if err != nil {
		return nil, "", err
	}
	switch {
	case runs != "" && !o.Stop:
		return j, fmt.Sprintf("service %s runs on %s: XFS has mounted its volume. --stop has it stopped and looked at", j.svc.Name, runs), nil
	case o.On != "" && !slices.Contains(able, o.On):
		return nil, "", resource.Refuse("repair-not-there", resource.With{"server": o.On, "service": j.svc.Name, "servers": able})
	case o.On != "":
		j.on = o.On
	case slices.Contains(able, j.svc.Preferred):
		j.on = j.svc.Preferred
	default:
		j.on = able[0]
	}
	text, err := hosts.Session(j.on).Read(ctx, "/proc/meminfo")
	if err == nil {
		j.ram, j.swap = linux.Memory(text, "MemAvailable"), linux.Memory(text, "SwapFree")
		j.dumped, err = j.hasDump(ctx)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", j.on, err)
	}
	return j, "", nil
}

// pick finds the service.
func (j *job) pick() (err error) {
	if j.svc, err = procedure.Service(j.d, j.o.Service); err != nil {
		return err
	}
	if len(j.svc.Targets) > 0 {
		return resource.Refuse("repair-lustre", resource.With{"service": j.svc.Name, "target": j.svc.Targets[0].Name})
	}
	j.pair = j.d.PairOf(j.svc.Name)
	if j.d.Spec.Profile == spec.Stock {
		return resource.Refuse("repair-stock", resource.With{"service": j.svc.Name})
	}
	return nil
}

// servers are those that could work on the volume, and the one on which the service runs. The
// error says which server could mount the volume meanwhile.
func (j *job) servers(ctx context.Context, f observe.Facts) (able []string, runs string, err error) {
	mounted := func(node string) bool {
		h := f.Hosts[node].Host
		if h == nil {
			return false
		}
		_, there := linux.MountAt(linux.ParseMounts(h.Files["/proc/self/mounts"]), j.svc.MountPoint)
		return there
	}
	if j.pair.HA == nil {
		node := j.pair.Servers[0]
		if f.Hosts[node].Host == nil {
			return nil, "", resource.Refuse("host-no-answer", resource.With{"host": node, "error": f.Hosts[node].Err})
		}
		if mounted(node) && !j.held(ctx, node) {
			runs = node
		}
		return []string{node}, runs, nil
	}
	snap := observe.ClusterOf(j.d, j.pair, f)
	if snap == nil {
		return nil, "", resource.Refuse("cluster-no-answer", resource.With{"why": "nothing could keep the service stopped"})
	}
	st := snap.Service(j.svc.Name)
	switch {
	case st == nil || st.Resource == "":
		return nil, "", resource.Refuse("cluster-lacks-service", resource.With{"service": j.svc.Name})
	case !snap.DC.Present || !snap.DC.Quorum:
		return nil, "", resource.Refuse("repair-no-quorum", resource.With{"service": j.svc.Name})
	case snap.Options.Maintenance:
		return nil, "", resource.Refuse("repair-maintenance", resource.With{"service": j.svc.Name})
	}
	for _, node := range j.pair.Servers {
		n := snap.Node(node)
		switch answers := f.Hosts[node].Host != nil; {
		case n.Member() && answers:
			able = append(able, node)
			if !st.Runs() && mounted(node) && st.Server != node {
				return nil, "", resource.Refuse("repair-mounted", resource.With{"path": j.svc.MountPoint, "host": node})
			}
		case n != nil && !n.Online && !n.Unclean && !n.Pending && !answers:
			j.off = node // fenced, or left in good order before it was switched off
		case !answers:
			return nil, "", resource.Refuse("repair-not-fenced", resource.With{"host": node, "error": f.Hosts[node].Err})
		default:
			return nil, "", resource.Refuse("repair-not-member", resource.With{"host": node})
		}
	}
	if j.id = st.Resource; st.Runs() {
		runs = st.Server
	}
	return able, runs, nil
}

// hasDump says whether a dump is there that no finished repair has renamed.
func (j *job) hasDump(ctx context.Context) (bool, error) {
	out, err := j.hosts.Session(j.on).Query(ctx, "ls", "-d", j.dump())
	return out.Code == 0, err
}

func (j *job) dump() string { return path.Join(DumpDir, j.svc.Name+".metadump") }

// mayDump says why no dump of the metadata can be made.
func (j *job) mayDump(ctx context.Context) error {
	switch {
	case j.dumped || j.o.NoDump:
		return nil
	case !j.need.known:
		return resource.Refuse("repair-no-dump", nil)
	}
	room, err := j.room(ctx)
	if err != nil {
		return fmt.Errorf("%s: room below %s: %w", j.on, DumpDir, err)
	}
	if size := j.need.dump(logBytes(j.svc.MkfsArgs)); room < size {
		return resource.Refuse("repair-no-room", resource.With{"need": binary(size), "host": j.on, "free": binary(room), "path": path.Dir(DumpDir)})
	}
	return nil
}

// lost says what xfs_repair has put into lost+found.
func (j *job) lost(ctx context.Context, c *cli.Console) {
	dir := path.Join(j.svc.MountPoint, "lost+found")
	for _, node := range j.pair.Servers {
		if out, err := j.hosts.Session(node).Query(ctx, "ls", dir); err == nil && out.Code == 0 {
			if n := len(strings.Fields(out.Stdout)); n > 0 {
				c.Printf("%d files and directories without a name are in %s: their names are inode numbers\n", n, dir)
			}
			return
		}
	}
}

// errStill ends a repair that did not mend everything.
var errStill = errors.New("xfs_repair -n still finds damage: do not start the service; keep the dump, and ask linux-xfs@vger.kernel.org")
