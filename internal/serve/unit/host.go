package unit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// YoungHost is the uptime below which missing members are waited for: after a
// power cut of the whole rack, disks may come up later than servers, and an
// array started without them would have to be rebuilt, or refused.
const (
	YoungHost  = 3 * time.Minute
	MemberWait = 20 * time.Second
)

// Sector is the unit of sizes in sysfs, in bytes, whatever the disk's is.
// Source: Documentation/ABI/stable/sysfs-block, size
const Sector = 512

// IoWait is less than Pacemaker grants a monitor. It is long because a volume
// that is merely busy with a resync and clients must not move; the watcher
// notices lost disks at once.
const IoWait = 45 * time.Second

var ErrBusy = errors.New("another start or stop of this service is under way")

// AtOnce has lock try once instead of waiting.
func AtOnce(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// Host is the server as the parts of one service see it.
type Host struct {
	K       kernel.Host
	Node    string            // its name
	Self    int               // process ID
	Service string            // its name
	Nodes   map[string]string // the cluster's nodes, by name: public addresses
	Log     *Steps
}

// Pids lists all processes.
func (s *Host) Pids() []int {
	names, _ := s.K.ReadDir("/proc")
	var out []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	sort.Ints(out)
	return out
}

// Line is the first line of a small file, "" if it cannot be read.
func (s *Host) Line(p string) string {
	return linux.Line(s.K, path.Clean(p))
}

// Number is the number at the start of a small file, 0 if there is none.
func (s *Host) Number(p string) int {
	f := strings.Fields(s.Line(p))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(f[0])
	return n
}

func (s *Host) Uptime() time.Duration {
	up, ok := linux.Uptime(s.Line("/proc/uptime"))
	if !ok {
		return time.Hour
	}
	return up
}

// Paths counts the working paths of a multipath map.
func (s *Host) Paths(dev string) int {
	if !strings.HasPrefix(dev, "dm-") {
		return 0
	}
	return len(s.PathsOf(dev))
}

// PathsOf are the devices of the paths that work, of a multipath map or of a disk itself.
func (s *Host) PathsOf(dev string) (out []string) {
	names := []string{dev}
	if strings.HasPrefix(dev, "dm-") {
		names, _ = s.K.ReadDir("/sys/block/" + dev + "/slaves")
	}
	for _, p := range names {
		if s.HasPath(p) {
			out = append(out, "/dev/"+p)
		}
	}
	return out
}

// HasPath says whether a disk, or one of the paths of a multipath map, exists
// and runs. Source: scsi_sysfs.c, sdev_states; the state of an NVMe path is
// "live", and the kernel itself joins the paths to one namespace.
func (s *Host) HasPath(dev string) bool {
	if !strings.HasPrefix(dev, "dm-") {
		st := s.Line("/sys/block/" + dev + "/device/state")
		if st == "running" {
			return true // the watcher asks for each path every two seconds, and nearly all end here
		}
		if _, err := s.K.ReadDir("/sys/block/" + dev); err != nil {
			return false
		}
		if all := linux.NVMePaths(s.K, dev); len(all) > 0 {
			return linux.NVMeLive(all) > 0
		}
		return st == "" || st == "live"
	}
	return s.Paths(dev) > 0
}

// Iface is this server's interface on the public network.
func (s *Host) Iface() (kernel.Iface, error) {
	own, err := netip.ParseAddr(s.Nodes[s.Node])
	if err != nil {
		return kernel.Iface{}, refusal.New("not-a-node", refusal.Args{"host": s.Node, "nodes": strings.Join(s.NodeNames(), ", ")})
	}
	ifc, err := s.K.Interface(own)
	if err != nil {
		return kernel.Iface{}, fmt.Errorf("no interface has this node's public address %s: %w", own, err)
	}
	return ifc, nil
}

// nodes lists the names of the cluster's nodes.
func (s *Host) NodeNames() []string {
	var out []string
	for n := range s.Nodes {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// HeldNote says that an agent holds back what would slow down its start.
func (s *Host) HeldNote() Note { return s.RunNote("held", "") }

// Distro describes the host's distribution. A service keeps running after an
// upgrade to a release that the agent does not know yet.
func (s *Host) Distro() distro.Distro {
	b, _ := s.K.ReadFile("/etc/os-release")
	return distro.Nearest(linux.ParseOSRelease(string(b)))
}

// DM finds a device of the device mapper by name.
func (s *Host) DM(blocks []string, want string) (dev, devno string) {
	for _, n := range blocks {
		if strings.HasPrefix(n, "dm-") && s.Line("/sys/block/"+n+"/dm/name") == want {
			return n, s.Line("/sys/block/" + n + "/dev")
		}
	}
	return "", ""
}

// patience is how long to wait for the users of a file system before giving
// up: half of the time that is left, so that giving up is still reported.
func (s *Host) patience(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return 30 * time.Second
	}
	return max(end.Sub(s.K.Now())/2, 0)
}

// Carrier says whether an interface has a link.
func (s *Host) Carrier(ifc string) bool { return s.Line("/sys/class/net/"+ifc+"/carrier") == "1" }
