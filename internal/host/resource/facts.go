package resource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// HostFacts is what a plan needs to know of a host before it is made: which
// server the storage steps go to. Everything else is observed by each
// resource itself.
type HostFacts struct {
	// Arrays are the md arrays that are assembled on the host.
	Arrays []linux.MDArray
	// Mapped are the names of the device mapper's devices: active logical
	// volumes, multipath maps.
	Mapped []string `json:",omitempty"`
	// Built are the volume groups that are built and were to be released since
	// the host booted, each with the digest of what was built.
	Built map[string]string `json:",omitempty"`
	// Configured are the resources of the CIB on the host's disk, also while
	// Pacemaker does not run: what it is going to run once it does.
	Configured []linux.CRMResource `json:",omitempty"`
	// Cluster is nil while Pacemaker does not run on the host. While it has no
	// coordinator, its resources are those that it is configured to run, in no state.
	Cluster *linux.CRM
}

// Manages finds a resource that the host's cluster has, running or not; nil: none.
func (f HostFacts) Manages(id string) *linux.CRMResource {
	return cmp.Or(f.Cluster.Resource(id), (&linux.CRM{Resources: f.Configured}).Resource(id))
}

// Is reports whether a disk is that of a design: by WWN, or where one of them has none by serial.
func (d DiskFact) Is(serial, wwn string) bool {
	if wwn != "" && d.WWN != "" {
		return strings.EqualFold(wwn, d.WWN)
	}
	return serial == d.Serial
}

// ways name the paths to a disk: the controllers of a namespace that the kernel itself reaches
// by several, or the devices.
func (d DiskFact) ways() (out []string) {
	devices := map[string]bool{}
	for _, p := range d.Paths {
		devices[path.Base(p)] = true
	}
	for name := range d.PathState {
		if !devices[name] {
			out = append(out, name)
		}
	}
	if len(out) > 0 {
		return out
	}
	return slices.Collect(maps.Keys(devices))
}

// Divide divides the paths of a disk into working ones, sorted, and bad ones with the reason.
// failed are the paths that multipath considers failed.
func (d DiskFact) Divide(failed map[string]string) (good []string, bad map[string]string) {
	bad = map[string]string{}
	for _, name := range d.ways() {
		switch st := d.PathState[name].State; {
		case st != "" && st != "running" && st != "live":
			bad[name] = st
		case failed[name] != "":
			bad[name] = failed[name]
		default:
			good = append(good, name)
		}
	}
	slices.Sort(good)
	return good, bad
}

// DiskList are the disks of a host. It finds them by what a spec names them by.
type DiskList struct {
	All         []DiskFact
	Twins       bool // several have one WWN
	serial, wwn map[string][]*DiskFact
}

// ListDisks makes the list of some disks.
func ListDisks(all []DiskFact) *DiskList {
	l := &DiskList{All: all, serial: make(map[string][]*DiskFact, len(all)), wwn: make(map[string][]*DiskFact, len(all))}
	add := func(index map[string][]*DiskFact, name string, f *DiskFact) (several bool) {
		if name = diskKey(name); name != "" {
			index[name] = append(index[name], f)
		}
		return len(index[name]) > 1
	}
	for i := range all {
		add(l.serial, all[i].Serial, &all[i])
		l.Twins = add(l.wwn, all[i].WWN, &all[i]) || l.Twins
	}
	return l
}

// diskKey is a serial or a WWN as disks are found by it: padding and case do not count.
func diskKey(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// Serial gives the disks with a serial; none for "".
func (l *DiskList) Serial(s string) []*DiskFact { return l.serial[diskKey(s)] }

// WWN gives the disks with a WWN; none for "".
func (l *DiskList) WWN(w string) []*DiskFact { return l.wwn[diskKey(w)] }

// Once is a host whose disks are listed once for the comparison of many resources: a list
// reads six files for each path, and each array of a brick asks for it.
type Once struct {
	Sys
	disks *DiskList
}

// Disks is the list of the first call that succeeded.
func (o *Once) Disks(ctx context.Context) (*DiskList, error) {
	if o.disks != nil {
		return o.disks, nil
	}
	l, err := o.Sys.Disks(ctx)
	if err == nil {
		o.disks = l
	}
	return l, err
}

// PartOf says whether a device is a disk or a partition of it: sda and sda2 of
// sda, nvme0n1p2 of nvme0n1.
func PartOf(dev, disk string) bool {
	rest, ok := strings.CutPrefix(dev, disk)
	if !ok || disk == "" || rest == "" {
		return ok && disk != ""
	}
	if strings.ContainsAny(disk[len(disk)-1:], "0123456789") {
		if rest, ok = strings.CutPrefix(rest, "p"); !ok {
			return false
		}
	}
	return rest != "" && strings.Trim(rest, "0123456789") == ""
}

// DiskOf finds the disk behind a block device: by the kernel's name of one of
// its paths, or by the name of its multipath map, which is a 3 and its WWN.
func DiskOf(disks []DiskFact, kernel, mapName string) (DiskFact, bool) {
	for _, d := range disks {
		if d.WWN != "" && strings.EqualFold("3"+d.WWN, mapName) {
			return d, true
		}
		for _, p := range d.Paths {
			if path.Base(p) == kernel {
				return d, true
			}
		}
	}
	return DiskFact{}, false
}

// ObserveFacts gathers the facts of the host behind sys. It runs at most one
// command, and that only where Pacemaker runs.
func ObserveFacts(ctx context.Context, sys Sys) (HostFacts, error) {
	var f HostFacts
	var err error
	if f.Arrays, err = linux.MDArrays(Tree{sys}); err != nil {
		return f, fmt.Errorf("md arrays: %w", err)
	}
	if f.Mapped, err = mapped(sys); err != nil {
		return f, fmt.Errorf("device mapper: %w", err)
	}
	if f.Built, err = builtNotes(sys); err != nil {
		return f, fmt.Errorf("storage that is built: %w", err)
	}
	if f.Configured, err = configuredResources(sys); err != nil {
		return f, fmt.Errorf("cluster: %w", err)
	}
	if f.Cluster, err = clusterFacts(ctx, sys); err != nil {
		return f, fmt.Errorf("cluster: %w", err)
	}
	return f, nil
}

// mapped names the device mapper's devices.
func mapped(sys Sys) ([]string, error) {
	names, err := sys.Glob("/sys/block/dm-*/dm/name")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range names {
		n, err := readTrim(sys, p)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// HasVolume tells whether a logical volume of the group is active.
func (f HostFacts) HasVolume(vg string) bool {
	return slices.ContainsFunc(f.Mapped, func(v string) bool { return strings.HasPrefix(v, linux.DMName(vg, "")) })
}

// clusterRuns tells whether Pacemaker's unit has processes, without a fork.
func clusterRuns(sys Sys) bool { return unitHasProcesses(sys, "pacemaker.service") }

// unitHasProcesses reads the unit's control group (unified hierarchy).
func unitHasProcesses(sys Sys, unit string) bool {
	for _, p := range []string{
		"/sys/fs/cgroup/system.slice/" + unit + "/cgroup.procs",
		"/sys/fs/cgroup/cluster.slice/" + unit + "/cgroup.procs",
	} {
		if b, err := sys.ReadFile(p); err == nil && strings.TrimSpace(string(b)) != "" {
			return true
		}
	}
	return false
}

// clusterFacts asks crm_mon once; nil while Pacemaker does not run. It returns no error for a
// cluster that does not answer or has no coordinator yet.
func clusterFacts(ctx context.Context, sys Sys) (*linux.CRM, error) {
	if !clusterRuns(sys) {
		return nil, nil
	}
	out, err := sys.Query(ctx, strings.Fields(linux.CRMCommand)...)
	if err != nil {
		return nil, err
	}
	c := &linux.CRM{}
	if out.Code == 0 {
		if c, err = linux.ParseCRM(out.Stdout); err != nil || c.DC.Present {
			return c, err
		}
	}
	c.Resources, err = configuredResources(sys)
	return c, err
}

// configuredResources are all primitives in the CIB on disk, in no state. A new
// cluster has none.
func configuredResources(sys Sys) ([]linux.CRMResource, error) {
	cib, err := linux.ReadCIB(sys.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rs []linux.CRMResource
	for _, p := range cib.Primitives {
		rs = append(rs, linux.CRMResource{ID: p.ID, Agent: p.Agent(), Managed: true})
	}
	return rs, nil
}
