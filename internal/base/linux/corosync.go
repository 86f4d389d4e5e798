package linux

import (
	"errors"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Ring is one corosync link of a node, with the peers that it reaches.
type Ring struct {
	ID    int
	Addr  string
	Peers map[int]string // by node ID: connected, disconnected, localhost
}

// RingStates are corosync's words for a peer on a link. Corosync 3.0 has two of them.
var RingStates = map[string]string{"connected": "connected", "disconnected": "disconnected", "localhost": "localhost",
	"link enabled:1 link connected:1": "connected", "link enabled:1 link connected:0": "disconnected", "link enabled:0 link connected:0": "disconnected",
	"link enabled:0 link connected:1": "connected"}

// ParseRings reads `corosync-cfgtool -s`. Lines before the first link are a banner; those
// of a link that are not understood are unread. Source: corosync-cfgtool(8)
func ParseRings(text string) (links []Ring, unread health.Unread) {
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
			links = append(links, Ring{ID: id, Peers: map[int]string{}})
			continue
		}
		if len(links) == 0 || line == "" || line == "status:" {
			continue
		}
		l := &links[len(links)-1]
		key, value, _ := strings.Cut(line, "=")
		// "nodeid:  2:", "nodeid  2:" and "node 2:" of corosync 3.0
		node, state, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, "node"), "id"), ":")
		if strings.TrimSpace(node) == "" {
			node, state, ok = strings.Cut(state, ":")
		}
		id, err := strconv.Atoi(strings.TrimSpace(node))
		state = strings.Join(strings.Fields(state), " ")
		switch known := RingStates[state]; {
		case strings.TrimSpace(key) == "addr":
			l.Addr = strings.TrimSpace(value)
		case !strings.HasPrefix(line, "node") || !ok || err != nil:
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

// ParseWaits reads corosync-cmapctl's output of
// runtime.votequorum.wait_for_all_status: true until the server has seen every other
// server since the start of its corosync.
// Source: corosync exec/votequorum.c, update_wait_for_all_status
func ParseWaits(text string) bool {
	_, value, _ := strings.Cut(text, " = ")
	return strings.TrimSpace(value) == "1"
}
