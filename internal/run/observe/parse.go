package observe

import (
	"errors"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// dmPath is the state of a path in the kernel's multipath target.
type dmPath struct {
	Dev   string // major:minor
	State string // pathActive, pathFailed, or another word
	Fails int
}

// States of a path.
const (
	pathActive = "A"
	pathFailed = "F"
)

// parseDMStatus reads `dmsetup status --target multipath`, by map name. A map whose line
// ends too early has the paths that were read, and its line is one of unread.
// Source: drivers/md/dm-mpath.c multipath_status, STATUSTYPE_INFO
func parseDMStatus(text string) (maps map[string][]dmPath, unread health.Unread) {
	maps = map[string][]dmPath{}
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "\ufeff")
		name, rest, ok := strings.Cut(line, ": ")
		f := strings.Fields(rest)
		switch {
		case !ok || len(f) < 3 || strings.Trim(f[0]+f[1], "0123456789") != "":
			if strings.Contains(line, " multipath ") {
				unread.Add(line)
			}
			continue // a banner
		case f[2] != "multipath":
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
				p := dmPath{Dev: r.next(), State: r.next(), Fails: r.int()}
				r.skip(args)
				if r.bad {
					break
				}
				paths = append(paths, p)
				if p.State != pathActive && p.State != pathFailed {
					unread.Add(line)
				}
			}
			if r.bad {
				break
			}
		}
		if r.bad {
			unread.Add(line)
		}
		maps[name] = paths
	}
	return maps, unread
}

// fields is a cursor over words. bad is set after a missing word or a word that
// should be a number and is none.
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

// link is one corosync link of a node, with the peers that it reaches.
type link struct {
	ID    int
	Addr  string
	Peers map[int]string // by node ID: connected, disconnected, localhost
}

// linkStates are corosync's words for a peer on a link. Corosync 3.0 has two of them.
var linkStates = map[string]string{"connected": "connected", "disconnected": "disconnected", "localhost": "localhost",
	"link enabled:1\tlink connected:1": "connected", "link enabled:1\tlink connected:0": "disconnected", "link enabled:0\tlink connected:0": "disconnected",
	"link enabled:0\tlink connected:1": "connected"}

// parseLinks reads `corosync-cfgtool -s`. Lines before the first link are a banner; those
// of a link that are not understood are unread. Source: corosync-cfgtool(8)
func parseLinks(text string) (links []link, unread health.Unread) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "LINK ID") || strings.HasPrefix(line, "RING ID") {
			f := strings.Fields(line)
			id, err := -1, errors.New("no number")
			if len(f) > 2 {
				id, err = strconv.Atoi(f[2])
			}
			if err != nil {
				id = -1
				unread.Add(line)
			}
			links = append(links, link{ID: id, Peers: map[int]string{}})
			continue
		}
		if len(links) == 0 || line == "" || line == "status:" {
			continue
		}
		l := &links[len(links)-1]
		key, value, _ := strings.Cut(line, "=")
		node, state, ok := strings.Cut(strings.TrimPrefix(line, "nodeid"), ":")
		if strings.TrimSpace(node) == "" { // "nodeid:  2:", and "nodeid  2:" of corosync 3.0
			node, state, ok = strings.Cut(state, ":")
		}
		id, err := strconv.Atoi(strings.TrimSpace(node))
		state = strings.TrimSpace(state)
		switch known := linkStates[state]; {
		case strings.TrimSpace(key) == "addr":
			l.Addr = strings.TrimSpace(value)
		case !strings.HasPrefix(line, "nodeid") || !ok || err != nil:
			unread.Add(line)
		case known == "":
			l.Peers[id] = state
			unread.Add(line)
		default:
			l.Peers[id] = known
		}
	}
	return links, unread
}

// parseWaits reads corosync-cmapctl's output of
// runtime.votequorum.wait_for_all_status: true until the server has seen every other
// server since the start of its corosync.
// Source: corosync exec/votequorum.c, update_wait_for_all_status
func parseWaits(text string) bool {
	_, value, _ := strings.Cut(text, " = ")
	return strings.TrimSpace(value) == "1"
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
