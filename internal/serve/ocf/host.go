package ocf

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// tree lets package linux read the host.
type tree struct{ kernel.Host }

func (t tree) List(dir string) ([]string, error) {
	names, err := t.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// pids lists all processes.
func (s *service) pids() []int {
	names, _ := s.k.ReadDir("/proc")
	var out []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	sort.Ints(out)
	return out
}

// line is the first line of a small file, "" if it cannot be read.
func (s *service) line(p string) string {
	b, err := s.k.ReadFile(path.Clean(p))
	if err != nil {
		return ""
	}
	l, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(l)
}

// number is the number at the start of a small file, 0 if there is none.
func (s *service) number(p string) int {
	f := strings.Fields(s.line(p))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(f[0])
	return n
}

func (s *service) uptime() time.Duration {
	up, ok := linux.Uptime(s.line("/proc/uptime"))
	if !ok {
		return time.Hour
	}
	return up
}

// paths counts the working paths of a multipath map.
func (s *service) paths(dev string) int {
	n := 0
	slaves, _ := s.k.ReadDir("/sys/block/" + dev + "/slaves")
	for _, p := range slaves {
		if s.hasPath(p) {
			n++
		}
	}
	return n
}

// hasPath says whether a disk, or one of the paths of a multipath map, exists
// and runs. Source: scsi_sysfs.c, sdev_states; the state of an NVMe path is
// "live".
func (s *service) hasPath(dev string) bool {
	if !strings.HasPrefix(dev, "dm-") {
		if _, err := s.k.ReadDir("/sys/block/" + dev); err != nil {
			return false
		}
		st := s.line("/sys/block/" + dev + "/device/state")
		return st == "" || st == "running" || st == "live"
	}
	return s.paths(dev) > 0
}

// iface is this server's interface on the public network.
func (s *service) iface() (kernel.Iface, error) {
	own, err := netip.ParseAddr(s.cfg.Nodes[s.host])
	if err != nil {
		return kernel.Iface{}, &refusal{fmt.Errorf("host %s is not in the config's nodes (%s)", s.host, strings.Join(s.nodes(), ", "))}
	}
	ifc, err := s.k.Interface(own)
	if err != nil {
		return kernel.Iface{}, fmt.Errorf("no interface has this node's public address %s: %w", own, err)
	}
	return ifc, nil
}
