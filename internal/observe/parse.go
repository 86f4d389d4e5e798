package observe

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/linux"
)

// mdProgress is the progress line of an array in /proc/mdstat.
type mdProgress struct {
	Action  string        // resync, recovery, reshape, check, repair
	Percent float64       // done; 0 while it waits
	Left    time.Duration // as the kernel estimates; 0 unknown
	Waiting string        // DELAYED, PENDING or REMOTE: it does not run now
}

var (
	mdProgressRE = regexp.MustCompile(`(resync|recovery|reshape|check|repair)\s*=\s*([0-9.]+)%.*?finish=([0-9.]+)min`)
	mdWaitRE     = regexp.MustCompile(`(resync|recovery|reshape|check|repair)\s*=\s*(DELAYED|PENDING|REMOTE)`)
)

// parseMDStat finds what each array is doing, by device name (md127).
// Source: md(4), drivers/md/md.c status_resync
func parseMDStat(text string) map[string]mdProgress {
	out := map[string]mdProgress{}
	dev := ""
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, " : "); ok && strings.HasPrefix(name, "md") {
			dev = name
			continue
		}
		if dev == "" {
			continue
		}
		if m := mdProgressRE.FindStringSubmatch(line); m != nil {
			pct, _ := strconv.ParseFloat(m[2], 64)
			left, _ := strconv.ParseFloat(m[3], 64)
			out[dev] = mdProgress{Action: m[1], Percent: pct, Left: time.Duration(left * float64(time.Minute))}
		} else if m := mdWaitRE.FindStringSubmatch(line); m != nil {
			out[dev] = mdProgress{Action: m[1], Waiting: m[2]}
		}
	}
	return out
}

// dmPath is a path's state as the multipath target of the kernel has it.
type dmPath struct {
	Dev    string // major:minor
	Active bool
	Fails  int
}

// parseDMStatus reads `dmsetup status --target multipath`, by map name.
// Source: drivers/md/dm-mpath.c multipath_status, STATUSTYPE_INFO
func parseDMStatus(text string) map[string][]dmPath {
	out := map[string][]dmPath{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ": ")
		f := strings.Fields(rest)
		if !ok || len(f) < 4 || f[2] != "multipath" {
			continue
		}
		r := &fields{f: f[3:]}
		r.skip(r.int()) // features
		r.skip(r.int()) // hardware handler
		groups := r.int()
		r.int() // next group to try
		var paths []dmPath
		for range groups {
			r.next()        // state of the group: A, E or D
			r.skip(r.int()) // selector status
			n, args := r.int(), r.int()
			for range n {
				dev, state, fails := r.next(), r.next(), r.int()
				r.skip(args)
				if r.bad {
					break
				}
				paths = append(paths, dmPath{dev, state == "A", fails})
			}
			if r.bad {
				break
			}
		}
		out[name] = paths
	}
	return out
}

// fields is a cursor over words; bad once a word is missing or no number.
type fields struct {
	f   []string
	bad bool
}

func (r *fields) next() string {
	if len(r.f) == 0 {
		r.bad = true
		return ""
	}
	s := r.f[0]
	r.f = r.f[1:]
	return s
}

func (r *fields) int() int {
	n, err := strconv.Atoi(r.next())
	if err != nil || n < 0 || n > 1<<16 {
		r.bad = true
		return 0
	}
	return n
}

func (r *fields) skip(n int) {
	for range n {
		if r.bad {
			return
		}
		r.next()
	}
}

// link is one corosync link of a node: which peers it reaches.
type link struct {
	ID    int
	Addr  string
	Peers map[int]string // by node ID: connected, disconnected, localhost
}

// parseLinks reads `corosync-cfgtool -s`. Source: corosync-cfgtool(8)
func parseLinks(text string) []link {
	var out []link
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "LINK ID"):
			f := strings.Fields(line)
			if len(f) < 3 {
				continue
			}
			id, err := strconv.Atoi(f[2])
			if err != nil {
				continue
			}
			out = append(out, link{ID: id, Peers: map[int]string{}})
		case len(out) == 0:
		case strings.HasPrefix(line, "addr"):
			if _, v, ok := strings.Cut(line, "="); ok {
				out[len(out)-1].Addr = strings.TrimSpace(v)
			}
		case strings.HasPrefix(line, "nodeid:"):
			f := strings.SplitN(strings.TrimPrefix(line, "nodeid:"), ":", 2)
			if len(f) != 2 {
				continue
			}
			id, err := strconv.Atoi(strings.TrimSpace(f[0]))
			if err != nil {
				continue
			}
			out[len(out)-1].Peers[id] = strings.TrimSpace(f[1])
		}
	}
	return out
}

// parseWaits reads what corosync-cmapctl prints of
// runtime.votequorum.wait_for_all_status: true until the server has seen every
// other one since its corosync started.
// Source: corosync exec/votequorum.c, update_wait_for_all_status
func parseWaits(text string) bool {
	_, value, _ := strings.Cut(text, " = ")
	return strings.TrimSpace(value) == "1"
}

// crm is the XML of crm_mon(8), as far as it is judged here.
type crm struct {
	Stack struct {
		Daemon string `xml:"pacemakerd-state,attr"`
	} `xml:"summary>stack"`
	DC struct {
		Present bool   `xml:"present,attr"`
		Name    string `xml:"name,attr"`
		Version string `xml:"version,attr"`
		Quorum  bool   `xml:"with_quorum,attr"`
	} `xml:"summary>current_dc"`
	Options struct {
		Stonith     bool `xml:"stonith-enabled,attr"`
		Maintenance bool `xml:"maintenance-mode,attr"`
		StopAll     bool `xml:"stop-all-resources,attr"`
	} `xml:"summary>cluster_options"`
	Nodes     []crmNode     `xml:"nodes>node"`
	Resources []crmResource `xml:"resources>resource"`
	Grouped   []crmResource `xml:"resources>group>resource"` // of profile stock; parseCRM puts them with the others
	Cloned    []crmResource `xml:"resources>clone>resource"` // one for each instance
	History   []struct {
		Node      string       `xml:"name,attr"`
		Resources []crmHistory `xml:"resource_history"`
	} `xml:"node_history>node"`
	Failures []crmFailure `xml:"failures>failure"`
	Fences   []crmFence   `xml:"fence_history>fence_event"`
	Bans     []crmBan     `xml:"bans>ban"`
	Status   struct {
		Code    int      `xml:"code,attr"`
		Message string   `xml:"message,attr"`
		Errors  []string `xml:"errors>error"`
	} `xml:"status"`
}

type crmNode struct {
	Name        string `xml:"name,attr"`
	ID          int    `xml:"id,attr"`
	Online      bool   `xml:"online,attr"`
	Standby     bool   `xml:"standby,attr"`
	StandbyFail bool   `xml:"standby_onfail,attr"`
	Maintenance bool   `xml:"maintenance,attr"`
	Pending     bool   `xml:"pending,attr"`
	Unclean     bool   `xml:"unclean,attr"`
	Health      string `xml:"health,attr"`
	Shutdown    bool   `xml:"shutdown,attr"`
}

type crmResource struct {
	ID      string `xml:"id,attr"`
	Agent   string `xml:"resource_agent,attr"`
	Role    string `xml:"role,attr"`
	Active  bool   `xml:"active,attr"`
	Blocked bool   `xml:"blocked,attr"`
	Managed bool   `xml:"managed,attr"`
	Failed  bool   `xml:"failed,attr"`
	Pending string `xml:"pending,attr"`
	Nodes   []struct {
		Name string `xml:"name,attr"`
	} `xml:"node"`
}

type crmHistory struct {
	ID          string `xml:"id,attr"`
	FailCount   int    `xml:"fail-count,attr"`
	LastFailure string `xml:"last-failure,attr"`
	Ops         []struct {
		Call int    `xml:"call,attr"`
		Task string `xml:"task,attr"`
		RC   int    `xml:"rc,attr"`
		When string `xml:"last-rc-change,attr"`
	} `xml:"operation_history"`
}

type crmFailure struct {
	Op     string `xml:"op_key,attr"`
	Node   string `xml:"node,attr"`
	Status string `xml:"exitstatus,attr"`
	Reason string `xml:"exitreason,attr"`
	When   string `xml:"last-rc-change,attr"`
	Task   string `xml:"task,attr"`
	State  string `xml:"status,attr"`
}

type crmFence struct {
	Action    string `xml:"action,attr"`
	Target    string `xml:"target,attr"`
	Origin    string `xml:"origin,attr"`
	Delegate  string `xml:"delegate,attr"`
	Status    string `xml:"status,attr"`
	Completed string `xml:"completed,attr"`
	Reason    string `xml:"exit-reason,attr"`
}

type crmBan struct {
	ID       string `xml:"id,attr"`
	Resource string `xml:"resource,attr"`
	Node     string `xml:"node,attr"`
}

// parseCRM reads the output of crm_mon --output-as=xml. It gives an error
// with Pacemaker's own words where the cluster cannot be asked.
func parseCRM(text string) (*crm, error) {
	var c crm
	if err := xml.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("crm_mon's output cannot be read: %w", err)
	}
	if c.Status.Code != 0 {
		msg := c.Status.Message
		if len(c.Status.Errors) > 0 {
			msg = strings.TrimPrefix(c.Status.Errors[0], "crm_mon: ")
		}
		return nil, fmt.Errorf("%s", msg)
	}
	c.Resources, c.Grouped = append(c.Resources, c.Grouped...), nil
	return &c, nil
}

// crmTimes are the forms Pacemaker 2.1 and 3.0 print times in. The first is
// in the host's local time and does not say so.
var crmTimes = []string{
	"Mon Jan _2 15:04:05 2006",
	"2006-01-02 15:04:05.999999Z07:00",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 -07:00",
	"2006-01-02 15:04:05.999999 -07:00",
}

func parseCRMTime(s string, utcOffset int) (time.Time, bool) {
	for _, layout := range crmTimes {
		if t, err := time.ParseInLocation(layout, s, time.FixedZone("", utcOffset)); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// opStats is a line of the per-operation table of /proc/self/mountstats.
type opStats struct {
	Ops, Transmissions, Timeouts int64
	RTT, Execute                 int64 // ms, summed over all operations
}

// parseMountStats reads the NFS mounts of /proc/self/mountstats, by mount
// point and operation. Source: fs/nfs/super.c nfs_show_stats
func parseMountStats(text string) map[string]map[string]opStats {
	out := map[string]map[string]opStats{}
	var cur map[string]opStats
	perOp := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[0] == "device" {
			cur, perOp = nil, false
			if len(f) >= 8 && f[2] == "mounted" && strings.HasPrefix(f[7], "nfs") {
				cur = map[string]opStats{}
				out[linux.Unescape(f[4])] = cur
			}
			continue
		}
		if cur == nil {
			continue
		}
		if f[0] == "per-op" {
			perOp = true
			continue
		}
		if !perOp || !strings.HasSuffix(f[0], ":") || len(f) < 9 {
			continue
		}
		var n [8]int64
		for i := range n {
			n[i], _ = strconv.ParseInt(f[i+1], 10, 64)
		}
		cur[strings.TrimSuffix(f[0], ":")] = opStats{Ops: n[0], Transmissions: n[1], Timeouts: n[2], RTT: n[6], Execute: n[7]}
	}
	return out
}
