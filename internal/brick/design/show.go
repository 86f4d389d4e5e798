package design

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"text/template"

	"github.com/mortarhpc/mortar/internal/base/lists"
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

//go:embed show.tmpl
var showText string

var showTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("show").Funcs(template.FuncMap{
		"join": strings.Join, "plural": spec.Plural, "quoted": quoted, "fence": fenceText, "centre": centre,
		"inc":      func(i int) int { return i + 1 },
		"times":    func(n int, b spec.Bytes) spec.Bytes { return spec.Bytes(n) * b },
		"millions": func(n int64) int64 { return n / 1_000_000 },
	}).Parse(showText))
})

// Show writes a design for a human to read.
func Show(w io.Writer, d *Design, o ShowOptions) error {
	if o.Width == 0 {
		o.Width = 100
	}
	return showTemplate().Execute(w, &view{d, o})
}

// view is what show.tmpl is executed on.
type view struct {
	*Design
	ShowOptions
}

// with is a part of a design, and the view of the whole.
type with struct {
	View *view
	Of   any
}

func (v *view) With(part any) with { return with{v, part} }

// Attributes of a terminal.
const (
	bold   = "1"
	dim    = "2"
	yellow = "33"
)

// paint colours text on a terminal.
func (v *view) paint(code, s string) string {
	if v.Paint == nil || s == "" || code == "" {
		return s
	}
	return v.Paint(code, s)
}

func (v *view) Bold(s string) string   { return v.paint(bold, s) }
func (v *view) Dim(s string) string    { return v.paint(dim, s) }
func (v *view) Yellow(s string) string { return v.paint(yellow, s) }

func (v *view) Heading(s, note string) string {
	if note != "" {
		note = "  " + v.Dim(note)
	}
	return "\n" + v.Bold(s) + note + "\n"
}

// Wrap is text from column indent on, wrapped at the width; the first line continues
// where the caller stopped.
func (v *view) Wrap(indent int, code, text string) string {
	width := max(30, v.Width-indent)
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, v.paint(code, line))
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, v.paint(code, line)), "\n"+strings.Repeat(" ", indent)) + "\n"
}

func (v *view) Line(name, text string) string {
	return fmt.Sprintf("    %-10s %s", name, v.Wrap(15, "", text))
}

// Size is a line of the capacity.
func (v *view) Size(name string, b, raw spec.Bytes, note string) string {
	return fmt.Sprintf("  %-8s %12s  %12s  %3.0f %%  %s\n", name, b.Decimal(), b.Binary(), 100*float64(b)/float64(raw), v.Dim(note))
}

func (v *view) Kind() string {
	return map[spec.Flavour]string{
		spec.NFS:     "NFS from one server",
		spec.NFSHA:   "highly available NFS, active-passive",
		spec.NFSHAXL: "highly available NFS, two services, each server active for one",
		spec.Lustre:  "highly available Lustre",
	}[v.Flavour]
}

// shortName is a group's name without the brick's.
func (v *view) shortName(group string) string { return strings.TrimPrefix(group, v.Name+"-") }

func (v *view) Short(groups []string) []string {
	out := make([]string, len(groups))
	for i, g := range groups {
		out[i] = v.shortName(g)
	}
	return out
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

// Enclosure draws an enclosure, bay by bay, with the group of each disk.
func (v *view) Enclosure(e spec.Enclosure) string {
	var b strings.Builder
	cells := make([]string, e.Bays)
	for i := range cells {
		cells[i] = "·"
	}
	var size spec.Bytes
	typ := ""
	for _, k := range v.Disks {
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
	if len(v.Spec.Services) > 1 {
		title += ", service " + e.Service
	}
	if e.Module != "" {
		title += ", module " + e.Module
	}
	if len(v.Arrays) > 1 {
		title += ", array " + e.Array
	}
	fmt.Fprintf(&b, "  %s  %s\n", title, v.paint(dim, fmt.Sprintf("%d bays, disks of %s %s", e.Bays, size, typ)))
	per := rowOf(e.Bays)
	wide := 4
	for _, c := range cells {
		wide = max(wide, len([]rune(c))+2)
	}
	bar := func(l, m, r string, n int) {
		fmt.Fprintf(&b, "    %s%s%s\n", l, strings.Join(slices.Repeat([]string{strings.Repeat("─", wide)}, n), m), r)
	}
	bar("┌", "┬", "┐", per)
	for at := 0; at < len(cells); at += per {
		if at > 0 {
			bar("├", "┼", "┤", per)
		}
		fmt.Fprintf(&b, "    │")
		for i := at; i < at+per; i++ {
			c := ""
			if i < len(cells) {
				c = cells[i]
			}
			pad := wide - len([]rune(c))
			fmt.Fprintf(&b, "%s%s%s│", strings.Repeat(" ", pad/2), v.paint(cellColour(c), c), strings.Repeat(" ", pad-pad/2))
		}
		fmt.Fprintf(&b, "\n")
	}
	bar("└", "┴", "┘", per)
	return b.String()
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

// GroupLines has a line for each RAID group. Neighbours that are alike share a line,
// unless the user asked for every detail.
func (v *view) GroupLines() string {
	var b strings.Builder
	first, last := "", ""
	said := ""
	flush := func() {
		name := first
		if last != first {
			name += "-" + last
		}
		if first != "" {
			fmt.Fprintf(&b, "  %-6s %s", name, v.Wrap(9, "", said))
		}
		first = ""
	}
	for _, g := range v.Groups {
		text := v.groupText(g)
		if text != said || v.Explain {
			flush()
		}
		if first == "" {
			first = v.shortName(g.Name)
		}
		last, said = v.shortName(g.Name), text
		if v.Explain {
			flush()
			b.WriteString(v.members(g))
		}
	}
	flush()
	return b.String()
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
	spread := lists.Map(order, func(e string) string { return fmt.Sprintf("%s:%d", e, count[e]) })
	safe := "survives the loss of any enclosure"
	if !SurvivesEnclosure(g) {
		safe = "does not survive the loss of an enclosure (see warnings)"
	}
	if len(order) == 1 {
		safe = "all in one enclosure"
	}
	if g.Array != "" {
		for _, a := range v.Arrays {
			if a.Name == g.Array && a.Family != "perc" && len(order) > 1 && SurvivesEnclosure(g) {
				safe = "keeps its data at the loss of any enclosure; that of the controllers, " + a.Enclosures[0] + ", stops the array"
			}
		}
		return fmt.Sprintf("RAID %d %d+%d, chunk %s, on %s; %s", g.Level, g.Data, g.Parity, g.Chunk, strings.Join(spread, " "), safe)
	}
	rest, load := RebuildHours(v.Design, &g)
	work := "rebuild"
	if g.Level == 6 {
		work += " or scrub"
	}
	return fmt.Sprintf("RAID %d %d+%d, chunk %s, on %s, %s; %s; %s in %s, under load in up to %s", g.Level, g.Data, g.Parity, g.Chunk, strings.Join(spread, " "), spec.Plural(len(g.Spares), "spare"), safe,
		work, hoursText(rest), hoursText(load))
}

// members names a group's disks, as enclosure/bay:serial.
func (v *view) members(g Group) string {
	var b strings.Builder
	line := func(what string, disks []Disk) {
		out := lists.Map(disks, func(m Disk) string { return fmt.Sprintf("%s/%d:%s", m.Enclosure, m.Bay, m.Serial) })
		b.WriteString("         " + v.Wrap(9, dim, what+" "+strings.Join(out, " ")))
	}
	if g.Array == "" {
		b.WriteString("         " + v.Dim("/dev/md/"+g.Name+", UUID "+g.UUID) + "\n")
	}
	line("members in RAID order:", g.Members)
	if len(g.Spares) > 0 {
		line("spares:", g.Spares)
	}
	return b.String()
}

// NotRun says what of a model stands on public text alone.
func (v *view) NotRun(a Array) []string {
	m, _ := spec.ModelOf(a.Model) // Parse has refused others
	return m.NotRun
}

func (v *view) Paths(a Array) int { return v.PathsTo(&a, a.Servers[0]) }

func (v *view) Pair(name string) *Pair {
	i := slices.IndexFunc(v.Pairs, func(p Pair) bool { return p.Name == name })
	return &v.Pairs[i]
}

// StandsOn names the LUNs or groups of a service; of more than four LUNs the first and
// the last.
func (v *view) StandsOn(s *Service) []string {
	if len(s.Storage.LUNs) == 0 {
		return v.Short(s.Storage.Groups)
	}
	out := lists.Map(v.lunsOf(s.Name), func(l LUN) string { return l.Name })
	if n := len(out); n > 4 {
		out = []string{out[0], "…", out[n-1]}
	}
	return out
}

// Inside says whether some SSDs are inside a server.
func (c *Cache) Inside() bool {
	return slices.ContainsFunc(c.SSDs, func(x Disk) bool { return x.Server != "" })
}

func (v *view) ClusterTitle(p Pair) string {
	if v.Lustre == nil {
		return "CLUSTER"
	}
	return "CLUSTER OF " + strings.ToUpper(p.Name)
}

// Resources says what of a pair moves as one; of Lustre which server has which targets
// as a rule.
func (v *view) Resources(p Pair) string {
	switch {
	case v.Lustre != nil:
		return "resources: " + v.placement(&p)
	case len(p.Services) > 1:
		return "two services: arrays → volume group → xfs → namespace → NFS state → nfsd → exports → service address"
	}
	return "one service: arrays → volume group → xfs → NFS state → nfsd → exports → service address"
}

// centre pads text with blanks on both sides, to the width of the longest label of a node.
func centre(n Node, s string) string {
	pad := max(len(n.Name), len(n.Rings[0]), len(n.Rings[1])) + 2 - len(s)
	return strings.Repeat(" ", pad/2) + s + strings.Repeat(" ", pad-pad/2)
}

func fenceText(f FenceDevice, node string) string {
	s := ""
	if f.BMC() {
		s = "BMC " + f.Params["ip"] + ", off and on, runs on feed " + strings.Join(f.Feeds, " or ")
	} else if f.Outlet(node) == "" {
		s = f.Agent + " " + f.Params["ip"] + ", on feed " + strings.Join(f.Feeds, " or ")
	} else {
		s = "PDU " + f.Params["ip"] + " outlet " + f.Outlet(node) + ", on feed " + strings.Join(f.Feeds, " or ")
	}
	if _, delay, ok := strings.Cut(f.Params["pcmk_delay_base"], ":"); ok {
		s += "; waits " + delay
	}
	return s
}

// sharedMount is a mount that several clients have.
type sharedMount struct {
	Source, Path, Options string
	names                 []string
}

func (m sharedMount) Clients() string { return strings.Join(spec.Ranges(m.names), " ") }

// SharedMounts are the mounts; clients with the same one share it.
func (v *view) SharedMounts() []sharedMount {
	var out []sharedMount
	for _, m := range v.Mounts {
		x := sharedMount{m.Source, m.Path, strings.Join(m.Options, ","), []string{m.Client}}
		i := slices.IndexFunc(out, func(o sharedMount) bool { return o.Source == x.Source && o.Path == x.Path && o.Options == x.Options })
		if i < 0 {
			out = append(out, x)
		} else {
			out[i].names = append(out[i].names, m.Client)
		}
	}
	return out
}

// role has the settings of servers, clients or both.
type role struct {
	Title    string
	Settings []Setting
}

func (v *view) Roles() []role {
	out := []role{{Title: "arrays"}, {Title: "servers"}, {Title: "servers and clients"}, {Title: "clients"}}
	for _, s := range v.Settings {
		i := slices.Index([]string{"array", "server", "both", "client"}, s.Role)
		out[i].Settings = append(out[i].Settings, s)
	}
	return out
}

func (v *view) KindTitle(kind string) string {
	if kind == "mkfs" && v.Lustre != nil {
		return "mkfs.lustre"
	}
	return kindTitles[kind]
}

var kindTitles = map[string]string{
	"sysctl": "sysctl", "disk": "queue of each disk", "md": "md arrays", "lv": "queue of the logical volume", "module": "module parameters",
	"multipath": "multipath", "lvm": "LVM", "mkfs": "mkfs.xfs", "mount": "mount of the volume", "nfsd": "NFS server",
	"cache": "cache of an MD3", "lnet": "LNET", "lustre": "lctl set_param -P, lfs setstripe",
	"export": "exports", "corosync": "Corosync", "systemd": "systemd", "pacemaker": "Pacemaker", "nfs": "NFS mounts", "nfs.conf": "nfs.conf", "statd": "rpc.statd's nsswitch.conf",
}

// SettingLines is a value with its reason.
func (v *view) SettingLines(s Setting) string {
	text := s.Name
	if s.Value != "on" {
		text += " = " + s.Value
	}
	const column = 38
	if len([]rune(text)) > column {
		text += "\n" + strings.Repeat(" ", column+7)
	} else {
		text = fmt.Sprintf("%-*s ", column, text)
	}
	reason := s.Reason
	if v.Explain {
		reason += " [" + s.Source + "]"
	}
	return "      " + text + v.Wrap(column+7, dim, reason)
}

func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if strings.Contains(a, " ") {
			a = "'" + a + "'"
		}
		out[i] = a
	}
	return strings.Join(out, " ")
}

// placement says which server has which resources as a rule.
func (v *view) placement(m *Pair) string {
	by := map[string][]string{}
	for _, t := range m.Targets() {
		by[t.Server] = append(by[t.Server], strings.TrimPrefix(t.Name, v.Lustre.FSName+"-"))
	}
	var out []string
	for _, s := range m.Servers {
		what := strings.Join(by[s], " ")
		if what == "" {
			what = "none, it waits"
		}
		out = append(out, what+" on "+s)
	}
	return strings.Join(out, "; ")
}

// AdviceLines are for hands: cards and cables. Servers with the same ones share a line.
func (v *view) AdviceLines() string {
	var b strings.Builder
	said := func(server string) string {
		var all []string
		for _, a := range v.Advice {
			if a.Server == server {
				text := a.Text
				if v.Explain {
					text += " [" + a.Source + "]"
				}
				all = append(all, text)
			}
		}
		return strings.Join(all, "\n")
	}
	var order []string
	who := map[string][]string{}
	for _, x := range v.Spec.Servers {
		t := said(x.Name)
		if len(who[t]) == 0 {
			order = append(order, t)
		}
		who[t] = append(who[t], x.Name)
	}
	for _, t := range order {
		if t == "" {
			continue
		}
		b.WriteString("  " + strings.Join(who[t], ", ") + "\n")
		for line := range strings.Lines(t) {
			b.WriteString("    " + v.Wrap(6, "", line))
		}
	}
	for line := range strings.Lines(said("")) {
		b.WriteString("  " + v.Wrap(4, "", line))
	}
	return b.String()
}
