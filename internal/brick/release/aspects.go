package release

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// Aspect is what a design has of something that papers describe.
type Aspect struct {
	Key  string // of Says of paper.System
	Part string // Components, Layout, Capacity or Tuning
	What string // for people
	How  string // the command that shows it
	// Value is what a design has, "" if it has no such thing.
	Value func(d *design.Design) string
}

// Parts of a comparison, in their order.
const (
	Components = "components"
	Layout     = "layout"
	Capacity   = "capacity"
	Tuning     = "tuning"
)

const check, explain = "`mortar check`", "`mortar check --json`, settings"

// Aspects lists all of them.
var Aspects = []Aspect{
	{"servers", Components, "servers", check, servers},
	{"cards", Components, "cards of a server", check, cards},
	{"network", Components, "client network", check, func(d *design.Design) string {
		n := d.Spec.Networks.Public
		text := cmp.Or(n.Link, "ethernet")
		if n.Speed != "" {
			text += " at " + n.Speed
		}
		return text
	}},
	{"enclosures", Components, "enclosures", check, enclosures},
	{"disks", Components, "disks", check, disks},
	{"groups", Layout, "RAID groups", check, groups},
	{"spread", Layout, "disks of a group in one enclosure, at most", check, spread},
	{"spares", Layout, "hot spares", check, spares},
	{"paths", Layout, "paths from a server to each LUN", check, func(d *design.Design) string {
		if len(d.Arrays) == 0 {
			return ""
		}
		a := &d.Arrays[len(d.Arrays)-1]
		return fmt.Sprint(d.PathsTo(a, a.Servers[0]))
	}},
	{"luns", Layout, "LUNs", "`mortar check`, `mortar array script`", luns},
	{"policy", Layout, "cache of the array", "`mortar array script`", policy},
	{"lvm", Layout, "volumes over the LUNs", check, volumes},
	{"cache", Layout, "cache", check, cache},
	{"raw", Capacity, "raw capacity", check, func(d *design.Design) string { return d.Capacity.Raw.Decimal() }},
	{"usable", Capacity, "usable capacity", check, func(d *design.Design) string {
		return fmt.Sprintf("%s = %s of data disks", d.Capacity.RAID.Decimal(), d.Capacity.RAID.Binary())
	}},
	{"bytes", Capacity, "size of the LUN", check, func(d *design.Design) string {
		if d.Capacity.LUNs == 0 {
			return ""
		}
		return fmt.Sprintf("%d bytes", int64(d.Capacity.LUNs))
	}},
	{"mds", Capacity, "MDS: raw, usable", check, func(d *design.Design) string {
		if d.Lustre == nil {
			return ""
		}
		c := d.Capacity.Sets[0]
		return c.Raw.Decimal() + ", " + c.RAID.Decimal()
	}},
	{"scheduler", Tuning, "I/O scheduler", explain, setting("disk", "scheduler")},
	{"max_sectors", Tuning, "max_sectors_kb", explain, setting("disk", "max_sectors_kb")},
	{"read_ahead", Tuning, "read_ahead_kb", explain, setting("disk", "read_ahead_kb")},
	{"mkfs", Tuning, "mkfs.xfs", explain, func(d *design.Design) string {
		if d.Lustre != nil {
			return ""
		}
		return fmt.Sprintf("su=%s, sw=%s, log of %s", d.Value("mkfs", "su"), d.Value("mkfs", "sw"), d.Value("mkfs", "log size"))
	}},
	{"mount", Tuning, "mount options of XFS", check, func(d *design.Design) string {
		if d.Lustre != nil {
			return ""
		}
		return strings.Join(d.Services()[0].MountOpts, ",")
	}},
	{"threads", Tuning, "nfsd threads", explain, setting("nfsd", "threads")},
	{"export", Tuning, "export options", check, func(d *design.Design) string {
		if d.Services()[0].NFS == nil {
			return ""
		}
		return strings.Join(d.Services()[0].Exports[0].Options, ",")
	}},
	{"version", Tuning, "NFS version of the clients", check, func(d *design.Design) string {
		if len(d.Mounts) == 0 {
			return ""
		}
		return d.Mounts[0].Version
	}},
	{"rmem", Tuning, "net.ipv4.tcp_rmem", explain, setting("sysctl", "net.ipv4.tcp_rmem")},
	{"retry", Tuning, "after the last path is gone", explain, func(d *design.Design) string {
		if d.Value("multipath", "no_path_retry") == "" {
			return ""
		}
		return fmt.Sprintf("%s checks, %s s apart", d.Value("multipath", "no_path_retry"), cmp.Or(d.Value("multipath", "polling_interval"), "5"))
	}},
	{"fencing", Components, "fencing", check, fencing},
	{"mdt", Tuning, "MDT", explain, setting("mkfs", "stride,stripe-width of mds")},
	{"ost", Tuning, "OST", explain, setting("mkfs", "stride,stripe-width of oss1")},
	{"flex", Tuning, "ldiskfs", explain, setting("mkfs", "flex_bg")},
	{"striping", Tuning, "stripe count of files", explain, setting("lustre", "stripe_count")},
	{"dirty", Tuning, "max_dirty_mb of the clients", explain, setting("lustre", "osc.*.max_dirty_mb")},
	{"rpcs", Tuning, "max_rpcs_in_flight", explain, setting("lustre", "osc.*.max_rpcs_in_flight")},
	{"token", Tuning, "silence after which a server counts as dead", explain, func(d *design.Design) string {
		if d.Value("corosync", "token") == "" {
			return ""
		}
		return d.Value("corosync", "token") + " ms"
	}},
}

func setting(kind, name string) func(*design.Design) string {
	return func(d *design.Design) string { return d.Value(kind, name) }
}

// counted joins texts, equal ones once with their number.
func counted(texts []string) string {
	var order []string
	n := map[string]int{}
	for _, s := range texts {
		if n[s]++; n[s] == 1 {
			order = append(order, s)
		}
	}
	for i, s := range order {
		order[i] = fmt.Sprintf("%d x %s", n[s], s)
	}
	return strings.Join(order, "; ")
}

func servers(d *design.Design) string {
	var all []string
	for _, s := range d.Spec.Servers {
		text := cmp.Or(s.Model, "server")
		if s.CPU != nil {
			text += fmt.Sprintf(": %d x %s of %d cores", s.CPU.Sockets, cmp.Or(s.CPU.Model, "processor"), s.CPU.Cores)
		}
		if s.Memory > 0 {
			text += ", " + s.Memory.String()
		}
		all = append(all, text)
	}
	return counted(all)
}

// cards are those of the first server.
func cards(d *design.Design) string {
	var all []string
	for _, k := range d.Spec.Servers[0].PCI {
		all = append(all, fmt.Sprintf("%s, PCIe %d x%d", k.Kind, k.Generation, k.Lanes))
	}
	return counted(all)
}

func enclosures(d *design.Design) string {
	var all []string
	for _, e := range d.Spec.Enclosures {
		all = append(all, cmp.Or(e.Model, fmt.Sprintf("%d bays", e.Bays)))
	}
	return counted(all)
}

func disks(d *design.Design) string {
	var all []string
	for _, x := range d.Disks {
		if x.Server == "" && x.Enclosure != "" {
			all = append(all, fmt.Sprintf("%s %s", x.Size, x.Type))
		}
	}
	return counted(all)
}

func groups(d *design.Design) string {
	var all []string
	for _, g := range d.Groups {
		all = append(all, fmt.Sprintf("RAID %d %d+%d, chunk %s", g.Level, g.Data, g.Parity, g.Chunk))
	}
	return counted(all)
}

func spread(d *design.Design) string {
	most := 0
	g := d.Groups[len(d.Groups)-1]
	for _, e := range d.Spec.Enclosures {
		n := 0
		for _, m := range g.Members {
			if m.Enclosure == e.Name {
				n++
			}
		}
		most = max(most, n)
	}
	return fmt.Sprint(most)
}

func spares(d *design.Design) string {
	n := 0
	for _, a := range d.Arrays {
		n += len(a.Spares)
	}
	for _, g := range d.Groups {
		n += len(g.Spares)
	}
	return fmt.Sprint(n)
}

func luns(d *design.Design) string {
	var all []string
	for _, l := range d.LUNs() {
		all = append(all, fmt.Sprintf("%s of RAID %d", l.Size.Binary(), l.Level))
	}
	return counted(all)
}

// cacheWords are what an array's script has of the cache, each with its name here.
var cacheWords = []struct {
	re   *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`\bwriteCacheEnabled=true| wb | write-policy write-back`), "write-back"},
	{regexp.MustCompile(`\bmirrorEnabled=true`), "mirrored"},
	{regexp.MustCompile(`\bmirrorEnabled=false`), "not mirrored"},
	{regexp.MustCompile(`\breadCacheEnabled=true`), "reads cached"},
	{regexp.MustCompile(`\bcacheReadPrefetch=true| ra | read-ahead-size adaptive`), "read ahead"},
	{regexp.MustCompile(`\bcacheBlockSize=32;`), "blocks of 32 KiB"},
	{regexp.MustCompile(`\bpdcache=off`), "that of the disks off"},
}

// policy is of the last array.
func policy(d *design.Design) string {
	if len(d.Arrays) == 0 {
		return ""
	}
	text, err := array.Script(d, d.Arrays[len(d.Arrays)-1].Name, "", 0)
	if err != nil { // the spec does not have all that a script takes, such as sas_ports
		return ""
	}
	var all []string
	for _, w := range cacheWords {
		if w.re.MatchString(text) {
			all = append(all, w.name)
		}
	}
	return strings.Join(all, ", ")
}

func volumes(d *design.Design) string {
	var all []string
	for _, s := range d.Services() {
		all = append(all, fmt.Sprintf("volume striped over %d, %s each in turn", s.Storage.Stripes, s.Storage.StripeSize))
	}
	return counted(all)
}

func cache(d *design.Design) string {
	c := d.Services()[0].Storage.Cache
	if c == nil {
		return ""
	}
	var all []string
	for _, s := range c.SSDs {
		all = append(all, s.Size.String())
	}
	return fmt.Sprintf("%s, %s, past it what is read or written in a run of %s", counted(all), c.Mode, c.Bypass)
}

func fencing(d *design.Design) string {
	var all []string
	for _, l := range d.Fencing() {
		if l.Node != d.Servers()[0] {
			continue
		}
		var agents []string
		for _, x := range l.Devices {
			agents = append(agents, x.Agent)
		}
		all = append(all, fmt.Sprintf("%d. %s", l.Level, counted(agents)))
	}
	return strings.Join(all, ", ")
}
