package forecast

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Pattern is a kind of load, as the benchmarks of the papers define them: one
// file and one thread on each client; records of 1 MiB in order, or of 4 KiB
// at random with one request outstanding; small files made, looked at and
// removed.
type Pattern string

// The patterns, in the order they are shown.
const (
	SeqWrite    Pattern = "sequential write"
	SeqRead     Pattern = "sequential read"
	RandomWrite Pattern = "random write"
	RandomRead  Pattern = "random read"
	Create      Pattern = "file create"
	Stat        Pattern = "file stat"
	Remove      Pattern = "file remove"
)

func (p Pattern) Unit() string {
	if p == SeqWrite || p == SeqRead {
		return "MB/s"
	}
	return "1/s"
}

// Stage is one link of the chain from disk to protocol, with the most it can
// carry of a pattern.
type Stage struct {
	Name     string   `json:"name"` // disks, RAID, HBA, PCIe, CPU and memory, network, protocol, cache, MDS
	Limit    float64  `json:"limit"`
	Formula  string   `json:"formula"`
	Uses     []string `json:"uses,omitempty"` // coefficients
	InSeries bool     `json:"latency,omitempty"`
}

type Point struct {
	Clients int     `json:"clients"`
	Value   float64 `json:"value"`
}

// Buy is what one more of a part gains.
type Buy struct {
	Part  string  `json:"part"`
	Value float64 `json:"value"` // of the pattern, with it
	Gain  float64 `json:"gain"`  // share: 0.05 is 5 % more
}

// Line is the forecast of one pattern.
type Line struct {
	Pattern    Pattern `json:"pattern"`
	Unit       string  `json:"unit"`
	Peak       float64 `json:"peak"`
	Clients    int     `json:"clients"` // the fewest that reach the peak
	Bottleneck string  `json:"bottleneck"`
	Why        string  `json:"why"`
	Stages     []Stage `json:"stages"`
	Curve      []Point `json:"curve,omitempty"`
	Buys       []Buy   `json:"buys,omitempty"`
}

type Forecast struct {
	Hardware Hardware `json:"hardware"`
	Lines    []Line   `json:"lines"`
	// Missing says which patterns have no forecast, and why.
	Missing []string `json:"missing,omitempty"`
	// System and Published are of the papers' system that the brick is, if it is one: see Beside.
	System    string      `json:"system,omitempty"`
	Published []Published `json:"published,omitempty"`
}

func (f *Forecast) Line(p Pattern) (Line, bool) {
	return lists.First(f.Lines, func(l Line) bool { return l.Pattern == p })
}

func New(h Hardware, c Coefficients) (*Forecast, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	f := &Forecast{Hardware: h}
	patterns := []Pattern{SeqWrite, SeqRead, RandomWrite, RandomRead, Create, Stat, Remove}
	if h.Protocol == "nfs" && h.RAID == "md" {
		patterns = patterns[:4]
		f.Missing = append(f.Missing, "file create, stat, remove: every published figure is of an array with a write cache; md without one waits for the disks, and nothing published says how long")
	}
	if h.Protocol == "lustre" {
		patterns = []Pattern{SeqWrite, SeqRead, Create, Stat, Remove}
		f.Missing = append(f.Missing, "random write and read: the Lustre paper gives only sequential small I/O out of the clients' caches")
	}
	for _, p := range patterns {
		m := model{&h, c, p}
		l := m.line()
		l.Buys = m.buys(l.Peak)
		f.Lines = append(f.Lines, l)
	}
	return f, nil
}

type model struct {
	h *Hardware
	c Coefficients
	p Pattern
}

func (m model) get(name string) float64 { return m.c.Get(name) }

func (m model) line() Line {
	l := Line{Pattern: m.p, Unit: m.p.Unit()}
	switch m.p {
	case SeqWrite, SeqRead:
		l.Stages = m.sequential()
		per, proto := m.perClient()
		cap := l.bound()
		l.curve(m.h.Clients, func(n int) float64 { return math.Min(float64(n)*per, cap) })
		proto.Limit = float64(m.h.Clients) * per
		l.below(proto, cap)
	case RandomWrite, RandomRead:
		l.curve(m.h.Clients, func(n int) float64 {
			v, _, _ := m.random(n)
			return v
		})
		_, l.Stages, l.Bottleneck = m.random(l.Clients)
		for _, s := range l.Stages {
			if s.Name == l.Bottleneck {
				l.Why = s.Formula
			}
		}
	default:
		l.Stages = m.metadata()
		l.Peak = l.bound()
		if m.h.Protocol == "nfs" { // of an MDS no latency is published
			cap, ms := l.Peak, m.get("nfs.latency_ms")
			l.Peak = 0
			l.curve(m.h.Threads, func(n int) float64 { return math.Min(float64(n)*1000/ms, cap) })
			l.below(Stage{Name: "protocol", Limit: float64(m.h.Threads) * 1000 / ms, Uses: []string{"nfs.latency_ms"}, InSeries: true,
				Formula: fmt.Sprintf("%d threads with one request each, %g ms a request", m.h.Threads, ms)}, cap)
		}
	}
	return l
}

// bound makes the narrowest stage, the first of equals, the bottleneck, and returns its limit.
func (l *Line) bound() float64 {
	limit, at := narrowest(l.Stages)
	l.Bottleneck, l.Why = at.Name, at.Formula
	return limit
}

// below adds the last stage, which is the bottleneck if it carries less than the others do.
func (l *Line) below(last Stage, others float64) {
	l.Stages = append(l.Stages, last)
	if last.Limit < others {
		l.Bottleneck, l.Why = last.Name, last.Formula
	}
}

// curve has what 1 to most clients get, and the fewest that reach the peak.
func (l *Line) curve(most int, get func(n int) float64) {
	for n := 1; n <= most; n++ {
		v := get(n)
		l.Curve = append(l.Curve, Point{n, v})
		if v > l.Peak*(1+1e-9) {
			l.Peak, l.Clients = v, n
		}
	}
}

// narrowest is the narrowest stage; the first of equals.
func narrowest(s []Stage) (float64, Stage) {
	best := slices.MinFunc(s, func(a, b Stage) int { return cmp.Compare(a.Limit, b.Limit) })
	return best.Limit, best
}

// media gives the streaming rate of a disk by its type and size.
func (m model) media() (float64, string) {
	name := "disk." + m.h.DiskType + ".mbps"
	if m.h.DiskType == "nl-sas" {
		tb := m.h.DiskBytes / 1e12
		name = "disk.nl-sas.2tb.mbps"
		for _, s := range []float64{3, 4, 8, 10, 16} {
			if tb >= s*0.999 {
				name = fmt.Sprintf("disk.nl-sas.%gtb.mbps", s)
			}
		}
	}
	return m.get(name), name
}

func solid(diskType string) bool { return diskType == "ssd" || diskType == "nvme" }

// sequential lists the stages of a stream from disk to network.
func (m model) sequential() []Stage {
	return m.cached(append(m.storage(), m.serversAndNetwork()...))
}

// storage is the disks, and who makes RAID groups of them.
func (m model) storage() []Stage {
	h := m.h
	write := m.p == SeqWrite
	bricks := float64(h.Bricks)
	var out []Stage

	// Disks. Writes carry parity, but to disks of their own.
	media, mediaName := m.media()
	streams := "disk.stream_read"
	if write {
		streams = "disk.stream_write"
	}
	if solid(h.DiskType) {
		streams = "disk.stream_solid"
	}
	n, what := bricks*h.dataDisks(), "data disk"
	if h.Level == 10 && !write {
		n, what = bricks*h.disks(), "disk" // both halves of a mirror read
	}
	out = append(out, Stage{Name: "disks", Limit: n * media * m.get(streams), Uses: []string{mediaName, streams},
		Formula: fmt.Sprintf("%s x %g MB/s x %g", count(n, what), media, m.get(streams))})

	// RAID.
	dir := "read_mbps"
	if write {
		dir = "write_mbps"
	}
	if h.RAID == "md" && h.Level != 10 { // mirrors are no work to speak of
		n := "md." + dir
		out = append(out, Stage{Name: "RAID", Limit: bricks * float64(h.Groups) * m.get(n), Uses: []string{n},
			Formula: fmt.Sprintf("%s x %g MB/s", count(bricks*float64(h.Groups), "group"), m.get(n))})
	} else if h.RAID != "md" {
		n := h.RAID + "." + dir
		s := Stage{Name: "RAID", Limit: bricks * float64(h.Arrays) * m.get(n), Uses: []string{n},
			Formula: fmt.Sprintf("%g x %s at %g MB/s", bricks*float64(h.Arrays), h.RAID, m.get(n))}
		if write && h.md3() && h.Mirrored {
			s.Limit *= m.get("md3200.mirrored_write")
			s.Formula += fmt.Sprintf(" x %g for the mirrored cache", m.get("md3200.mirrored_write"))
			s.Uses = append(s.Uses, "md3200.mirrored_write")
		}
		out = append(out, s)
	}
	return out
}

// serversAndNetwork is the way through the servers to the clients' network.
func (m model) serversAndNetwork() []Stage {
	h := m.h
	write := m.p == SeqWrite
	bricks, servers := float64(h.Bricks), float64(h.Servers)
	var out []Stage

	// inflate is the traffic over SAS and PCIe per byte of data: with md the server
	// writes parity too.
	inflate, note := 1.0, ""
	if write && h.RAID == "md" {
		inflate = float64(h.Data+h.Parity) / float64(h.Data)
		note = fmt.Sprintf(" / %g with parity", round3(inflate))
		if h.Level == 10 {
			note = " / 2, each block twice"
		}
	}
	ports := servers * bricks * float64(h.HBAs*h.HBAPorts)
	sas := ports * 4 * h.SASGbps * 100 * m.get("sas.efficiency") // 8b/10b: 100 MB/s per Gb/s
	if h.DiskType != "nvme" {
		out = append(out, Stage{Name: "HBA", Limit: sas / inflate, Uses: []string{"sas.efficiency"},
			Formula: fmt.Sprintf("%s x 4 lanes x %g Gb/s x %g%s", count(ports, "port"), h.SASGbps, m.get("sas.efficiency"), note)})
	}
	lane := fmt.Sprintf("pcie.gen%d_lane_mbps", h.HBAGen)
	lanes := servers * bricks * float64(h.HBAs*h.HBALanes)
	pcie := lanes * m.get(lane) * m.get("pcie.efficiency")
	nlane := fmt.Sprintf("pcie.gen%d_lane_mbps", h.NICGen)
	nlanes := servers * bricks * float64(h.Links*h.NICLanes)
	nic := nlanes * m.get(nlane) * m.get("pcie.efficiency")
	s := Stage{Name: "PCIe", Limit: pcie / inflate, Uses: []string{lane, "pcie.efficiency"},
		Formula: fmt.Sprintf("%g lanes to HBAs x %g MB/s x %g%s", lanes, m.get(lane), m.get("pcie.efficiency"), note)}
	if nic < s.Limit {
		s = Stage{Name: "PCIe", Limit: nic, Uses: []string{nlane, "pcie.efficiency"},
			Formula: fmt.Sprintf("%g lanes to network cards x %g MB/s x %g", nlanes, m.get(nlane), m.get("pcie.efficiency"))}
	}
	out = append(out, s)

	// CPU and memory.
	cores := servers * bricks * float64(h.Cores)
	out = append(out, Stage{Name: "CPU and memory", Limit: cores * m.get("cpu.mbps_per_core"), Uses: []string{"cpu.mbps_per_core"},
		Formula: fmt.Sprintf("%g cores x %g MB/s", cores, m.get("cpu.mbps_per_core"))})

	// Network.
	eff := "net." + h.Fabric + "_efficiency"
	links := servers * bricks * float64(h.Links)
	net := links * dataRateMBps(h.Fabric, h.LinkGbps) * m.get(eff)
	wire := Stage{Name: "network", Limit: net, Uses: []string{eff},
		Formula: fmt.Sprintf("%s x %g MB/s x %g (%s)", count(links, "link"), round3(dataRateMBps(h.Fabric, h.LinkGbps)), m.get(eff), h.Fabric)}
	if h.FarSlot && !write {
		// Only reads were measured to suffer.
		wire.Limit *= m.get("pcie.far_slot")
		wire.Formula += fmt.Sprintf(" x %g for the far slot", m.get("pcie.far_slot"))
		wire.Uses = append(wire.Uses, "pcie.far_slot")
	}
	return append(out, wire)
}

// cached adds the SSD cache, if streams go through it.
func (m model) cached(out []Stage) []Stage {
	h, ssds, write := m.h, float64(m.h.CacheSSDs), m.p == SeqWrite
	if ssds == 0 || h.CacheBypass {
		return out
	}
	if !write && !h.CacheCold {
		r := m.get("cache.ssd_read_mbps")
		// Disks, RAID and HBAs are not asked.
		out = slices.DeleteFunc(out, func(s Stage) bool { return s.Name == "disks" || s.Name == "RAID" || s.Name == "HBA" })
		return append(out, Stage{Name: "cache", Limit: ssds * r, Uses: []string{"cache.ssd_read_mbps"},
			Formula: fmt.Sprintf("%g SSDs x %g MB/s, all of it cached", ssds, r)})
	}
	w, share := m.get("cache.ssd_write_mbps"), m.get("cache.write_share")
	copies, note := 1.0, ", filling"
	if write && h.CacheMode == "write-back" {
		copies, note = 2, ", each block on two SSDs"
	} else if write {
		note = ", written through"
	}
	return append(out, Stage{Name: "cache", Limit: ssds * w * share / copies, Uses: []string{"cache.ssd_write_mbps", "cache.write_share"},
		Formula: fmt.Sprintf("%g SSDs x %g MB/s x %g / %g%s", ssds, w, share, copies, note)})
}

// count writes a number of things.
func count(n float64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%g %ss", n, what)
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

// perClient is what one client can carry, and the stage that says so.
func (m model) perClient() (float64, Stage) {
	h := m.h
	n := h.Protocol + ".client_mbps"
	eff := "net." + h.Fabric + "_efficiency"
	per, name, why := m.get(n), "protocol", fmt.Sprintf("%d clients x %g MB/s over %s", h.Clients, m.get(n), h.Protocol)
	if link := dataRateMBps(h.Fabric, h.ClientGbps) * m.get(eff); link < per {
		per, name, why = link, "clients' links", fmt.Sprintf("%d clients x %g MB/s x %g", h.Clients, round3(dataRateMBps(h.Fabric, h.ClientGbps)), m.get(eff))
	}
	return per, Stage{Name: name, Formula: why, Uses: []string{n, eff}}
}

// destage names the coefficient of an array's small writes.
func (m model) destage() string { return m.h.RAID + ".destage_ms" }

// random is throughput with n clients that have one request each: a closed
// queueing network. A request waits z in protocol and network, and at the
// disks its service times behind those of the others:
//
//	X(n) = n / (z + visits x s + visits x s x (n-1)/disks)
//
// which is exact for one balanced set of servers and tends to
// disks/(visits x s). Source: Lazowska et al., Quantitative System
// Performance, 1984, chapters 5 and 6.
func (m model) random(n int) (float64, []Stage, string) {
	h := m.h
	N := float64(n)
	z := m.get("nfs.latency_ms")
	ops := float64(h.Servers*h.Cores) * m.get("nfs.ops_per_core")
	cpu := Stage{Name: "CPU and memory", Limit: ops, Uses: []string{"nfs.ops_per_core"},
		Formula: fmt.Sprintf("%d cores x %g/s", h.Servers*h.Cores, m.get("nfs.ops_per_core"))}
	net := float64(h.Servers*h.Links) * dataRateMBps(h.Fabric, h.LinkGbps) * m.get("net."+h.Fabric+"_efficiency") * 1e6 / 4096
	network := Stage{Name: "network", Limit: net, Uses: []string{"net." + h.Fabric + "_efficiency"}, Formula: fmt.Sprintf("%s, 4 KiB each", count(float64(h.Servers*h.Links), "link"))}

	disk := "disk." + h.DiskType + ".random_ms"
	s := m.get(disk)
	D := h.disks()
	var wait, service float64   // ms of one request beyond z, alone
	var perDisk, visits float64 // ms at a disk, disk I/Os of one request
	var st Stage
	st.Name = "disks"
	if m.p == RandomRead {
		memory := math.Min(1, m.get("mem.cache_share")*h.Memory*float64(h.Servers)/(N*h.FileBytes))
		hit := m.get("mem.reuse") * memory
		visits, perDisk = 1-hit, s
		st.Uses = []string{disk, "mem.reuse", "mem.cache_share"}
		st.Formula = fmt.Sprintf("%g disks / %g ms; %.0f %% of reads come from memory", D, s, 100*hit)
		if h.CacheSSDs > 0 {
			miss := 0.0
			if h.CacheCold {
				miss = 4 / m.get("cache.block_kib")
			}
			wait = m.get("cache.ssd_read_ms")
			visits *= miss
			st.Uses = append(st.Uses, "cache.ssd_read_ms", "cache.block_kib")
			st.Formula += fmt.Sprintf("; %.1f %% miss the SSD cache", 100*miss)
		}
		service = visits * perDisk
	} else {
		ios := fmt.Sprintf("raid%d.small_write_ios", h.Level)
		visits = m.get(ios)
		switch {
		case h.Async:
			visits, st.Formula = 0, "async: acknowledged from memory"
		case h.CacheSSDs > 0 && h.CacheMode == "write-back":
			visits, wait = 0, m.get("cache.sync_write_ms")
			st.Name, st.Uses = "cache", []string{"cache.sync_write_ms"}
			st.Formula = fmt.Sprintf("each write %g ms into two SSDs", wait)
		case h.RAID == "md":
			perDisk = s
			phases := 2.0 // read old data and parity, then write: each in parallel
			if h.Level == 10 {
				phases = 1
			}
			service = phases * perDisk
			st.Uses = []string{disk, ios}
			st.Formula = fmt.Sprintf("%g disks / (%g I/Os x %g ms)", D, visits, perDisk)
		default:
			// The array acknowledges from its cache as long as it can destage.
			perDisk, wait = m.get(m.destage()), m.get("array.write_ms")
			st.Uses = []string{m.destage(), ios, "array.write_ms"}
			st.Formula = fmt.Sprintf("%g disks / (%g I/Os x %g ms), behind the array's cache", D, visits, perDisk)
		}
	}
	st.Limit = math.Inf(1)
	if visits*perDisk > 0 {
		st.Limit = D * 1000 / (visits * perDisk)
	}
	queue := visits * perDisk * (N - 1) / D
	if m.p == RandomWrite && h.RAID != "md" {
		queue = 0 // asynchronous behind the cache: only the limit binds
	}
	latency := z + wait + service + queue
	v := N * 1000 / latency
	name := "disks"
	if wait > service+queue {
		name = st.Name
	}
	if z > wait+service+queue {
		name = "protocol"
	}
	proto := Stage{Name: "protocol", Limit: N * 1000 / latency, Uses: []string{"nfs.latency_ms"}, InSeries: true,
		Formula: fmt.Sprintf("%d clients with one request each, %.3g ms a request", n, latency)}
	for _, x := range []Stage{st, cpu, network} {
		if x.Limit < v {
			v, name = x.Limit, x.Name
		}
	}
	stages := []Stage{st, cpu, network, proto}
	for i := range stages {
		if math.IsInf(stages[i].Limit, 0) {
			// No limit of its own: what the requests in flight can ask for.
			stages[i].Limit = proto.Limit
		}
	}
	return v, stages, name
}

// metadata lists the stages of making, looking at and removing small files.
func (m model) metadata() []Stage {
	h := m.h
	if h.Protocol == "lustre" {
		n := map[Pattern]string{Create: "lustre.mds_create", Stat: "lustre.mds_stat", Remove: "lustre.mds_remove"}[m.p]
		return []Stage{{Name: "MDS", Limit: float64(h.MDS) * m.get(n), Uses: []string{n}, Formula: fmt.Sprintf("%d MDS x %g/s", h.MDS, m.get(n))}}
	}
	cores := float64(h.Servers * h.Cores)
	perCore := func(n string) Stage {
		return Stage{Name: "CPU and memory", Limit: cores * m.get(n), Uses: []string{n}, Formula: fmt.Sprintf("%g cores x %g/s", cores, m.get(n))}
	}
	switch m.p {
	case Stat:
		return []Stage{perCore("nfs.stat_per_core")}
	case Remove:
		return []Stage{perCore("nfs.remove_per_core")}
	}
	// Each server that serves has a file system, and so a log, of its own.
	log := Stage{Name: "file system log", Limit: float64(h.Servers) * m.get("nfs.create_journal"), Uses: []string{"nfs.create_journal"}, Formula: fmt.Sprintf("%g/s into one log", m.get("nfs.create_journal"))}
	if h.Servers > 1 {
		log.Formula = fmt.Sprintf("%d logs x %g/s", h.Servers, m.get("nfs.create_journal"))
	}
	return []Stage{
		log,
		perCore("nfs.ops_per_core"),
	}
}

// buys tells what one more of each part gains, most first.
func (m model) buys(peak float64) []Buy {
	type change struct {
		part string
		do   func(h *Hardware)
	}
	h := m.h
	list := []change{
		{fmt.Sprintf("RAID group (%d disks)", h.Data+h.Parity), func(h *Hardware) { h.Groups++ }},
		{"HBA in each server", func(h *Hardware) { h.HBAs++ }},
		{"network link of each server", func(h *Hardware) { h.Links++ }},
		{"processor of as many cores in each server", func(h *Hardware) { h.Cores += (h.Cores + 1) / 2 }},
		{"twice the memory in each server", func(h *Hardware) { h.Memory *= 2 }},
		{"client", func(h *Hardware) { h.Clients++ }},
		{"brick", func(h *Hardware) { h.Bricks++ }},
	}
	if h.RAID != "md" {
		list = append(list, change{"array or RAID controller, with the same disks", func(h *Hardware) { h.Arrays++ }})
		if h.RAID == "h810" { // a controller in the server: it brings its own PCIe slot
			list[len(list)-1].do = func(h *Hardware) { h.Arrays++; h.HBAs++ }
			list = append(list[:1], list[2:]...)
		}
	}
	if h.CacheSSDs > 0 {
		list = append(list, change{"cache SSD", func(h *Hardware) { h.CacheSSDs++ }})
	}
	if h.Protocol == "lustre" {
		list = append(list, change{"metadata server", func(h *Hardware) { h.MDS++ }})
	} else {
		// Another NFS brick is another file system: it doubles everything, and says nothing.
		list = slices.DeleteFunc(list, func(c change) bool { return c.part == "brick" })
	}
	var out []Buy
	for _, c := range list {
		x := *h
		c.do(&x)
		v := model{&x, m.c, m.p}.line().Peak
		out = append(out, Buy{c.part, v, v/peak - 1})
	}
	slices.SortStableFunc(out, func(a, b Buy) int { return cmp.Compare(b.Gain, a.Gain) })
	return out
}
