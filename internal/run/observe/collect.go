package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/raid"
)

// Facts are the answers of all hosts of a brick. They hold no secrets: they
// may be kept, sent and judged elsewhere.
type Facts struct {
	Time  time.Time         `json:"time"` // of the one who asked
	Hosts map[string]Answer `json:"hosts"`
	// Arrays are what the brick's RAID arrays said of themselves, by name; nil if
	// nobody was to ask.
	Arrays map[string]raid.Answer `json:"arrays,omitempty"`
}

// Answer is a host's facts, or why there are none.
type Answer struct {
	Host *Host  `json:"host,omitempty"`
	Err  string `json:"err,omitempty"`
	// When the host was asked and when it had answered, by the clock of the
	// one who asked: Host.NowNS lies between.
	Asked    time.Time `json:"asked"`
	Answered time.Time `json:"answered"`
}

// Commands asked of a server; their output is found in Host.Run by these.
const (
	cmdCRM   = "crm_mon --one-shot --output-as=xml"
	cmdLinks = "corosync-cfgtool -s"
	cmdWaits = "corosync-cmapctl -g runtime.votequorum.wait_for_all_status"
	cmdDM    = "dmsetup status --target multipath"
)

var mdFiles = []string{"array_state", "degraded", "sync_action", "raid_disks", "uuid", "level", "mismatch_cnt", "last_sync_action", "dev-*/state", "dev-*/slot"}

// serverProcesses are the daemons a server that is active needs beside nfsd.
var serverProcesses = []string{"rpc.mountd", "rpc.statd", "nfsdcld", "rpcbind"}

// requests says what to ask of each host of the design.
func requests(d *design.Design, timeout time.Duration) map[string]Request {
	out := map[string]Request{}
	// The agent gives up on a single command or file system before we give up
	// on the agent; on file systems sooner, so that a mount that hangs does not
	// hold up the whole picture.
	cmdMS := int((timeout * 2 / 3).Milliseconds())
	fsMS := int(min(timeout/3, 10*time.Second).Milliseconds())
	server := Request{
		Files: []string{"/proc/mdstat", "/proc/self/mounts", "/sys/block/sd*/dev", "/sys/block/dm-*/dm/name", "/sys/block/dm-*/dm/uuid",
			"/etc/os-release", "/proc/uptime"},
		Links:     []string{"/dev/md/*", "/sys/block/dm-*/slaves/*"},
		Run:       [][]string{strings.Fields(cmdDM)},
		Disks:     true,
		TimeoutMS: cmdMS, FSTimeoutMS: fsMS,
	}
	for _, f := range mdFiles {
		server.Files = append(server.Files, "/sys/block/md*/md/"+f)
	}
	for i := range d.Pairs {
		v := &view{d: d, pair: &d.Pairs[i]}
		v.storage().request(&server)
		for j := range v.pair.Services {
			v.kind().request(&v.pair.Services[j], &server)
		}
	}
	if d.Cached() != nil {
		server.Run = append(server.Run, cacheCommand(d.Cached().Name))
	}
	if d.Clustered() {
		// Each server is asked for its own view: two that disagree are parted.
		server.Run = append(server.Run, strings.Fields(cmdCRM), strings.Fields(cmdLinks), strings.Fields(cmdWaits))
		server.CIB = true
	}
	for _, s := range d.Spec.Servers {
		out[s.Name] = server
	}
	for _, c := range d.Spec.Clients {
		r := Request{Files: []string{"/proc/self/mounts", "/proc/self/mountstats", "/etc/os-release", "/proc/uptime"}, TimeoutMS: cmdMS, FSTimeoutMS: fsMS}
		for _, m := range d.Mounts {
			if m.Client == c.Name {
				r.FS = append(r.FS, m.Path)
			}
		}
		out[c.Name] = r
	}
	return out
}

// etabOf is where a service's exports are listed: nfs-utils' own directory,
// or, if only the service's own processes have that at this place, what it is
// on the volume.
func etabOf(svc *design.Service) string {
	if svc.Namespace == "" {
		return "/var/lib/nfs/etab"
	}
	return svc.StateDir + "/etab"
}

// Collector gathers the facts of a brick, again and again if need be, over
// sessions it keeps open. It is not safe for use by several goroutines.
type Collector struct {
	d       *design.Design
	hosts   *host.Pool
	timeout time.Duration
	only    []string
	outlets bool
	traffic bool
	arrays  func(context.Context, *design.Array) raid.Answer
}

// NewCollector makes a collector that waits at most timeout for any host. If
// hosts are named, only these are asked.
func NewCollector(d *design.Design, dial host.Dial, timeout time.Duration, hosts ...string) *Collector {
	return &Collector{d: d, hosts: host.NewPool(dial), timeout: timeout, only: hosts}
}

// Under sets the policy for actions on the collector's sessions. It returns the
// collector.
func (c *Collector) Under(g host.Gate) *Collector {
	c.hosts.Gate = g
	return c
}

// Keep gives the collector a session that is open already; the collector closes
// it.
func (c *Collector) Keep(s *host.Session) { c.hosts.Keep(s) }

// Session is the one with a host, dialled when it is needed.
func (c *Collector) Session(name string) *host.Session { return c.hosts.Session(name) }

// Close ends all sessions.
func (c *Collector) Close() { c.hosts.Close() }

// Collect asks all hosts at once. A host that does not answer in time has an
// Err; the others' facts are there all the same. It returns within the
// collector's timeout, and a second, even if a session ignores its context; with
// AskOutlets, up to 16 s later.
func (c *Collector) Collect(ctx context.Context) Facts {
	f := c.collect(ctx)
	if c.outlets && c.d.Clustered() && ctx.Err() == nil {
		c.collectOutlets(ctx, f)
	}
	return f
}

func (c *Collector) collect(ctx context.Context) Facts {
	f := Facts{Time: time.Now()}
	reqs := requests(c.d, c.timeout)
	if c.traffic {
		countTraffic(c.d, reqs)
	}
	arrays := c.startArrays(ctx, reqs)
	if len(c.only) > 0 {
		maps.DeleteFunc(reqs, func(name string, _ Request) bool { return !slices.Contains(c.only, name) })
	}
	cctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	var hung host.Errors
	f.Hosts, hung = host.All(cctx, slices.Collect(maps.Keys(reqs)), func(ctx context.Context, name string) (Answer, error) {
		return c.ask(ctx, name, reqs[name]), nil
	})
	for name, err := range hung {
		f.Hosts[name] = Answer{Err: err.Error()}
		c.hosts.Drop(name)
	}
	f.Arrays = arrays()
	return f
}

func (c *Collector) ask(ctx context.Context, name string, req Request) Answer {
	var h Host
	var asked time.Time
	err := c.hosts.With(ctx, name, func(s *host.Session) (err error) {
		asked = time.Now()
		h, err = host.Ask(ctx, s, OpGather, req)
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
