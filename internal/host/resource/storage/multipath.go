package storage

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Multipath is dm-multipath for the disks of a brick and for no others: each
// disk becomes one map, named by its WWID, with every path the kernel knows.
type Multipath struct {
	Brick    string
	Disks    []DiskRef
	Settings []resource.Setting // of the defaults section
	// Reservation is the key of this server's reservations; "" for none.
	Reservation string `json:",omitempty"`
}

func (m *Multipath) Identity() (kind, id string) { return "multipath", m.Brick }

const multipathConf = "/etc/multipath.conf"

// Diff compares the configuration, and whether each path is in its map.
func (m *Multipath) Diff(sys resource.Look) ([]resource.Action, error) {
	fs := resolve(sys, m.Disks)
	var wwids, devices, loose []string
	var luns []foundDisk
	for _, f := range fs {
		if !f.scsi() {
			continue
		}
		wwids = append(wwids, f.mapName())
		devices = append(devices, f.stable())
		if f.Ref.LUN != "" {
			luns = append(luns, f)
		}
		for _, p := range f.Paths {
			n := path.Base(p)
			if !inMap(sys, n, f.mapName()) {
				loose = append(loose, n)
			}
		}
		// The node multipathd or udev makes may lag behind the map.
		if !sys.Exists(f.stable()) && len(loose) == 0 {
			loose = append(loose, path.Base(f.stable()))
		}
	}
	if len(wwids) == 0 {
		return nil, nil
	}
	refuseSite(sys)
	sort.Strings(wwids)
	sort.Strings(devices)
	files := sys.Want(&resource.TextFile{Path: multipathConf, Content: []byte(m.text(wwids, luns))})
	running := sys.Runs("multipathd.service")
	pending := sys.Exists(resource.PendingPath("multipath"))
	var cmds []resource.Action
	// multipathd makes one map after the other: 84 took 175 s on a rack, 3 s more for each further.
	limit := 600 + 5*len(devices)
	settle := resource.Action{Title: "wait for the maps", Cmd: append([]string{"udevadm", "wait", fmt.Sprintf("--timeout=%d", limit)}, devices...), Seconds: limit + 30}
	switch {
	case !running:
		cmds = append(cmds, resource.Action{
			Title: "start multipathd now and at boot",
			Cmd:   []string{"systemctl", "enable", "--now", "multipathd.service"}, Seconds: 180,
		}, settle)
	case len(files) > 0 || pending:
		cmds = append(cmds, resource.Action{Title: "tell multipathd", Cmd: []string{"multipathd", "reconfigure"}, Seconds: 180}, settle)
	case len(loose) > 0:
		cmds = append(cmds, resource.Action{
			Title: "make the multipath maps", Why: fmt.Sprintf("not in a map: %s", strings.Join(loose, " ")),
			Cmd: []string{"multipath", "-v1"}, OKCodes: []int{1}, Seconds: 180,
		}, settle)
	}
	if len(files) == 0 && !pending {
		return cmds, nil
	}
	return resource.WithReload(sys, "multipath", files, cmds), nil
}

// refuseSite ends the comparison if multipathd works for others than the brick: a
// configuration of the site would be lost, or undo the brick's; and without its map a
// system disk is used by one path from the next boot on.
func refuseSite(sys resource.Look) {
	for _, f := range append(sys.Files("/etc/multipath/conf.d/*.conf"), multipathConf) {
		text, _ := sys.File(f)
		if !strings.HasPrefix(text, resource.Header) && slices.ContainsFunc(strings.Split(text, "\n"), func(l string) bool {
			l = strings.TrimSpace(l)
			return l != "" && l[0] != '#' && l[0] != '!' // comments of multipath.conf(5)
		}) {
			sys.Check(resource.Refuse("multipath-conf-foreign", resource.With{"path": f}))
		}
	}
	swaps, _ := sys.File("/proc/swaps")
	system := append(linux.ParseMounts(swaps), sys.Mounts()...)
	for _, m := range system {
		switch m.Target {
		case "/", "/boot", "/boot/efi", "/usr", "/var":
		case "partition":
			m.Target = "swap"
		default:
			continue
		}
		if name := mapBelow(sys, sys.Kernel(m.Source)); name != "" {
			sys.Check(resource.Refuse("multipath-system-disk", resource.With{"target": m.Target, "map": name}))
		}
	}
}

// mapBelow is the name of a multipath map that a block device is, or lies on; or "".
func mapBelow(sys resource.Look, dev string) string {
	if dev == "" {
		return ""
	}
	at := "/sys/class/block/" + dev
	if strings.HasPrefix(sys.Text(at+"/dm/uuid"), "mpath-") {
		return sys.Text(at + "/dm/name")
	}
	for _, s := range sys.Files(at + "/slaves/*") {
		if name := mapBelow(sys, path.Base(s)); name != "" {
			return name
		}
	}
	return ""
}

// inMap tells whether a path device belongs to the multipath map.
func inMap(sys resource.Look, dev, name string) bool {
	return slices.ContainsFunc(sys.Files("/sys/block/"+dev+"/holders/dm-*/dm/uuid"), func(h string) bool { return sys.Text(h) == "mpath-"+name })
}

// fixed are settings of disks that are no matter of tuning; the design's win.
var fixed = []resource.Setting{
	{Name: "user_friendly_names", Value: "no", Reason: "a map is named by its WWID: the same on both servers, whatever the order in which disks are found"},
	{Name: "find_multipaths", Value: "greedy", Reason: "only disks of the brick are let through below, so every one of them becomes a map, even with one path left"},
	{Name: "path_grouping_policy", Value: "multibus", Reason: "both paths lead to the same dual-ported disk and are equal"},
	{Name: "path_checker", Value: "tur", Reason: "the standard's own question for readiness"},
	{Name: "failback", Value: "immediate", Reason: "a path that is back is used again"},
	{Name: "polling_interval", Value: "5", Reason: "seconds between checks of a path"},
	{Name: "skip_kpartx", Value: "yes", Reason: "members of md arrays have no partitions"},
	{Name: "recheck_wwid", Value: "yes", Reason: "a path that is back is used only if it still leads to the same disk: multipath asks again, since 0.8.6"},
}

// fixedLUNs are those of LUNs: multipath's own table has the checker, priority
// and hardware handler of each make of array.
// Source: multipath -t; multipath.conf(5), overrides section
var fixedLUNs = []resource.Setting{
	{Name: "user_friendly_names", Value: "no", Reason: "a map is named by its LUN in the design: the same on both servers"},
	{Name: "find_multipaths", Value: "greedy", Reason: "only LUNs of the brick are let through below, so every one of them becomes a map, even with one path left"},
	{Name: "polling_interval", Value: "5", Reason: "seconds between checks of a path"},
	{Name: "skip_kpartx", Value: "yes", Reason: "LUNs of the brick have no partitions"},
	{Name: "recheck_wwid", Value: "yes", Reason: "a path that is back is used only if it still leads to the same LUN: multipath asks again, since 0.8.6"},
}

func (m *Multipath) text(wwids []string, luns []foundDisk) string {
	var b strings.Builder
	b.WriteString(resource.Header)
	if len(luns) == 0 {
		confSection(&b, "defaults", merged(m.Settings, append(slices.Clone(fixed), m.reservation()...)))
	} else {
		confSection(&b, "defaults", slices.Concat(fixedLUNs, m.reservation()))
		b.WriteString("# These win over multipath's own table of arrays.\n")
		confSection(&b, "overrides", merged(m.Settings, nil))
	}
	b.WriteString(`# Nothing but the brick's own disks is touched.
blacklist {
	wwid ".*"
}
blacklist_exceptions {
`)
	for _, w := range wwids {
		b.WriteString("\twwid \"" + w + "\"\n")
	}
	b.WriteString("}\n")
	if len(luns) > 0 {
		b.WriteString("multipaths {\n")
		for _, l := range luns {
			fmt.Fprintf(&b, "\tmultipath {\n\t\twwid %q\n\t\talias %s\n\t}\n", l.mapName(), l.Ref.LUN)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// reservation has multipathd register a path that comes back, if this server is
// registered by its other paths. It stands in defaults: multipath of Debian 12
// takes none from the section multipaths.
//
// Source: multipath-tools, issue 92
func (m *Multipath) reservation() []resource.Setting {
	if m.Reservation == "" {
		return nil
	}
	return []resource.Setting{{Name: "reservation_key", Value: m.Reservation, Reason: "a path that comes back to what this server has reserved is registered before it is used: it could not write otherwise"}}
}

// merged are settings and those of others that they do not have, by name.
func merged(settings, others []resource.Setting) []resource.Setting {
	out := slices.Clone(settings)
	for _, f := range others {
		if !slices.ContainsFunc(out, func(s resource.Setting) bool { return s.Name == f.Name }) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b resource.Setting) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// confSection writes a section of multipath.conf(5), each value with its reason.
func confSection(b *strings.Builder, name string, settings []resource.Setting) {
	b.WriteString(name + " {\n")
	for _, s := range settings {
		if s.Reason != "" {
			for line := range strings.Lines(resource.Comment(s.Reason)) {
				b.WriteString("\t" + line)
			}
		}
		v := s.Value
		if strings.ContainsAny(v, " \t") {
			v = `"` + v + `"`
		}
		b.WriteString("\t" + s.Name + " " + v + "\n")
	}
	b.WriteString("}\n")
}
