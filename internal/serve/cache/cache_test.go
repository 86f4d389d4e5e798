package cache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

func config(mode string, serials ...string) *Config {
	c := &Config{Service: "home", VG: "b_home", LV: "data", Mode: mode, Bypass: 1 << 20, MirrorBytes: 256 << 20}
	for i := range Generations {
		c.DirtyUUIDs = append(c.DirtyUUIDs, fmt.Sprintf("d%07d:00000000:00000000:00000000", i))
		c.CleanUUIDs = append(c.CleanUUIDs, fmt.Sprintf("c%07d:00000000:00000000:00000000", i))
	}
	for _, s := range serials {
		serial, server, _ := strings.Cut(s, "@")
		c.SSDs = append(c.SSDs, SSD{Serial: serial, Server: server})
	}
	return c
}

func TestConfigCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  *Config
		want string // "" for sound
	}{
		{"write-back", config(WriteBack, "A", "B"), ""},
		{"write-through on one", config(WriteThrough, "A"), ""},
		{"inside a server", config(WriteThrough, "A@nfs1", "B@nfs2"), ""},
		{"write-back on one", config(WriteBack, "A"), "at least 2"},
		{"write-back inside a server", config(WriteBack, "A@nfs1", "B"), "inside one server"},
		{"twice", config(WriteBack, "A", "A"), "listed twice"},
		{"mode", config("writeback", "A", "B"), "mode"},
		{"five", config(WriteThrough, "A", "B", "C", "D", "E"), "1 to 4"},
	} {
		err := c.cfg.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestLabel(t *testing.T) {
	a := &Label{Sequence: 6, SSDs: []string{"A", "B"}, Split: true, Dirty: &Layer{Array: "u", Set: "s", Members: []string{"A", "B"}}}
	b := &Label{Sequence: 7, SSDs: []string{"A", "B"}, Split: true, Dirty: &Layer{Array: "u", Set: "s", Members: []string{"B"}}}
	ea, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	eb, err := b.encode()
	if err != nil {
		t.Fatal(err)
	}
	blank := make([]byte, labelSize)
	torn := slices.Clone(eb)
	torn[40] ^= 1
	for _, c := range []struct {
		name string
		a, b []byte
		want int64 // sequence; 0: none; -1: an error
	}{
		{"both", ea, eb, 7}, {"other way round", eb, ea, 7}, {"first only", ea, blank, 6}, {"none", blank, blank, 0},
		{"the newer one torn: the older one holds", ea, torn, 6},
		{"the only one torn: what the SSDs hold is not known", blank, torn, -1},
	} {
		l, err := newest(c.a, c.b)
		switch {
		case c.want == 0 && !errors.Is(err, errNoLabel), c.want == -1 && (err == nil || errors.Is(err, errNoLabel)):
			t.Errorf("%s: %v, %v", c.name, l, err)
		case c.want > 0 && (err != nil || l.Sequence != c.want):
			t.Errorf("%s: %v, %v", c.name, l, err)
		}
	}
	big := &Label{SSDs: slices.Repeat([]string{strings.Repeat("x", 100)}, 50)}
	if _, err := big.encode(); err == nil {
		t.Error("a label that does not fit its block was written")
	}
}

func FuzzLabel(f *testing.F) {
	b, _ := (&Label{Sequence: 1, SSDs: []string{"A"}}).encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = newest(b, b) })
}

func TestSuperblock(t *testing.T) {
	b := make([]byte, 4096)
	if _, err := parseSuperblock(b); err == nil {
		t.Error("zeros are a superblock")
	}
	copy(b[24:], bcacheMagic)
	b[104+7] = stateDirty << 5 // bits 61 and 62 of a little-endian word
	sb, err := parseSuperblock(b)
	if err != nil || sb.State != stateDirty {
		t.Errorf("%+v, %v", sb, err)
	}
}

func TestRate(t *testing.T) {
	if got := rate("4.0k/sec"); got != 4096 {
		t.Errorf("rate %d", got)
	}
}

func TestBucket(t *testing.T) {
	for bytes, want := range map[int64]string{255 << 20: "64k", 8 << 30: "512k", 400 << 30: "512k", 64 << 20: "32k"} {
		if got := bucket(bytes); got != want {
			t.Errorf("%d bytes: %s, want %s", bytes, got, want)
		}
	}
}

// needs returns the steps for each change, or refuses.
func TestNeeds(t *testing.T) {
	label := func(split bool, ssds ...string) *Label {
		l := &Label{Sequence: 3, SSDs: ssds, Split: split, Clean: map[string]*Layer{"": {Array: "c", Set: "cs", Members: ssds}}}
		if split {
			l.Dirty = &Layer{Array: "d", Set: "ds", Members: slices.Clone(ssds)}
		}
		return l
	}
	up := func(l *Label, there ...string) observed {
		v := observed{Label: l, Up: true, There: there, CleanUp: true}
		if l.Dirty != nil {
			v.DirtyUp, v.TakesWrites, v.DirtySync, v.DirtyDisks = true, true, l.Dirty.Members, len(l.Dirty.Members)
		}
		return v
	}
	with := func(v observed, f func(*observed)) observed { f(&v); return v }
	for _, c := range []struct {
		name string
		cfg  *Config
		v    observed
		want string // of need.String(); "!" and text for a refusal
	}{
		{"new", config(WriteBack, "A", "B"), observed{There: []string{"A", "B"}}, "make both layers of bcache over the volume; partition SSD A, B; make the mirror for dirty data; make the array for clean data"},
		{"new, write-through", config(WriteThrough, "A"), observed{There: []string{"A"}}, "make both layers of bcache over the volume; partition SSD A; make the array for clean data"},
		{"down", config(WriteBack, "A", "B"), observed{Label: label(true, "A", "B"), There: []string{"A", "B"}}, "start both layers of bcache over the volume"},
		{"as it should be", config(WriteBack, "A", "B"), up(label(true, "A", "B"), "A", "B"), ""},
		{"an SSD is away", config(WriteBack, "A", "B"), up(label(true, "A", "B"), "A"), "[ssd-absent] [B] <nil>"},
		{"it is back", config(WriteBack, "A", "B"), with(up(label(true, "A", "B"), "A", "B"), func(v *observed) { v.DirtySync, v.CleanUp = []string{"A"}, false }),
			"throw away what is cached of reads; add SSD B to the mirror; make the array for clean data"},
		{"to write-through", config(WriteThrough, "A", "B"), up(label(true, "A", "B"), "A", "B"), "write all dirty data to the disks, while the service goes on"},
		{"and back: the partitions are still there", config(WriteBack, "A", "B"),
			with(up(label(true, "A", "B"), "A", "B"), func(v *observed) { v.Label.Dirty = nil; v.DirtyUp = false }), "make the mirror for dirty data"},
		{"to write-back from one layer", config(WriteBack, "A", "B"), up(label(false, "A", "B"), "A", "B"),
			"throw away what is cached of reads; partition SSD A, B; make the mirror for dirty data; make the array for clean data"},
		{"a third one", config(WriteBack, "A", "B", "C"), up(label(true, "A", "B"), "A", "B", "C"),
			"write all dirty data to the disks, while the service goes on; throw away what is cached of reads; partition SSD A, B, C; make the mirror for dirty data; make the array for clean data"},
		{"another one instead", config(WriteBack, "A", "C"), up(label(true, "A", "B"), "A", "B", "C"),
			"throw away what is cached of reads; partition SSD C; add SSD C to the mirror; take SSD B out of the mirror; make the array for clean data"},
		{"the last copy is to go", config(WriteBack, "A", "C"), with(up(label(true, "A", "B"), "A", "B", "C"), func(v *observed) {
			v.Label.Dirty.Members, v.DirtySync, v.DirtyBytes = []string{"B"}, []string{"B"}, 4096
		}), "[only-copy] [B] 4096"},
		{"SSDs inside servers: the other one's is none of ours", config(WriteThrough, "A@nfs1", "B@nfs2"),
			with(up(&Label{SSDs: []string{"A", "B"}, Clean: map[string]*Layer{"nfs1": {Members: []string{"A"}}}}, "A"), func(*observed) {}), ""},
		{"shared SSDs become such inside servers", config(WriteThrough, "A@nfs1", "B@nfs2"), up(label(false, "A", "B"), "A"),
			"throw away what is cached of reads; make the array for clean data"},
		{"and shared again", config(WriteThrough, "A", "B"),
			up(&Label{SSDs: []string{"A", "B"}, Clean: map[string]*Layer{"nfs1": {Members: []string{"A"}}, "nfs2": {Members: []string{"B"}}}}, "A", "B"),
			"throw away what is cached of reads; make the array for clean data"},
	} {
		place := ""
		if c.cfg.SSDs[0].Server != "" {
			place = "nfs1"
		}
		n, err := needs(c.cfg, "nfs1", place, c.v)
		got := n.String()
		if err != nil {
			got = "!" + err.Error()
		}
		if r := (*refusal.Refusal)(nil); errors.As(err, &r) {
			got = fmt.Sprintf("[%s] %v %v", r.Code, r.Args["ssds"], r.Args["bytes"])
		}
		if got != c.want && !(strings.HasPrefix(c.want, "!") && strings.HasPrefix(got, c.want)) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestOriginTable(t *testing.T) {
	want := "0 16384 linear 253:0 0\n16384 1000 linear 253:1 0\n"
	if got := originTable("253:0", "253:1", 1000); got != want {
		t.Errorf("%q", got)
	}
}

// nextLook returns since when dirty data has not decreased.
func TestNextLook(t *testing.T) {
	at := func(min int) time.Time { return time.Unix(int64(60*min), 0) }
	last, ok := look{}, false
	for _, c := range []struct {
		min   int
		dirty int64
		since int
	}{{0, 0, 0}, {5, 10, 5}, {6, 20, 5}, {7, 20, 5}, {8, 19, 8}, {9, 0, 9}, {10, 0, 10}, {11, 4, 11}} {
		last = nextLook(last, ok, c.dirty, at(c.min))
		ok = true
		if last.Dirty != c.dirty || !last.Since.Equal(at(c.since)) {
			t.Errorf("minute %d, %d dirty: %+v, want since minute %d", c.min, c.dirty, last, c.since)
		}
	}
}

// trusted decides which sets are valid when the stack comes up again.
func TestTrusted(t *testing.T) {
	for _, c := range []struct {
		name         string
		open         bool
		state        int
		witness      bool
		clean, dirty bool
	}{
		{"stopped in order", false, stateClean, false, true, true},
		{"crashed with dirty data", true, stateDirty, true, true, true},
		{"and an SSD had been away: what was read is not true any more", true, stateDirty, false, false, true},
		{"crashed without dirty data: all SSDs may have been away", true, stateClean, true, false, false},
		{"write-through", true, stateNone, false, false, false},
		{"it ran without its SSDs", true, stateStale, true, false, false},
	} {
		if clean, dirty := trusted(c.open, c.state, c.witness); clean != c.clean || dirty != c.dirty {
			t.Errorf("%s: reads %v, dirty %v", c.name, clean, dirty)
		}
	}
}
