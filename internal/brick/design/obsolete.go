package design

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// obsoleteMount says whether a mount option of XFS is gone from current
// kernels, and what took its place.
//
// Source: xfs(5); kernel: admin-guide/xfs, removed mount options.
func obsoleteMount(option string) (Translation, bool) {
	name, _, _ := strings.Cut(option, "=")
	const source = "kernel: admin-guide/xfs, Removed Mount Options"
	switch name {
	case "nobarrier", "barrier":
		return Translation{Old: option, Why: "removed in Linux 4.19: cache flushes are always sent, and cost nothing where the array's cache has a battery. Without them a power cut can cost the file system", Source: source}, true
	case "attr2", "noattr2":
		return Translation{Old: option, Why: "its format has been the only one since XFS v5 (2013); deprecated in Linux 5.10, removed in 6.18", Source: source}, true
	case "ikeep", "noikeep", "delaylog", "nodelaylog":
		return Translation{Old: option, Why: "there is only one way left", Source: source}, true
	}
	return Translation{}, false
}

var conf = regexp.MustCompile(`^([A-Za-z0-9]{1,8})(-(?:OST|MDT)[0-9a-fA-F]{4})?\.(osc|mdc|llite|lov|ost|mdt|mdd|lod|osp|sys)\.(.+)$`)

// modernParam turns a setting in the form of lctl conf_param
// (testfs.osc.max_dirty_mb=256) into that of lctl set_param -P.
// Source: lctl-conf_param(8), lctl-set_param(8).
func modernParam(p string) (now string, old bool) {
	m := conf.FindStringSubmatch(p)
	if m == nil || m[1] == m[3] {
		return p, false
	}
	if m[3] == "sys" {
		return m[4], true
	}
	return m[3] + "." + m[1] + m[2] + "-*." + m[4], true
}

// translate lists what of the source papers no longer exists. What the spec
// itself has is always listed, the rest where the brick is like theirs.
func (d builder) translate() {
	s := d.Spec
	for i, o := range s.Filesystem.Mount {
		if t, gone := obsoleteMount(o); gone {
			t.Line, t.Col = s.Pos(fmt.Sprintf("filesystem.mount[%d]", i))
			d.Translations = append(d.Translations, t)
		}
	}
	if s.Lustre != nil {
		for i, p := range s.Lustre.Params {
			if now, old := modernParam(p); old {
				line, col := s.Pos(fmt.Sprintf("lustre.params[%d]", i))
				d.Translations = append(d.Translations, Translation{Old: "lctl conf_param " + p, New: "lctl set_param -P " + now,
					Why: "conf_param is obsolete; set_param -P names a setting as lctl get_param prints it", Source: "lctl-conf_param(8)", Line: line, Col: col})
			}
		}
	}
	for _, f := range d.rows("past") {
		d.Translations = append(d.Translations, Translation{Old: f[0], New: f[1], Why: f[2], Source: f[3]})
	}
}

// obsoleteInSpec are the translations of what the spec itself has.
func (d builder) obsoleteInSpec() []Translation {
	var out []Translation
	for _, t := range d.Translations {
		if t.Line > 0 {
			out = append(out, t)
		}
	}
	return out
}

// warnHardware notes what only real hardware shows.
func (d builder) warnHardware(add func(at, rule, format string, args ...any)) {
	s := d.Spec
	for _, t := range d.obsoleteInSpec() {
		text := t.Old + " no longer exists and is left out: " + t.Why
		if t.New != "" {
			text = t.Old + " no longer exists; used instead: " + t.New
		}
		d.Warnings = append(d.Warnings, Warning{Rule: "obsolete", Text: text, Line: t.Line, Col: t.Col})
	}
	for i, a := range s.Arrays {
		if a.WWNs != nil && i < len(d.Arrays) && len(a.WWNs) != len(d.Arrays[i].LUNs) {
			add(fmt.Sprintf("arrays[%d].wwns", i), "wwns", "array %s has %s, but %d WWNs are listed", a.Name, plural(len(d.Arrays[i].LUNs), "LUN"), len(a.WWNs))
		}
	}
	for i, v := range s.Servers {
		d.warnCards(i, v, add)
	}
}

// warnCards compares where cards are with where they work best.
func (d builder) warnCards(i int, v spec.Server, add func(at, rule, format string, args ...any)) {
	widest := 0
	for _, k := range v.PCI {
		if k.Kind == "sas-hba" || k.Kind == "raid" {
			widest = max(widest, k.Lanes)
		}
	}
	storage := []spec.Card{}
	for j, k := range v.PCI {
		switch k.Kind {
		case "hca", "nic":
			if k.Lanes < widest {
				add(fmt.Sprintf("servers[%d].pci[%d]", i, j), "pcie", "server %s: the card to the clients is in slot %d with %d lanes, while a storage card has %d; exchange them: it carries what the storage cards share. NSS4-HA read 4.0 GB/s so, and 3.3 the other way round", v.Name, k.Slot, k.Lanes, widest)
			}
		case "sas-hba", "raid":
			storage = append(storage, k)
		}
	}
	if len(v.PCI) >= 2 && len(storage) > 0 && v.CPU != nil && v.CPU.Sockets >= 2 {
		same := true
		for _, k := range v.PCI {
			same = same && k.Node == v.PCI[0].Node
		}
		if same {
			add(fmt.Sprintf("servers[%d].pci", i), "numa", "server %s: all cards belong to NUMA node %d, so all their interrupts and memory traffic go through one processor of %d; put one into a slot of another", v.Name, v.PCI[0].Node, v.CPU.Sockets)
		}
	}
}

// advise says what a person does with their hands, where the spec tells of
// cards and arrays.
func (d builder) advise() {
	s := d.Spec
	add := func(server, source, format string, args ...any) {
		d.Advice = append(d.Advice, Advice{Server: server, Text: fmt.Sprintf(format, args...), Source: source})
	}
	const nss4, dfc = "seed NSS4-HA, 3.2", "seed NFS+DFC, 2.4.2"
	for _, v := range s.Servers {
		if len(v.PCI) == 0 {
			continue
		}
		var text []string
		for _, k := range v.PCI {
			text = append(text, fmt.Sprintf("%s in slot %d (x%d, PCIe %d, %.1f GB/s, node %d)", k.Kind, k.Slot, k.Lanes, k.Generation, laneGBs(k.Generation)*float64(k.Lanes), k.Node))
		}
		add(v.Name, nss4, "cards: %s", strings.Join(text, ", "))
		for _, k := range v.PCI {
			if k.Kind == "hca" || k.Kind == "nic" {
				threads := "nfsd's threads (one pool for each node: sunrpc.pool_mode=pernode)"
				if d.Lustre != nil {
					threads = "Lustre's threads (its CPU partitions follow the nodes)"
				}
				add(v.Name, dfc, "let interrupts of the client network (irqbalance does so) and %s stay on NUMA node %d, where the card of slot %d is", threads, k.Node, k.Slot)
				break
			}
		}
	}
	for i := range d.Arrays {
		a := &d.Arrays[i]
		for _, v := range a.Servers {
			if n := d.PathsTo(a, v); n > 1 {
				if n == 2 {
					add(v, nss4+", Table 4", "cable the HBA to both controllers of array %s: 2 paths to every LUN, so that a cable or a controller may fail; if the HBA does, the other server takes over", a.Name)
					continue
				}
				add(v, nss4+", Table 4", "cable each HBA to both controllers of array %s: %d paths to every LUN, so that an HBA, a cable or a controller may fail", a.Name, n)
			}
		}
		if n := len(a.Enclosures); n > 1 && a.Family == "md3" {
			add("", nss4+", Table 4", "array %s: cable the %d enclosures as a ring that begins at controller 0 with the first and at controller 1 with the last one, so that the loss of one cuts off no other", a.Name, n)
		}
	}
	if d.Flavour != spec.Lustre && len(d.Arrays) > 0 && s.Servers[0].Memory > 0 {
		lv := d.Capacity.LUNs
		add("", "xfs_repair(8); seed NFS+DFC, 2.4.2", "keep swap of about %s on local disks: xfs_repair of a file system this large may need more than memory", (lv / (2 * spec.TiB) * spec.GiB).Binary())
	}
}

// laneGBs is what a lane of PCI Express carries, in 10^9 bytes a second after
// encoding. Source: PCI Express Base Specification.
func laneGBs(generation int) float64 {
	return map[int]float64{1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}[generation]
}
