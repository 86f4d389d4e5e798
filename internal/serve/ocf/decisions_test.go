package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// sysArray puts an array into a fake host's sysfs. A member's state is that of
// its slot; "" is a slot without a member.
func sysArray(h *fakeHost, dev, state, level string, layout uint32, members ...string) {
	d := "/sys/block/" + dev
	missing := 0
	for i, st := range members {
		if st != "in_sync" {
			missing++
		}
		if st != "" {
			h.files[fmt.Sprintf("%s/md/dev-d%d/state", d, i)], h.files[fmt.Sprintf("%s/md/dev-d%d/slot", d, i)] = st+"\n", fmt.Sprintf("%d\n", i)
		}
	}
	for name, v := range map[string]string{
		"array_state": state, "level": level, "layout": fmt.Sprint(layout), "uuid": md.UUID(arrayUUID),
		"raid_disks": fmt.Sprint(len(members)), "degraded": fmt.Sprint(missing),
	} {
		h.files[d+"/md/"+name] = v + "\n"
	}
}

// TestArraysDecide is the table of what the agent makes of an assembled array:
// whether the arrays of a service count as up, and whether a start may go on.
func TestArraysDecide(t *testing.T) {
	const in = "in_sync"
	for _, c := range []struct {
		name, state, level string
		layout             uint32
		members            []string
		want               unit.State
		says               string // of arraysState
		whole              string // why a start may not go on; "" if it may
	}{
		{"clean", "clean", "raid6", 2, []string{in, in, in, in}, unit.Running, "", ""},
		{"busy", "active", "raid6", 2, []string{in, in, in, in}, unit.Running, "", ""},
		{"idle", "active-idle", "raid6", 2, []string{in, in, in, in}, unit.Running, "", ""},
		{"about to write", "write-pending", "raid6", 2, []string{in, in, in, in}, unit.Running, "", ""},
		{"read-auto", "read-auto", "raid6", 2, []string{in, in, in, in}, unit.Running, "", ""},
		{"read-only, as a start assembles it", "readonly", "raid6", 2, []string{in, in, in, in}, unit.Broken, "md5 is readonly", ""},
		{"read-only and short of too many", "readonly", "raid6", 2, []string{in, "", "", ""}, unit.Broken, "md5 is readonly", "lacks 3 of 4 members"},
		{"inactive", "inactive", "raid6", 2, []string{in, in, in, in}, unit.Broken, "md5 is inactive", "md5 is inactive"},
		{"suspended", "suspended", "raid6", 2, []string{in, in, in, in}, unit.Broken, "md5 is suspended", "md5 is suspended"},
		{"broken", "broken", "raid6", 2, []string{in, in, in, in}, unit.Broken, "md5 is broken", "md5 is broken"},
		{"clear", "clear", "raid6", 2, []string{in}, unit.Stopped, "", "array r0 is not assembled"},
		{"two of RAID 6 are missing", "clean", "raid6", 2, []string{in, in, "", "faulty"}, unit.Running, "", ""},
		{"three of RAID 6 are missing", "clean", "raid6", 2, []string{in, "faulty", "", "spare"}, unit.Broken, "lacks 3 of 4 members, more than raid6 can lose", "lacks 3 of 4"},
		{"one of each mirror", "clean", "raid10", md.Near2, []string{in, "", "", in}, unit.Running, "", ""},
		{"a whole mirror", "clean", "raid10", md.Near2, []string{"", "faulty", in, in}, unit.Broken, "lacks 2 of 4 members, more than raid10 can lose", "lacks 2 of 4"},
		{"one that is rebuilt holds nothing yet", "clean", "raid5", 2, []string{in, "spare", ""}, unit.Broken, "lacks 2 of 3 members", "lacks 2 of 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newShared(t).hosts["nfs1"]
			sysArray(h, "md5", c.state, c.level, c.layout, c.members...)
			s := h.service(testConfig()).storage.(*mdraid.Kind)
			st, err := s.ArraysState()
			if st != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("state %v, %v", st, err)
			}
			err = s.WholeArrays()
			if (err == nil) != (c.whole == "") || err != nil && !strings.Contains(err.Error(), c.whole) {
				t.Errorf("a start: %v", err)
			}
		})
	}
}

// One array of two is there: that is neither up nor down.
func TestOneArrayOfTwo(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	c := testConfig()
	c.Arrays = append(c.Arrays, mdraid.Array{Name: "r1", UUID: "11111111:22222222:33333333:44444444", Members: []string{"/dev/mapper/e0"}, Need: 1})
	sysArray(h, "md5", "clean", "raid6", 2, "in_sync", "in_sync", "in_sync", "in_sync")
	s := h.service(c).storage.(*mdraid.Kind)
	if st, err := s.ArraysState(); st != unit.Broken || err == nil || !strings.Contains(err.Error(), "array r1 is not assembled") {
		t.Errorf("%v, %v", st, err)
	}
	if err := s.WholeArrays(); err == nil || !strings.Contains(err.Error(), "array r1 is not assembled") {
		t.Error(err)
	}
	if !s.Up() {
		t.Error("a part of the storage is up")
	}
}

// The kernel does not tell the UUID of an inactive array: its members do.
func TestInactiveArrayIsKnownByAMember(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.files["/sys/block/md5/md/array_state"] = "inactive\n"
	h.files["/sys/block/md5/slaves/gone"], h.files["/sys/block/md5/slaves/d0"] = "", ""
	h.disks["/dev/d0"] = h.disks["/dev/mapper/d0"]
	s := h.service(testConfig()).storage.(*mdraid.Kind)
	if st, err := s.ArraysState(); st != unit.Broken || err == nil || !strings.Contains(err.Error(), "md5 is inactive") {
		t.Errorf("%v, %v", st, err)
	}
}

// The watcher counts paths: of an assembled array those of its slots, of one
// that is not assembled those of the members in the configuration.
func TestReachable(t *testing.T) {
	for _, c := range []struct {
		name    string
		running bool // the array is assembled here
		need    int
		lost    []int
		want    bool
	}{
		{"all", false, 4, nil, true},
		{"as many as are needed", false, 4, []int{0, 3}, true},
		{"one too few", false, 4, []int{0, 1, 2}, false},
		{"a configuration of an earlier build: one is enough", false, 0, []int{0, 1, 2, 3, 4}, true},
		{"a configuration of an earlier build: none", false, 0, []int{0, 1, 2, 3, 4, 5}, false},
		{"assembled, all", true, 4, nil, true},
		{"assembled, two of RAID 6 gone", true, 4, []int{1, 5}, true},
		{"assembled, three of RAID 6 gone", true, 4, []int{1, 3, 5}, false},
	} {
		h := newShared(t).hosts["nfs1"]
		h.cabled(true)
		for _, i := range c.lost {
			h.files[fmt.Sprintf("/sys/block/d%d/device/state", i)] = "transport-offline\n"
		}
		if c.running {
			sysArray(h, "md5", "clean", "raid6", 2, "in_sync", "in_sync", "in_sync", "in_sync", "in_sync", "in_sync")
		}
		cfg := testConfig()
		cfg.Arrays[0].Need = c.need
		if got := h.service(cfg).storage.Reachable(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A host that has just booted waits for members that come late; another one
// judges what is there. A disk that has two names in the configuration is one.
func TestLookAtMembers(t *testing.T) {
	for _, c := range []struct {
		name, uptime string
		appears      time.Duration // of two members; 0: never
		waits        time.Duration
		members      int
		out          bool // one of them, and the other is whole
	}{
		{"after a power cut, two come late", "20.0 1.0", 5 * time.Second, 5 * time.Second, 6, false},
		{"after a power cut, two never come", "20.0 1.0", 0, unit.MemberWait, 4, false},
		{"after a power cut, md had thrown out the one that never comes", "20.0 1.0", 0, 0, 5, true},
		{"on a host that runs", "5000.0 1.0", 5 * time.Second, 0, 4, false},
		{"whose uptime is not known", "", 5 * time.Second, 0, 4, false},
	} {
		sh := newShared(t)
		h := sh.hosts["nfs1"]
		h.uptime = c.uptime
		cfg := testConfig()
		cfg.Arrays[0].Members = append(cfg.Arrays[0].Members, "/dev/mapper/d2")
		late := []*fakeDisk{h.disks["/dev/mapper/d4"], h.disks["/dev/mapper/d5"]}
		if c.out {
			late = late[1:]
			for _, d := range h.disks {
				d.without = 6
			}
		}
		for _, d := range late {
			d.gone = true
		}
		begin := h.clock
		s := h.service(cfg).storage.(*mdraid.Kind)
		s.K = waking{s.K, func() {
			if c.appears > 0 && h.clock.Sub(begin) >= c.appears {
				for _, d := range late {
					d.gone = false
				}
			}
		}}
		all, err := s.Await(t.Context())
		v := append(all, mdraid.Verdict{})[0]
		if err != nil || len(v.Members) != c.members || v.Missing != 6-c.members || h.clock.Sub(begin) != c.waits {
			t.Errorf("%s: %+v after %v, %v", c.name, v, h.clock.Sub(begin), err)
		}
	}
}

// waking calls wake after each sleep.
type waking struct {
	kernel.Host
	wake func()
}

func (w waking) Sleep(ctx context.Context, d time.Duration) error {
	defer w.wake()
	return w.Host.Sleep(ctx, d)
}

// The next look comes when a pending change would count: both servers of a pair tell
// of what both have lost, or have back, at the same time.
func TestNextLook(t *testing.T) {
	t0 := time.Unix(1000, 0)
	storage := attrStorage + "home"
	for _, c := range []struct {
		name  string
		level attribute
		of    string
		want  time.Duration
	}{
		{"nothing pends", attribute{known: true, value: true}, attrLink, unit.WatchTick},
		{"a link has just gone", attribute{known: true, value: true, since: t0, wait: lostAfter}, attrLink, lostAfter},
		{"it went 300 ms ago", attribute{known: true, value: true, since: t0.Add(-300 * time.Millisecond), wait: lostAfter}, attrLink, 200 * time.Millisecond},
		{"it is due", attribute{known: true, value: true, since: t0.Add(-time.Minute), wait: lostAfter}, attrLink, 10 * time.Millisecond},
		{"disks have just gone", attribute{known: true, value: true, since: t0, wait: storageLostAfter}, storage, storageLostAfter},
		{"a link comes back", attribute{known: true, since: t0, wait: foundAfter}, attrLink, unit.WatchTick},
		{"it has almost proved itself", attribute{known: true, since: t0.Add(700*time.Millisecond - foundAfter), wait: foundAfter}, attrLink, 700 * time.Millisecond},
	} {
		if got := (attributes{c.of: &c.level}).next(t0); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// failing makes some commands of a host fail.
type failing struct {
	kernel.Host
	bad func(argv []string) bool
	ran []string
}

func (f *failing) Run(ctx context.Context, c kernel.Command) (string, error) {
	f.ran = append(f.ran, strings.Join(c.Argv, " "))
	if f.bad(c.Argv) {
		return "", errors.New("it does not work")
	}
	return f.Host.Run(ctx, c)
}

func (f *failing) count(prefix string) int {
	return len(slices.DeleteFunc(slices.Clone(f.ran), func(r string) bool { return !strings.HasPrefix(r, prefix) }))
}

// lostDisks has a server that serves lose its disks, seen by a watcher.
func lostDisks(t *testing.T, sh *shared) (h *fakeHost, w *watcher, look func(time.Duration)) {
	t.Helper()
	h = sh.hosts["nfs1"]
	s := h.service(testConfig())
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	h.cabled(true)
	w = h.watcher(s)
	look = func(after time.Duration) {
		h.clock = h.clock.Add(after)
		w.look(t.Context())
	}
	look(0)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.cabled(false)
	look(time.Second)
	return h, w, look
}

// A wish to be fenced that the cluster did not hear is told again, and one is
// never made while the partner's attribute is not known.
func TestWishThatIsNotHeard(t *testing.T) {
	sh := newShared(t)
	sh.attrs["nfs2 "+attrStorage+"home"] = "1"
	h, w, look := lostDisks(t, sh)
	deaf := &failing{Host: h, bad: func(a []string) bool { return a[0] == "attrd_updater" && a[1] == "--query" }}
	w.k = deaf
	look(2 * time.Second)
	if sh.attrs["nfs1 "+attrFence] != "" || deaf.count("attrd_updater --query") != 1 {
		t.Errorf("asked to be fenced, without knowing that the partner can do better: %q", deaf.ran)
	}
	deaf.bad = func(a []string) bool { return a[2] == attrFence }
	look(time.Second)
	look(time.Second)
	if n := deaf.count("attrd_updater --name " + attrFence); n != 2 || sh.attrs["nfs1 "+attrFence] != "" {
		t.Errorf("%d tries: %q", n, deaf.ran)
	}
	deaf.bad = func([]string) bool { return false }
	look(time.Second)
	look(time.Second)
	if n := deaf.count("attrd_updater --name " + attrFence); n != 3 || sh.attrs["nfs1 "+attrFence] != "true" {
		t.Errorf("%d tries, terminate is %q", n, sh.attrs["nfs1 "+attrFence])
	}
}

// Of two services one has lost its disks: that one dooms the server, whatever
// the other's state and their order.
func TestOneServiceOfTwoIsLost(t *testing.T) {
	for _, first := range []bool{true, false} {
		sh := newShared(t)
		sh.attrs["nfs2 "+attrStorage+"home"] = "1"
		h, w, look := lostDisks(t, sh)
		other := testConfig()
		other.Service, other.Arrays = "other", []mdraid.Array{{Name: "r9", UUID: "99999999:22222222:33333333:44444444", Members: []string{"/dev/e0"}, Need: 1}}
		h.files["/dev/e0"], h.files["/sys/block/e0/device/state"] = "", "running\n"
		if first {
			w.services = append(w.services, h.service(other))
		} else {
			w.services = append([]*service{h.service(other)}, w.services...)
		}
		look(2 * time.Second)
		look(time.Second)
		if sh.attrs["nfs1 "+attrFence] != "true" || sh.attrs["nfs1 "+attrStorage+"other"] != "1" {
			t.Errorf("lost one first %v: %v", first, sh.attrs)
		}
	}
}

// A route that cannot be set is tried again at each look; an address that is
// none is left out.
func TestBarIsTriedAgain(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	cfg := testConfig()
	cfg.Fences = []string{"bmc.example", "10.2.0.11"}
	w := h.watcher(h.service(cfg))
	f := &failing{Host: h, bad: func(a []string) bool { return a[2] == "replace" }}
	w.k = f
	w.blockFencing(t.Context(), true)
	w.blockFencing(t.Context(), true)
	if n := f.count("ip route replace unreachable 10.2.0.11/32"); n != 2 || len(f.ran) != 2 || w.fencingBlocked != nil {
		t.Errorf("%q", f.ran)
	}
	f.bad = func([]string) bool { return false }
	w.blockFencing(t.Context(), true)
	w.blockFencing(t.Context(), true)
	if len(f.ran) != 3 || w.fencingBlocked == nil || !*w.fencingBlocked {
		t.Errorf("%q", f.ran)
	}
}

// Without the public address there is no link, and without rings no server is cut
// off; an address that no interface has counts as one without a link.
func TestLinks(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	cfg := testConfig()
	w := h.watcher(h.service(cfg))
	for _, c := range []struct {
		name, carrier string
		rings         []string
		link, cutOff  bool
	}{
		{"well", "1\n", []string{"10.0.0.1"}, true, false},
		{"no carrier", "0\n", []string{"10.0.0.1"}, false, true},
		{"no rings in the file", "0\n", nil, false, false},
		{"a ring that is no address, and one without an interface", "1\n", []string{"ring", "10.9.9.9"}, true, true},
	} {
		h.files["/sys/class/net/eth0/carrier"] = c.carrier
		cfg.Rings = map[string][]string{"nfs1": c.rings}
		if w.link() != c.link || w.cutOff() != c.cutOff {
			t.Errorf("%s: link %v, cut off %v", c.name, w.link(), w.cutOff())
		}
	}
	clear(h.addrs)
	if w.link() {
		t.Error("a link without the address")
	}
}

// A failure is reported once in half a minute.
func TestFailureIsReportedOnce(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	w := h.watcher(h.service(testConfig()))
	f := &failing{Host: h, bad: func([]string) bool { return true }}
	w.k = f
	for i, want := range []int{1, 1, 2} {
		w.fail(t.Context(), w.services[0], "nfsd is gone")
		if n := f.count("crm_resource --fail --resource service-home --node nfs1"); n != want {
			t.Errorf("call %d: %d reports", i, n)
		}
		h.clock = h.clock.Add(20 * time.Second)
	}
}

// A watcher is made of files that are all good, for the server that they name.
func TestNewWatcher(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	dir := t.TempDir()
	file := func(name string, edit func(c *Config)) string {
		c := testConfig()
		edit(c)
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	good := file("good.json", func(*Config) {})
	for _, c := range []struct {
		files []string
		err   string
	}{
		{[]string{good}, ""},
		{nil, "no service to watch"},
		{[]string{good, filepath.Join(dir, "none.json")}, "none.json"},
		{[]string{good, file("other.json", func(c *Config) { c.Nodes = map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"} })}, "host nfs1 is not in nodes"},
	} {
		w, err := newWatcher(h, c.files, t.Logf)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || err == nil && len(w.services) != len(c.files) {
			t.Errorf("%v: %v", c.files, err)
		}
	}
}

// A message of the kernel has the watcher look at once, not at its next tick.
func TestEventWakes(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.cabled(true)
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := h.watcher(h.service(testConfig()))
	looks := make(chan struct{})
	w.k = ticking{h, func() { // asked in each look
		select {
		case looks <- struct{}{}:
		case <-ctx.Done():
		}
	}}
	events, ended := make(chan struct{}), make(chan struct{})
	go func() { w.run(ctx, events); close(ended) }()
	sent := make(chan struct{})
	go func() { // two looks are begun by two events
		events <- struct{}{}
		events <- struct{}{}
		close(sent)
	}()
	for open := true; open; {
		select {
		case <-looks:
		case <-sent:
			open = false
		}
	}
	cancel()
	<-ended
}

// ticking is a host whose clock tells that it is read.
type ticking struct {
	kernel.Host
	read func()
}

func (k ticking) Now() time.Time {
	k.read()
	return k.Host.Now()
}

// blind is a host on which a device cannot be read.
type blind struct {
	kernel.Host
	dev string
}

func (b blind) ReadBlocks(dev string, off int64, n int) ([]byte, error) {
	if dev == b.dev {
		return nil, errors.New("input/output error")
	}
	return b.Host.ReadBlocks(dev, off, n)
}

// TestMonitorOfAnOwnerThatIsNobody: a service that runs and does not own its
// volume has failed; that another server owns it is tested elsewhere.
func TestMonitorOfAnOwnerThatIsNobody(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(sh *shared, s *service)
		says  string
	}{
		{"well", func(*shared, *service) {}, ""},
		{"under construction while it runs", func(sh *shared, _ *service) { sh.owner = BuildingID("at-rest") }, "[taken] owner=at-rest-building"},
		{"the owner cannot be read", func(sh *shared, s *service) { s.K = blind{s.K, "/dev/" + sh.hosts["nfs1"].md[arrayUUID]} }, "input/output error"},
		{"a cache of another volume", func(_ *shared, s *service) { s.cfg.Cache, s.cache = "/nowhere/cache.json", nil }, "/nowhere/cache.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			s := h.service(testConfig())
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.spoil(sh, s)
			st, err := s.monitor(t.Context())
			if c.says == "" {
				if st != unit.Running || err != nil {
					t.Errorf("%v %v", st, err)
				}
				return
			}
			if st != unit.Broken || !says(err, c.says) {
				t.Errorf("%v %v", st, err)
			}
			if slices.ContainsFunc(h.changes, func(x string) bool { return strings.Contains(x, "sysrq") }) {
				t.Error("the server is reset for an owner that is no server")
			}
		})
	}
}

// A server that was frozen may wake up after its partner has taken the volume and
// stopped the service in good order. Unmounting would write what is outdated.
func TestTakenAndGivenBack(t *testing.T) {
	for name, action := range map[string]func(*testing.T, *service) error{
		"monitor": func(t *testing.T, s *service) error { _, err := s.monitor(t.Context()); return err },
		"stop":    func(t *testing.T, s *service) error { return s.stop(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			s := h.service(testConfig())
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			n := len(h.changes)
			sh.owner = "at-rest"
			if err := action(t, s); !says(err, "[taken] vg=vg-a owner=at-rest") {
				t.Error(err)
			}
			if got := h.changes[n:]; len(got) != 2 || got[1] != "poke /proc/sysrq-trigger b" {
				t.Errorf("%q", got)
			}
		})
	}
}

// What an agent that was killed holds back is let go by the next action; if
// that fails, by the one after it.
func TestHeldIsTriedAgain(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	f := &failing{Host: h, bad: func(a []string) bool { return slices.Contains(a, "--start-exec-queue") }}
	s.K = f
	s.HoldUdev(t.Context())
	for i, bad := range []bool{true, true, false, false} {
		if !bad {
			f.bad = func([]string) bool { return false }
		}
		s.release()
		_, err := h.ReadFile(s.HeldNote().File)
		if (err == nil) != bad || f.count("udevadm control --start-exec-queue") != min(i+1, 3) {
			t.Errorf("round %d: marked %v, %q", i, err == nil, f.ran)
		}
	}
}
