package ocf

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/pace"
)

// slowScene is a service with slow disks, and its watcher.
type slowScene struct {
	t        *testing.T
	h        *fakeHost
	w        *watcher
	logged   []string
	recorded []string
	done     [6]int64 // by disk
	ms       [6]int64
}

func newSlowScene(t *testing.T, drop bool) *slowScene {
	c := testConfig()
	c.DropSlow = drop
	for i := range 6 {
		c.Arrays[0].Serials = append(c.Arrays[0].Serials, fmt.Sprintf("MA0%d", i+1))
	}
	x := &slowScene{t: t, h: newShared(t).hosts["nfs1"]}
	s := x.h.service(c)
	x.h.files["/sys/class/net/eth0/carrier"] = "1\n"
	x.h.cabled(true)
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	x.w = x.h.watcher(s)
	x.w.log = func(f string, a ...any) { x.logged = append(x.logged, fmt.Sprintf(f, a...)) }
	x.w.record = func(f string, a ...any) { x.recorded = append(x.recorded, fmt.Sprintf(f, a...)) }
	return x
}

// windows lets the watcher look for n windows, in which disks do operations as long
// as each says; the others take 9 ms.
func (x *slowScene) windows(n int, late map[int]time.Duration) {
	for range n {
		var b strings.Builder
		for i := range 6 {
			x.done[i], x.ms[i] = x.done[i]+10, x.ms[i]+90
			if took, ok := late[i]; ok {
				x.ms[i] += 10*took.Milliseconds() - 90
			}
			fmt.Fprintf(&b, "253 %d d%d %d 0 0 %d 0 0 0 0 0 0 0\n", i, i, x.done[i], x.ms[i])
		}
		x.h.files["/proc/diskstats"] = b.String()
		x.h.clock = x.h.clock.Add(pace.PaceWindow)
		x.w.look(context.Background())
	}
}

// changes are the commands that dropping a disk takes.
func (x *slowScene) changes() (out []string) {
	for _, c := range x.h.changes {
		if strings.HasPrefix(c, "mdadm --manage") || strings.HasPrefix(c, "crm_attribute") {
			out = append(out, c)
		}
	}
	return out
}

func TestSlowDiskIsDropped(t *testing.T) {
	x := newSlowScene(t, true)
	late := map[int]time.Duration{5: 600 * time.Millisecond}
	x.windows(20, nil)
	x.windows(pace.SlowWindows-1, late)
	if got := x.changes(); got != nil {
		t.Fatalf("after %v: %q", (pace.SlowWindows-1)*pace.PaceWindow, got)
	}
	x.windows(1, late)
	at := x.h.clock.UTC().Format(time.RFC3339)
	want := []string{"crm_attribute --node nfs1 --name mortar-dropped-r0 --update MA06 /dev/mapper/d5 " + at + " 600ms 9ms --lifetime forever", "mdadm --manage /dev/md127 --fail d5"}
	if got := x.changes(); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	if want := []string{linux.DroppedLog + "MA06 of group r0: it took 600 ms for an answer, its peers 9 ms"}; !slices.Equal(x.recorded, want) {
		t.Errorf("%q, want %q", x.recorded, want)
	}

	// The next slow disk of the group stays: it has one parity disk.
	x.windows(40, map[int]time.Duration{2: 900 * time.Millisecond})
	if got := x.changes(); len(got) != 2 {
		t.Errorf("%q", got[2:])
	}
	if n := len(x.logged); n == 0 || !strings.Contains(x.logged[n-1], "disk MA03 of group r0 is slow (it took 900 ms for an answer, its peers 9 ms), and stays in it: the array lacks another member") {
		t.Errorf("%q", x.logged)
	}

	// The disk is back: nothing says any more that it is out.
	x.h.degr = 0
	x.windows(pace.PaceWindows+1, nil)
	if got := x.changes(); len(got) != 3 || got[2] != "crm_attribute --node nfs1 --name mortar-dropped-r0 --delete --lifetime forever" {
		t.Errorf("%q", got)
	}
}

func TestSlowDiskStays(t *testing.T) {
	late := map[int]time.Duration{5: 900 * time.Millisecond}
	for _, c := range []struct {
		name string
		do   func(x *slowScene)
		says string
	}{
		{"all disks are slow", func(x *slowScene) {
			x.windows(40, map[int]time.Duration{0: 900 * time.Millisecond, 1: 900 * time.Millisecond, 2: 900 * time.Millisecond, 3: 900 * time.Millisecond, 4: 900 * time.Millisecond, 5: 900 * time.Millisecond})
		}, ""},
		{"two disks are slow", func(x *slowScene) {
			x.windows(40, map[int]time.Duration{1: 900 * time.Millisecond, 5: 900 * time.Millisecond})
		}, "2 disks are slow at once (d1, d5)"},
		{"it comes and goes", func(x *slowScene) {
			for range 10 {
				x.windows(5, late)
				x.windows(1, nil)
			}
		}, ""},
		{"the server stands still in between", func(x *slowScene) {
			for range 10 {
				x.windows(5, late)
				x.h.clock = x.h.clock.Add(time.Minute)
			}
		}, ""},
		{"the cluster does not take the record", func(x *slowScene) {
			x.h.deaf = true
			x.windows(pace.SlowWindows+2, late)
			x.h.changes = nil // it was tried
		}, "failed: drop slow disk MA06 of group r0"},
		{"the array is not here", func(x *slowScene) {
			x.h.md, x.h.active = map[string]string{}, false
			x.windows(40, late)
		}, ""},
	} {
		x := newSlowScene(t, true)
		c.do(x)
		if got := x.changes(); got != nil || x.h.degr > 0 {
			t.Errorf("%s: %q", c.name, got)
		}
		if said := strings.Join(append(x.logged, x.recorded...), "\n"); c.says != "" && !strings.Contains(said, c.says) || c.says == "" && strings.Contains(said, "slow") {
			t.Errorf("%s: %q", c.name, said)
		}
	}
	x := newSlowScene(t, false)
	if x.windows(40, late); x.changes() != nil {
		t.Errorf("the spec does not want it: %q", x.changes())
	}
}

// The paths of a disk are compared by what they did while it was slow, not before.
func TestPathsWhileSlow(t *testing.T) {
	for _, c := range []struct {
		name string
		// late is how long a request over each path takes while the disk is slow.
		late [2]time.Duration
		want string
	}{
		{"the disk", [2]time.Duration{900 * time.Millisecond, 900 * time.Millisecond}, ""},
		{"a path", [2]time.Duration{900 * time.Millisecond, 5 * time.Millisecond}, "over its path sdb it answers within 5 ms"},
	} {
		h := newShared(t).hosts["nfs1"]
		h.files["/sys/block/dm-5/slaves/sda"], h.files["/sys/block/dm-5/slaves/sdb"] = "", ""
		s := mdraid.New(h.service(testConfig()).Host, &mdraid.MDStorage{}, nil, nil)
		stat := map[string]linux.DiskStat{}
		for i := range pace.PaceWindows + 1 {
			for j, p := range []string{"sda", "sdb"} {
				took, n := 5*time.Millisecond, int64(900)
				if i > pace.PaceWindows-pace.SlowWindows {
					took, n = c.late[j], 5
				}
				for _, dev := range []string{p, "dm-5"} {
					d := stat[dev]
					d.Done, d.MS, d.Written, d.InFlight = d.Done+n, d.MS+n*took.Milliseconds(), d.Written+n*4096, 1
					stat[dev] = d
				}
			}
			s.Slow.Shots = append(s.Slow.Shots, pace.Shot{At: h.clock, Stat: maps.Clone(stat)})
		}
		if err := s.Slow.OfThePath("dm-5"); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A monitor that is late because one disk is slow finds no fault: the partner would wait
// for the same disk.
func TestPacedNamesTheSlowDisk(t *testing.T) {
	for _, c := range []struct {
		name string
		late map[int]time.Duration
		want string
	}{
		{"well", nil, ""},
		{"one", map[int]time.Duration{5: 9 * time.Second}, "disk MA06 takes 9000 ms for an answer, its peers 9 ms"},
		{"two", map[int]time.Duration{4: 9 * time.Second, 5: 9 * time.Second}, ""},
	} {
		x := newSlowScene(t, false)
		x.windows(1, nil)
		slow := x.w.services[0].storage.Paced()
		x.windows(10, c.late)
		if got := slow(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A monitor that hangs measures once more: what a disk answered before it became slow does
// not count.
func TestPacedMeasuresAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSlowScene(t, false)
		x.windows(1, nil)
		slow := x.w.services[0].storage.Paced()
		x.windows(400, nil) // an hour of well answers
		time.Sleep(20 * time.Second)
		synctest.Wait()
		x.windows(5, map[int]time.Duration{5: 9 * time.Second})
		if got := slow(); !strings.HasPrefix(got, "disk MA06 takes 9000 ms") {
			t.Errorf("%q", got)
		}
	})
}

// A server that starts the service later leaves a dropped disk out, also if it was
// dropped one event ago.
func TestDroppedDiskStaysOut(t *testing.T) {
	x := newSlowScene(t, true)
	x.windows(20, map[int]time.Duration{5: 600 * time.Millisecond})
	if len(x.recorded) != 1 {
		t.Fatalf("%q", x.recorded)
	}
	x.h.crash()
	for i := range 5 {
		d := x.h.disks[fmt.Sprintf("/dev/mapper/d%d", i)]
		d.events, d.without, d.dirty = d.events+1, 6, false
	}
	partner := x.h.hosts["nfs2"]
	if err := partner.service(testConfig()).start(context.Background()); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(partner.changes, func(c string) bool { return strings.HasPrefix(c, "mdadm --assemble") })
	if i < 0 || strings.Contains(partner.changes[i], "d5") || !strings.Contains(partner.changes[i], "d4") {
		t.Errorf("%q", partner.changes)
	}
}

// A spare that another group of the service has, and a disk that the spec lists as
// failed, are not absent from their group. A dropped disk is found in whatever group
// it was.
func TestAbsentDisks(t *testing.T) {
	for name, c := range map[string]struct {
		state  string // of the spare of r1 in r2; "": no array has it
		failed []string
		absent []string
		out    bool
	}{
		"lent":            {"spare", nil, nil, false},
		"lent and in use": {"in_sync", nil, nil, false},
		"lent, and died":  {"faulty", nil, []string{"S-B9s"}, true},
		"it waits":        {"waits", nil, nil, true},
		"gone":            {"", nil, []string{"S-B9s"}, true},
		"gone and failed": {"", []string{"S-B9s"}, nil, true},
	} {
		h := newShared(t).hosts["nfs1"]
		cfg := h.twoGroups()
		for i := range cfg.Arrays {
			for _, m := range cfg.Arrays[i].Members {
				cfg.Arrays[i].Serials = append(cfg.Arrays[i].Serials, "S-"+strings.TrimPrefix(m, "/dev/"))
			}
		}
		cfg.Arrays[0].Failed = c.failed
		if c.state != "waits" {
			delete(h.files, sparesOfHome)
		}
		if c.state != "waits" && c.state != "" {
			h.inArray("md2", "B9s", c.state, "none")
		}
		s := h.service(cfg).storage.(*mdraid.Kind)
		all, err := s.Arrays()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Slow.Absent(cfg.Arrays[0], all); err != nil || !slices.Equal(got, c.absent) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.absent)
		}
		if serial, dev := s.Named("B9s"); serial != "S-B9s" || dev != "/dev/B9s" {
			t.Errorf("%s: %q, %q", name, serial, dev)
		}
		if got := s.Slow.Out(cfg.Arrays[1], all, linux.Dropped{Device: "/dev/B9s"}); got != c.out {
			t.Errorf("%s: out is %v", name, got)
		}
	}
}

// While a spare moves no disk is dropped, and the other way round.
func TestOneChangeAtATime(t *testing.T) {
	x := newSlowScene(t, true)
	var later func()
	x.w.background = func(f func()) { later = f }
	nfsOf(x.w.services[0]).Asker.Busy.Store(true) // that would be another task in the background
	x.w.services[0].storage.(*mdraid.Kind).Busy.Store(true)
	x.windows(2*pace.PaceWindows, map[int]time.Duration{5: 600 * time.Millisecond})
	if later != nil {
		t.Fatal("a disk is dropped while a spare moves")
	}
	x.w.services[0].storage.(*mdraid.Kind).Busy.Store(false)
	x.windows(2*pace.PaceWindows, map[int]time.Duration{5: 600 * time.Millisecond})
	if later == nil || !x.w.services[0].storage.(*mdraid.Kind).Busy.Load() {
		t.Fatal("no disk is dropped")
	}
	if later(); x.w.services[0].storage.(*mdraid.Kind).Busy.Load() || len(x.changes()) != 2 {
		t.Errorf("%q", x.changes())
	}
}

// The cluster may take a minute for the record of a dropped disk. What happens meanwhile
// may keep the disk in its group: then the record goes again.
func TestSlowDiskStaysAfterItsRecord(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(x *slowScene)
		says string
	}{
		"a disk is lost":             {func(x *slowScene) { x.h.degr = 2 }, "the array takes no data from it"},
		"the array is read-only":     {func(x *slowScene) { x.h.ro = true }, "the array is readonly"},
		"the array is stopped":       {func(x *slowScene) { x.h.md = map[string]string{} }, "array r0 is not assembled"},
		"the service stops":          {func(x *slowScene) { x.h.active, x.h.mounts, x.h.nfsd = false, nil, 0 }, "this server does not serve home any more"},
		"the service is locked":      {func(x *slowScene) { x.w.lock = func(string) (func(), error) { return nil, errInjected } }, errInjected.Error()},
		"the partner has the volume": {func(x *slowScene) { x.h.owner = "nfs2" }, `the storage of service home is "nfs2"'s`},
		"nobody knows who has it":    {func(x *slowScene) { x.h.vg = "other" }, "who owns the storage of service home cannot be read"},
		"the disk has another name": {func(x *slowScene) {
			x.w.services[0].cfg.Arrays[0].Serials[5] = "MA99"
		}, "d5 is disk MA99 of group r0 now"},
	} {
		x := newSlowScene(t, true)
		locked := 0
		x.w.lock = func(string) (func(), error) { locked++; return func() { locked-- }, nil }
		notLocked := func(ran kernel.Command) {
			if locked > 0 {
				t.Errorf("%s: a stop would wait for %q", name, ran.Argv)
			}
		}
		x.w.services[0].K = &meanwhile{x.h, "crm_attribute", notLocked, func() { c.do(x) }}
		x.windows(19, nil)
		x.windows(pace.SlowWindows, map[int]time.Duration{5: 600 * time.Millisecond})
		got := x.changes()
		if len(got) != 2 || !strings.Contains(got[0], "--update MA06") || got[1] != "crm_attribute --node nfs1 --name mortar-dropped-r0 --delete --lifetime forever" || locked != 0 {
			t.Errorf("%s: %q, locked %d", name, got, locked)
		}
		if said := strings.Join(x.logged, "\n"); !strings.Contains(said, "disk MA06 of group r0 is slow (it took 600 ms for an answer, its peers 9 ms), and stays in it: ") || !strings.Contains(said, c.says) || len(x.recorded) > 0 {
			t.Errorf("%s: %q, %q", name, said, x.recorded)
		}
	}
}

// meanwhile has something happen while a program runs for the first time.
type meanwhile struct {
	kernel.Host
	program string
	ran     func(kernel.Command)
	do      func()
}

func (m *meanwhile) Run(ctx context.Context, c kernel.Command) (string, error) {
	out, err := m.Host.Run(ctx, c)
	m.ran(c)
	if m.do != nil && c.Argv[0] == m.program {
		m.do()
		m.do = nil
	}
	return out, err
}
