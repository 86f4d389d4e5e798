package design

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// nfsMountOptions is how a client mounts: hard, so that programs wait through
// a failover instead of losing data.
func nfsMountOptions(s *spec.Spec, m spec.Mount) []string {
	out := []string{"vers=" + m.Version, "proto=tcp"}
	rdma := m.RDMA(&s.NFS)
	if rdma {
		out = []string{"vers=" + m.Version, "proto=rdma", "port=" + strconv.Itoa(RDMAPort)}
	}
	if m.Version == "3" {
		out = append(out, "mountproto=tcp")
	}
	out = append(out, "hard", "timeo="+timeo, "retrans=2", "rsize=1048576", "wsize=1048576")
	if n := nconnect(s); n > 1 && !rdma { // the card itself does what several TCP connections spread over cores
		out = append(out, fmt.Sprintf("nconnect=%d", n))
	}
	for _, o := range m.Options { // the spec's own win over the same option of ours
		name, _, _ := strings.Cut(o, "=")
		out = slices.DeleteFunc(out, func(have string) bool { h, _, _ := strings.Cut(have, "="); return h == name })
		out = append(out, o)
	}
	return out
}

// RDMAPort is where nfsd listens for RDMA.
//
// Source: RFC 8267, section 6 (registered with IANA as nfsrdma).
const RDMAPort = 20049

// lockGrace is the longest grace period of lockd in s. 15, three repetitions
// of a lost notification, would give locks back sooner, but no drill has
// passed with it yet.
const lockGrace = 30

// timeo is in tenths of a second, as in nfs(5).
const timeo = "150"

// MostConnections is how many connections nfsd and lockd keep; they close the oldest of more.
//
// Source: svc_check_conn_limits in the kernel's net/sunrpc/svc_xprt.c. From Linux 6.14 on it
// counts only those that have sent no valid request.
const MostConnections = 65536

// nconnect is the number of TCP connections of a client: what its link needs, as far as nfsd
// keeps those of all clients.
func nconnect(s *spec.Spec) int {
	n := linkConnections(s)
	for n > 1 && connections(s, n) > MostConnections {
		n /= 2
	}
	return n
}

// connections are those of all clients to one nfsd: NFSv4 and NFSv3 have n each.
func connections(s *spec.Spec, n int) int { return 2 * n * s.Nodes() }

// sessionSlots is how many requests a client may have in flight: 128, or so many that those of
// all clients are 32 for each of 1,024 threads; 16 requests of 1 MiB still fill 10 Gb/s if each
// takes 13 ms.
func sessionSlots(s *spec.Spec) int {
	n := 128
	for n > 16 && n*s.Nodes() > 32*1024 {
		n /= 2
	}
	return n
}

// linkConnections is the number of TCP connections for a client's link: one fills a slow one, a
// fast one needs several cores' worth.
func linkConnections(s *spec.Spec) int {
	gbit := 10.0
	if m := s.Networks.Public.Mbits(); m > 0 {
		gbit = m / 1000
	}
	switch {
	case gbit >= 100:
		return 16
	case gbit >= 25:
		return 8
	case gbit >= 10:
		return 4
	}
	return 1
}

// memory is the memory of the smaller server, in bytes; 0 if the spec does not say.
func memory(s *spec.Spec) spec.Bytes {
	var m spec.Bytes
	for i, v := range s.Servers {
		if i == 0 || v.Memory < m {
			m = v.Memory
		}
	}
	return m
}

// stripeCache is md's stripe cache in entries per array. An entry takes 4 KiB
// of memory on each member.
func stripeCache(s *spec.Spec, groups int) int {
	r := s.Storage.RAID
	const most, least = 16384, 256 // md's own bounds: 17 to 32768, 256 by default
	m := memory(s)
	if m == 0 {
		return 4096
	}
	n := least
	for n < most && spec.Bytes(groups*r.Width()*n*2)*4*spec.KiB <= m/50 {
		n *= 2
	}
	return n
}

// queueChecks is how many checks of a LUN without any path multipathd makes before
// I/O to it fails, QueueSeconds how many seconds that takes: a check each 5 s
// (polling_interval). Source: paper NSS4-HA, 4.3.2.
const (
	queueChecks  = 30
	QueueSeconds = queueChecks * 5
)

//go:embed tuning.tmpl
var tuningText string

var tuningLists = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("tuning").Funcs(template.FuncMap{"join": strings.Join, "plural": spec.Plural, "begins": strings.HasPrefix, "cardGBs": cardGBs}).Parse(tuningText))
})

// tuning is what the lists of tuning.tmpl are executed on.
type tuning struct {
	*Design
	RAID  spec.RAID
	First *Service // of an NFS brick
	HA    *HA      // nil for one server
	Const map[string]any
	Times map[string]any // timesOf
}

func (d *Design) rows(list string) [][]string {
	t := tuning{Design: d, RAID: d.Spec.Storage.RAID, First: d.Services()[0], HA: d.Pairs[0].HA, Times: timesOf(d), Const: map[string]any{
		"RDMAPort": RDMAPort, "mountdPort": mountdPort, "statdPort": statdPort, "statdOut": statdOut, "lockdPort": lockdPort, "bmcAnswer": bmcAnswer, "bmcTimeout": bmcTimeout, "logSU": logSU, "mmpSeconds": mmpSeconds, "monitorSpacing": monitorSpacing,
		"crowded":         d.Spec.Nodes() > 64, // so many clients that their number decides on values
		"mostConnections": MostConnections, "linkConnections": linkConnections(d.Spec), "slots": sessionSlots(d.Spec),
		"queueChecks": queueChecks, "queueSeconds": QueueSeconds, "raceDelay": raceDelay, "rebuildMin": rebuildMin(d), "rebuildMax": rebuildMax(d), "tieDelay": tieDelay, "timeo": timeo,
	}}
	var b strings.Builder
	if err := tuningLists().ExecuteTemplate(&b, list, t); err != nil {
		panic("tuning.tmpl: " + err.Error()) // the examples execute every list
	}
	var out [][]string
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, strings.Split(line, " || "))
		}
	}
	return out
}

// settings are the tuning values of a list, each with its reason and where it is
// explained.
func (d *Design) settings(list string) []Setting {
	var out []Setting
	for _, f := range d.rows(list) {
		out = append(out, Setting{Role: f[0], Kind: f[1], Name: f[2], Value: f[3], Reason: f[4], Source: f[5]})
	}
	return out
}

func (t tuning) NVMe() bool             { return AllNVMe(t.Design) }
func (t tuning) MaxSectors() int        { return max(1024, int(t.RAID.Chunk/spec.KiB)) }
func (t tuning) FullStripe() spec.Bytes { return fullStripe(t.RAID) }
func (t tuning) StripeCache() int       { return stripeCache(t.Spec, len(t.Groups)) }
func (t tuning) LogSize() spec.Bytes    { return logSize(t.lvSize(t.First.Name, 0)) }
func (t tuning) FirstGroups() int       { return len(originalGroups(t.GroupsIn(&t.First.Storage))) }
func (t tuning) LockGrace() int         { return min(t.Spec.NFS.Grace, lockGrace) }
func (t tuning) Connections() int       { return nconnect(t.Spec) }

func (t tuning) Consensus() int      { return max(t.HA.TokenMS/2, 500) }
func (t tuning) StockConsensus() int { return t.HA.TokenMS * 6 / 5 }

// Version3 says whether NFSv3 is served.
func (t tuning) Version3() bool { return slices.Contains(t.Spec.NFS.Versions, "3") }

func (t tuning) PoolMode() string {
	if t.Spec.Preparation == nil {
		return ""
	}
	return t.Spec.Preparation.PoolMode
}

// AllNVMe says whether the servers see NVMe disks alone: what belongs to SCSI has no place there.
func AllNVMe(d *Design) bool {
	return len(d.Arrays) == 0 && !slices.ContainsFunc(d.Disks, func(k Disk) bool { return k.Type != "nvme" })
}

// ManyThreads: the servers have memory for more than one thread of parity.
func (t tuning) ManyThreads() bool { m := memory(t.Spec); return m == 0 || m >= 16*spec.GiB }

// StripeCost is the memory of all stripe caches.
func (t tuning) StripeCost() spec.Bytes {
	return spec.Bytes(len(t.Groups)*t.RAID.Width()*t.StripeCache()) * 4 * spec.KiB
}

// ReadAhead is two full stripes of so many groups, KiB.
func (t tuning) ReadAhead(groups int) int {
	return min(max(4096, int(2*fullStripe(t.RAID)/spec.KiB)*max(1, groups)), 32768)
}

func (t tuning) EveryExport(option string) bool {
	without := func(e Export) bool { return !slices.Contains(e.Options, option) }
	return !slices.ContainsFunc(t.Services(), func(s *Service) bool { return slices.ContainsFunc(s.Exports, without) })
}

// Then is what follows when the last path is gone.
func (t tuning) Then() string {
	switch {
	case t.Lustre != nil:
		return "the target moves"
	case t.Clustered():
		return "the service moves"
	}
	return "the fault is seen"
}

func (t tuning) HasFamily(family string) bool {
	return slices.ContainsFunc(t.Arrays, func(a Array) bool { return a.Family == family })
}

func (t tuning) FirstFamily(family string) bool {
	return len(t.Arrays) > 0 && t.Arrays[0].Family == family
}

func (t tuning) OneFamily() bool {
	return !slices.ContainsFunc(t.Arrays, func(a Array) bool { return a.Family != t.Arrays[0].Family })
}

// MD3Sets are the sets on MD3 arrays, one for each storage section.
func (t tuning) MD3Sets() []spec.Set {
	return slices.DeleteFunc(t.Sections(), func(set spec.Set) bool {
		arrays := t.Spec.ArraysOf(set.Name)
		if len(arrays) == 0 {
			return true
		}
		m, _ := spec.ModelOf(arrays[0].Model)
		return m.Family != "md3"
	})
}

type striped struct {
	Target
	Group Group
}

// Striped is one MDT or OST of each module.
func (t tuning) Striped() []striped {
	var out []striped
	for i := range t.Pairs {
		all := t.Pairs[i].Targets()
		if k := slices.IndexFunc(all, func(x Target) bool { return x.Kind != "mgs" }); k >= 0 {
			out = append(out, striped{all[k], t.groupNamed(all[k].Group)})
		}
	}
	return out
}

// Param is the value of a setting of Lustre, "" if the design has none.
func (t tuning) Param(name string) string {
	for _, p := range t.Lustre.Params {
		if n, value, _ := strings.Cut(p, "="); n == name {
			return value
		}
	}
	return ""
}

// monitorSpacing is the least time between two monitors of one server, seconds. Real
// servers would bear more. The servers of a rack that emulates 13 machines on two
// processors did not: with monitors of 20 targets each 10 s Pacemaker killed its own
// daemons, because they did not answer.
const monitorSpacing = 5

// MostServices is how many services the pair with the most has.
func (t tuning) MostServices() int {
	n := 0
	for i := range t.Pairs {
		n = max(n, len(t.Pairs[i].Services))
	}
	return n
}

func (t tuning) MonitorSeconds() int { return max(10, monitorSpacing*t.MostServices()) }
