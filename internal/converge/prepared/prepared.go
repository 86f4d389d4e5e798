// Package prepared compares how servers are set up below a brick with what the spec wants, for
// plan and status alike: BIOS settings as far as a host tells them, slots of cards, versions of
// software and firmware that harm, swap, the system's mirror, the firewall. It changes nothing.
package prepared

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Kind of a finding.
type Kind string

// MirrorSpares is what a Finding calls them.
const MirrorSpares = "the number of hot spares of the system's mirror"

// Kinds of findings, which are codes of status (package observe).
const (
	Differs Kind = "host-differs" // the host has another value than the spec wants
	Untold  Kind = "host-untold"  // the host does not tell
	Bad     Kind = "version-bad"  // it is known to harm
)

// Finding is what is not as it should be on a host.
type Finding struct {
	Kind   Kind   `json:"kind"`
	What   string `json:"what"`
	Have   string `json:"have,omitempty"`
	Want   string `json:"want,omitempty"`
	Why    string `json:"why"`
	Source string `json:"source"`
	Mend   string `json:"mend,omitempty"`
	// ByApply: a plan has the actions that mend it.
	ByApply bool `json:"-"`
}

// String is the finding in words, for a plan. {spec} in Mend stands for the spec's file.
func (f Finding) String() string {
	said := map[Kind]string{Differs: "%[1]s is %[2]s, not %[3]s", Untold: "the host does not tell %[1]s, which is to be %[3]s", Bad: "%[1]s %[2]s is known to harm, below %[3]s"}[f.Kind]
	s := fmt.Sprintf(said, f.What, f.Have, f.Want) + ": " + f.Why + " [" + f.Source + "]"
	if f.Mend != "" {
		s += "; " + strings.ReplaceAll(f.Mend, " {spec}", "")
	}
	return s
}

// facts is what a server tells.
type facts struct {
	*gather.Host
	d      *design.Design
	server *spec.Server
	slots  map[string]linux.PCICard
}

// expectation is a fact of a host that the spec may want to be so.
type expectation struct {
	what string
	// hardware: of a virtual machine it says nothing.
	hardware bool
	want     func(*spec.Preparation) string // "": nothing is wanted
	have     func(facts) string             // "": the host does not tell
	why      string
	source   string
	mend     string
	byApply  bool
}

// expectations are compared word by word; numbers are the least.
var expectations = []expectation{
	{"logical processor (two threads on each core)", true, func(p *spec.Preparation) string { return string(p.LogicalProcessor) }, logicalProcessor,
		"off leaves a core to each thread of nfsd; on made random reads through a cache up to 48 % faster", "paper NSS7.4-HA; paper NFS+DFC, 2.4.3",
		"set Logical Processor in the BIOS", false},
	{"sub-NUMA clusters", true, func(p *spec.Preparation) string { return string(p.SubNUMA) }, subNUMA,
		"memory and cache near to a card are a node of their own", "paper NSS7.4-HA", "set Sub-NUMA Cluster (NPS) in the BIOS", false},
	{"the governor of the processors' clock", true, func(p *spec.Preparation) string { return p.PowerProfile }, governor,
		"a clock that sinks between two requests makes each of them late", "paper NSS7.4-HA (system profile Performance)",
		"set the system profile in the BIOS, or `cpupower frequency-set --governor`", false},
	{"flow control of the public interface", true, func(p *spec.Preparation) string { return string(p.FlowControl) }, flowControl,
		"switch and card must agree: RoCE needs pauses, and a pause that another port causes stops all clients", "ethtool(8), -A", "`ethtool -A INTERFACE rx on tx on` (or off), and the same at the switch's port", false},
	{"sunrpc.pool_mode", false, func(p *spec.Preparation) string { return p.PoolMode }, file("/sys/module/sunrpc/parameters/pool_mode"),
		"nfsd's threads stay on the NUMA node whose card has the request", "kernel: admin-guide/kernel-parameters", "`mortar apply {spec}` sets it, and it counts when the module is loaded again: at the next boot", true},
	{"swap, in MiB", false, func(p *spec.Preparation) string { return mib(int64(p.Swap) - resource.SwapHeader) }, swap,
		"xfs_repair of a large volume may need more than memory", "xfs_repair(8); paper NFS+DFC, 2.4.2", "`mortar apply {spec}`", true},
	{MirrorSpares, false, func(p *spec.Preparation) string { return number(p.MirrorSpares) }, mirrorSpares,
		"the mirror is whole again before a person comes", "paper NSS4-HA, 4.1 (two disks in RAID 1 with a hot spare)", "`mdadm --manage /dev/mdN --add DISK`; a mirror inside a RAID controller is shown by its own tool", false},
}

func file(name string) func(facts) string {
	return func(f facts) string { return strings.TrimSpace(f.Files[name]) }
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func mib(bytes int64) string { return number(int(max(bytes, 0) >> 20)) }

const (
	smtActive  = "/sys/devices/system/cpu/smt/active" // Source: kernel, ABI/testing/sysfs-devices-system-cpu
	kernelFile = "/proc/sys/kernel/osrelease"
	biosFile   = "/sys/class/dmi/id/bios_version"                     // Source: kernel, drivers/firmware/dmi-id.c
	bmcFile    = "/sys/devices/platform/ipmi_bmc.*/firmware_revision" // Source: kernel, ABI/testing/sysfs-devices-platform-ipmi
	builtFile  = "/proc/sys/kernel/version"                           // Debian has the package's version there
	virtual    = "/sys/bus/virtio/devices/*/device"
)

func logicalProcessor(f facts) string {
	return map[string]string{"0": "off", "1": "on"}[file(smtActive)(f)]
}

func subNUMA(f facts) string {
	sockets, nodes := map[string]bool{}, 0
	for p, text := range f.Files {
		switch {
		case strings.HasSuffix(p, "/physical_package_id"):
			sockets[text] = true
		case strings.HasSuffix(p, "/cpulist") && strings.TrimSpace(text) != "": // nodes of memory alone have no processor
			nodes++
		}
	}
	switch {
	case nodes == 0 || len(sockets) == 0:
		return ""
	case nodes > len(sockets):
		return "on"
	}
	return "off"
}

func governor(f facts) string {
	all := map[string]bool{}
	for p, text := range f.Files {
		if path.Base(p) == "scaling_governor" {
			all[strings.TrimSpace(text)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), " and ")
}

func flowControl(f facts) string {
	for _, l := range f.NetLinks {
		if l.Has(f.server.Public) {
			return l.Pause
		}
	}
	return ""
}

func swap(f facts) string {
	text, told := f.Files[linux.SwapsFile]
	if !told {
		return ""
	}
	var sum int64
	for _, n := range linux.ParseSwaps(text) {
		sum += n
	}
	return strconv.FormatInt(sum>>20, 10)
}

// mirrorSpares counts the spares of the RAID 1 outside of the brick, the most if there are several.
func mirrorSpares(f facts) string {
	own := map[string]bool{}
	for i := range f.d.Groups {
		own[md.Hex(f.d.Groups[i].UUID)] = true
	}
	if s := f.d.Cached(); s != nil {
		for _, u := range slices.Concat(s.Storage.Cache.DirtyUUIDs, s.Storage.Cache.CleanUUIDs) {
			own[md.Hex(u)] = true
		}
	}
	most := -1
	for p, level := range f.Files {
		dir, ok := strings.CutSuffix(p, "/level")
		if !ok || strings.TrimSpace(level) != "raid1" || own[md.Hex(f.Files[dir+"/uuid"])] {
			continue
		}
		n := 0
		for q, state := range f.Files {
			if strings.HasPrefix(q, dir+"/dev-") && path.Base(q) == "state" && slices.Contains(strings.Split(strings.TrimSpace(state), ","), "spare") && strings.TrimSpace(f.Files[path.Dir(q)+"/slot"]) == "none" {
				n++
			}
		}
		most = max(most, n)
	}
	if most < 0 {
		return ""
	}
	return strconv.Itoa(most)
}

// Request is what a server is asked for. Its agent answers by the one look that status has.
func Request(d *design.Design, server string) gather.Request {
	r := gather.Request{
		Files: append([]string{
			smtActive, "/sys/devices/system/node/node*/cpulist", "/sys/devices/system/cpu/cpu*/topology/physical_package_id",
			"/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "/sys/module/sunrpc/parameters/pool_mode", linux.SwapsFile,
			kernelFile, builtFile, biosFile, bmcFile, virtual,
			"/sys/class/scsi_host/host*/version_fw", "/sys/class/scsi_host/host*/board_name", "/sys/class/scsi_host/host*/proc_name",
			"/sys/module/mpt3sas/version", "/sys/module/megaraid_sas/version",
			"/sys/block/sd*/device/vendor", "/sys/block/sd*/device/model", "/sys/block/sd*/device/rev",
			"/sys/class/nvme/nvme*/model", "/sys/class/nvme/nvme*/firmware_rev",
		}, gather.MDFiles...),
		NICs: true,
	}
	if v := serverOf(d, server); len(v.PCI) > 0 {
		r.Files = append(r.Files, linux.PCIFiles...)
	}
	for _, x := range distro.All() {
		r.Run = append(r.Run, slices.Concat(x.Manager.Versions, x.Packages.Report))
	}
	switch f := Firewall(d, server); f.Kind {
	case "nftables":
		r.Run = append(r.Run, linux.NFTCommand, linux.RPCCommand)
	case "firewalld":
		r.Run = append(r.Run, f.RichCommand(), linux.RPCCommand)
	}
	return r
}

func serverOf(d *design.Design, name string) *spec.Server {
	for i := range d.Spec.Servers {
		if v := &d.Spec.Servers[i]; v.Name == name {
			return v
		}
	}
	return &spec.Server{}
}

// Judge compares a server's answer with the spec; without an answer to a Request there is nothing
// to compare.
func Judge(d *design.Design, server string, h *gather.Host) []Finding {
	if h.Files[kernelFile] == "" {
		return nil
	}
	f := facts{Host: h, d: d, server: serverOf(d, server), slots: linux.PCICards(h.Files)}
	isVM := slices.ContainsFunc(slices.Collect(maps.Keys(h.Files)), func(p string) bool { ok, _ := path.Match(virtual, p); return ok })
	var out []Finding
	if p := d.Spec.Preparation; p != nil {
		for _, e := range expectations {
			want := e.want(p)
			if want == "" || e.hardware && isVM {
				continue
			}
			x := Finding{Differs, e.what, e.have(f), want, e.why, e.source, e.mend, e.byApply}
			n, number := strconv.Atoi(x.Have)
			m, least := strconv.Atoi(want)
			switch {
			case x.Have == "":
				x.Kind, x.Mend = Untold, ""
			case x.Have == want || number == nil && least == nil && n >= m:
				continue
			case least == nil:
				x.Want += " or more"
			}
			out = append(out, x)
		}
	}
	if !isVM {
		out = append(out, f.cards()...)
	}
	versions := Versions(h)
	if p := d.Spec.Preparation; p != nil {
		out = append(out, wantedVersions(p.Versions, versions)...)
	}
	for _, v := range versions {
		for _, k := range knownBad {
			if k.has(v) {
				out = append(out, Finding{Bad, v.Name(), v.Version, k.fixed, k.harm, k.source, "install " + k.fixed + " or a later one", false})
			}
		}
	}
	return append(out, f.firewall(server)...)
}

// cards compares the cards that a server has with those of the spec.
func (f facts) cards() (out []Finding) {
	for _, want := range f.server.PCI {
		slot := fmt.Sprintf("slot %d", want.Slot)
		add := func(what, have, wanted, why, mend string) {
			out = append(out, Finding{Differs, slot + "'s " + what, have, wanted, why, "kernel: ABI/testing/sysfs-bus-pci; paper NSS4-HA, 3.2", mend, false})
		}
		card, ok := f.slots[strconv.Itoa(want.Slot)]
		switch {
		case !ok:
			out = append(out, Finding{Untold, slot + "'s card", "", want.Kind, "the firmware names no such slot, or nothing is in it", "kernel: ABI/testing/sysfs-bus-pci", "", false})
			continue
		case card.Kind != want.Kind:
			add("card", cmp.Or(card.Kind, "of another class"), want.Kind, "placement and forecast count with the card of the spec", "exchange the cards, or write what is there")
			continue
		}
		// A card of eight lanes has eight in a slot of sixteen.
		if lanes := min(want.Lanes, card.MaxLanes); card.Lanes > 0 && card.Lanes < lanes {
			add("width", fmt.Sprintf("x%d", card.Lanes), fmt.Sprintf("x%d", lanes), "the card gets a part of the lanes that it has and the slot is to give", "seat the card again; look whether the slot has all its lanes wired")
		}
		if gen := min(want.Generation, card.MaxGeneration); card.Generation > 0 && card.Generation < gen {
			add("speed", fmt.Sprintf("PCI Express %d", card.Generation), fmt.Sprintf("PCI Express %d", gen), "the link was trained slower than card and slot can", "seat the card again; look at the slot's speed in the BIOS")
		}
		if card.Node >= 0 && card.Node != want.Node {
			add("NUMA node", strconv.Itoa(card.Node), strconv.Itoa(want.Node), "interrupts and threads near to the card are looked for on the wrong processor", "move the card, or write the node that it has")
		}
	}
	return out
}

// wantedVersions compares the versions that the spec wants at least with those of a host.
func wantedVersions(want map[string]string, have []Version) (out []Finding) {
	names := map[string]bool{}
	for _, v := range have {
		names[v.Name()] = true
	}
	const source = "preparation.versions of the spec; paper NSS4-HA, table 8"
	for _, name := range slices.Sorted(maps.Keys(want)) {
		what, least := "the version of "+name, want[name]+" or later"
		if !names[name] {
			out = append(out, Finding{Untold, what, "", least, "it tells those of " + strings.Join(slices.Sorted(maps.Keys(names)), ", "), source, "", false})
		}
		for _, v := range have {
			if v.Name() == name && older(v.Version, want[name]) {
				out = append(out, Finding{Differs, what, v.Version, least, "the site has tried that version, or the vendor asks for it", source, "install " + least, false})
			}
		}
	}
	return out
}

// Version is that of a BIOS, a BMC, a kernel, a package, or a kind of disk (an array's LUNs have that of its
// firmware), HBA, network card or driver.
type Version struct {
	What, Model, Version string
}

// Name is what has the version.
func (v Version) Name() string { return strings.TrimSpace(v.What + " " + v.Model) }

// Versions are what a host runs, each once, in order. Disks and cards of a kind are one.
func Versions(h *gather.Host) []Version {
	text := func(p string) string { return strings.Join(strings.Fields(h.Files[p]), " ") }
	seen := map[Version]bool{}
	add := func(what, model, version string) {
		if version != "" {
			seen[Version{what, model, version}] = true
		}
	}
	kernel := text(kernelFile)
	if _, debian, ok := strings.Cut(text(builtFile), "Debian "); ok {
		kernel, _, _ = strings.Cut(debian, " ")
	}
	add("kernel", "", kernel)
	add("bios", "", text(biosFile))
	for p := range h.Files {
		dir := path.Dir(p)
		switch path.Base(p) {
		case "rev":
			add("disk", text(dir+"/vendor")+" "+text(dir+"/model"), text(p))
		case "firmware_revision":
			add("bmc", "", text(p))
		case "firmware_rev":
			add("disk", text(dir+"/model"), text(p))
		case "version_fw":
			add("hba", cmp.Or(text(dir+"/board_name"), text(dir+"/proc_name")), text(p))
		case "version":
			if rest, ok := strings.CutPrefix(p, "/sys/module/"); ok {
				add("driver", path.Dir(rest), text(p))
			}
		}
	}
	for _, l := range h.NetLinks {
		add("nic", l.Driver, l.Firmware)
	}
	for _, x := range distro.All() {
		for line := range strings.Lines(h.Run[strings.Join(slices.Concat(x.Manager.Versions, x.Packages.Report), " ")].Stdout) {
			if w := strings.Fields(line); len(w) == 2 {
				add(w[0], "", w[1])
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.Version, b.Version))
	})
}
