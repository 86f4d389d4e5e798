package agent

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

var (
	diskName = regexp.MustCompile(`^(sd[a-z]+|vd[a-z]+|nvme\d+n\d+)$`)
	wwnLink  = regexp.MustCompile(`^[0-9a-f]{16,32}$`)
	// plainSerial is a serial that udev puts into a link as it is.
	plainSerial = regexp.MustCompile(`^[0-9A-Za-z._-]+$`)
)

// Reservation asks a LUN over one path who may write to it. A path that does not
// answer is given up when ctx ends; the kernel ends the command later.
func (h HostSys) Reservation(ctx context.Context, path string) (pr.State, error) {
	type said struct {
		st  pr.State
		err error
	}
	answer := make(chan said, 1)
	go func() {
		st, err := pr.Device(h.path("/dev/" + filepath.Base(path))).Read()
		answer <- said{st, err}
	}()
	select {
	case a := <-answer:
		return a.st, a.err
	case <-ctx.Done():
		return pr.State{}, fmt.Errorf("%s: %w: %w", path, pr.ErrPath, ctx.Err())
	}
}

// Disks lists SCSI, virtio and NVMe disks from /sys, the two paths to one
// disk and the multipath map over them being one. Two devices are one disk only
// if a world-wide identifier or a map says so, never by their serial alone: two
// namespaces of an NVMe drive have one serial. No command is run.
func (h HostSys) Disks(ctx context.Context) (*resource.DiskList, error) {
	names, err := h.Glob("/sys/block/*")
	if err != nil {
		return nil, err
	}
	maps, err := h.multipathMaps()
	if err != nil {
		return nil, err
	}
	byID := map[string]*resource.DiskFact{}
	var order []string
	for _, p := range names {
		name := filepath.Base(p)
		if !diskName.MatchString(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := resource.DiskFact{Serial: h.diskSerial(name), WWN: h.diskWWN(name), Size: h.blockSize(name), Sector: h.bytes("/sys/block/" + name + "/queue/logical_block_size"), Paths: []string{name}}
		id := f.Serial + "\x00" + cmp.Or(f.WWN, h.worldWide(name), maps[name], name)
		if known := byID[id]; known != nil {
			known.Paths = append(known.Paths, name)
			if known.Size == 0 {
				known.Size = f.Size
			}
			continue
		}
		byID[id] = &f
		order = append(order, id)
	}
	facts := make([]resource.DiskFact, 0, len(order))
	for _, id := range order {
		f := byID[id]
		sort.Slice(f.Paths, func(i, j int) bool {
			a, b := f.Paths[i], f.Paths[j]
			return len(a) < len(b) || len(a) == len(b) && a < b
		})
		f.Device = h.diskDevice(*f, maps)
		facts = append(facts, *f)
	}
	return resource.ListDisks(facts), nil
}

// multipathMaps gives the device of the multipath map over each path.
func (h HostSys) multipathMaps() (map[string]string, error) {
	dms, err := h.Glob("/sys/block/dm-*")
	if err != nil {
		return nil, err
	}
	over := map[string]string{}
	for _, dm := range dms {
		wwid, ok := strings.CutPrefix(h.line(dm+"/dm/uuid"), "mpath-")
		if !ok {
			continue
		}
		name := h.line(dm + "/dm/name")
		dev := "/dev/mapper/" + name
		if name != wwid {
			// A friendly name may change with the bindings file; the link by
			// WWID does not.
			if byID := "/dev/disk/by-id/dm-uuid-mpath-" + wwid; h.exists(byID) {
				dev = byID
			}
		}
		if !h.exists(dev) {
			// The kernel's own node is there at once; udev's may lag behind
			// while many maps are made.
			dev = "/dev/" + filepath.Base(dm)
		}
		slaves, err := h.Glob(dm + "/slaves/*")
		if err != nil {
			return nil, err
		}
		for _, s := range slaves {
			over[filepath.Base(s)] = dev
		}
	}
	return over, nil
}

func (h HostSys) diskDevice(f resource.DiskFact, maps map[string]string) string {
	for _, p := range f.Paths {
		if dev := maps[p]; dev != "" {
			return dev
		}
	}
	var links []string
	if wwnLink.MatchString(f.WWN) {
		links = append(links, "wwn-0x"+f.WWN, "nvme-eui."+f.WWN, "scsi-3"+f.WWN)
	}
	if f.Serial != "" {
		links = append(links, "virtio-"+f.Serial)
	}
	for _, l := range links {
		if p := "/dev/disk/by-id/" + l; h.exists(p) {
			return p
		}
	}
	// An NVMe drive without an identifier has the link nvme-MODEL_SERIAL. Its kernel
	// name may be another one's after the next boot.
	if strings.HasPrefix(f.Paths[0], "nvme") && plainSerial.MatchString(f.Serial) {
		all, _ := h.Glob("/dev/disk/by-id/nvme-*_" + f.Serial)
		for _, p := range all {
			if to, err := h.Readlink(p); err == nil && filepath.Base(to) == f.Paths[0] {
				return p
			}
		}
	}
	return "/dev/" + f.Paths[0]
}

func (h HostSys) diskSerial(name string) string {
	if s := linux.DiskSerial(resource.Tree{Sys: h}, name); s != "" {
		return s
	}
	udev := h.udev(name)
	return cmp.Or(udev["ID_SCSI_SERIAL"], udev["ID_SERIAL_SHORT"])
}

// worldWide is the identifier of a SCSI disk or an NVMe namespace as the kernel
// gives it, of whatever kind: "naa.5000c500…", "t10.ATA …", "nvme.1b36-…".
func (h HostSys) worldWide(name string) string {
	dir := "/sys/block/" + name
	return cmp.Or(h.line(dir+"/device/wwid"), h.line(dir+"/wwid")) // SCSI, NVMe
}

func (h HostSys) diskWWN(name string) string {
	dir := "/sys/block/" + name
	if kind, id, ok := strings.Cut(h.worldWide(name), "."); ok && (kind == "naa" || kind == "eui") {
		return strings.ToLower(id)
	}
	if b, err := h.ReadFile(dir + "/device/vpd_pg83"); err == nil {
		if w := hex.EncodeToString(linux.NAAOf(b)); w != "" {
			return w
		}
	}
	return strings.TrimPrefix(strings.ToLower(h.udev(name)["ID_WWN_WITH_EXTENSION"]), "0x")
}

// udev gives what udev recorded of a block device.
func (h HostSys) udev(name string) map[string]string {
	b, err := h.ReadFile("/run/udev/data/b" + h.line("/sys/block/"+name+"/dev"))
	if err != nil {
		return nil
	}
	return linux.ParseUdev(string(b))
}

// blockSize is in bytes; /sys counts 512-byte sectors whatever the disk's own.
func (h HostSys) blockSize(name string) int64 {
	n, err := strconv.ParseInt(h.line("/sys/block/"+name+"/size"), 10, 64)
	if err != nil {
		return 0
	}
	return n * 512
}

func (h HostSys) line(path string) string { return linux.Line(resource.Tree{Sys: h}, path) }

func (h HostSys) exists(path string) bool {
	_, err := h.Stat(path)
	return err == nil
}
