package paper_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/paper"
)

var update = flag.Bool("update", false, "write docs/systems")

const docs = "../../../docs/systems"

// aspect is a row of a system's page: what the design has.
type aspect struct {
	key, what, how string
	value          func(d *design.Design) string
}

const check, explain = "`mortar check`", "`mortar check --json`, settings"

var aspects = []aspect{
	{"servers", "servers", check, servers},
	{"network", "client network", check, func(d *design.Design) string {
		n := d.Spec.Networks.Public
		return fmt.Sprintf("%s at %s", n.Link, n.Speed)
	}},
	{"enclosures", "enclosures", check, enclosures},
	{"disks", "disks", check, disks},
	{"groups", "RAID groups", check, groups},
	{"spread", "disks of a group in one enclosure, at most", check, spread},
	{"spares", "hot spares", check, spares},
	{"paths", "paths from a server to each LUN", check, func(d *design.Design) string {
		a := &d.Arrays[len(d.Arrays)-1]
		return fmt.Sprint(d.PathsTo(a, a.Servers[0]))
	}},
	{"luns", "LUNs", "`mortar check`, `mortar array script`", luns},
	{"policy", "cache of the array", "`mortar array script`", policy},
	{"lvm", "volumes over the LUNs", check, volumes},
	{"cache", "cache", check, cache},
	{"raw", "raw capacity", check, func(d *design.Design) string { return d.Capacity.Raw.Decimal() }},
	{"usable", "usable capacity", check, func(d *design.Design) string {
		return fmt.Sprintf("%s = %s of data disks", d.Capacity.RAID.Decimal(), d.Capacity.RAID.Binary())
	}},
	{"bytes", "size of the LUN", check, func(d *design.Design) string { return fmt.Sprintf("%d bytes", int64(d.Capacity.LUNs)) }},
	{"mds", "MDS: raw, usable", check, func(d *design.Design) string {
		c := d.Capacity.Sets[0]
		return c.Raw.Decimal() + ", " + c.RAID.Decimal()
	}},
	{"scheduler", "I/O scheduler", explain, setting("disk", "scheduler")},
	{"max_sectors", "max_sectors_kb", explain, setting("disk", "max_sectors_kb")},
	{"read_ahead", "read_ahead_kb", explain, setting("disk", "read_ahead_kb")},
	{"mkfs", "mkfs.xfs", explain, func(d *design.Design) string {
		return fmt.Sprintf("su=%s, sw=%s, log of %s", d.Value("mkfs", "su"), d.Value("mkfs", "sw"), d.Value("mkfs", "log size"))
	}},
	{"mount", "mount options of XFS", check, func(d *design.Design) string { return strings.Join(d.Services()[0].MountOpts, ",") }},
	{"threads", "nfsd threads", explain, setting("nfsd", "threads")},
	{"export", "export options", check, func(d *design.Design) string { return strings.Join(d.Services()[0].Exports[0].Options, ",") }},
	{"version", "NFS version of the clients", check, func(d *design.Design) string { return d.Mounts[0].Version }},
	{"rmem", "net.ipv4.tcp_rmem", explain, setting("sysctl", "net.ipv4.tcp_rmem")},
	{"retry", "after the last path is gone", explain, func(d *design.Design) string {
		return d.Value("multipath", "no_path_retry") + " checks, 5 s apart"
	}},
	{"fencing", "fencing", check, fencing},
	{"mdt", "MDT", explain, setting("mkfs", "stride,stripe-width of mds")},
	{"ost", "OST", explain, setting("mkfs", "stride,stripe-width of oss1")},
	{"flex", "ldiskfs", explain, setting("mkfs", "flex_bg")},
	{"striping", "stripe count of files", explain, setting("lustre", "stripe_count")},
	{"dirty", "max_dirty_mb of the clients", explain, setting("lustre", "osc.*.max_dirty_mb")},
	{"rpcs", "max_rpcs_in_flight", explain, setting("lustre", "osc.*.max_rpcs_in_flight")},
	{"token", "silence after which a server counts as dead", explain, func(d *design.Design) string { return d.Value("corosync", "token") + " ms" }},
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
		all = append(all, fmt.Sprintf("%s: %d x %s of %d cores, %s", s.Model, s.CPU.Sockets, s.CPU.Model, s.CPU.Cores, s.Memory))
	}
	return counted(all)
}

func enclosures(d *design.Design) string {
	var all []string
	for _, e := range d.Spec.Enclosures {
		all = append(all, e.Model)
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
	{regexp.MustCompile(`\breadCacheEnabled=true`), "reads cached"},
	{regexp.MustCompile(`\bcacheReadPrefetch=true| ra | read-ahead-size adaptive`), "read ahead"},
	{regexp.MustCompile(`\bcacheBlockSize=32;`), "blocks of 32 KiB"},
	{regexp.MustCompile(`\bpdcache=off`), "that of the disks off"},
}

// policy is of the last array.
func policy(d *design.Design) string {
	text, err := array.Script(d, d.Arrays[len(d.Arrays)-1].Name, "", 0)
	if err != nil {
		return err.Error()
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

// says is what a paper says of an aspect.
type says struct{ value, where, note string }

// published has the papers' values, by system and aspect.
var published = func() map[string]map[string]says {
	with := func(base map[string]says, more map[string]says) map[string]says {
		all := map[string]says{}
		for _, m := range []map[string]says{base, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	ha := map[string]says{
		"groups":    {"RAID 6 10+2, segment 512 KB", "table 4", ""},
		"lvm":       {"clustered LVM", "table 4", "a system ID in place of clustered locks: one server has the volume at a time"},
		"policy":    {"write cache mirrored, read cache, dynamic prefetch", "table 4", ""},
		"spares":    {"not named", "table 4", ""},
		"paths":     {"two cards, each with a cable to storage", "table 10", "each card to both controllers"},
		"retry":     {"150 s", "4.3.2", ""},
		"fencing":   {"iDRAC, then the switched PDUs on two power buses", "table 10", ""},
		"version":   {"3", "4.3.2", ""},
		"scheduler": {"not named (deadline in NSS7.3-HA)", "", ""},
		"threads":   {"not named (256 in NSS7.3-HA)", "", ""},
		"export":    {"sync is meant: with async a failover corrupted a file", "A.3", ""},
	}
	// The paper names its own details only.
	laterOnly := func(value, note string) says { return says{"not named (" + value + " in NSS3-HA)", "table 4", note} }
	r710 := says{"2 x R710, 2 x E5630, 96 GB", "table 3", ""}
	r620 := says{"2 x R620, 2 x E5-2680, 128 GB recommended (64 GB measured)", "tables 3 and 6", ""}
	qdr, fdr := says{"QDR InfiniBand or 10 GbE", "table 1", "32 Gb/s is QDR's 40 less its line code"}, says{"FDR InfiniBand or 10 GbE", "table 1", ""}
	four, eight := says{"1 MD3200, 3 MD1200", "table 4", ""}, says{"1 MD3200, 7 MD1200", "table 4", ""}
	tib := "decimal TB against the binary ones of `df`"
	nss7 := with(ha, map[string]says{
		"network":    {"EDR InfiniBand", "table 1", ""},
		"enclosures": {"1 ME4084", "table 1", ""},
		"disks":      {"84 NL-SAS of up to 12 TB (10 TB measured)", "tables 1 and 2", ""},
		"groups":     {"linear RAID 6 8+2, chunk 128 KiB", "table 1", ""},
		"luns":       {"8", "table 1", ""},
		"policy":     {"not named", "", ""},
		"spares":     {"4 global", "table 1", ""},
		"raw":        {"1008 TB (840 TB measured)", "table 1", ""},
		"scheduler":  {"deadline", "performance summary", "its successor in kernels with many queues"},
		"threads":    {"256", "performance summary", ""},
		"paths":      {"two SAS cards, each with a cable to each controller", "architecture", ""},
		"lvm":        {"LVM", "solution overview, 3", ""},
		"export":     {"not named", "", ""},
		"version":    {"not named", "", ""},
		"retry":      {"not named (150 s in NSS4-HA)", "", ""},
		"fencing":    {"iDRAC9, two switched PDUs", "table 2", ""},
	})
	lustre := map[string]says{
		"servers":     {"MDS: 2 x R710, 32 GB; OSS: 2 x R710, 24 GB; six cores", "table 1", ""},
		"network":     {"QDR InfiniBand", "table 1", "32 Gb/s is QDR's 40 less its line code"},
		"enclosures":  {"MD3220; MD3200 and four MD1200", "4.1, 4.2", "table 1 has five MD1200: a slip"},
		"disks":       {"24 of 136 GB, 15k SAS; 60 of 2 TB NL-SAS", "table 1", ""},
		"groups":      {"RAID 10, chunk 64 KB; 6 x RAID 6 8+2, segment 128 KB", "4.1.1, 4.2.1", ""},
		"spread":      {"two: over all five enclosures", "4.2.1, appendix B", ""},
		"paths":       {"four", "4.2", ""},
		"luns":        {"one virtual disk for each disk group, no partitions", "4.2.1", ""},
		"policy":      {"blocks of 32 KB, reads cached, prefetch; measured without mirroring, which is for scratch only", "4.2.1, 10.2", "without a mirror a dead controller loses what it acknowledged"},
		"raw":         {"108.75 TB", "table 1", "does not follow from the geometry: see [systems.md](../systems.md#figures)"},
		"usable":      {"87 TB", "table 1", tib},
		"mds":         {"3.2 TB, 1.6 TB", "table 1", ""},
		"scheduler":   {"deadline", "4.2.1", "its successor in kernels with many queues"},
		"max_sectors": {"2048", "4.2.1", ""},
		"read_ahead":  {"2048 (the text has 8192 as well)", "4.2.1", ""},
		"mdt":         {"stride=16, stripe-width=64", "7.3", ""},
		"ost":         {"stride=32, stripe-width=256", "7.4", ""},
		"flex":        {"-O flex_bg -G 256", "7.3, 7.4", ""},
		"striping":    {"1 for home directories", "8.1", ""},
		"dirty":       {"256", "8.1", ""},
		"rpcs":        {"32", "8.1, 10.4", ""},
		"token":       {"deadtime 60 s, warntime 10 s", "appendix C", "Corosync finds it sooner; fencing still comes first"},
		"fencing":     {"STONITH over IPMI", "9.0, appendix C", "a BMC dies with its server's power feed, so the PDUs are the second level"},
		"retry":       {"not named", "", ""},
	}
	perc := map[string]says{
		"network":   {"FDR InfiniBand", "table 2", ""},
		"disks":     {"48 of 3 TB, NL-SAS, 7,200 rpm", "table 2", ""},
		"raw":       {"144 TB", "introduction", ""},
		"version":   {"3", "introduction", ""},
		"scheduler": {"not named", "", ""},
		"threads":   {"not named", "", ""},
		"spares":    {"not named", "", ""},
	}
	return map[string]map[string]says{
		"nss2-ha": with(ha, map[string]says{"servers": {"2 x R710", "table 1", ""}, "network": qdr, "enclosures": {"MD3200 and MD1200", "table 1", ""},
			"disks": {"2 TB NL-SAS", "table 1", ""}, "raw": {"48 TB and 96 TB", "table 1", ""},
			"groups": laterOnly("RAID 6 10+2, segment 512 KB", ""), "policy": laterOnly("write cache mirrored, read cache, dynamic prefetch", ""), "spares": {"not named", "", ""},
			"lvm": laterOnly("clustered LVM", ha["lvm"].note), "paths": {"two cards", "table 10", "one HBA, as NSS3-HA has by table 5: its two ports, each to a controller"}}),
		"nss3-ha": with(ha, map[string]says{"servers": r710, "network": qdr, "enclosures": eight, "disks": {"96 of 3 TB, NL-SAS", "table 4", ""},
			"raw": {"288 TB", "table 4", ""}, "usable": {"218 TB", "table 4", tib}, "paths": {"one HBA in each server; two by table 10", "tables 5 and 10", "its two ports, each to a controller"}}),
		"nss4-ha-144": with(ha, map[string]says{"servers": r620, "network": fdr, "enclosures": four, "disks": {"48 of 3 TB, NL-SAS", "table 4", ""},
			"raw": {"144 TB", "table 4", ""}, "usable": {"109 TB", "table 4", tib}}),
		"nss4-ha-288": with(ha, map[string]says{"servers": r620, "network": fdr, "enclosures": eight, "disks": {"96 of 3 TB, NL-SAS", "table 4", ""},
			"raw": {"288 TB", "table 4", ""}, "usable": {"218 TB", "table 4", tib}}),
		"nss-ha-xl": with(ha, map[string]says{"servers": r620, "network": fdr, "enclosures": {"twice those of the 288 TB system", "2.2", ""}, "disks": {"3 TB NL-SAS", "table 4", ""},
			"raw": {"2 x 288 TB", "table 2", ""}, "lvm": {"two file systems, each server active for one", "2.2", ""}}),
		"nss7.3-ha": with(nss7, map[string]says{"servers": {"2 x R740, 2 x Gold 6136 of 12 cores, 192 GiB", "table 1", ""}}),
		"nss7.4-ha": with(nss7, map[string]says{"servers": {"2 x R740, 2 x Gold 6240 of 18 cores, 192 GiB (measured with 2 x 8 cores)", "tables 1 and 2", ""}}),
		"nss5.5": with(perc, map[string]says{
			"servers":    {"R620, 2 x E5-2680 v2 of 8 cores, 128 GB", "table 2", ""},
			"enclosures": {"4 MD1200 on two PERC H810", "table 2", ""},
			"groups":     {"RAID 60 of 10+2, stripe element 512 KB", "introduction", ""},
			"luns":       {"two RAID 60 sets", "introduction", ""},
			"policy":     {"write back, read ahead, that of the disks disabled", "introduction", ""},
			"lvm":        {"one logical volume of both", "introduction", ""},
			"usable":     {"110 TB", "introduction", "`df -h` rounds 109.1 TiB up"},
			"export":     {"async", "introduction", "what is acknowledged must be on disk"},
		}),
		"nfs-dfc": with(perc, map[string]says{
			"servers":    {"R720, 2 x E5-2680, 128 GB", "table 1", ""},
			"enclosures": {"4 MD1200, daisy-chained on one PERC H810", "table 1", ""},
			"network":    {"FDR InfiniBand", "table 1", ""}, "disks": {"48 of 3 TB, 7,200 rpm NL-SAS", "table 1", ""}, "raw": {"144 TB", "A.1", ""},
			"groups":    {"RAID 60, span length 12, stripe 512 KB", "2.4.1, A.4", ""},
			"spread":    {"three: over all four enclosures (the command lists them one enclosure after the other)", "2.4.1, A.4", ""},
			"luns":      {"one virtual disk", "2.1", ""},
			"policy":    {"write back, no read ahead, that of the disks disabled", "A.4", "streams pass the SSDs, so the PERC reads ahead for them"},
			"bytes":     {"120001386250240 bytes", "A.4", ""},
			"cache":     {"two SSDs of 350 GB, write-back or write-through", "table 3, A.5", "streams pass it: [cache.md](../cache.md)"},
			"scheduler": {"deadline", "2.4.2", "its successor in kernels with many queues"},
			"threads":   {"256", "2.4.2", ""},
			"mkfs":      {"su=512k, sw=40, log of 128m", "2.4.2", "many creates in flight; replayed within seconds all the same"},
			"mount":     {"noatime,allocsize=1g,nobarrier,inode64,logbsize=262144,attr2", "2.4.2", "nobarrier and attr2 are gone from the kernel"},
			"export":    {"rw,no_root_squash,sync", "A.5", ""},
			"version":   {"3", "2.4.2", ""},
			"rmem":      {"4096 2621440 16777216", "A.7", ""},
		}),
		"lustre-brick": lustre,
		"lustre-rack": with(lustre, map[string]says{
			"servers":    {"one HA-MDS, three HA-OSS", "11", ""},
			"enclosures": {"three bricks in a rack", "11", ""},
			"disks":      {"2 TB NL-SAS", "11", ""},
			"usable":     {"280 TB", "11", "does not follow from the geometry: see [systems.md](../systems.md#figures)"},
			"raw":        {"not named", "", ""},
		}),
	}
}()

// run is an entry of docs/systems/summary.json, what make systems wrote.
type run struct {
	System, Drill, Scale, Error string
	Built                       bool
	Changed                     *int     `json:"changed_second_apply"`
	Verdict                     string   `json:"drill_verdict"`
	Longest                     *float64 `json:"longest_stall_seconds"`
	Lost                        *int64   `json:"lost_bytes"`
	Seconds, Load               float64
	Started                     string
}

func runs(t *testing.T) map[string]run {
	var list []run
	text, err := os.ReadFile(filepath.Join(docs, "summary.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		t.Fatal(err)
	}
	all := map[string]run{}
	for _, r := range list {
		all[r.System] = r
	}
	return all
}

// TestPages: docs/systems has a page for each system, and what it says of
// Mortar is what the program says.
func TestPages(t *testing.T) {
	ran := runs(t)
	for _, y := range paper.Systems {
		d, err := design.Derive(load(t, y.Name))
		if err != nil {
			t.Fatal(err)
		}
		r, ok := ran[y.Name]
		compare(t, filepath.Join(docs, y.Name+".md"), page(t, y, d, r, ok))
	}
	for name := range published {
		if _, ok := paper.Find(name); !ok {
			t.Errorf("values of %s, which is no system", name)
		}
	}
}

// TestResults: docs/results/systems.md has what became of every example.
func TestResults(t *testing.T) {
	ran := runs(t)
	var b strings.Builder
	b.WriteString("<!-- written by go test ./internal/brick/paper -update -->\n\n# Every example, built and broken on a virtual rack\n\n")
	b.WriteString("What `make systems` saw ([systems.md](../systems.md)): `mortar init SYSTEM`, `rack up --scale`, `apply --skip-fence-test`, the same again, a server's crash under load (`drill server-crash`), `rack down`. ")
	b.WriteString("The servers are emulated by two processors (QEMU without KVM), so times are longer than those of real servers; and where the load was above 1 before it began, other racks or builds ran beside it. The rows are entries of [summary.json](../systems/summary.json).\n\n")
	b.WriteString("| system | date | disks of | load before | built | changed by the second apply | drill | longest stall | lost | whole time |\n|---|---|---|---|---|---|---|---|---|---|\n")
	var names, open []string
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f, ".yaml"))
	}
	for name := range ran {
		if !slices.Contains(names, name) {
			t.Errorf("summary.json: there is no example %s", name)
		}
	}
	for _, name := range names {
		r, ok := ran[name]
		if !ok {
			open = append(open, "`"+name+"`")
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f | %s |\n", link(name), r.Started, r.Scale, r.Load, strings.Join(r.cells(), " | "))
	}
	for _, name := range names {
		if r := ran[name]; r.Error != "" {
			fmt.Fprintf(&b, "\n`%s`: %s\n", name, r.Error)
		}
	}
	if len(open) > 0 {
		fmt.Fprintf(&b, "\nNot run yet: %s.\n", strings.Join(open, ", "))
	}
	compare(t, filepath.Join(docs, "../results/systems.md"), b.String())
}

// link is a system's page, or its file if no paper describes it.
func link(name string) string {
	if _, ok := paper.Find(name); ok {
		return fmt.Sprintf("[%s](../systems/%s.md)", name, name)
	}
	return fmt.Sprintf("[%s](../../examples/%s.yaml)", name, name)
}

func compare(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(want), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != want {
		t.Errorf("%s is not what the program says now (%v); look at the difference after go test ./internal/brick/paper -update", file, err)
	}
}

func page(t *testing.T, y paper.System, d *design.Design, r run, ran bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- written by go test ./internal/brick/paper -update -->\n\n# %s\n\n", y.Title)
	fmt.Fprintf(&b, "Source: %s. Example: [%s.yaml](../../examples/%s.yaml), `mortar init %s`. All systems: [systems.md](../systems.md).\n\n", y.Source, y.Name, y.Name, y.Name)
	b.WriteString("## Layout, capacity, tuning\n\n| what | paper | where | Mortar | obtained by | why it differs |\n|---|---|---|---|---|---|\n")
	for key := range published[y.Name] {
		if !slices.ContainsFunc(aspects, func(a aspect) bool { return a.key == key }) {
			t.Errorf("%s: no aspect %q", y.Name, key)
		}
	}
	for _, a := range aspects {
		if s, ok := published[y.Name][a.key]; ok {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", a.what, s.value, s.where, a.value(d), a.how, s.note)
		}
	}
	peaks(t, &b, y, d)
	failures(&b, d)
	b.WriteString("\n## Slips of the paper\n\nWhere it contradicts itself or its own figures. Mortar goes by the last column.\n\n| where | says | is |\n|---|---|---|\n")
	for _, s := range paper.Slips(y.Source) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.Where, s.Says, s.Is)
	}
	b.WriteString("\n## Built and broken on a virtual rack\n\n")
	if !ran {
		fmt.Fprintf(&b, "Not yet: `make systems SYSTEMS=%s`.\n", y.Name)
		return b.String()
	}
	outcome(&b, r)
	return b.String()
}

func peaks(t *testing.T, b *strings.Builder, y paper.System, d *design.Design) {
	b.WriteString("\n## Peaks\n\n")
	if len(y.Figures) == 0 {
		b.WriteString("The paper has none of this configuration. `mortar forecast` says what it should deliver.\n")
		return
	}
	h, err := forecast.FromDesign(d)
	if err != nil {
		t.Fatal(err)
	}
	f, err := forecast.New(h, forecast.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	b.WriteString("`mortar forecast` on the example; a test holds it within 20 % for streams and a factor of 1.5 for the rest, or wants the reason of the last column. All values of a row are in the paper's unit, and per cent are by how much the forecast is above the paper. [forecast.md](../forecast.md#how-good-is-it) has the systems side by side. `mortar bench --suite paper` measures the same, and its report shows it in this order.\n\n")
	if err := f.Beside(y, forecast.Defaults()); err != nil {
		t.Fatal(err)
	}
	with := forecast.MeasuredWith(y.Name)
	measured, line := "", ""
	if len(with) > 0 {
		measured, line = " as measured | per cent |", "---:|---:|"
		for _, a := range with {
			fmt.Fprintf(b, "*As measured*: the system was measured with `%s=%s` (`mortar forecast %s.yaml --set %s=%s`).\n\n", a.Name, a.Value, y.Name, a.Name, a.Value)
		}
	}
	fmt.Fprintf(b, "| figure | measured | paper | the text also says | forecast | per cent |%s limited by | why the example is another |\n|---|---|---|---|---:|---:|%s---|---|\n", measured, line)
	value := func(g paper.Figure, v float64) string {
		if v == 0 {
			return "none"
		}
		return paper.Figure{Peak: v, Unit: g.Unit}.Number()
	}
	for i, g := range y.Figures {
		p := f.Published[i]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |", g.Where, p.Test, g.Number(), g.Says, value(g, p.Forecast), paper.PercentText(p.Percent))
		if len(with) > 0 {
			fmt.Fprintf(b, " %s | %s |", value(g, p.AsMeasured), paper.PercentText(p.MeasuredPercent))
		}
		fmt.Fprintf(b, " %s | %s |\n", p.Bottleneck, g.Example)
	}
}

func failures(b *strings.Builder, d *design.Design) {
	table := paper.Failures(d.Flavour)
	b.WriteString("\n## Failures\n\n")
	if len(table.Rows) == 0 {
		b.WriteString("The paper has no table of failures: a single server has nobody to take over, and clients wait until it is back. `mortar drill brick.yaml --all` does the drills that need no partner.\n")
		return
	}
	fmt.Fprintf(b, "%s (%s). `mortar drill brick.yaml --all` does the drills, and its report lists this table with what happened.\n\n", table.Title, table.Source)
	b.WriteString("| what fails | what must happen | published time | drill | otherwise here |\n|---|---|---|---|---|\n")
	for _, f := range table.Rows {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", f.What, f.Must, f.Time, strings.Join(f.Drills, ", "), f.Here)
	}
}

func outcome(b *strings.Builder, r run) {
	fmt.Fprintf(b, "`make systems SYSTEMS=%s`, %s, disks of %s. All: [results/systems.md](../results/systems.md).\n\n", r.System, r.Started, r.Scale)
	b.WriteString("| built | changed by the second apply | drill | longest stall | lost | whole time |\n|---|---|---|---|---|---|\n")
	fmt.Fprintf(b, "| %s |\n", strings.Join(r.cells(), " | "))
	if r.Error != "" {
		fmt.Fprintf(b, "\n%s\n", r.Error)
	}
}

// cells are what became of it: built, changed, drill, stall, lost, time.
func (r run) cells() []string {
	built, changed, drill, stall, lost := "no", "–", "–", "–", "–"
	if r.Built {
		built = "yes"
	}
	if r.Changed != nil {
		changed = fmt.Sprint(*r.Changed)
	}
	if r.Verdict != "" {
		drill = r.Drill + ": " + r.Verdict
	}
	if r.Longest != nil {
		stall = fmt.Sprintf("%.1f s", *r.Longest)
	}
	if r.Lost != nil {
		lost = fmt.Sprintf("%d B", *r.Lost)
	}
	return []string{built, changed, drill, stall, lost, fmt.Sprintf("%.0f s", r.Seconds)}
}
