package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/md"
)

// mortarCommand is the binary on a server.
const mortarCommand = "/usr/local/sbin/mortar"

// CacheSSDs are the SSDs of a cache on a server: each is there, and carries
// nothing that this brick has not made.
type CacheSSDs struct {
	Host string
	List []WantedDisk
	// Arrays are the UUIDs an array of this cache may have.
	Arrays []string
	// Check: look at what they carry, on the one server that builds.
	Check bool
}

// Kind is "cache-ssds".
func (c *CacheSSDs) Kind() string { return "cache-ssds" }

// ID is the host.
func (c *CacheSSDs) ID() string { return c.Host }

// Diff gives a wipe for each SSD that carries something and may be wiped.
func (c *CacheSSDs) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	return untilAssembled(ctx, sys, func() ([]Action, error) { return c.diff(ctx, sys) })
}

func (c *CacheSSDs) diff(ctx context.Context, sys Sys) ([]Action, error) {
	refs := make([]DiskRef, len(c.List))
	for i, w := range c.List {
		refs[i] = w.DiskRef
	}
	fs, err := resolve(ctx, sys, refs)
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return nil, &Refusal{What: r.What, Mend: r.Mend + "; of an SSD that is gone for good: mortar cache remove"}
	}
	if err != nil {
		return nil, err
	}
	arrays, ms, err := users(sys)
	if err != nil {
		return nil, err
	}
	var as []Action
	var look []found
	var wipe []bool
	var foreign []string
	for i, f := range fs {
		names := kernelNames(sys, f)
		parts, err := partitions(sys, names)
		if err != nil {
			return nil, err
		}
		if a, in := memberOf(arrays, parts); in && c.ours(a.UUID) {
			continue
		}
		use, err := inUse(sys, ms, names)
		if err != nil {
			return nil, err
		}
		if use != "" {
			foreign = append(foreign, fmt.Sprintf("%s is in use by %s", f.Ref, use))
			continue
		}
		look, wipe = append(look, f), append(wipe, c.List[i].Wipe)
	}
	if len(foreign) > 0 {
		return nil, &Refusal{What: strings.Join(foreign, "; "), Mend: "stop what uses it, if its data may go, and list the serial under wipe in the spec"}
	}
	if !c.Check || len(look) == 0 {
		return nil, nil
	}
	sigs, err := signatures(ctx, sys, look)
	if err != nil {
		return nil, err
	}
	for i, f := range look {
		bad, err := c.foreign(ctx, sys, f, sigs[i])
		if err != nil {
			return nil, err
		}
		switch {
		case bad == "":
		case wipe[i]:
			as = append(as, Action{
				Title: fmt.Sprintf("wipe %s: %s", f.Ref, bad), Why: "its serial is listed under wipe",
				Cmd: []string{"wipefs", "--all", "--force", f.Device}, Destroys: []string{f.Serial},
			})
		default:
			foreign = append(foreign, fmt.Sprintf("%s carries %s, not made by this brick", f.Ref, bad))
		}
	}
	if len(foreign) > 0 {
		return nil, &Refusal{What: strings.Join(foreign, "; "), Mend: "if its data may go, list the serial under wipe in the spec"}
	}
	return as, nil
}

func (c *CacheSSDs) ours(uuid string) bool {
	return slices.ContainsFunc(c.Arrays, func(u string) bool { return md.SameUUID(u, uuid) })
}

// foreign describes what an SSD carries that is not this cache's, "" for
// nothing: the partition table must have our partitions only, and those
// nothing but members of our arrays.
func (c *CacheSSDs) foreign(ctx context.Context, sys Sys, f found, sigs []signature) (string, error) {
	if len(sigs) == 0 {
		return "", nil
	}
	d := Disks{Arrays: c.Arrays}
	gpt := true
	var all []string
	for _, s := range sigs {
		gpt = gpt && (s.Type == "gpt" || s.Type == "PMBR")
		all = append(all, d.describe(s))
	}
	text := strings.Join(all, " and ")
	parts, err := partitions(sys, kernelNames(sys, f))
	if err != nil || !gpt || len(parts) == 0 {
		return text, err
	}
	names, err := partitionNames(ctx, sys, f.Device)
	if err != nil || len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "mortar-") }) {
		return text, err
	}
	var fs []found
	for _, p := range parts {
		fs = append(fs, found{DiskFact: DiskFact{Device: "/dev/" + p}})
	}
	inner, err := signatures(ctx, sys, fs)
	if err != nil {
		return "", err
	}
	for _, s := range slices.Concat(inner...) {
		if s.Type != "linux_raid_member" || !c.ours(s.UUID) {
			return d.describe(s), nil
		}
	}
	return "", nil
}

// partitionNames reads the names in a disk's partition table; none if that
// cannot be read. The kernel knows them only of tables it has read itself, not
// of partitions that partx and sfdisk have told it of.
// Source: sfdisk(8), --json; block/partitions/core.c, part_uevent
func partitionNames(ctx context.Context, sys Sys, device string) ([]string, error) {
	out, installed, err := query(ctx, sys, "sfdisk", "--json", device)
	if err != nil || !installed || out.Code != 0 {
		return nil, err
	}
	var t struct {
		Table struct {
			Partitions []struct {
				Name string `json:"name"`
			} `json:"partitions"`
		} `json:"partitiontable"`
	}
	if err := json.Unmarshal([]byte(out.Stdout), &t); err != nil {
		return nil, fmt.Errorf("sfdisk --json %s: %w", device, err)
	}
	var names []string
	for _, p := range t.Table.Partitions {
		names = append(names, p.Name)
	}
	return names, nil
}

// partitions of disks, by kernel name.
func partitions(sys Sys, names []string) ([]string, error) {
	var out []string
	for _, n := range names {
		ps, err := sys.Glob("/sys/class/block/" + n + "/" + n + "*/partition")
		if err != nil {
			return nil, err
		}
		for _, p := range ps {
			out = append(out, path.Base(path.Dir(p)))
		}
	}
	return out, nil
}

// Cache is the cache of a volume, on the server where the volume is.
type Cache struct {
	Path   string // of the config on the host
	VG, LV string
	Header string          // logical volume with bcache's superblocks
	Device string          // what the file system is on
	Config json.RawMessage // cache.Config
}

// Kind is "cache".
func (c *Cache) Kind() string { return "cache" }

// ID is the volume.
func (c *Cache) ID() string { return c.VG + "/" + c.LV }

// Diff asks the host's own mortar what is to be done: it knows the label.
func (c *Cache) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	do := Action{
		Title: "cache of " + c.ID(), Cmd: []string{mortarCommand, "host-cache", "apply", c.Path}, Seconds: 24 * 3600, Beside: path.Base(c.Path),
		Why: "make both layers of bcache over the volume",
	}
	// udev gives the device its name, on a busy host a little later.
	wait := Action{Title: "wait for " + c.Device, Cmd: []string{"udevadm", "wait", "--timeout=100", c.Device}}
	active, err := lvActive(sys, c.VG, c.Header)
	if err != nil {
		return nil, err
	}
	if !active {
		return []Action{do, wait}, nil
	}
	out, installed, err := query(ctx, sys, mortarCommand, "host-cache", "needs", string(c.Config))
	if err != nil {
		return nil, err
	}
	if !installed {
		return []Action{do, wait}, nil
	}
	if out.Code != 0 {
		return nil, &Refusal{What: strings.TrimPrefix(strings.TrimSpace(out.Stderr), "mortar: "), Mend: "nothing was changed"}
	}
	do.Why = strings.TrimSpace(out.Stdout)
	if do.Why != "" {
		return []Action{do, wait}, nil
	}
	if named, err := exists(sys, c.Device); err != nil || named {
		return nil, err
	}
	return []Action{wait}, nil
}

// NoCache ends a cache that the spec no longer has, by the config that is
// still on the host.
type NoCache struct {
	Path string // of the config on the host
	// Forget: remove the config and Units. Otherwise what is dirty goes to the
	// disks, which is done where the volume is.
	Forget bool
	Units  []string `json:",omitempty"` // paths of the units that bring it up at boot
}

// Kind is "no-cache".
func (c *NoCache) Kind() string { return "no-cache" }

// ID is the config's path.
func (c *NoCache) ID() string { return c.Path }

// Diff looks for the config, and asks the host's own mortar whether the cache
// is off.
func (c *NoCache) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	there, err := exists(sys, c.Path)
	if err != nil || !there {
		return nil, err
	}
	if c.Forget {
		as := []Action{{Title: "remove " + c.Path, File: &File{Path: c.Path, Remove: true}}}
		for _, u := range c.Units {
			as = append(as, Action{Title: "remove " + u, File: &File{Path: u, Remove: true}})
		}
		return as, nil
	}
	out, _, err := query(ctx, sys, mortarCommand, "host-cache", "on", c.Path)
	if err != nil {
		return nil, err
	}
	if out.Code != 0 {
		return nil, failed(out, mortarCommand, "host-cache", "on", c.Path)
	}
	if strings.TrimSpace(out.Stdout) == "no" {
		return nil, nil
	}
	return []Action{{
		Title: "turn the cache off", Why: "the spec has none; what is dirty is written to the disks while the service goes on",
		Cmd: []string{mortarCommand, "host-cache", "off", c.Path}, Seconds: 24 * 3600, Beside: path.Base(c.Path),
	}}, nil
}
