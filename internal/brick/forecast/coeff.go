package forecast

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// Coefficient is one number the model multiplies hardware with. All are in
// one table, so that all can be listed, doubted and changed.
type Coefficient struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Source says where the number is from: a document's section, a data
	// sheet, arithmetic, "calibrated on …", or "assumed: …" where nothing
	// better is known.
	Source string `json:"source"`
	// Changed is set if it is not the built-in value.
	Changed bool `json:"changed,omitempty"`
}

// Coefficients is the table of all coefficients by name. The zero value is
// not usable: start from Defaults.
type Coefficients struct {
	byName map[string]*Coefficient
}

// The documents, as they are named in sources.
const (
	docNSS4   = "Dell NSS4-HA, July 2012"
	docNSS55  = "Dell NSS5.5, June 2014"
	docNSS7   = "Dell NSS7.4-HA, June 2019"
	docDFC    = "Improving NFS Performance on HPC Clusters with Dell Fluid Cache for DAS"
	docLustre = "Dell/Cambridge Lustre brick, 2011"
)

func defaults() []Coefficient {
	c := func(name string, v float64, unit, source string) Coefficient {
		return Coefficient{Name: name, Value: v, Unit: unit, Source: source}
	}
	return []Coefficient{
		// Disks. The media rate is what the outer tracks give one stream.
		c("disk.nl-sas.2tb.mbps", 140, "MB/s", "assumed: 7,200 rpm disks of 2 TB, outer tracks, rounded from makers' data sheets"),
		c("disk.nl-sas.3tb.mbps", 155, "MB/s", "assumed: as above, 3 TB"),
		c("disk.nl-sas.4tb.mbps", 170, "MB/s", "assumed: as above, 4 TB"),
		c("disk.nl-sas.8tb.mbps", 220, "MB/s", "assumed: as above, 8 TB"),
		c("disk.nl-sas.10tb.mbps", 249, "MB/s", "assumed: as above, 10 TB"),
		c("disk.nl-sas.16tb.mbps", 270, "MB/s", "assumed: as above, 16 TB and more"),
		c("disk.sas.mbps", 180, "MB/s", "assumed: 15,000 rpm disks, outer tracks"),
		c("disk.ssd.mbps", 1000, "MB/s", "assumed: 12 Gb/s SAS SSD, sustained"),
		c("disk.nvme.mbps", 2500, "MB/s", "assumed: data-centre NVMe, sustained write; reads are faster"),
		c("disk.stream_read", 0.477, "share of media rate", "calibrated on NSS5.5 sequential read: 2,818 MiB/s of 40 data disks of 3 TB; what many streams at once leave of the media rate. Source: "+docNSS55+", figure 2"),
		c("disk.stream_write", 0.452, "share of media rate", "calibrated on NSS5.5 sequential write: 2,671 MiB/s. Source: "+docNSS55+", figure 2"),
		c("disk.stream_solid", 0.9, "share of media rate", "assumed: SSDs hardly mind many streams"),
		c("disk.nl-sas.random_ms", 3.47, "ms", "calibrated on the DFC paper's baseline random read: 9,300/s from 48 disks and 64 clients. Files of 4 GiB on a nearly empty array: hardly any seek, mostly rotation. Source: "+docDFC+", 3.2"),
		c("disk.sas.random_ms", 2.5, "ms", "assumed: half a turn at 15,000 rpm and a short seek"),
		c("disk.ssd.random_ms", 0.12, "ms", "assumed"),
		c("disk.nvme.random_ms", 0.09, "ms", "assumed"),

		// RAID: arrays and controllers (each), and md.
		c("md3200-hpt.read_mbps", 4058, "MB/s", "assumed: at least what NSS4-HA read; the maker names 4,000 MB/s. Source: "+docNSS4+", table 2; Dell PowerVault MD3200 Technical Guide Book, product overview"),
		c("md3200-hpt.write_mbps", 2048, "MB/s", "as md3200.write_mbps: without mirroring. Only the mirrored rate is published with 10+2 groups"),
		c("md3200.read_mbps", 2048, "MB/s", "calibrated on the Lustre brick: more than 500,000 operations/s of 4 KiB in sequence, the most exact of its figures; elsewhere it has 2 GB/s. Source: "+docLustre+", summary, figures 21 and 22"),
		c("md3200.write_mbps", 2048, "MB/s", "calibrated on the same, cache mirroring off. Source: "+docLustre+", summary, 10.2, figures 21 and 22"),
		c("md3200.mirrored_write", 0.7398, "share of write rate", "calibrated on NSS3-HA and NSS4-HA sequential write, cache mirrored (1,495 and 1,535 MB/s: 1,515), over the Lustre brick's, not mirrored (2,048). Source: "+docNSS4+", tables 2 and 4; "+docLustre+", 10.2, whose figures 11 and 13 draw the difference without numbers"),
		c("h810.read_mbps", 3200, "MB/s", "assumed: LSI SAS2208 on PCIe; at least half of what two read in NSS5.5"),
		c("h810.write_mbps", 2097, "MB/s", "calibrated on the DFC paper's baseline: 2,000 MiB/s on one H810. Source: "+docDFC+", 3.1"),
		c("me4084.read_mbps", 8000, "MB/s", "assumed: above the 7,073 MB/s seen, which IPoIB limits. Source: "+docNSS7+", table 5"),
		c("me4084.write_mbps", 4906, "MB/s", "calibrated on NSS7.3-HA sequential write. Source: "+docNSS7+", table 5"),
		c("md.read_mbps", 3000, "MB/s per group", "assumed: md RAID 6 read, no parity work"),
		c("md.write_mbps", 1200, "MB/s per group", "assumed: md RAID 6 full-stripe write, one raid6 thread and group_thread_cnt workers"),
		c("raid6.small_write_ios", 6, "disk I/Os", "arithmetic: read and write of data, P and Q"),
		c("raid10.small_write_ios", 2, "disk I/Os", "arithmetic: both halves of the mirror"),
		c("h810.destage_ms", 5.0, "ms per disk I/O", "calibrated on the DFC paper's baseline random write: 1,600/s on 48 disks. Source: "+docDFC+", 3.2"),
		c("me4084.destage_ms", 1.816, "ms per disk I/O", "calibrated on NSS7.3-HA random write: 7,341/s on 80 disks; its larger cache sorts and merges more. Source: "+docNSS7+", table 5"),
		c("md3200.destage_ms", 5.0, "ms per disk I/O", "assumed: as the H810; no absolute figure is published"),
		c("md3200-hpt.destage_ms", 5.0, "ms per disk I/O", "assumed: as the H810; no absolute figure is published"),
		c("array.write_ms", 0.5, "ms", "assumed: a write into the mirrored cache of an array"),

		// HBA, PCIe.
		c("sas.efficiency", 0.9, "share", "assumed: framing on a SAS wide port after 8b/10b"),
		c("pcie.gen1_lane_mbps", 250, "MB/s per lane", "arithmetic: 2.5 GT/s, 8b/10b"),
		c("pcie.gen2_lane_mbps", 500, "MB/s per lane", "arithmetic: 5 GT/s, 8b/10b"),
		c("pcie.gen3_lane_mbps", 985, "MB/s per lane", "arithmetic: 8 GT/s, 128b/130b"),
		c("pcie.gen4_lane_mbps", 1969, "MB/s per lane", "arithmetic: 16 GT/s, 128b/130b"),
		c("pcie.gen5_lane_mbps", 3938, "MB/s per lane", "arithmetic: 32 GT/s, 128b/130b"),
		c("pcie.gen6_lane_mbps", 7563, "MB/s per lane", "arithmetic: 64 GT/s PAM4, flits of 256 bytes with 242 of payload"),
		c("pcie.efficiency", 0.8, "share", "assumed: headers and credits at 128 to 256 byte payloads"),
		c("pcie.far_slot", 0.81, "share", "calibrated on NSS4-HA: 3.3 instead of 4.06 GB/s read with the network card in the other slot. Source: "+docNSS4+", 3.2"),

		// CPU and memory.
		c("cpu.mbps_per_core", 500, "MB/s per core", "assumed: no published peak was limited by it; NSS2-HA's 8 slow cores moved 2,430 MB/s"),
		c("mem.cache_share", 0.9, "share of memory", "assumed: the part that is left to the page cache"),
		c("mem.reuse", 0.37, "share of reads", "arithmetic: of n draws with replacement from n records, 1/e repeat one drawn before; it is in memory if memory holds it"),

		// Network.
		c("net.ethernet_efficiency", 0.93, "share of data rate", "arithmetic: TCP/IP in 1,500 byte frames 0.949, less RPC headers and acknowledgements"),
		c("net.ipoib_efficiency", 0.595, "share of data rate", "calibrated on NSS4-HA sequential read: 4,058 MB/s over FDR. Source: "+docNSS4+", table 2"),
		c("net.rdma_efficiency", 0.9, "share of data rate", "assumed: LNET or NFS over RDMA verbs"),

		// Protocol.
		c("nfs.client_mbps", 1000, "MB/s per client", "assumed: one stream over one TCP connection"),
		c("lustre.client_mbps", 2000, "MB/s per client", "measured: 2 GB/s for one client over QDR. Source: "+docLustre+", summary"),
		c("nfs.latency_ms", 0.25, "ms", "calibrated on the DFC paper's cached random read: 32 clients, one request each, 123,000/s. Source: "+docDFC+", 3.2"),
		c("nfs.ops_per_core", 7700, "1/s per core", "calibrated on the same: 16 cores at 123,000/s, no more with 64 clients"),
		c("nfs.stat_per_core", 33680, "1/s per core", "calibrated on NSS7.3-HA stat: 808,317/s on 24 cores. Source: "+docNSS7+", table 5"),
		c("nfs.remove_per_core", 3055, "1/s per core", "calibrated on NSS7.3-HA remove: 73,320/s on 24 cores. Source: "+docNSS7+", table 5"),
		c("nfs.create_journal", 54795, "1/s", "calibrated on NSS7.3-HA create, which more cores did not speed up: the file system's log. Source: "+docNSS7+", table 5"),
		c("lustre.mds_create", 15000, "1/s per MDS", "measured. Source: "+docLustre+", summary"),
		c("lustre.mds_stat", 50000, "1/s per MDS", "measured. Source: "+docLustre+", summary"),
		c("lustre.mds_remove", 15000, "1/s per MDS", "measured. Source: "+docLustre+", summary"),

		// SSD cache.
		c("cache.ssd_read_mbps", 1750, "MB/s per SSD", "assumed: PCIe SSD of 350 GB (SLC, PCIe 2 x4), rounded from the maker's data sheet"),
		c("cache.ssd_write_mbps", 1100, "MB/s per SSD", "assumed: as above"),
		c("cache.write_share", 0.477, "share of SSD write rate", "calibrated on write-through sequential write: 1,000 MiB/s on two SSDs. Source: "+docDFC+", 3.1"),
		c("cache.ssd_read_ms", 0.01, "ms", "assumed: beyond nfs.latency_ms, which was measured with it"),
		c("cache.sync_write_ms", 6.0, "ms", "calibrated on write-back random write: 6.4 x 1,600/s at 64 clients. Source: "+docDFC+", 3.2"),
		c("cache.block_kib", 64, "KiB", "assumed: what one miss brings in; the paper gives no figure"),

		// Fleets.
		c("fleet.file_mib", 16, "MiB", "assumed: mean size of a file that is written once and read once"),

		// Durability and availability, for the simulation.
		c("sim.disk_afr", 0.02, "failures per disk and year", "measured: 1 to 3 % in large populations; 1.54 and 2.28 % in two quarters of 2023 over 240,940 disks. Source: Backblaze drive statistics, Q2 2023; Schroeder and Gibson, FAST 2007"),
		c("sim.batch_share", 0.05, "share of bricks", "assumed: one brick in twenty is built from a bad batch"),
		c("sim.batch_factor", 4, "times", "assumed: worst models fail some four times as often as the mean. Source: Backblaze drive statistics"),
		c("sim.rebuild_mbps", 50, "MB/s", "assumed: rebuild of one disk under load"),
		c("sim.replace_hours", 48, "h", "assumed: until a failed disk is replaced by hand"),
		c("sim.latent_per_year", 0.1, "errors per disk and year", "assumed: NL-SAS, one disk in ten; the order of the field study of 1.53 million disks. Source: Bairavasundaram et al., SIGMETRICS 2007"),
		c("sim.latent_enterprise_per_year", 0.02, "errors per disk and year", "assumed: all other disks; there enterprise disks showed several times fewer. Source: as above"),
		c("sim.scrub_hours", 720, "h", "mortar-scrub.timer scrubs once a month"),
		c("sim.restore_hours", 72, "h", "assumed: restoring a group from elsewhere"),
		c("sim.enclosure_afr", 0.01, "failures per enclosure and year", "assumed: redundant supplies and expanders, so the midplane"),
		c("sim.enclosure_hours", 24, "h", "assumed: next-day repair"),
		c("sim.controller_afr", 0.02, "failures per controller and year", "assumed"),
		c("sim.controller_hours", 24, "h", "assumed: next-day repair"),
		c("sim.server_afr", 2, "failures per server and year", "assumed: crashes and hangs included; hardware alone is nearer 0.1"),
		c("sim.server_hours", 8, "h", "assumed: mostly a reboot by hand, at times a part"),
		c("sim.power_per_year", 0.5, "outages per year", "assumed: of the whole site"),
		c("sim.power_hours", 4, "h", "assumed, with the restart"),
		c("sim.failover_seconds", 60, "s", "measured: 30 to 60 s. Source: "+docNSS4+", 4.3.2"),
		c("sim.failover_fails", 0.02, "share of failovers", "assumed: need a hand; drill it, and put in what you find"),
		c("sim.hand_hours", 2, "h", "assumed: until the administrator has mended that"),
	}
}

// Defaults is the built-in table.
func Defaults() Coefficients {
	c := Coefficients{byName: map[string]*Coefficient{}}
	for _, d := range defaults() {
		c.byName[d.Name] = &d
	}
	return c
}

// Get gives a value; an unknown name is a defect of the caller.
func (c Coefficients) Get(name string) float64 {
	k, ok := c.byName[name]
	if !ok {
		panic("forecast: no coefficient " + name)
	}
	return k.Value
}

// Find gives a coefficient by name.
func (c Coefficients) Find(name string) (Coefficient, bool) {
	k, ok := c.byName[name]
	if !ok {
		return Coefficient{}, false
	}
	return *k, true
}

// All lists every coefficient, in the table's order.
func (c Coefficients) All() []Coefficient {
	var out []Coefficient
	for _, d := range defaults() {
		out = append(out, *c.byName[d.Name])
	}
	return out
}

// Set changes one coefficient. Negative and absurd values are refused, and an
// unknown name with the names that are like it.
func (c Coefficients) Set(name string, v float64, source string) error {
	k, ok := c.byName[name]
	if !ok {
		return unknown("coefficient", name, c.names())
	}
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("%s: %g is no number to calculate with", name, v)
	case v < 0:
		return fmt.Errorf("%s: %g is negative", name, v)
	case v == 0 && (!strings.HasPrefix(name, "sim.") || name == "sim.rebuild_mbps"):
		return fmt.Errorf("%s: 0 would stop everything; give a value above 0", name)
	case v > 1 && isShare(k.Unit):
		return fmt.Errorf("%s: %g: a %s is at most 1", name, v, k.Unit)
	case v > 0 && v < lowest(name):
		return fmt.Errorf("%s: %g %s is absurd; give at least %g", name, v, k.Unit, lowest(name))
	case v > most(k.Unit):
		return fmt.Errorf("%s: %g %s is absurd; give at most %g", name, v, k.Unit, most(k.Unit))
	}
	k.Value, k.Source, k.Changed = v, source, true
	return nil
}

// most is the largest value of a unit that anybody can mean. Rates have theirs
// because a simulated brick takes as long as it has events.
func most(unit string) float64 {
	switch {
	case strings.HasPrefix(unit, "failures per server"):
		return 1000 // a server that crashes every day is bad, not impossible
	case strings.HasPrefix(unit, "failures per"):
		return 10
	case strings.HasSuffix(unit, "year"):
		return 1000
	case unit == "times":
		return 1000
	case unit == "h":
		return 1e6
	}
	return 1e9
}

// lowest is the smallest value above 0 that a person can mean: a divisor
// must not make the result overflow. Failures and repairs may be as rare
// and as short as one likes.
func lowest(name string) float64 {
	switch {
	case name == "sim.rebuild_mbps":
		return 0.1 // years for a disk
	case strings.HasPrefix(name, "sim."):
		return 0
	}
	return 1e-6
}

func isShare(unit string) bool { return unit == "share" || strings.HasPrefix(unit, "share of") }

func (c Coefficients) names() []string {
	var out []string
	for n := range c.byName {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// unknown is the error for a name that is none, with what may have been meant.
func unknown(what, name string, names []string) error {
	var like []string
	for _, n := range names {
		if n[strings.LastIndexByte(n, '.')+1:] == name[strings.LastIndexByte(name, '.')+1:] || strings.Contains(n, name) {
			like = append(like, n)
		}
	}
	if len(like) == 0 {
		prefix, _, _ := strings.Cut(name, ".")
		for _, n := range names {
			if strings.HasPrefix(n, prefix+".") {
				like = append(like, n)
			}
		}
	}
	hint := "--explain lists them all"
	if len(like) > 0 && len(like) <= 12 {
		hint = "did you mean " + strings.Join(like, ", ") + "?"
	}
	return fmt.Errorf("no %s is named %q; %s", what, name, hint)
}

// Assignment is one "name=value" of the user: a coefficient, or a fact of the
// hardware (hw.…).
type Assignment struct {
	Name, Value string
	From        string // where it was given: "--set", or file:line
}

// ParseAssignment splits the argument of --set.
func ParseAssignment(s string) (Assignment, error) {
	name, value, ok := strings.Cut(s, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" || value == "" {
		return Assignment{}, fmt.Errorf("--set %q: write name=value, e.g. --set nfs.client_mbps=1200", s)
	}
	return Assignment{name, value, "--set"}, nil
}

// ParseFile reads a file of assignments: YAML, one `name: value` a line.
func ParseFile(file string, src []byte) ([]Assignment, error) {
	var m yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(src, &m, yaml.DisallowUnknownField()); err != nil {
		return nil, fmt.Errorf("%s: %s; write one `name: value` a line", file, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	var out []Assignment
	for _, item := range m {
		name := fmt.Sprint(item.Key)
		switch item.Value.(type) {
		case yaml.MapSlice, map[string]any, []any, nil:
			return nil, fmt.Errorf("%s: %s: write one `name: value` a line", file, name)
		}
		from := file
		for i, l := range strings.Split(string(src), "\n") {
			if k, _, ok := strings.Cut(l, ":"); ok && strings.Trim(strings.TrimSpace(k), `"'`) == name {
				from = fmt.Sprintf("%s:%d", file, i+1)
			}
		}
		out = append(out, Assignment{name, fmt.Sprint(item.Value), from})
	}
	return out, nil
}

// Apply makes the user's changes, the later winning, to coefficients and, if
// h is not nil, to the hardware. All that is wrong is reported at once.
func Apply(list []Assignment, c Coefficients, h *Hardware) error {
	var errs []error
	for _, a := range list {
		var err error
		if strings.HasPrefix(a.Name, "hw.") {
			if h != nil {
				err = h.set(a.Name, a.Value)
			} else if !slices.Contains(hardwareNames(), a.Name) {
				err = unknown("hardware fact", a.Name, hardwareNames())
			}
		} else {
			var v float64
			if v, err = strconv.ParseFloat(a.Value, 64); err != nil {
				err = fmt.Errorf("%s: %q is not a number", a.Name, a.Value)
			} else {
				err = c.Set(a.Name, v, "given by "+a.From)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.From, err))
		}
	}
	return errors.Join(errs...)
}
