package linux

import (
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// MultipathPath is the state of a path in the kernel's multipath target.
type MultipathPath struct {
	Dev   string // major:minor
	State string // PathActive, PathFailed, or another word
	Fails int
}

// States of a path.
const (
	PathActive = "A"
	PathFailed = "F"
)

// ParseMultipath reads `dmsetup status --target multipath`, by map name. A map whose line
// ends too early has the paths that were read, and its line is one of unread.
// Source: drivers/md/dm-mpath.c multipath_status, STATUSTYPE_INFO
func ParseMultipath(text string) (maps map[string][]MultipathPath, unread health.Unread) {
	maps = map[string][]MultipathPath{}
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
		var paths []MultipathPath
		for range groups {
			r.next()        // state of the group: A, E or D
			r.skip(r.int()) // selector status
			n, args := r.int(), r.int()
			for range n {
				p := MultipathPath{Dev: r.next(), State: r.next(), Fails: r.int()}
				r.skip(args)
				if r.bad {
					break
				}
				paths = append(paths, p)
				if p.State != PathActive && p.State != PathFailed {
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
