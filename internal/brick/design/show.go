package design

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// ShowOptions say how a design is shown.
type ShowOptions struct {
	// Paint wraps text in attributes of a terminal, by their code; never the only carrier of a
	// meaning. It may be nil.
	Paint   func(code, text string) string
	Explain bool // sources, RAID order, exact commands
	Width   int  // columns to wrap at; 0: 100
}

// Show writes a design for a human to read.
func Show(w io.Writer, d *Design, o ShowOptions) error {
	if o.Width == 0 {
		o.Width = 100
	}
	v := &view{d: d, o: o}
	v.head()
	v.layout()
	v.sizes()
	v.arrays()
	v.volumes()
	v.cache()
	v.lustre()
	v.services()
	v.cluster()
	v.clients()
	v.tuning()
	v.advice()
	v.translations()
	v.differs()
	v.warnings()
	_, err := io.WriteString(w, v.b.String())
	return err
}

type view struct {
	d *Design
	o ShowOptions
	b strings.Builder
}

func (v *view) printf(format string, args ...any) { fmt.Fprintf(&v.b, format, args...) }

const (
	bold   = "1"
	dim    = "2"
	yellow = "33"
)

// paint colours text on a terminal.
func (v *view) paint(code, s string) string {
	if v.o.Paint == nil || s == "" || code == "" {
		return s
	}
	return v.o.Paint(code, s)
}

func (v *view) heading(s, note string) {
	v.printf("\n%s", v.paint(bold, s))
	if note != "" {
		v.printf("  %s", v.paint(dim, note))
	}
	v.printf("\n")
}

// wrapped writes text from column indent on, wrapped at the width; the first
// line continues where the caller stopped.
func (v *view) wrapped(text string, indent int, code string) {
	width := max(30, v.o.Width-indent)
	line := ""
	first := true
	flush := func() {
		if !first {
			v.printf("%s", strings.Repeat(" ", indent))
		}
		v.printf("%s\n", v.paint(code, line))
		line, first = "", false
	}
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
}

func (v *view) head() {
	s := v.d.Spec
	what := map[spec.Flavour]string{
		spec.NFS:     "NFS from one server",
		spec.NFSHA:   "highly available NFS, active-passive",
		spec.NFSHAXL: "highly available NFS, two services, each server active for one",
		spec.Lustre:  "highly available Lustre",
	}[v.d.Flavour]
	v.printf("%s  %s (%s)\n", v.paint(bold, v.d.Name), what, v.d.Flavour)
	v.printf("%s, %s, %s, %s\n", plural(len(s.Servers), "server"), plural(len(s.Enclosures), "enclosure"), plural(len(v.d.Disks), "disk"), plural(len(s.Clients), "client"))
}

// shortName is a group's name without the brick's.
func (v *view) shortName(group string) string { return strings.TrimPrefix(group, v.d.Name+"-") }

// layout draws each enclosure, bay by bay, with the group of its disk.
func (v *view) layout() {
	v.heading("LAYOUT", "rN: RAID group, sp: hot spare, ·: empty bay")
	for _, e := range v.d.Spec.Enclosures {
		v.enclosure(e)
	}
	v.groups()
}

// rowOf is how many bays are drawn in a row: all of a small enclosure, the
// usual 12 of a 2 U one, 14 of a drawer of 84.
func rowOf(bays int) int {
	for _, n := range []int{14, 12, 10, 8} {
		if bays > 14 && bays%n == 0 {
			return n
		}
	}
	return min(bays, 12)
}

func (v *view) enclosure(e spec.Enclosure) {
	cells := make([]string, e.Bays)
	for i := range cells {
		cells[i] = "·"
	}
	var size spec.Bytes
	typ := ""
	for _, k := range v.d.Disks {
		if k.Enclosure != e.Name {
			continue
		}
		size, typ = k.Size, k.Type
		switch {
		case k.Spare:
			cells[k.Bay-1] = "sp"
		default:
			cells[k.Bay-1] = v.shortName(k.Group)
		}
	}
	title := "enclosure " + e.Name
	if e.Model != "" {
		title += ", " + e.Model
	}
	if len(v.d.Spec.Services) > 1 {
		title += ", service " + e.Service
	}
	if e.Module != "" {
		title += ", module " + e.Module
	}
	if len(v.d.Arrays) > 1 {
		title += ", array " + e.Array
	}
	v.printf("  %s  %s\n", title, v.paint(dim, fmt.Sprintf("%d bays, disks of %s %s", e.Bays, size, typ)))
	per := rowOf(e.Bays)
	wide := 4
	for _, c := range cells {
		wide = max(wide, len([]rune(c))+2)
	}
	bar := func(l, m, r string, n int) {
		v.printf("    %s%s%s\n", l, strings.Join(slices.Repeat([]string{strings.Repeat("─", wide)}, n), m), r)
	}
	bar("┌", "┬", "┐", per)
	for at := 0; at < len(cells); at += per {
		if at > 0 {
			bar("├", "┼", "┤", per)
		}
		v.printf("    │")
		for i := at; i < at+per; i++ {
			c := ""
			if i < len(cells) {
				c = cells[i]
			}
			pad := wide - len([]rune(c))
			v.printf("%s%s%s│", strings.Repeat(" ", pad/2), v.paint(cellColour(c), c), strings.Repeat(" ", pad-pad/2))
		}
		v.printf("\n")
	}
	bar("└", "┴", "┘", per)
}

// cellColour helps the eye follow a group; the cell says the same in words.
func cellColour(c string) string {
	switch {
	case c == "sp":
		return yellow
	case strings.HasPrefix(c, "r"):
		n := 0
		fmt.Sscanf(c[1:], "%d", &n)
		return []string{"36", "35", "32", "34", "96", "95", "92", "94"}[n%8]
	}
	return dim
}

// groups prints a line for each RAID group. Neighbours that are alike share a line,
// unless the user asked for every detail.
func (v *view) groups() {
	first, last := "", ""
	said := ""
	flush := func() {
		name := first
		if last != first {
			name += "-" + last
		}
		if first != "" {
			v.printf("  %-6s ", name)
			v.wrapped(said, 9, "")
		}
		first = ""
	}
	for _, g := range v.d.Groups {
		text := v.groupText(g)
		if text != said || v.o.Explain {
			flush()
		}
		if first == "" {
			first = v.shortName(g.Name)
		}
		last, said = v.shortName(g.Name), text
		if v.o.Explain {
			flush()
			v.members(g)
		}
	}
	flush()
}

func (v *view) groupText(g Group) string {
	count, order := map[string]int{}, []string(nil)
	for _, m := range g.Members {
		if count[m.Enclosure] == 0 {
			order = append(order, m.Enclosure)
		}
		count[m.Enclosure]++
	}
	sort.Strings(order)
	var spread []string
	for _, e := range order {
		spread = append(spread, fmt.Sprintf("%s:%d", e, count[e]))
	}
	safe := "survives the loss of any enclosure"
	if !SurvivesEnclosure(g) {
		safe = "does not survive the loss of an enclosure (see warnings)"
	}
	if len(order) == 1 {
		safe = "all in one enclosure"
	}
	if g.Array != "" {
		for _, a := range v.d.Arrays {
			if a.Name == g.Array && a.Family != "perc" && len(order) > 1 && SurvivesEnclosure(g) {
				safe = "keeps its data at the loss of any enclosure; that of the controllers, " + a.Enclosures[0] + ", stops the array"
			}
		}
		return fmt.Sprintf("RAID %d %d+%d, chunk %s, on %s; %s", g.Level, g.Data, g.Parity, g.Chunk, strings.Join(spread, " "), safe)
	}
	return fmt.Sprintf("RAID %d %d+%d, chunk %s, on %s, %s; %s", g.Level, g.Data, g.Parity, g.Chunk, strings.Join(spread, " "), plural(len(g.Spares), "spare"), safe)
}

// members names a group's disks, as enclosure/bay:serial.
func (v *view) members(g Group) {
	line := func(what string, disks []Disk) {
		var out []string
		for _, m := range disks {
			out = append(out, fmt.Sprintf("%s/%d:%s", m.Enclosure, m.Bay, m.Serial))
		}
		v.printf("         ")
		v.wrapped(what+" "+strings.Join(out, " "), 9, dim)
	}
	if g.Array == "" {
		v.printf("         %s\n", v.paint(dim, "/dev/md/"+g.Name+", UUID "+g.UUID))
	}
	line("members in RAID order:", g.Members)
	if len(g.Spares) > 0 {
		line("spares:", g.Spares)
	}
}

func (v *view) sizes() {
	c := v.d.Capacity
	v.heading("CAPACITY", "decimal as disks are sold, binary as df -h prints it")
	raw := c.Raw
	pct := func(b spec.Bytes) string { return fmt.Sprintf("%3.0f %%", 100*float64(b)/float64(raw)) }
	row := func(name string, b spec.Bytes, note string) {
		v.printf("  %-8s %12s  %12s  %s  %s\n", name, b.Decimal(), b.Binary(), pct(b), v.paint(dim, note))
	}
	if v.d.Lustre != nil {
		v.lustreSizes(func(name string, b spec.Bytes, note string) {
			if strings.TrimSpace(name) == "raw" {
				raw = b
			}
			row(name, b, note)
		})
		return
	}
	row("raw", c.Raw, "all disks")
	row("RAID", c.RAID, "without parity, mirrors and spares")
	if c.LUNs > 0 {
		row("LUNs", c.LUNs, fmt.Sprintf("what servers see, %d bytes: disks have a little more than they are sold with, arrays keep a little", c.LUNs))
		row("usable", c.Usable, "estimate: less LVM and XFS metadata; what df will call the size")
		return
	}
	row("usable", c.Usable, "estimate: less md, LVM and XFS metadata; what df will call the size")
}

func (v *view) volumes() {
	if v.d.Lustre != nil {
		return
	}
	v.heading("VOLUMES", "")
	for _, s := range v.d.Services() {
		vol := &s.Storage
		g := v.d.GroupsOf(s.Name)[0]
		full := spec.Bytes(g.Data) * g.Chunk
		switch {
		case vol.Device != "":
			v.printf("  %s: %s → xfs on %s\n", s.Name, vol.Device, s.MountPoint)
		case len(vol.LUNs) > 0:
			v.printf("  %s: %s → /dev/%s/%s → xfs on %s\n", s.Name, strings.Join(v.lunNames(s.Name), " "), vol.VG, vol.LV, s.MountPoint)
		default:
			v.printf("  %s: %s → /dev/%s/%s → xfs on %s\n", s.Name, strings.Join(v.shortNames(vol.Groups), " "), vol.VG, vol.LV, s.MountPoint)
		}
		line := func(name, text string) {
			v.printf("    %-10s ", name)
			v.wrapped(text, 15, "")
		}
		line("alignment", fmt.Sprintf("full RAID stripe %d x %s = %s; XFS su %s, sw %d: aligned writes of %s need no read for parity", g.Data, g.Chunk, full, s.SU, s.SW, spec.Bytes(s.SW)*s.SU))
		if vol.Stripes > 1 {
			line("LVM", fmt.Sprintf("striped over %d "+map[bool]string{true: "LUNs", false: "groups"}[len(vol.LUNs) > 0]+", %s each in turn", vol.Stripes, vol.StripeSize))
		}
		for i, names := range vol.Growths {
			line(fmt.Sprintf("growth %d", i+1), strings.Join(v.shortNames(names), " ")+" behind what was there; the file system is told so while it is mounted")
		}
		if vol.Device != "" {
			line("mount", strings.Join(s.MountOpts, ","))
			if v.o.Explain {
				line("made by", "mkfs.xfs "+strings.Join(s.MkfsArgs, " ")+" "+vol.Device)
			}
			continue
		}
		line("owner", "LVM system ID "+vol.SystemID+map[bool]string{true: " while nobody serves it: no host activates it by itself", false: ""}[v.d.Clustered()])
		line("mount", strings.Join(s.MountOpts, ","))
		if v.o.Explain {
			line("made by", "mkfs.xfs "+strings.Join(s.MkfsArgs, " ")+" /dev/"+vol.VG+"/"+vol.LV)
		}
	}
}

func (v *view) shortNames(groups []string) []string {
	out := make([]string, len(groups))
	for i, g := range groups {
		out[i] = v.shortName(g)
	}
	return out
}

func (v *view) services() {
	if v.d.Lustre != nil {
		return
	}
	v.heading("SERVICES", "")
	n := v.d.Spec.NFS
	for _, s := range v.d.Services() {
		at := "on " + s.Preferred
		if v.d.Clustered() {
			at = "floating, on " + s.Preferred + " if it is there"
		}
		v.printf("  %s: %s/%d %s; NFS %s, %d threads, lease %d s, grace %d s\n", s.Name, s.Address, s.Prefix, at, strings.Join(n.Versions, " "), n.Threads, n.Lease, n.Grace)
		for _, e := range s.Exports {
			v.printf("    %s → %s (%s)\n", e.Dir, e.Clients, strings.Join(e.Options, ","))
			if v.o.Explain {
				v.printf("      %s\n", v.paint(dim, "fsid "+e.FSID))
			}
		}
		if v.o.Explain {
			v.printf("    %s\n", v.paint(dim, "state of NFS recovery: "+s.StateDir+", scope "+s.Scope))
			if s.Namespace != "" {
				v.printf("    %s\n", v.paint(dim, "network namespace "+s.Namespace+": an nfsd and an address of its own, also beside the other service"))
			}
		}
	}
}

// cluster draws the pair, its rings and its fencing.
func (v *view) cluster() {
	if v.d.Lustre != nil {
		for i := range v.d.Pairs {
			p := &v.d.Pairs[i]
			v.pair(p, "CLUSTER OF "+strings.ToUpper(p.Name), "resources: "+v.placement(p))
		}
		return
	}
	if p := &v.d.Pairs[0]; p.HA != nil {
		chain := "one service: arrays → volume group → xfs → NFS state → nfsd → exports → service address"
		if len(v.d.Spec.Services) > 1 {
			chain = "one service: arrays → volume group → xfs → namespace → NFS state → nfsd → exports → service address"
		}
		v.pair(p, "CLUSTER", chain)
	}
}

// pair draws one cluster of two servers.
func (v *view) pair(p *Pair, title, resources string) {
	h := p.HA
	v.heading(title, fmt.Sprintf("Corosync %s: token %d ms, both rings encrypted; Pacemaker: failback %s", h.Cluster, h.TokenMS, h.Failback))
	a, b := h.Nodes[0], h.Nodes[1]
	wide := max(len(a.Name), len(a.Rings[0]), len(a.Rings[1])) + 2
	centre := func(s string) string {
		pad := wide - len(s)
		return strings.Repeat(" ", pad/2) + s + strings.Repeat(" ", pad-pad/2)
	}
	v.printf("            %s                        %s\n", v.paint(bold, centre(a.Name)), v.paint(bold, b.Name))
	v.printf("    ring 0  %s ──── private network ── %s\n", centre(a.Rings[0]), b.Rings[0])
	v.printf("    ring 1  %s ──── public network ─── %s\n", centre(a.Rings[1]), b.Rings[1])
	if len(v.d.Spec.Services) > 1 {
		resources = "two services" + strings.TrimPrefix(resources, "one service")
	}
	v.printf("    ")
	v.wrapped(resources, 6, "")
	v.printf("\n  %s  %s\n", v.paint(bold, "fencing"), v.paint(dim, "a level succeeds if all its devices do; the next is tried if it fails"))
	for _, l := range h.Fencing {
		name := ""
		if l.Level == 1 {
			name = l.Node
		}
		for i, f := range l.Devices {
			level := fmt.Sprintf("level %d", l.Level)
			if i > 0 {
				level = "  and  "
			}
			if i > 0 || l.Level > 1 {
				name = ""
			}
			v.printf("    %-10s %s  %-22s %s\n", name, level, f.ID, fenceText(f, l.Node))
		}
	}
	v.reservations(h)
}

// reservations are the second lock, behind fencing.
func (v *view) reservations(h *HA) {
	if len(h.Reservations) == 0 {
		return
	}
	v.printf("\n  %s  ", v.paint(bold, "reservations"))
	v.wrapped("SCSI-3, write exclusive for registrants: all paths of the server that serves a LUN are registered with its key, and nobody else's. A take-over takes the partner's away before it reads a block, "+
		"so a server that was fenced by a device that lies writes nothing when it wakes up", 4, dim)
	for _, n := range h.Nodes {
		v.printf("    %-10s key %s\n", n.Name, h.Reservations[n.Name])
	}
}

func fenceText(f FenceDevice, node string) string {
	s := ""
	if f.Agent == "fence_ipmilan" {
		s = "BMC " + f.Params["ip"] + ", off and on, runs on feed " + strings.Join(f.Feeds, " or ")
	} else {
		outlet := ""
		for m := range strings.SplitSeq(f.Params["pcmk_host_map"], ";") {
			if name, plug, _ := strings.Cut(m, ":"); name == node {
				outlet = plug
			}
		}
		s = "PDU " + f.Params["ip"] + " outlet " + outlet + ", on feed " + strings.Join(f.Feeds, " or ")
	}
	if _, delay, ok := strings.Cut(f.Params["pcmk_delay_base"], ":"); ok {
		s += "; waits " + delay
	}
	return s
}

func (v *view) clients() {
	if len(v.d.Mounts) == 0 {
		return
	}
	v.heading("CLIENT MOUNTS", "")
	// Clients with the same mount share a line.
	type key struct{ source, path, options string }
	var order []key
	by := map[key][]string{}
	for _, m := range v.d.Mounts {
		k := key{m.Source, m.Path, strings.Join(m.Options, ",")}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], m.Client)
	}
	last := ""
	for _, k := range order {
		if who := strings.Join(by[k], " "); who != last {
			v.printf("  ")
			v.wrapped(who+":", 2, "")
			last = who
		}
		v.printf("    %s on %s\n      ", k.source, k.path)
		v.wrapped(k.options, 6, dim)
	}
}

func (v *view) tuning() {
	v.heading("TUNING", map[bool]string{false: "each value with its reason; --explain adds where it is explained", true: "each value with its reason and where it is explained"}[v.o.Explain])
	roles := []struct{ role, title string }{{"array", "arrays"}, {"server", "servers"}, {"both", "servers and clients"}, {"client", "clients"}}
	mkfs := "mkfs.xfs"
	if v.d.Lustre != nil {
		mkfs = "mkfs.lustre"
	}
	names := map[string]string{
		"sysctl": "sysctl", "disk": "queue of each disk", "md": "md arrays", "lv": "queue of the logical volume", "module": "module parameters",
		"multipath": "multipath", "lvm": "LVM", "mkfs": mkfs, "mount": "mount of the volume", "nfsd": "NFS server",
		"cache": "cache of an MD3", "lnet": "LNET", "lustre": "lctl set_param -P, lfs setstripe",
		"export": "exports", "corosync": "Corosync", "systemd": "systemd", "pacemaker": "Pacemaker", "nfs": "NFS mounts",
	}
	for _, r := range roles {
		kind := ""
		first := true
		for _, s := range v.d.Settings {
			if s.Role != r.role {
				continue
			}
			if first {
				v.printf("  %s\n", v.paint(bold, r.title))
				first = false
			}
			if s.Kind != kind {
				v.printf("    %s\n", names[s.Kind])
				kind = s.Kind
			}
			text := s.Name
			if s.Value != "on" {
				text += " = " + s.Value
			}
			const column = 38
			if len([]rune(text)) > column {
				v.printf("      %s\n%*s", text, column+7, "")
			} else {
				v.printf("      %-*s ", column, text)
			}
			reason := s.Reason
			if v.o.Explain {
				reason += " [" + s.Source + "]"
			}
			v.wrapped(reason, column+7, dim)
		}
	}
}

// differs lists what profile stock has otherwise than tuned.
func (v *view) differs() {
	if v.d.Spec.Profile != spec.Stock {
		return
	}
	if !v.o.Explain {
		v.printf("\nProfile stock: %s from profile tuned (--explain lists them).\n", plural(len(v.d.Differs), "difference"))
		return
	}
	v.heading("PROFILE STOCK", "what differs from profile tuned")
	v.printf("  %-7s %-10s %-24s %-34s %s\n", "on", "kind", "name", "tuned", "stock")
	for _, x := range v.d.Differs {
		stock := x.Stock
		if stock == "" {
			stock = "not set"
		}
		v.printf("  %-7s %-10s %-24s %-34s %s\n", x.Role, x.Kind, x.Name, x.Tuned, stock)
	}
	v.printf("  ")
	v.wrapped("The service is a group of the standard agents (mdraid, LVM-activate, Filesystem, nfsserver, exportfs, IPaddr2, nfsnotify) with the "+
		"timeouts and intervals their metadata advise, instead of ocf:mortar:service; clients' TCP connections are not reset after a takeover.", 2, dim)
}

func (v *view) warnings() {
	if len(v.d.Warnings) == 0 {
		v.printf("\nNo warnings.\n")
		return
	}
	v.heading("WARNINGS", "")
	for _, w := range v.d.Warnings {
		v.printf("  %s ", v.paint(yellow, "!"))
		v.wrapped(fmt.Sprintf("%s:%d:%d: %s", v.d.Spec.File, w.Line, w.Col, w.Text), 4, "")
	}
}
