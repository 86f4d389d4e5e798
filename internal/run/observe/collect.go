package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/hardware"
	"github.com/mortarhpc/mortar/internal/run/raid"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Facts are the answers of all hosts of a brick. They contain no secrets, so they
// may be kept, sent and judged elsewhere.
type Facts struct {
	Time  time.Time         `json:"time"` // by the collector's clock
	Hosts map[string]Answer `json:"hosts"`
	// Arrays are the reports of the brick's RAID arrays, by name; nil without
	// AskArrays.
	Arrays map[string]raid.Answer `json:"arrays,omitempty"`
	// Hardware are the reports of the servers' BMCs and disks, by server; nil without
	// AskHardware.
	Hardware map[string]hardware.Report `json:"hardware,omitempty"`
}

// Answer is a host's facts, or an error.
type Answer struct {
	Host *gather.Host `json:"host,omitempty"`
	Err  string       `json:"err,omitempty"`
	// When the collector asked the host and had its answer, by the collector's
	// clock: Host.NowNS lies between.
	Asked    time.Time `json:"asked"`
	Answered time.Time `json:"answered"`
}

// serverProcesses are the daemons that an active server needs in addition to nfsd.
var serverProcesses = []string{"rpc.mountd", "rpc.statd", "nfsdcld", "rpcbind"}

// requests returns the request to each host of the design.
func requests(d *design.Design, timeout time.Duration) map[string]gather.Request {
	out := map[string]gather.Request{}
	// The agent's limits for a command and for a file system are shorter than
	// ours for the agent. That for file systems is the shortest, so that a hanging
	// mount does not delay the whole answer.
	cmdMS := int((timeout * 2 / 3).Milliseconds())
	fsMS := int(min(timeout/3, 10*time.Second).Milliseconds())
	server := gather.Request{
		Files: []string{"/proc/mdstat", "/proc/self/mounts", "/sys/block/sd*/dev", "/sys/block/dm-*/dm/name", "/sys/block/dm-*/dm/uuid",
			"/etc/os-release", "/proc/uptime", watchdogStates},
		Links:     []string{"/dev/md/*", "/sys/block/dm-*/slaves/*"},
		Run:       [][]string{strings.Fields(gather.CmdDM)},
		Disks:     true,
		FS:        slices.Clone(linux.SystemDirs),
		TimeoutMS: cmdMS, FSTimeoutMS: fsMS,
	}
	files, links := gather.Background()
	server.Files, server.Links = slices.Concat(server.Files, gather.SystemFiles, gather.MDFiles, files), append(server.Links, links...)
	for i := range d.Pairs {
		v := &view{d: d, pair: &d.Pairs[i]}
		v.storage().request(&server)
		for j := range v.pair.Services {
			v.kind().request(&v.pair.Services[j], &server)
			if v.pair.HA != nil {
				server.Files = append(server.Files, unit.ProgressFile(v.pair.Services[j].Name))
			}
		}
	}
	if d.Cached() != nil {
		server.Run = append(server.Run, gather.CacheCommand(d.Cached().Name))
	}
	if d.Clustered() {
		// Ask each server for its own view: two different views mean a split.
		server = server.With(gather.ClusterRequest())
		server.Run, server.CIB = append(server.Run, strings.Fields(gather.CmdWaits), strings.Fields(gather.CmdLinks)), true
	}
	for _, s := range d.Spec.Servers {
		out[s.Name] = server
	}
	for _, c := range d.Spec.Clients {
		r := gather.Request{Files: []string{"/proc/self/mounts", "/proc/self/mountstats", "/etc/os-release", "/proc/uptime", uniqueID, netnsID}, TimeoutMS: cmdMS, FSTimeoutMS: fsMS}
		for _, m := range d.Mounts {
			if m.Client == c.Name {
				r.FS = append(r.FS, m.Path)
			}
		}
		out[c.Name] = r
	}
	return out
}

// Collector gathers the facts of a brick, repeatedly, over sessions that it keeps
// open. It is not safe for concurrent use.
type Collector struct {
	d       *design.Design
	hosts   *host.Pool
	timeout time.Duration
	only    []string
	outlets bool
	traffic bool
	// Below has Collect also ask how servers are set up below the brick.
	Below  bool
	arrays func(context.Context, *design.Array) raid.Answer
	// hardware asks, with AskHardware.
	hardware *hardware.Asker
}

// NewCollector returns a Collector that waits at most timeout for each host. With
// hosts it asks only these.
func NewCollector(d *design.Design, dial host.Dial, timeout time.Duration, hosts ...string) *Collector {
	return &Collector{d: d, hosts: host.NewPool(dial), timeout: timeout, only: hosts}
}

// Under sets the policy for actions on the collector's sessions. It returns the
// collector.
func (c *Collector) Under(g host.Gate) *Collector {
	c.hosts.Gate = g
	return c
}

// Keep hands an open session over to the collector, which closes it in Close.
func (c *Collector) Keep(s *host.Session) { c.hosts.Keep(s) }

// Session returns the session with a host, which connects when it is first used.
func (c *Collector) Session(name string) *host.Session { return c.hosts.Session(name) }

// Close ends all sessions.
func (c *Collector) Close() { c.hosts.Close() }

// Collect asks all hosts concurrently. A host that does not answer in time has an
// Err; Collect still returns the others' facts. It returns within the collector's
// timeout plus a second, even if a session ignores its context; with AskOutlets, up
// to 16 s later, and with AskHardware up to a minute.
func (c *Collector) Collect(ctx context.Context) Facts {
	f := c.collect(ctx)
	if c.outlets && c.d.Clustered() && ctx.Err() == nil {
		c.collectOutlets(ctx, f)
	}
	if c.hardware != nil && ctx.Err() == nil {
		up := hardware.Disks{}
		for _, s := range c.d.Servers() {
			if h := f.Hosts[s].Host; h != nil {
				up[s] = append([]resource.DiskFact{}, h.Disks...)
			}
		}
		f.Hardware = c.hardware.Collect(ctx, c.d, up, f.Time, c.timeout, c.gather)
	}
	return f
}

// AskHardware makes Collect also ask BMCs for their sensors and event logs, enclosures
// for their power supplies, fans and temperatures, and disks for their SMART data, at
// most every ten minutes. A server's partner asks its BMC,
// with the secret that it fences with. A single server asks its own.
func (c *Collector) AskHardware(a *hardware.Asker) { c.hardware = a }

func (c *Collector) collect(ctx context.Context) Facts {
	f := Facts{Time: time.Now()}
	reqs := requests(c.d, c.timeout)
	if c.traffic {
		countTraffic(c.d, reqs)
	}
	for _, s := range c.d.Servers() {
		if c.Below {
			reqs[s] = reqs[s].With(prepared.Request(c.d, s))
		}
	}
	arrays := c.startArrays(ctx, reqs)
	// Servers come first: they do not wait for clients that are off.
	names := slices.DeleteFunc(slices.Concat(c.d.Servers(), c.d.Spec.ClientNames()), func(n string) bool { return len(c.only) > 0 && !slices.Contains(c.only, n) })
	cctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	var hung host.Errors
	f.Hosts, hung = host.All(cctx, names, func(ctx context.Context, name string) (Answer, error) {
		return c.ask(ctx, name, reqs[name]), nil
	})
	for name, err := range hung {
		f.Hosts[name] = Answer{Err: err.Error()}
		c.hosts.Drop(name)
	}
	f.Arrays = arrays()
	return f
}

func (c *Collector) ask(ctx context.Context, name string, req gather.Request) Answer {
	var h gather.Host
	var asked time.Time
	err := c.hosts.With(ctx, name, func(s *host.Session) (err error) {
		asked = time.Now()
		h, err = host.Ask(ctx, s, gather.Op, req)
		return err
	})
	if err == nil {
		return Answer{Host: &h, Asked: asked, Answered: time.Now()}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return Answer{Err: err.Error()}
}
