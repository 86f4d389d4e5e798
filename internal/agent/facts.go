package agent

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/resource"
)

// Hello says who answers.
type Hello struct {
	Protocol  int    `json:"protocol"`
	Version   string `json:"version"`    // of this binary
	Binary    string `json:"binary"`     // its path on the host
	Hostname  string `json:"hostname"`   // uname -n
	OSID      string `json:"os_id"`      // ID of os-release(5): debian
	OSVersion string `json:"os_version"` // VERSION_ID of os-release(5): 13
	OSName    string `json:"os_name"`    // PRETTY_NAME of os-release(5)
	Kernel    string `json:"kernel"`     // uname -r
	UID       int    `json:"uid"`
	BootID    string `json:"boot_id"`
	NowNS     int64  `json:"now_ns"`    // wall clock, ns since 1970
	MemBytes  int64  `json:"mem_bytes"` // memory, bytes
}

// Facts are what is there and active on a host.
type Facts struct {
	Hello
	Disks   []resource.DiskFact `json:"disks"`
	Arrays  []Array             `json:"arrays"`  // assembled md arrays
	Volumes []Volume            `json:"volumes"` // active logical volumes
	Mounts  []Mount             `json:"mounts"`  // of the host's mount table, without kernel file systems
	// Cluster daemons that run.
	Corosync  bool `json:"corosync"`
	Pacemaker bool `json:"pacemaker"`
}

// Array is an assembled md array.
type Array struct {
	Device  string   `json:"device"`  // md127
	Name    string   `json:"name"`    // as in the superblock, without "homehost:"
	UUID    string   `json:"uuid"`    // as mdadm writes it: 8 hex digits, four times, with colons
	Level   string   `json:"level"`   // raid6
	State   string   `json:"state"`   // array_state of /sys: clean, active …
	Members []string `json:"members"` // kernel names: dm-3, sdb
}

// Volume is an active logical volume.
type Volume struct {
	VG     string `json:"vg"`
	LV     string `json:"lv"`
	Device string `json:"device"` // dm-7
}

// Mount is a line of the mount table.
type Mount struct {
	Source  string `json:"source"`
	Target  string `json:"target"`
	Type    string `json:"type"`
	Options string `json:"options"`
}

// Hello reads who this host is.
func (h HostSys) Hello() (Hello, error) {
	os1, err := h.osRelease()
	if err != nil {
		return Hello{}, hostError("os-release", err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Hello{}, hostError("uname", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return Hello{}, hostError("executable", err)
	}
	return Hello{
		Protocol: Protocol, Version: version(), Binary: exe,
		Hostname: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]),
		OSID: os1["ID"], OSVersion: os1["VERSION_ID"], OSName: os1["PRETTY_NAME"],
		UID: os.Geteuid(), BootID: h.line("/proc/sys/kernel/random/boot_id"),
		NowNS: time.Now().UnixNano(), MemBytes: h.memory(),
	}, nil
}

// version is what the build recorded: a tag, or the revision.
func version() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := bi.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range bi.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "devel"
}

func (h HostSys) osRelease() (map[string]string, error) {
	b, err := h.ReadFile("/etc/os-release")
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(k, "#") {
			m[k] = strings.Trim(v, `"'`)
		}
	}
	return m, nil
}

func (h HostSys) memory() int64 {
	b, err := h.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// Facts reads the host. Nothing is forked, so that it is cheap on a slow host.
func (h HostSys) Facts(ctx context.Context) (Facts, error) {
	hello, err := h.Hello()
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Hello: hello}
	if f.Disks, err = h.Disks(ctx); err != nil {
		return Facts{}, hostError("disks", err)
	}
	if f.Arrays, err = h.arrays(); err != nil {
		return Facts{}, hostError("md arrays", err)
	}
	if f.Volumes, err = h.volumes(); err != nil {
		return Facts{}, hostError("logical volumes", err)
	}
	if f.Mounts, err = h.mounts(); err != nil {
		return Facts{}, hostError("mounts", err)
	}
	running, err := h.processes()
	if err != nil {
		return Facts{}, hostError("processes", err)
	}
	f.Corosync, f.Pacemaker = running["corosync"], running["pacemakerd"]
	return f, nil
}

func (h HostSys) arrays() ([]Array, error) {
	dirs, err := h.Glob("/sys/block/md*/md")
	if err != nil {
		return nil, err
	}
	// mdadm --monitor and udev keep the UUIDs of what is assembled here.
	uuids := map[string]string{}
	if b, err := h.ReadFile("/run/mdadm/map"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) >= 3 {
				uuids[f[0]] = f[2]
			}
		}
	}
	var all []Array
	for _, dir := range dirs {
		dev := filepath.Base(filepath.Dir(dir))
		state := h.line(dir + "/array_state")
		if state == "clear" || state == "" {
			continue
		}
		udev := h.udev(dev)
		a := Array{Device: dev, Level: h.line(dir + "/level"), State: state, Name: udev["MD_NAME"], UUID: udev["MD_UUID"]}
		if a.UUID == "" {
			a.UUID = uuids[dev]
		}
		if a.UUID == "" {
			a.UUID = mdUUID(h.line(dir + "/uuid"))
		}
		if a.Name == "" {
			a.Name = udev["MD_DEVNAME"]
		}
		if _, name, ok := strings.Cut(a.Name, ":"); ok {
			a.Name = name
		}
		members, err := h.Glob(dir + "/dev-*")
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			a.Members = append(a.Members, strings.TrimPrefix(filepath.Base(m), "dev-"))
		}
		all = append(all, a)
	}
	return all, nil
}

// mdUUID turns the dashed form of newer kernels' /sys into mdadm's.
func mdUUID(s string) string {
	s = strings.ToLower(strings.ReplaceAll(s, "-", ""))
	if len(s) != 32 {
		return ""
	}
	return s[:8] + ":" + s[8:16] + ":" + s[16:24] + ":" + s[24:]
}

func (h HostSys) volumes() ([]Volume, error) {
	dms, err := h.Glob("/sys/block/dm-*")
	if err != nil {
		return nil, err
	}
	var all []Volume
	for _, dm := range dms {
		// "LVM-" and 64 characters; hidden volumes have a suffix.
		uuid := h.line(dm + "/dm/uuid")
		if !strings.HasPrefix(uuid, "LVM-") || len(uuid) != 4+64 {
			continue
		}
		vg, lv := splitLVM(h.line(dm + "/dm/name"))
		all = append(all, Volume{VG: vg, LV: lv, Device: filepath.Base(dm)})
	}
	return all, nil
}

// splitLVM takes a device-mapper name apart: a dash between volume group and
// logical volume, two for each dash in either. Source: lvmsystemid(7), dmsetup splitname
func splitLVM(name string) (vg, lv string) {
	undouble := strings.NewReplacer("--", "-")
	for i := 0; i < len(name); i++ {
		if name[i] != '-' {
			continue
		}
		if i+1 < len(name) && name[i+1] == '-' {
			i++
			continue
		}
		return undouble.Replace(name[:i]), undouble.Replace(name[i+1:])
	}
	return undouble.Replace(name), ""
}

var kernelFS = map[string]bool{
	"autofs": true, "binfmt_misc": true, "bpf": true, "cgroup2": true, "configfs": true, "debugfs": true,
	"devpts": true, "devtmpfs": true, "efivarfs": true, "fusectl": true, "hugetlbfs": true, "mqueue": true,
	"proc": true, "pstore": true, "securityfs": true, "sysfs": true, "tracefs": true,
}

func (h HostSys) mounts() ([]Mount, error) {
	b, err := h.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var all []Mount
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 4 || kernelFS[f[2]] {
			continue
		}
		all = append(all, Mount{Source: unescape.Replace(f[0]), Target: unescape.Replace(f[1]), Type: f[2], Options: f[3]})
	}
	return all, nil
}

// processes lists the names of what runs, from /proc/*/comm.
func (h HostSys) processes() (map[string]bool, error) {
	comms, err := h.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	sort.Strings(comms)
	names := map[string]bool{}
	for _, c := range comms {
		names[h.line(c)] = true // one that ended meanwhile is ""
	}
	return names, nil
}
