package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

func TestPaces(t *testing.T) {
	before := map[string]linux.DiskStat{"dm-1": {Done: 10, MS: 100}, "dm-2": {Done: 5, MS: 50, InFlight: 1}, "dm-3": {Done: 5, MS: 50}, "dm-4": {Done: 9}}
	after := map[string]linux.DiskStat{"dm-1": {Done: 14, MS: 140}, "dm-2": {Done: 5, MS: 50, InFlight: 4}, "dm-3": {Done: 5, MS: 50, InFlight: 1}, "dm-4": {Done: 1}, "dm-5": {Done: 3}}
	got := paces(before, after, time.Second)
	if len(got) != 2 || got["dm-1"] != (Pace{4, 10}) || got["dm-2"] != (Pace{0, 1000}) {
		t.Errorf("got %+v: dm-1 took 10 ms for each of four, dm-2 was waited for all the time, of the others nothing can be said", got)
	}
}

func TestSlowMembers(t *testing.T) {
	g := &design.Group{Name: "b-r0"}
	a := &array{}
	for i, serial := range []string{"MA01", "MA02", "MB01", "MB02"} {
		dev := "dm-" + string(rune('1'+i))
		a.members = append(a.members, member{linux.MDMember{Dev: dev, States: []string{"in_sync"}, Slot: i}, &design.Disk{Serial: serial}})
	}
	for _, c := range []struct {
		ms   []float64
		want string
	}{
		{[]float64{8, 9, 10, 2400}, "disk MB02"},
		{[]float64{300, 9, 10, 9}, "disk MA01"},
		{[]float64{8, 9, 10, 200}, ""},             // slower than the others, but below slowMS
		{[]float64{100, 120, 150, 800}, ""},        // a busy group
		{[]float64{2000, 2000, 2500, 2400}, ""},    // all are slow
		{[]float64{9, 2400}, ""},                   // two disks are too few to find the slow one
		{[]float64{9, 9, 2400, 2500}, "MB01,MB02"}, // two may be slow
	} {
		pace := map[string]Pace{}
		for i, ms := range c.ms {
			pace[a.members[i].Dev] = Pace{4, ms}
		}
		got := slowMembers(g, a, pace)
		if want := strings.Count(c.want, ",") + 1; c.want != "" && len(got) != want || c.want == "" && got != nil {
			t.Errorf("%v: %d are slow, want %q", c.ms, len(got), c.want)
		}
		for i, p := range got {
			if !strings.Contains(p.Text, strings.TrimPrefix(strings.Split(c.want, ",")[i], "disk ")) || p.Level != Warning {
				t.Errorf("%v: %q, want %q", c.ms, p.Text, c.want)
			}
		}
	}
	got := slowMembers(g, a, map[string]Pace{"dm-1": {0, 1000}, "dm-2": {4, 9}, "dm-3": {4, 9}})
	if len(got) != 1 || !strings.Contains(got[0].Text, "answered nothing for a second, its peers 9 ms") {
		t.Errorf("%+v", got)
	}
}
