package linux

import (
	"fmt"
	"strconv"
	"strings"
)

// SystemDirs are the directories of a server's own system that may have file systems of
// their own, and of which none may be full: Pacemaker writes its configuration below
// /var/lib, Corosync and the agents write below /run, and apply writes below all of them.
var SystemDirs = []string{"/", "/boot", "/run", "/var", "/var/lib", "/var/log"}

// Room is the size of a file system and what is free of it, in bytes and inodes. Inodes is
// 0 for a file system that makes them as they are needed.
type Room struct{ Size, Avail, Inodes, InodesFree uint64 }

// What must be free, of a large file system; of a small one a twentieth of its size.
const (
	// roomNeeded has room for two binaries of Mortar (one replaces the other), the package
	// lists, and Pacemaker's last hundred configurations.
	roomNeeded = 100 << 20
	// bootNeeded is an initial RAM disk of Debian's, which is written beside the old one.
	bootNeeded = 64 << 20
	// runNeeded: sockets and small files.
	runNeeded    = 8 << 20
	inodesNeeded = 1000
	smallPart    = 20
)

// Full says why a file system of the system is full; "": it is not, or nothing is known of
// it.
func (r Room) Full(dir string) string {
	need := uint64(roomNeeded)
	switch dir {
	case "/boot":
		need = bootNeeded
	case "/run":
		need = runNeeded
	}
	need = min(need, r.Size/smallPart)
	inodes := min(uint64(inodesNeeded), r.Inodes/smallPart)
	switch {
	case r.Size > 0 && r.Avail < need:
		return fmt.Sprintf("%d MiB of %d MiB are free, %d MiB are needed", r.Avail>>20, r.Size>>20, need>>20)
	case r.InodesFree < inodes:
		return fmt.Sprintf("%d of %d inodes are free, %d are needed", r.InodesFree, r.Inodes, inodes)
	}
	return ""
}

// MakeRoom says how to mend a file system that is full.
func MakeRoom(dir string) string {
	switch dir {
	case "/boot":
		return "remove kernels that are not used any more"
	case "/run":
		return "see what fills it: `du -x --max-depth=2 /run | sort -n`"
	}
	return "see what fills it: `du -x --max-depth=3 " + dir + " | sort -n`; `journalctl --vacuum-size=100M` shortens the journal"
}

// DF is the command whose output ParseDF reads; a directory that is not there gives it an
// exit code other than 0.
func DF(dirs ...string) []string {
	return append([]string{"df", "--block-size=1", "--output=target,size,avail,itotal,iavail"}, dirs...)
}

// Avail is the command whose output ParseAvail reads.
func Avail(dir string) []string { return []string{"df", "--output=avail", "-B1", dir} }

// ParseAvail reads how many bytes the file system of a directory has free.
func ParseAvail(text string) (int64, error) {
	_, number, _ := strings.Cut(strings.TrimSpace(text), "\n") // below a heading
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("df printed %q", text)
	}
	return n, nil
}

// ParseDF reads what DF prints: the room of each file system, by its mount point.
func ParseDF(text string) (map[string]Room, error) {
	out := map[string]Room{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "/") {
			continue // the head
		}
		if len(f) != 5 {
			return nil, fmt.Errorf("df printed %q", line)
		}
		var n [4]uint64
		for i, word := range f[1:] {
			if word == "-" {
				continue
			}
			v, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("df printed %q", line)
			}
			n[i] = v
		}
		out[f[0]] = Room{n[0], n[1], n[2], n[3]}
	}
	return out, nil
}
