package drill

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/test/example"
)

func randomScene() fault.Scene {
	d := testDesign()
	d.Pairs = []design.Pair{{Services: []design.Service{{Name: "home", NFS: &design.NFS{}}}}}
	d.Spec = &spec.Spec{PDUs: []spec.PDU{{Name: "pdu-a"}, {Name: "pdu-b"}}, Enclosures: []spec.Enclosure{{Name: "E1"}, {Name: "E2"}}}
	return fault.Scene{Design: d, Service: &design.Service{Name: "home"}, Active: "nfs1", Passive: "nfs2", Group: design.Group{Parity: 2}, Members: []string{"S0", "S1", "S2", "S3"}}
}

func anything(fault.Fault) error { return nil }

// A seed draws the same schedule each time, and some seed draws each fault.
func TestDraw(t *testing.T) {
	scene := randomScene()
	seen := map[fault.Kind]int{}
	sizes := map[int]int{}
	for seed := range uint64(2000) {
		s, err := Draw(scene, seed, anything)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := Draw(scene, seed, anything)
		if d := cmp.Diff(s, again); d != "" {
			t.Fatal(d)
		}
		sizes[len(s.Parts)]++
		disks, paths, system, modules := 0, 0, map[string]int{}, map[string]int{}
		for i, p := range s.Parts {
			seen[p.Kind]++
			c := fault.Kinds[p.Kind].Chances[0]
			if p.For < time.Duration(c.Shortest)*time.Second || p.For > time.Duration(c.Longest)*time.Second || (p.On == "") != (c.On == nil) || p.At > latestFault || i == 0 && p.At != 0 {
				t.Errorf("seed %d: %s", seed, p)
			}
			switch p.Kind {
			case fault.DiskOut:
				disks++
			case fault.LocalDisk:
				system[p.On]++
			case fault.HBAOut:
				paths++
			case fault.ModuleOut:
				paths++
				if modules[p.Args[0]]++; modules[p.Args[0]] > 1 {
					t.Errorf("seed %d takes both modules of an enclosure", seed)
				}
			}
		}
		if disks > 0 && paths > 1 {
			t.Errorf("seed %d: a server may lose an enclosure, and the group another disk: %v", seed, s.Words())
		}
		if disks > 2 || system[fault.OnActive] > 1 || system[fault.OnPassive] > 1 {
			t.Errorf("seed %d takes %d disks of a RAID 6, and of system mirrors %v", seed, disks, system)
		}
		if first := s.Parts[0]; first.Kind == fault.Move && first.On == fault.OnActive {
			t.Errorf("seed %d begins with a move to where the service is", seed)
		}
		steps, err := s.steps(scene)
		if begin := steps[1].(Drawn); err != nil || steps[0] != Step(At(0)) || begin.Try != (begin.Beside && len(s.Parts) > 1) || begin.Step.(Inject).Kind != s.Parts[0].Kind {
			t.Fatalf("seed %d: %v %+v", seed, err, steps)
		}
		out := map[string]int{}
		for _, st := range steps {
			f, mends := actOf(st)
			if at, ok := st.(At); ok && at < 0 || slices.ContainsFunc(f.Args, func(a string) bool { return strings.HasPrefix(a, fault.DiskArg) || a == fault.MoveArg }) {
				t.Errorf("seed %d: %+v", seed, st)
			}
			if mends {
				out[f.String()]--
			} else if slices.ContainsFunc(s.Parts, func(p Part) bool { return p.Kind == f.Kind && p.For > 0 }) {
				out[f.String()]++
			}
		}
		for f, n := range out {
			if n != 0 {
				t.Errorf("seed %d: %s is mended %d times too few", seed, f, n)
			}
		}
	}
	for _, r := range fault.Rows {
		for _, c := range r.Chances {
			if seen[r.Kind] < 50 && len(c.Args(scene)) > 0 {
				t.Errorf("%s was drawn %d times in 2000 schedules", r.Kind, seen[r.Kind])
			}
		}
	}
	for n := 1; n <= 3; n++ {
		if sizes[n] < 500 {
			t.Errorf("%d schedules of %d faults", sizes[n], n)
		}
	}
	if _, err := Draw(scene, 1, func(fault.Fault) error { return fmt.Errorf("no") }); err == nil {
		t.Error("nothing can be injected, no error")
	}
}

// A schedule for a brick on LUNs of an array has only faults of such a brick, and
// no more than its array survives.
func TestDrawOnLUNs(t *testing.T) {
	scene, err := planned(fault.Env{Design: example.Design(t, "nss7.4-ha.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[fault.Kind]int{}
	for seed := range uint64(2000) {
		s, err := Draw(scene, seed, anything)
		if err != nil {
			t.Fatal(err)
		}
		disks, ofArray := 0, 0
		for _, p := range s.Parts {
			seen[p.Kind]++
			switch p.Kind {
			case fault.ArrayDisk:
				disks++
				if f := p.fault(scene); !slices.Contains(scene.Members, f.Args[0]) {
					t.Errorf("seed %d: %s pulls a disk of another group", seed, f)
				}
			case fault.ControllerOut, fault.ControllerFailover, fault.ArrayPower:
				ofArray++
			case fault.ModuleOut, fault.DiskOut:
				t.Errorf("seed %d: the brick has no %s", seed, p)
			}
		}
		if disks > 2 || ofArray > 1 {
			t.Errorf("seed %d takes too much at once: %v", seed, s.Words())
		}
	}
	for _, k := range []fault.Kind{fault.ControllerOut, fault.ControllerFailover, fault.ArrayDisk, fault.ArrayPower, fault.LUNSlow, fault.PathsOut, fault.Freeze} {
		if seen[k] < 50 {
			t.Errorf("%s was drawn %d times in 2000 schedules", k, seen[k])
		}
	}
}

// A schedule for a brick with a cache pulls its SSDs, but never takes all copies of
// data that is on no disk.
func TestDrawOnCache(t *testing.T) {
	for mode, most := range map[string]int{cache.WriteBack: 1, cache.WriteThrough: 2} {
		scene := randomScene()
		scene.Service.Storage.Cache = &design.Cache{Mode: mode, SSDs: []design.Disk{{Serial: "C0"}, {Serial: "C1"}}}
		seen := map[string]int{}
		atOnce := 0
		for seed := range uint64(5000) {
			s, err := Draw(scene, seed, anything)
			if err != nil {
				t.Fatal(err)
			}
			ssds, disks := 0, 0
			for _, p := range s.Parts {
				if p.Kind != fault.DiskOut {
					continue
				}
				f := p.fault(scene)
				seen[f.Args[0]]++
				if slices.Contains(scene.Members, f.Args[0]) {
					disks++
				} else {
					ssds++
				}
			}
			atOnce = max(atOnce, ssds)
			if disks > 2 {
				t.Errorf("%s, seed %d: %v", mode, seed, s.Words())
			}
		}
		if atOnce != most || seen["C0"] < 50 || seen["C1"] < 50 || seen["S0"] < 10 || len(seen) != 6 {
			t.Errorf("%s: up to %d SSDs in a schedule, disks pulled: %v", mode, atOnce, seen)
		}
	}
}

// Draw does not draw a fault that the Injector cannot inject.
func TestDrawOnlyWhatCanBe(t *testing.T) {
	for seed := range uint64(200) {
		s, err := Draw(randomScene(), seed, func(f fault.Fault) error {
			if f.Kind != fault.Freeze && f.Kind != fault.Move {
				return fmt.Errorf("not here")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Parts {
			if p.Kind != fault.Freeze && p.Kind != fault.Move {
				t.Errorf("%s", p)
			}
		}
	}
}

func TestScheduleSteps(t *testing.T) {
	s := Schedule{Seed: 7, Parts: []Part{
		{Kind: fault.Freeze, On: fault.OnActive, For: 20 * time.Second},
		{Kind: fault.DiskOut, Args: []string{fault.DiskArg + "3"}, At: 5 * time.Second, For: 30 * time.Second},
		{Kind: fault.Move, On: fault.OnPassive, Args: []string{fault.MoveArg}, At: 5 * time.Second},
	}}
	if d := cmp.Diff([]string{"+0 s freeze active for 20 s", "+5 s disk-out disk 3 for 30 s", "+5 s move passive service"}, s.Words()); d != "" {
		t.Error(d)
	}
	steps, err := s.steps(randomScene())
	if err != nil {
		t.Fatal(err)
	}
	freeze, disk, move := fault.Fault{Kind: fault.Freeze, On: "nfs1"}, fault.Fault{Kind: fault.DiskOut, Args: []string{"S3"}}, fault.Fault{Kind: fault.Move, On: "nfs2", Args: []string{"home"}}
	want := []Step{
		At(0), Drawn{Step: Inject(freeze)},
		At(5 * time.Second), Drawn{Step: Inject(disk), Try: true}, Drawn{Step: Inject(move), Beside: true, Try: true},
		At(20 * time.Second), Drawn{Step: Mend(freeze), Try: true},
		At(35 * time.Second), Drawn{Step: Mend(disk), Back: true, Try: true},
	}
	if d := cmp.Diff(want, steps); d != "" {
		t.Error(d)
	}
}

// A fault that comes alone is judged as in its own drill, and a server must see it where the
// service stays. So are faults that do not touch the same.
func TestScheduleExpects(t *testing.T) {
	two := randomScene()
	d := *two.Design
	d.Pairs = slices.Clone(d.Pairs)
	d.Pairs[0].Services = append(slices.Clone(d.Pairs[0].Services), design.Service{Name: "scratch"})
	two.Design = &d
	cached := randomScene()
	svc := *cached.Service
	svc.Storage.Cache = &design.Cache{Mode: cache.WriteBack, SSDs: []design.Disk{{Serial: "N1"}, {Serial: "N2"}}}
	cached.Service = &svc
	for _, c := range []struct {
		parts   []Part
		scene   fault.Scene
		where   judge.Place
		fencing judge.Fencing
		seen    bool
	}{
		{[]Part{{Kind: fault.FeedOff, Args: []string{"pdu-a"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.SwitchDown, Args: []string{"private"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LinkDown, On: fault.OnActive, Args: []string{"public"}}}, randomScene(), judge.Anywhere, judge.NoServer, false},
		{[]Part{{Kind: fault.LinkDown, On: fault.OnPassive, Args: []string{"public"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LinkDown, On: fault.OnPassive, Args: []string{"public"}}}, two, judge.Anywhere, judge.NoServer, false},
		{[]Part{{Kind: fault.HBAOut, On: fault.OnPassive, Args: []string{"0"}}}, two, judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.PathOut, On: fault.OnPassive, Args: []string{fault.DiskArg + "0", "1"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.ClockJump, On: fault.OnActive, Args: []string{"3600"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.DiskSlow, Args: []string{fault.DiskArg + "0", "2", "20000"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.DiskOut, Args: []string{fault.DiskArg + "0"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.DiskOut, Args: []string{fault.SSDArg + "0"}}}, cached, judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.PDUDead, Args: []string{"pdu-a"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LocalDisk, On: fault.OnPassive, Args: []string{"0"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.ControllerOut, Args: []string{"a1", "0"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LUNSlow, Args: []string{"a1-lun0", "1500"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.BMCDead, On: fault.OnActive}}, randomScene(), judge.Stays, judge.NoServer, false},
		{[]Part{{Kind: fault.Standby, On: fault.OnPassive}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LNetDown, On: fault.OnPassive}}, randomScene(), judge.Stays, judge.NoServer, false},
		{[]Part{{Kind: fault.Standby, On: fault.OnActive}}, randomScene(), judge.Anywhere, judge.NoServer, false},
		{[]Part{{Kind: fault.Move, On: fault.OnPassive, Args: []string{fault.MoveArg}}}, randomScene(), judge.Moves, judge.NoServer, false},
		{[]Part{{Kind: fault.Kill, On: fault.OnActive, Args: []string{"nfsd"}}}, randomScene(), judge.Anywhere, judge.NoServer, false},
		{[]Part{{Kind: fault.Kill, On: fault.OnActive, Args: []string{"corosync"}}}, randomScene(), judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.Panic, On: fault.OnActive}}, randomScene(), judge.Moves, judge.Victim, false},
		{[]Part{{Kind: fault.Freeze, On: fault.OnActive}}, randomScene(), judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.Freeze, On: fault.OnPassive}}, randomScene(), judge.Stays, judge.Allow, true},
		{[]Part{{Kind: fault.Freeze, On: fault.OnPassive}}, two, judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.Panic, On: fault.OnPassive}}, two, judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.PathsOut, On: fault.OnPassive}}, randomScene(), judge.Stays, judge.Allow, true},
		{[]Part{{Kind: fault.FeedOff, Args: []string{"pdu-a"}}, {Kind: fault.LocalDisk, On: fault.OnActive, Args: []string{"0"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LocalDisk, On: fault.OnPassive, Args: []string{"0"}}, {Kind: fault.DiskOut, Args: []string{fault.DiskArg + "0"}}, {Kind: fault.LinkDown, On: fault.OnPassive, Args: []string{"public"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LocalDisk, On: fault.OnPassive, Args: []string{"0"}}, {Kind: fault.LocalDisk, On: fault.OnActive, Args: []string{"1"}}}, randomScene(), judge.Stays, judge.NoServer, true},
		{[]Part{{Kind: fault.LocalDisk, On: fault.OnPassive, Args: []string{"0"}}, {Kind: fault.LinkDown, On: fault.OnPassive, Args: []string{"public"}}}, two, judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.HBAOut, On: fault.OnActive, Args: []string{"0"}}, {Kind: fault.ModuleOut, Args: []string{"E1", "1"}}}, randomScene(), judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.FeedOff, Args: []string{"pdu-a"}}, {Kind: fault.FeedOff, Args: []string{"pdu-b"}}}, randomScene(), judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.LinkDown, On: fault.OnActive, Args: []string{"private"}}, {Kind: fault.LinkDown, On: fault.OnPassive, Args: []string{"public"}}}, randomScene(), judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.DiskSlow, Args: []string{fault.DiskArg + "0", "2", "20000"}}, {Kind: fault.FeedOff, Args: []string{"pdu-a"}}}, randomScene(), judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.ArrayPower, Args: []string{"a1"}}, {Kind: fault.LocalDisk, On: fault.OnActive, Args: []string{"0"}}}, randomScene(), judge.Anywhere, judge.Allow, false},
		{[]Part{{Kind: fault.FeedOff, Args: []string{"pdu-a"}}, {Kind: fault.Freeze, On: fault.OnPassive}}, randomScene(), judge.Anywhere, judge.Allow, false},
	} {
		s := Schedule{Parts: c.parts}
		if e := s.expect(false, c.scene); e.Where != c.where || e.Fencing != c.fencing {
			t.Errorf("%v: %s, %s", c.parts, e.Where, e.Fencing)
		}
		steps, err := s.steps(c.scene)
		count := map[string]int{}
		for _, st := range steps {
			_, mends := actOf(st)
			count[fmt.Sprintf("%T %v", st, mends)]++
		}
		if want := map[bool]int{true: len(c.parts)}[c.seen]; err != nil || count["drill.Until false"] != want || count["drill.Look false"] != want || count["drill.Drawn false"] != len(c.parts) {
			t.Errorf("%v: %v, %v", c.parts, count, err)
		}
	}
}

// A step beside the others holds up only the next step of the same fault; wait
// returns what went wrong.
func TestBeside(t *testing.T) {
	var b beside
	begun, release := make(chan struct{}), make(chan struct{})
	var order []string
	f := fault.Fault{Kind: fault.Standby, On: "nfs1"}
	b.run(f, func() error { close(begun); <-release; order = append(order, "standby"); return nil })
	b.run(f, func() error { order = append(order, "unstandby"); return fmt.Errorf("refused") })
	<-begun
	close(release)
	if err := b.wait(); err == nil || !slices.Equal(order, []string{"standby", "unstandby"}) {
		t.Errorf("%v, %q", err, order)
	}
	b.undone = append(b.undone, "moving")
	if got := b.left(); !slices.Equal(got, []string{"moving"}) {
		t.Errorf("%q", got)
	}
}

// shrink finds the smallest schedule that still fails, in any order of the faults.
func TestShrink(t *testing.T) {
	part := func(k fault.Kind, at time.Duration) Part { return Part{Kind: k, At: at * time.Second} }
	s := Schedule{Parts: []Part{part(fault.Freeze, 0), part(fault.DiskOut, 5), part(fault.Panic, 9)}}
	tried := 0
	got, err := s.shrink(func(x Schedule) (bool, error) {
		tried++
		has := func(k fault.Kind) bool { return slices.ContainsFunc(x.Parts, func(p Part) bool { return p.Kind == k }) }
		return has(fault.DiskOut) && has(fault.Panic), nil
	})
	if d := cmp.Diff(Schedule{Parts: []Part{part(fault.DiskOut, 0), part(fault.Panic, 4)}}, got); d != "" || err != nil {
		t.Error(err, d)
	}
	if tried > 5 {
		t.Errorf("%d schedules tried", tried)
	}
	if got, _ = s.shrink(func(Schedule) (bool, error) { return true, nil }); len(got.Parts) != 1 {
		t.Errorf("%+v", got)
	}
	if _, err = s.shrink(func(Schedule) (bool, error) { return false, fmt.Errorf("rack is gone") }); err == nil {
		t.Error("no error")
	}
}

// A schedule of which nothing could be done proves nothing.
func TestNothingDone(t *testing.T) {
	s := &Schedule{Parts: make([]Part, 2)}
	if got := s.nothingDone([]string{"moving: no"}); got != nil {
		t.Errorf("%+v", got)
	}
	if got := s.nothingDone([]string{"moving: no", "standby: no"}); len(got) != 1 || got[0].OK {
		t.Errorf("%+v", got)
	}
	if got := (*Schedule)(nil).nothingDone(nil); got != nil {
		t.Errorf("no schedule: %+v", got)
	}
}
