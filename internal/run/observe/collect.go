package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Conn is a session with a host's agent.
type Conn interface {
	Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error
}

// Dial opens a session with a host of the inventory. It is called from
// several goroutines at once, and again for a host whose session broke.
type Dial func(ctx context.Context, name string) (Conn, error)

// Facts are the answers of all hosts of a brick. They hold no secrets: they
// may be kept, sent and judged elsewhere.
type Facts struct {
	Time  time.Time         `json:"time"` // of the one who asked
	Hosts map[string]Answer `json:"hosts"`
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

var mdFiles = []string{"array_state", "degraded", "sync_action", "raid_disks", "uuid", "level", "mismatch_cnt", "dev-*/state", "dev-*/slot"}

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
		Processes: serverProcesses,
		Disks:     true,
		TimeoutMS: cmdMS, FSTimeoutMS: fsMS,
	}
	for _, f := range mdFiles {
		server.Files = append(server.Files, "/sys/block/md*/md/"+f)
	}
	for _, svc := range d.Services() {
		for _, f := range []string{"threads", "versions", "v4_end_grace", "nfsv4leasetime"} {
			server.Files = append(server.Files, ocf.NFSDDir(svc.Namespace)+"/"+f)
		}
		server.Files = append(server.Files, etabOf(svc))
		if svc.Namespace != "" {
			server.Namespaces = append(server.Namespaces, svc.Namespace)
		}
		server.FS = append(server.FS, svc.MountPoint)
	}
	if d.Cached() != nil {
		server.Run = append(server.Run, cacheCommand(d))
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
	dial    Dial
	timeout time.Duration
	only    map[string]bool
	outlets bool

	mu    sync.Mutex
	conns map[string]Conn
}

// NewCollector makes a collector that waits at most timeout for any host. If
// hosts are named, only these are asked.
func NewCollector(d *design.Design, dial Dial, timeout time.Duration, hosts ...string) *Collector {
	c := &Collector{d: d, dial: dial, timeout: timeout, conns: map[string]Conn{}}
	if len(hosts) > 0 {
		c.only = map[string]bool{}
		for _, h := range hosts {
			c.only[h] = true
		}
	}
	return c
}

func (c *Collector) drop(name string) {
	c.mu.Lock()
	conn := c.conns[name]
	delete(c.conns, name)
	c.mu.Unlock()
	closeConn(conn)
}

// Close ends all sessions.
func (c *Collector) Close() {
	c.mu.Lock()
	conns := slices.Collect(maps.Values(c.conns))
	c.conns = map[string]Conn{}
	c.mu.Unlock()
	for _, conn := range conns {
		closeConn(conn)
	}
}

func closeConn(conn Conn) {
	switch x := conn.(type) {
	case interface{ Close() error }:
		_ = x.Close() // the session is given up: its last words do not matter
	case interface{ Close() }:
		x.Close()
	}
}

// Collect asks all hosts at once. A host that does not answer in time has an
// Err; the others' facts are there all the same. It returns within the
// collector's timeout even if a session ignores its context; with AskOutlets,
// up to 16 s later.
func (c *Collector) Collect(ctx context.Context) Facts {
	f := c.collect(ctx)
	if c.outlets && c.d.Clustered() && ctx.Err() == nil {
		c.collectOutlets(ctx, f)
	}
	return f
}

func (c *Collector) collect(ctx context.Context) Facts {
	f := Facts{Time: time.Now(), Hosts: map[string]Answer{}}
	reqs := requests(c.d, c.timeout)
	type reply struct {
		name string
		a    Answer
	}
	replies := make(chan reply, len(reqs))
	cctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	waiting := map[string]bool{}
	for name, req := range reqs {
		if c.only != nil && !c.only[name] {
			continue
		}
		waiting[name] = true
		go func() { replies <- reply{name, c.ask(cctx, name, req)} }()
	}
	for len(waiting) > 0 {
		select {
		case r := <-replies:
			f.Hosts[r.name] = r.a
			delete(waiting, r.name)
		case <-cctx.Done():
			// Take what came at the same moment.
			select {
			case r := <-replies:
				f.Hosts[r.name] = r.a
				delete(waiting, r.name)
				continue
			case <-time.After(100 * time.Millisecond):
			}
			for name := range waiting {
				f.Hosts[name] = Answer{Err: context.Cause(cctx).Error()}
				c.drop(name)
			}
			waiting = nil
		}
	}
	return f
}

func (c *Collector) ask(ctx context.Context, name string, req Request) Answer {
	var h Host
	asked, err := c.call(ctx, name, Op, req, &h)
	if err == nil {
		return Answer{Host: &h, Asked: asked, Answered: time.Now()}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return Answer{Err: err.Error()}
}

// Call asks one thing of a host, over the session there is or a new one. A
// session that turns out to be broken is opened again once.
func (c *Collector) Call(ctx context.Context, name, op string, params, result any) error {
	_, err := c.call(ctx, name, op, params, result)
	return err
}

func (c *Collector) call(ctx context.Context, name, op string, params, result any) (asked time.Time, err error) {
	for fresh := false; ; fresh = true {
		c.mu.Lock()
		conn := c.conns[name]
		c.mu.Unlock()
		if conn == nil {
			if conn, err = c.dial(ctx, name); err != nil {
				return asked, err
			}
			fresh = true
			c.mu.Lock()
			c.conns[name] = conn
			c.mu.Unlock()
		}
		asked = time.Now()
		err = conn.Call(ctx, op, params, result, nil)
		var said *agent.Error
		if err == nil || errors.As(err, &said) {
			return asked, err // the host's own answer: the session is good
		}
		c.drop(name)
		if fresh || ctx.Err() != nil {
			return asked, err
		}
	}
}
