package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/axis"
)

// svg builds one drawing. Colours are CSS classes, so the same drawing works on
// light screens, dark screens and paper.
type svg struct {
	b    strings.Builder
	w, h float64
}

func (s *svg) add(format string, args ...any) { fmt.Fprintf(&s.b, format, args...) }

func (s *svg) line(class string, x1, y1, x2, y2 float64) {
	s.add(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, num(x1), num(y1), num(x2), num(y2))
}

func (s *svg) rect(class string, x, y, w, h float64, title string) {
	s.add(`<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, num(x), num(y), num(math.Max(w, 0)), num(h))
	if title == "" {
		s.add(`/>`)
		return
	}
	s.add(`><title>%s</title></rect>`, html.EscapeString(title))
}

func (s *svg) text(class string, x, y float64, t string) {
	s.add(`<text class="%s" x="%s" y="%s">%s</text>`, class, num(x), num(y), html.EscapeString(t))
}

func (s *svg) done(class, title string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">%s</svg>`,
		class, num(s.w), num(s.h), html.EscapeString(title), s.b.String())) //nolint:gosec // every text is escaped above
}

// drawings returns a drawing twice: for wide screens and paper, and for phones.
// CSS shows one of them.
func drawings(draw func(width float64) (*svg, string)) template.HTML {
	wide, title := draw(1040)
	narrow, _ := draw(360)
	return wide.done("wide", title) + narrow.done("narrow", title)
}

// mark is a numbered moment on the timeline.
type mark struct {
	N       int
	Seconds float64
	Kind    string
	Label   string
	Text    string
	Host    string
}

// marksOf picks the events that get a number on the timeline: the first of
// each kind after the fault, in order of time.
func marksOf(r *Run) []mark {
	labels := map[string]string{
		EventFault: "fault injected", EventDetected: "fault detected", EventFenced: "fenced", EventStarting: "service starting",
		EventStarted: "service started", EventStopped: "service stopped", EventFirstIO: "first write acknowledged", EventAllIO: "every writer goes on", EventFirstLock: "first lock granted", EventAllLocks: "every lock worker goes on", EventMembership: "new membership",
		EventHealed: "health restored", EventFenceFail: "fencing failed", EventStartFail: "start failed", EventMended: "mended", EventLink: "cluster link", EventMultipath: "path",
		EventRAID: "RAID", EventFS: "file system", EventConflict: "LUN refuses", EventMMP: "target in use elsewhere", EventBooted: "server boots",
	}
	// Every event of these kinds gets a mark with its text: a drill may have
	// several steps, and events of links, paths, arrays and file systems differ
	// only in their text.
	told := map[string]bool{EventFault: true, EventMended: true, EventLink: true, EventMultipath: true, EventRAID: true, EventFS: true}
	seen, count := map[string]bool{}, map[string]int{}
	var out []mark
	evs := append([]Event(nil), r.Events...)
	sort.SliceStable(evs, func(i, j int) bool { return evs[i].NS < evs[j].NS })
	for _, e := range evs {
		l, ok := labels[e.Kind]
		if !ok || (e.Kind != EventFault && e.Seconds < 0) {
			continue
		}
		if told[e.Kind] {
			if count[e.Kind]++; count[e.Kind] > maxMarks {
				continue
			}
			l += ": " + shorten(e.Text, 90)
		} else if seen[e.Kind] {
			continue
		}
		seen[e.Kind] = true
		out = append(out, mark{N: len(out) + 1, Seconds: e.Seconds, Kind: e.Kind, Label: l, Text: e.Text, Host: e.Host})
	}
	return out
}

// maxMarks bounds the marks of one kind.
const maxMarks = 6

// shorten cuts a text at a number of characters.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// bounds returns the ends of the timeline in seconds relative to the fault; ok is
// false if it has no bucket.
func bounds(t *Timeline) (from, to float64, ok bool) {
	n := 0
	for _, w := range t.Workers {
		n = max(n, len(w.Ops), len(w.Bytes))
	}
	if n == 0 || t.BucketMS <= 0 {
		return 0, 0, false
	}
	origin := t.FaultNS
	if origin == 0 {
		origin = t.StartNS
	}
	from = float64(t.StartNS-origin) / 1e9
	return from, from + float64(n*t.BucketMS)/1000, true
}

// rates sums buckets into columns and gives each column's rate per second.
func rates(vals []int64, bucketMS, perColumn int) []float64 {
	var out []float64
	for i := 0; i < len(vals); i += perColumn {
		end := min(i+perColumn, len(vals))
		var sum int64
		for _, v := range vals[i:end] {
			sum += v
		}
		out = append(out, float64(sum)*1000/float64((end-i)*bucketMS))
	}
	return out
}

// row is one strip of the timeline.
type row struct {
	label, unit string
	class       string
	values      []float64 // per column
	stalls      []Stall
	held        bool
}

func workerRows(t *Timeline, perColumn int) []row {
	var rows []row
	for i := range t.Workers {
		w := &t.Workers[i]
		r := row{label: workerLabel(w), stalls: w.Stalls, unit: "MiB/s", class: "c-v4"}
		switch w.Kind {
		case "lock-challenger", "lock-taker":
			continue // the checks show their result
		case "lock-prober":
			r.unit, r.class = "locks/s", "c-lock"
			r.values = rates(w.Ops, t.BucketMS, perColumn)
		case "lock-holder":
			r.class, r.held = "c-lock", true
		case "names":
			r.unit = "operations/s"
			r.values = rates(w.Ops, t.BucketMS, perColumn)
		default:
			if strings.HasPrefix(w.Version, "3") {
				r.class = "c-v3"
			}
			for _, v := range rates(w.Bytes, t.BucketMS, perColumn) {
				r.values = append(r.values, v/(1<<20))
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// workerLabel names a worker in words.
func workerLabel(w *Worker) string {
	proto := ""
	switch {
	case w.Version == "lustre":
		proto = "Lustre "
	case w.Version != "":
		proto = "NFSv" + w.Version + " "
	}
	switch w.Kind {
	case "names":
		return w.Client + " " + proto + "names"
	case "lock-prober":
		return w.Client + " " + proto + "locks"
	case "lock-holder":
		return w.Client + " " + proto + "lock held"
	case "lock-challenger":
		return w.Client + " " + proto + "lock tried"
	case "lock-taker":
		return w.Client + " " + proto + "lock taken"
	case "reader":
		return w.Client + " " + proto + "reader"
	}
	return w.Client + " " + proto + w.Mode
}

// timelineSVG draws a strip per worker over one time axis with the events as
// numbered marks and the stalls shaded.
func timelineSVG(r *Run) template.HTML {
	from, to, ok := bounds(&r.Timeline)
	if !ok {
		return ""
	}
	marks := marksOf(r)
	return drawings(func(width float64) (*svg, string) {
		s := &svg{w: width}
		phone := width < 600
		left, right := 190.0, 92.0
		rowH, labelH, gap := 30.0, 0.0, 8.0
		if phone {
			left, right, labelH, gap = 6, 6, 14, 6
		}
		plotW := width - left - right
		x := func(sec float64) float64 {
			return left + plotW*math.Min(math.Max((sec-from)/(to-from), 0), 1)
		}

		// Columns: at least half a second wide, so that the steady pace of a
		// rate-limited worker does not look like a comb, at most one per 1.5 px.
		n := 0
		for _, w := range r.Timeline.Workers {
			n = max(n, len(w.Ops), len(w.Bytes))
		}
		per := max(2, 500/r.Timeline.BucketMS, int(math.Ceil(float64(n)/(plotW/1.5))))
		rows := workerRows(&r.Timeline, per)

		// Put marks that would touch others into further lanes.
		lanes := []float64{}
		lane := make([]int, len(marks))
		for i, m := range marks {
			if m.Seconds > to {
				continue // after the end of the load
			}
			mx := x(m.Seconds)
			l := 0
			for l < len(lanes) && mx-lanes[l] < 19 {
				l++
			}
			if l == len(lanes) {
				lanes = append(lanes, 0)
			}
			lanes[l], lane[i] = mx, l
		}
		top := 12 + 19*float64(max(len(lanes), 1))
		axisY := top + float64(len(rows))*(rowH+labelH+gap)
		s.h = axisY + 36

		step := axis.Step(to-from, map[bool]int{true: 5, false: 12}[phone])
		for v := math.Ceil(from/step) * step; v <= to+1e-9; v += step {
			s.line("grid", x(v), top, x(v), axisY)
			s.text("tick mid", x(v), axisY+14, num(v))
		}
		s.text("tick mid", left+plotW/2, axisY+30, "seconds after the fault")

		y := top
		for _, w := range rows {
			y += labelH
			base := y + rowH
			if phone {
				s.text("rowlabel", left, y-3, w.label)
			} else {
				s.text("rowlabel end", left-8, y+rowH/2+4, w.label)
			}
			for _, st := range w.stalls {
				a := float64(st.StartNS-r.Timeline.FaultNS) / 1e9
				b := a + st.Seconds
				if b < from || a > to {
					continue
				}
				s.rect("stall", x(a), y, x(b)-x(a), rowH, fmt.Sprintf("%s: no operation completed for %s", w.label, Seconds(st.Seconds)))
			}
			// Each row has its own scale: on a common one, small writes would
			// vanish beside large ones.
			p := 0.0
			for _, v := range w.values {
				p = math.Max(p, v)
			}
			switch {
			case w.held:
				s.rect(w.class+" held", left, y+rowH/2-3, plotW, 6, w.label+": held")
			case p > 0:
				var d strings.Builder
				fmt.Fprintf(&d, "M%s %s", num(left), num(base))
				colW := float64(per*r.Timeline.BucketMS) / 1000
				for i, v := range w.values {
					x0, x1 := x(from+float64(i)*colW), x(from+float64(i+1)*colW)
					yy := num(base - rowH*v/p)
					fmt.Fprintf(&d, "L%s %sL%s %s", num(x0), yy, num(x1), yy)
				}
				fmt.Fprintf(&d, "L%s %sZ", num(x(from+float64(len(w.values))*colW)), num(base))
				s.add(`<path class="area %s" d="%s"/>`, w.class, d.String())
				label := num(round(p, 2)) + " " + w.unit
				if phone {
					s.text("tick end", width-right, y-3, "top "+label)
				} else {
					s.text("tick", left+plotW+6, y+9, label)
				}
			}
			for _, st := range w.stalls {
				a := float64(st.StartNS-r.Timeline.FaultNS) / 1e9
				if wpx := x(a+st.Seconds) - x(a); wpx > 42 {
					s.text("stalllabel mid", x(a)+wpx/2, y+rowH/2+4, Seconds(st.Seconds))
				}
			}
			s.line("axis", left, base, left+plotW, base)
			y = base + gap
		}

		for i, m := range marks {
			if m.Seconds > to {
				continue
			}
			mx, my := x(m.Seconds), 11+19*float64(lane[i])
			s.line("mark "+markClass(m.Kind), mx, my+8, mx, axisY)
			s.add(`<g><title>%s</title><circle class="dot %s" cx="%s" cy="%s" r="8.5"/>`,
				html.EscapeString(fmt.Sprintf("%s, %s", m.Label, Seconds(m.Seconds))), markClass(m.Kind), num(mx), num(my))
			s.text("dotlabel mid", mx, my+4, fmt.Sprint(m.N))
			s.add(`</g>`)
		}
		return s, "What each worker completed over time, with the stalls shaded and the cluster's events as numbered marks"
	})
}

func round(v float64, digits int) float64 {
	p := math.Pow(10, float64(digits))
	return math.Round(v*p) / p
}

func markClass(kind string) string {
	switch kind {
	case EventFault, EventFenceFail, EventStartFail:
		return "m-fault"
	case EventFirstIO, EventAllIO, EventFirstLock, EventAllLocks, EventHealed, EventMended:
		return "m-good"
	}
	return "m-cluster"
}

// phase is one segment of the phase bar.
type phase struct {
	Name, Class, Meaning string
	Seconds              *float64
	At                   *float64
}

func phasesOf(s *Summary) []phase {
	return []phase{
		{"Detection", "p-detect", "from the fault until the cluster noticed it", s.Phases.Detect, s.Marks.Detected},
		{"Fencing", "p-fence", "until the failed server was confirmed to be off", s.Phases.Fence, s.Marks.Fenced},
		{"Start", "p-start", "until the service had started on the other server", s.Phases.Start, s.Marks.Started},
		{"First I/O", "p-io", "from then until a client's write was acknowledged", s.Phases.FirstIO, s.Marks.FirstIO},
		{"First lock", "p-lock", "from the start until a client was granted a lock", s.Phases.FirstLock, s.Marks.FirstLock},
	}
}

// phaseSVG draws detection, fencing, start and first I/O as one bar; the
// first lock, which overlaps first I/O, as a second one.
func phaseSVG(sum *Summary) template.HTML {
	ps := phasesOf(sum)
	end := 0.0
	for _, p := range ps {
		if p.At != nil {
			end = math.Max(end, *p.At)
		}
	}
	for _, m := range []*float64{sum.Marks.AllIO, sum.Marks.AllLocks} {
		if m != nil {
			end = math.Max(end, *m)
		}
	}
	if end <= 0 || sum.Phases.Detect == nil {
		return ""
	}
	return drawings(func(width float64) (*svg, string) {
		s := &svg{w: width, h: 84}
		left, right := 8.0, 8.0
		x := func(v float64) float64 { return left + (width-left-right)*v/end }
		at := 0.0
		for _, p := range ps[:4] {
			if p.Seconds == nil {
				break
			}
			w := x(at+*p.Seconds) - x(at)
			s.rect("seg "+p.Class, x(at), 6, w, 30, p.Name+": "+Seconds(*p.Seconds))
			switch label := p.Name + " " + Seconds(*p.Seconds); {
			case w > float64(len(label))*7.2+8:
				s.text("seglabel mid "+p.Class, x(at)+w/2, 26, label)
			case w > float64(len(Seconds(*p.Seconds)))*7+6:
				s.text("seglabel mid "+p.Class, x(at)+w/2, 26, Seconds(*p.Seconds))
			}
			at += *p.Seconds
		}
		if l := ps[4]; l.Seconds != nil && l.At != nil {
			start := *l.At - *l.Seconds
			s.rect("seg "+l.Class, x(start), 40, math.Max(x(*l.At)-x(start), 2), 10, l.Name+": "+Seconds(*l.Seconds))
		}
		if a := sum.Marks.AllIO; a != nil {
			s.line("mark m-good", x(*a), 2, x(*a), 54)
		}
		step := axis.Step(end, map[bool]int{true: 5, false: 12}[width < 600])
		s.line("axis", left, 54, width-right, 54)
		for v := 0.0; v <= end+1e-9; v += step {
			s.line("axis", x(v), 54, x(v), 58)
			anchor := "mid"
			if v == 0 {
				anchor = ""
			} else if x(v) > width-20 {
				anchor = "end"
			}
			s.text("tick "+anchor, math.Max(x(v)-map[bool]float64{true: 3}[v == 0], 2), 70, num(round(v, 3))+" s")
		}
		return s, "Phases of the failover on one time axis"
	})
}

// latencyRow is one distribution of the latency table.
type latencyRow struct {
	Label, Pattern, Version, Kind string
	Latency                       *Latency
}

// latencies lists the distributions to show: of writers, readers and probers, and
// for buffered writers those of fsync, in which they wait.
func latencies(t *Timeline) []latencyRow {
	var out []latencyRow
	for i := range t.Workers {
		w := &t.Workers[i]
		if w.Kind == "lock-holder" || w.Kind == "lock-challenger" || w.Kind == "lock-taker" {
			continue
		}
		add := func(label string, l *Latency) {
			if l != nil && l.Count > 0 {
				out = append(out, latencyRow{label, w.Pattern, w.Version, w.Kind, l})
			}
		}
		if w.FsyncLatency != nil {
			add(workerLabel(w)+": write", w.Latency)
			add(workerLabel(w)+": fsync", w.FsyncLatency)
			continue
		}
		add(workerLabel(w), w.Latency)
	}
	return out
}

// latencySVG draws the percentiles of each worker on a logarithmic axis.
func latencySVG(t *Timeline) template.HTML {
	type item struct {
		label string
		class string
		l     *Latency
	}
	var items []item
	lo, hi := math.Inf(1), 0.0
	for _, it := range latencies(t) {
		if it.Latency.P50 <= 0 {
			continue // a logarithmic axis has no zero
		}
		c := "c-v4"
		if strings.HasPrefix(it.Version, "3") {
			c = "c-v3"
		}
		if strings.HasPrefix(it.Kind, "lock") {
			c = "c-lock"
		}
		items = append(items, item{it.Label, c, it.Latency})
		lo, hi = math.Min(lo, it.Latency.P50), math.Max(hi, it.Latency.Max)
	}
	if len(items) == 0 {
		return ""
	}
	scale := axis.Decades(lo, hi)
	return drawings(func(width float64) (*svg, string) {
		phone := width < 600
		left, labelH := 190.0, 0.0
		if phone {
			left, labelH = 14, 14
		}
		s := &svg{w: width}
		rowH := 24.0
		axisY := 6 + float64(len(items))*(rowH+labelH)
		s.h = axisY + 34
		x := func(ms float64) float64 { return left + (width-left-24)*scale.At(ms) }
		for _, v := range scale.Ticks {
			s.line("grid", x(v), 2, x(v), axisY)
			s.text("tick mid", x(v), axisY+14, axisMillis(v))
		}
		y := 6.0
		for _, it := range items {
			y += labelH
			c := y + rowH/2
			if phone {
				s.text("rowlabel", left, y-1, it.label)
			} else {
				s.text("rowlabel end", left-8, c+4, it.label)
			}
			s.line("range "+it.class, x(it.l.P50), c, x(it.l.P99), c)
			s.line("whisker "+it.class, x(it.l.P99), c, x(it.l.Max), c)
			s.add(`<circle class="pt %s" cx="%s" cy="%s" r="5"><title>p50 %s</title></circle>`, it.class, num(x(it.l.P50)), num(c), millis(it.l.P50))
			for _, p := range []struct {
				n string
				v float64
			}{{"p90", it.l.P90}, {"p99", it.l.P99}} {
				s.add(`<rect class="pt %s" x="%s" y="%s" width="4" height="14"><title>%s %s</title></rect>`, it.class, num(x(p.v)-2), num(c-7), p.n, millis(p.v))
			}
			s.add(`<path class="pt %s" d="M%s %sl5 5l-5 5l-5 -5z"><title>max %s</title></path>`, it.class, num(x(it.l.Max)), num(c-5), millis(it.l.Max))
			y += rowH
		}
		s.text("tick mid", left+(width-left-24)/2, axisY+29, "● p50   ▮ p90, p99   ◆ longest; logarithmic")
		return s, "Latency percentiles of each worker"
	})
}

func tickMillis(ms float64) string {
	switch {
	case ms >= 1000:
		return num(ms/1000) + " s"
	case ms >= 1:
		return num(ms) + " ms"
	}
	return num(ms*1000) + " µs"
}
