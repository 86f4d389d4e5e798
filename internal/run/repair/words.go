package repair

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// need is what xfs_repair needs.
type need struct {
	known  bool
	inodes int64
	memory int64 // bytes
}

var (
	inodeCount = regexp.MustCompile(`\bicount = (\d+),`)
	leastMiB   = regexp.MustCompile(`(?i)increase it to at least (\d+)`)
)

// parseNeed reads what xfs_repair -n -vv -m 1 prints. Of a file system whose first superblock is
// damaged it is unknown.
//
// Source: xfsprogs, repair/xfs_repair.c, main: "Required memory for repair is greater that the
// maximum specified"
func parseNeed(text string) (n need) {
	i, m := inodeCount.FindStringSubmatch(text), leastMiB.FindStringSubmatch(text)
	if i == nil || m == nil {
		return n
	}
	n.inodes, _ = strconv.ParseInt(i[1], 10, 64)
	mib, err := strconv.ParseInt(m[1], 10, 32)
	n.memory, n.known = mib<<20, err == nil
	return n
}

const (
	chunkInodes   = 64  // that XFS reads at once
	readsASecond  = 100 // of a disk of 7,200 rpm, each at another place
	timesRead     = 2   // phases 3 and 6
	bytesPerInode = 1 << 10
	leastDump     = 64 << 20 // superblocks, headers and trees of free space
)

// time is how long xfs_repair -n takes about, if each chunk of inodes is one access of a disk, and
// all disks work.
func (n need) time(disks int) time.Duration {
	return time.Duration(float64(n.inodes) / chunkInodes * timesRead / readsASecond / float64(disks) * float64(time.Second))
}

// dump is how many bytes of a dump are to be reckoned with: the log as it is, and for each inode
// itself with its part of directories and trees.
func (n need) dump(log int64) int64 { return log + n.inodes*bytesPerInode + leastDump }

var logSize = regexp.MustCompile(`\bsize=(\d+)m,su=`)

// logBytes is the size of the log by the arguments of mkfs.xfs; of others the largest that XFS has.
func logBytes(mkfs []string) int64 {
	if m := logSize.FindStringSubmatch(strings.Join(mkfs, " ")); m != nil {
		mib, _ := strconv.ParseInt(m[1], 10, 32)
		return mib << 20
	}
	return 2 << 30
}

// reasonLine begins the line of an agent that says why it failed.
const reasonLine = "ocf-exit-reason:"

// withoutNotes leaves out what the agent logs while a command has the volume.
func withoutNotes(stderr string) string {
	var b strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, ocf.OnVolume) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// mostSaid is how many lines of xfs_repair are shown.
const mostSaid = 20

// toolWords are the lines of xfs_repair that are about damage.
func toolWords(text string) string {
	var out []string
	more := 0
	for line := range strings.Lines(text) {
		line = strings.TrimLeft(strings.TrimSpace(line), ".") // one for each part of the search for a superblock
		switch {
		case line == "", line == "done", strings.HasPrefix(line, "Phase "), strings.HasPrefix(line, "- "), strings.HasPrefix(line, "No modify flag set"):
		case len(out) == mostSaid:
			more++
		default:
			out = append(out, screen.Line(line))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more lines", more))
	}
	return strings.Join(out, "; ")
}
