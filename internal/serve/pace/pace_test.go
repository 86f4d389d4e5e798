package pace

import (
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	rule "github.com/mortarhpc/mortar/internal/base/pace"
)

const ms = time.Millisecond

func TestPaceOf(t *testing.T) {
	a := func(done int64, each time.Duration) rule.Answers {
		return rule.Answers{Done: done, Took: time.Duration(done) * each}
	}
	idle, hangs := rule.Answers{}, rule.Answers{Stuck: true}
	five := func(a rule.Answers) []rule.Answers { return []rule.Answers{a, a, a, a, a} }
	for _, c := range []struct {
		name  string
		own   rule.Answers
		peers []rule.Answers
		want  verdictOfPace
	}{
		{"two operations a second, one after the other", a(10, 490*ms), five(a(14, 9*ms)), Slow},
		{"two operations a second, a long queue", a(10, 21*time.Second), five(a(20, 12*ms)), Slow},
		{"one answer in the window, after 6 s", a(1, 6*time.Second), five(a(1, 5*ms)), Slow},
		{"nothing is answered, the peers are well", hangs, five(a(30, 8*ms)), Slow},
		{"nothing is answered, and the peers are asked nothing", hangs, five(idle), Slow},
		{"a busy hard disk", a(400, 60*ms), five(a(400, 20*ms)), well},
		{"ten times as slow as its peers", a(50, 350*ms), five(a(50, 35*ms)), well},
		{"20 times as slow, but fast", a(50, 40*ms), five(a(50, 2*ms)), well},
		{"a busy processor: all are slow", a(20, 900*ms), five(a(20, 800*ms)), well},
		{"nothing is answered by any disk", hangs, five(hangs), unjudged},
		{"most peers hang too", a(10, 900*ms), []rule.Answers{hangs, hangs, hangs, a(10, 9*ms), a(10, 9*ms)}, well},
		{"it does nothing", idle, five(a(50, 9*ms)), unjudged},
		{"one late answer on an idle brick", a(1, 900*ms), five(a(1, 5*ms)), unjudged},
		{"some late answers, but too little waiting", a(3, 310*ms), five(a(3, 5*ms)), unjudged},
		{"few answers, not late", a(2, 10*ms), five(a(2, 10*ms)), unjudged},
		{"all clients read the same blocks of it", a(750, 430*ms), five(a(9, 8*ms)), unjudged},
		{"its peers are asked nothing", a(10, 900*ms), five(idle), unjudged},
		{"two operations a second, and nearly all of the load is its own", a(8, 490*ms), five(a(1, 5*ms)), Slow},
		{"eleven operations a second, and nearly all of the load is its own", a(44, 800*ms), five(a(1, 5*ms)), unjudged},
		{"one peer is as slow", a(10, 900*ms), []rule.Answers{a(10, 950*ms), a(10, 9*ms), a(10, 9*ms), a(10, 9*ms)}, Slow},
		{"half of the peers are as slow", a(10, 900*ms), []rule.Answers{a(10, 950*ms), a(10, 950*ms), a(10, 9*ms), a(10, 9*ms)}, well},
		{"two peers are too few", a(10, 900*ms), []rule.Answers{a(10, 9*ms), a(10, 9*ms)}, unjudged},
	} {
		if got := PaceOf(c.own, c.peers, PaceWindow); got.Verdict != c.want {
			t.Errorf("%s: %+v, want %d", c.name, got, c.want)
		}
	}
}

func TestSuspect(t *testing.T) {
	line := map[rune]verdictOfPace{'s': Slow, 'w': well, '-': unjudged}
	for _, c := range []struct {
		name  string
		past  map[string]string // the newest window is the last
		want  string
		cause string
	}{
		{"most of a minute", map[string]string{"dm-1": "wwwwwwwwwwwwwww", "dm-2": "----sssssssssss"}, "dm-2", ""},
		{"it began 44 s ago, and was well before", map[string]string{"dm-2": "wwwwwwwwwwwwwwsssssssssss"}, "dm-2", ""},
		{"it began 40 s ago", map[string]string{"dm-2": "wwwwwwwwwwwwwwssssssssss"}, "", ""},
		{"a minute", map[string]string{"dm-2": "wwwwwwwwsssssssssssssss"}, "dm-2", ""},
		{"ten windows", map[string]string{"dm-2": "---ssssssssss--"}, "", ""},
		{"it was well in between", map[string]string{"dm-2": "sssssssswssssss"}, "", ""},
		{"it did little in between", map[string]string{"dm-2": "sssss-s-s-sssss"}, "dm-2", ""},
		{"only half a minute", map[string]string{"dm-2": "sssssss"}, "", ""},
		{"another one was slow for a moment", map[string]string{"dm-1": "wwwwwwwwwwwwsss", "dm-2": "sssssssssssssss"}, "dm-2", ""},
		{"two at once", map[string]string{"dm-1": "wwwwwwwwwwwssss", "dm-2": "sssssssssssssss"}, "dm-1", "2 disks are slow at once (dm-1, dm-2)"},
		{"nobody", map[string]string{"dm-1": "wwwwwwwwwwwwwww", "dm-2": "---------------"}, "", ""},
	} {
		h := History{}
		for dev, past := range c.past {
			for i, v := range past {
				h.Add(dev, Pace{line[v], time.Duration(i) * time.Second, 0})
			}
			if len(h[dev]) > PaceWindows {
				t.Errorf("%s: %d windows are kept", c.name, len(h[dev]))
			}
		}
		dev, p, err := h.Suspect()
		if dev != c.want || (err == nil) != (c.cause == "") || err != nil && !strings.Contains(err.Error(), c.cause) || dev != "" && p.Verdict != Slow {
			t.Errorf("%s: %q %+v %v, want %q %q", c.name, dev, p, err, c.want, c.cause)
		}
	}
}

func TestOfThePath(t *testing.T) {
	const kB = 1000
	path := func(done int64, took time.Duration, bytes int64) rule.Answers {
		return rule.Answers{Done: done, Took: took, Bytes: bytes, Open: true}
	}
	whole := path(60, 300*time.Second, 60*20*kB)
	for _, c := range []struct {
		name string
		seen map[string]rule.Answers // by path
		want string
	}{
		{"both are slow", map[string]rule.Answers{"sda": path(30, 150*time.Second, 600*kB), "sdb": path(30, 150*time.Second, 600*kB)}, ""},
		{"both are slow, and refuse requests for their queues are full", map[string]rule.Answers{"sda": path(9000, 150*time.Second, 600*kB), "sdb": path(7000, 150*time.Second, 600*kB)}, ""},
		{"one is slow, one hangs", map[string]rule.Answers{"sda": path(60, 300*time.Second, 1200*kB), "sdb": {Stuck: true, Open: true}}, ""},
		{"both hang", map[string]rule.Answers{"sda": {Stuck: true, Open: true}, "sdb": {Open: true, Done: 70}}, ""},
		{"one is fast", map[string]rule.Answers{"sda": path(3, 295*time.Second, 60*kB), "sdb": path(57, 1*time.Second, 1140*kB)}, "over its path sdb it answers within 17 ms"},
		{"one carries nothing", map[string]rule.Answers{"sda": path(60, 300*time.Second, 1200*kB), "sdb": {}}, "its path sdb carried nothing"},
		{"one is gone", map[string]rule.Answers{"sda": path(60, 300*time.Second, 1200*kB)}, "its path sdb carried nothing"},
	} {
		err := OfThePath(whole, []string{"sda", "sdb"}, c.seen)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := OfThePath(whole, []string{"sda"}, nil); err != nil {
		t.Errorf("there is one path: %v", err)
	}
	if err := OfThePath(whole, nil, nil); err != nil {
		t.Errorf("it is no multipath map: %v", err)
	}
}

func TestMayDrop(t *testing.T) {
	whole := func() (a linux.MDArray, members []linux.MDMember) {
		for i, dev := range []string{"dm-0", "dm-1", "dm-2", "dm-3", "dm-4", "dm-5"} {
			members = append(members, linux.MDMember{Dev: dev, States: []string{"in_sync"}, Slot: i})
		}
		members = append(members, linux.MDMember{Dev: "dm-6", States: []string{"spare"}, Slot: -1})
		return linux.MDArray{Dev: "md127", Level: "raid6", State: "clean", RaidDisks: 6, Action: "idle"}, members
	}
	for _, c := range []struct {
		name   string
		dev    string
		change func(a *linux.MDArray, ms []linux.MDMember)
		absent []string
		want   string
	}{
		{"RAID 6, whole", "dm-2", nil, nil, ""},
		{"being written", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.State = "active" }, nil, ""},
		{"without a spare", "dm-2", func(_ *linux.MDArray, ms []linux.MDMember) { ms[6].Dev, ms[6].States = "", nil }, nil, ""},
		{"RAID 5", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.Level = "raid5" }, nil, "no redundancy left"},
		{"RAID 10", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.Level, a.Layout = "raid10", 0x102 }, nil, "no redundancy left"},
		{"RAID 10 with three copies", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.Level, a.Layout = "raid10", 0x103 }, nil, ""},
		{"a member is gone", "dm-2", func(a *linux.MDArray, ms []linux.MDMember) { a.Degraded, ms[5].States = 1, []string{"spare"} }, nil, "lacks another member"},
		{"a member has failed, the spare stands in", "dm-2", func(_ *linux.MDArray, ms []linux.MDMember) {
			ms[6].States, ms[5].States, ms[6].Slot, ms[5].Slot = []string{"in_sync"}, []string{"faulty"}, 5, -1
		}, nil, "lacks another member"},
		{"a disk of the design is not in it", "dm-2", nil, []string{"MA09"}, "the array is without MA09"},
		{"a rebuild", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.Action = "recover" }, nil, "md is busy with the array (recover)"},
		{"a scrub", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.Action = "check" }, nil, "md is busy with the array (check)"},
		{"nobody knows what it does", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.Action = "" }, nil, "md is busy"},
		{"a copy to a spare is about to begin", "dm-2", func(_ *linux.MDArray, ms []linux.MDMember) { ms[3].States = append(ms[3].States, "want_replacement") }, nil, "md copies a member"},
		{"read-only", "dm-2", func(a *linux.MDArray, _ []linux.MDMember) { a.State = "readonly" }, nil, "the array is readonly"},
		{"a spare", "dm-6", nil, nil, "takes no data from it"},
		{"no member", "dm-9", nil, nil, "takes no data from it"},
	} {
		a, members := whole()
		if c.change != nil {
			c.change(&a, members)
		}
		err := MayDrop(a, members, c.dev, c.absent)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
