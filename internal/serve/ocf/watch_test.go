package ocf

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

func TestJudgement(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	type step struct {
		s    float64
		ok   bool
		want string // value told, "" for none
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"the first observation counts at once", []step{{0, false, "0"}, {1, false, ""}}},
		{"well stays well", []step{{0, true, "1"}, {2, true, ""}, {50, true, ""}}},
		{"told again after a minute", []step{{0, true, "1"}, {59, true, ""}, {60, true, "1"}, {61, true, ""}}},
		{"a blink is no loss", []step{{0, true, "1"}, {1, false, ""}, {1.4, true, ""}, {1.6, false, ""}, {2, false, ""}}},
		{"a loss counts after half a second", []step{{0, true, "1"}, {1, false, ""}, {1.5, false, "0"}}},
		{"what comes back must stay", []step{{0, true, "1"}, {1, false, ""}, {1.5, false, "0"}, {2, true, ""}, {10, false, ""}, {11, true, ""}, {20.9, true, ""}, {21, true, "1"}}},
	} {
		j := attributes{}
		for _, st := range c.steps {
			got := ""
			for _, n := range j.update(at(st.s), observation{attrLink: st.ok}) {
				got = number(j[n].value)
				j[n].unheard, j[n].told = false, at(st.s)
			}
			if got != st.want {
				t.Errorf("%s: at %v s told %q, want %q", c.name, st.s, got, st.want)
			}
		}
	}
}

// What both servers may lose is held back until both have told; what only one server
// knows is not.
func TestTold(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.cabled(true)
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	k := &failing{Host: h, bad: func([]string) bool { return false }}
	w := h.watcher(h.service(testConfig()))
	w.k = k
	look := func(after time.Duration, want ...string) {
		t.Helper()
		k.ran = nil
		h.clock = h.clock.Add(after)
		w.look(t.Context())
		told := slices.DeleteFunc(k.ran, func(c string) bool { return !strings.HasPrefix(c, "attrd_updater --name mortar-") })
		for i := range told {
			told[i] = strings.TrimPrefix(told[i], "attrd_updater --name mortar-")
		}
		if !slices.Equal(told, want) {
			t.Errorf("%q, want %q", told, want)
		}
	}
	look(0, "link --update-both 1 --delay 5", "storage-home --update-both 1 --delay 5")
	h.files["/sys/class/net/eth0/carrier"] = "0\n"
	h.cabled(false)
	look(0)
	look(lostAfter, "link --update-both 0 --delay 1")
	look(storageLostAfter, "storage-home --update-both 0 --delay 0")
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	h.cabled(true)
	look(0)
	look(foundAfter, "link --update-both 1 --delay 5", "storage-home --update-both 1 --delay 5")
	// As the daemon may have forgotten them. Another delay would have it write at once
	// what it holds back.
	look(tellAgain, "link --update 1 --delay 5", "storage-home --update 1 --delay 5")
}

func TestAttributeOn(t *testing.T) {
	out := `name="mortar-storage-home" host="nfs1" value="0"
name="mortar-storage-home" host="nfs2" value="1"
name="mortar-storage-home" host="nfs3" value="(null)"
`
	if got := attributeOn(out, "1"); !slices.Equal(got, []string{"nfs2"}) {
		t.Error(got)
	}
}

// cabled has each disk of the fake connected, or none.
func (h *fakeHost) cabled(yes bool) {
	for _, d := range []string{"d0", "d1", "d2", "d3", "d4", "d5"} {
		f := "/sys/block/" + d + "/device/state"
		delete(h.files, f)
		if yes {
			h.files[f] = "running\n"
		}
	}
}

func (h *fakeHost) watcher(s *service) *watcher {
	w := blankWatcher(h, h.t.Logf)
	w.services = []*service{s}
	w.lock = func(string) (func(), error) { return func() {}, nil }
	return w
}

// reacts lets those rows of a service look whose names begin so.
func (w *watcher) reacts(ctx context.Context, s *service, name string) {
	for _, rows := range w.watched(s).table {
		w.react(ctx, s, slices.DeleteFunc(slices.Clone(rows), func(r *unit.Reflex) bool { return !strings.HasPrefix(r.Name, name) }))
	}
}

func TestHasPath(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	h.files["/sys/block/dm-10/slaves/sda"] = ""
	h.files["/sys/block/dm-10/slaves/sdb"] = "" // a path that is gone leaves its link
	h.files["/sys/block/sda/device/state"] = "running\n"
	h.files["/sys/block/dm-11/slaves/sdc"] = ""
	h.files["/sys/block/sdc/device/state"] = "transport-offline\n"
	h.files["/sys/block/nvme0n1/device/state"] = "live\n"
	h.files["/sys/block/nvme1n1/device/nvme1/state"] = "deleting\n" // native multipath
	h.files["/sys/block/nvme1n1/device/nvme2/state"] = "live\n"
	h.files["/sys/block/nvme3n1/device/nvme3/state"] = "deleting\n"
	h.files["/sys/block/nvme3n1/device/nvme4/state"] = "connecting\n"
	h.files["/sys/block/vdc/size"] = "1\n"
	for dev, want := range map[string]bool{"dm-10": true, "dm-11": false, "dm-12": false, "nvme0n1": true, "nvme1n1": true, "nvme3n1": false, "vdc": true, "sdb": false} {
		if s.HasPath(dev) != want {
			t.Errorf("%s: %v", dev, !want)
		}
	}
}

func TestWatcher(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(testConfig())
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	h.cabled(true)
	ctx := context.Background()
	w := h.watcher(s)
	look := func(after time.Duration) {
		h.clock = h.clock.Add(after)
		w.look(ctx)
	}
	attr := func(name, want string) {
		t.Helper()
		if got := sh.attrs["nfs1 "+name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	look(0)
	attr(attrLink, "1")
	attr(attrStorage+"home", "1")

	// Two disks of a RAID 6 are no loss, the link is.
	delete(h.files, "/sys/block/d0/device/state")
	delete(h.files, "/sys/block/d1/device/state")
	h.files["/sys/class/net/eth0/carrier"] = "0\n"
	look(time.Second)
	look(time.Second)
	attr(attrLink, "0")
	attr(attrStorage+"home", "1")
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	look(time.Second)
	look(foundAfter)
	attr(attrLink, "1")

	// Without any path, and without the service, no server is fenced.
	h.cabled(false)
	look(time.Second)
	look(2 * time.Second)
	attr(attrStorage+"home", "0")
	attr(attrFence, "")
	h.cabled(true)
	look(time.Second)
	look(foundAfter)
	attr(attrStorage+"home", "1")

	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	look(time.Second)

	// With the service the partner decides: it cannot reach them either.
	sh.attrs["nfs2 "+attrStorage+"home"] = "0"
	h.cabled(false)
	look(time.Second)
	if name, _, _ := nfsOf(s).Present(); name == "" {
		t.Error("the address is gone at once")
	}
	look(2 * time.Second)
	attr(attrStorage+"home", "0")
	attr(attrFence, "")
	if name, _, _ := nfsOf(s).Present(); name != "" {
		t.Error("clients can still be answered with an error")
	}
	sh.attrs["nfs2 "+attrStorage+"home"] = "1"
	look(time.Second)
	attr(attrFence, "true")
}

// I/O to LUNs waits. An array that is off is lost to both servers, and the one that
// sees it first does not ask to be fenced before the other has told the cluster.
// Clients are cut off only when their I/O is about to fail.
func TestWatcherOfLUNs(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	c := testConfig()
	c.MDStorage = nil
	withLUNs(c, sh)
	c.VolumeGroup, c.QueueSeconds = testConfig().VolumeGroup, 150
	s := h.service(c)
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	ctx := t.Context()
	w := h.watcher(s)
	look := func(after time.Duration) {
		h.clock = h.clock.Add(after)
		w.look(ctx)
	}
	paths := func(n int) {
		for _, l := range sh.luns {
			l.paths = n
		}
	}
	sh.attrs["nfs2 "+attrStorage+"home"] = "1"
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	look(0)
	paths(0)
	look(time.Second)
	look(2 * time.Second)
	if sh.attrs["nfs1 "+attrStorage+"home"] != "1" || sh.attrs["nfs1 "+attrFence] != "" {
		t.Errorf("it acts before its partner could tell: %v", sh.attrs)
	}
	sh.attrs["nfs2 "+attrStorage+"home"] = "0"
	look(2 * time.Second)
	look(2 * time.Second)
	if sh.attrs["nfs1 "+attrStorage+"home"] != "0" || sh.attrs["nfs1 "+attrFence] != "" {
		t.Errorf("both have lost the array: %v", sh.attrs)
	}
	present := func() bool {
		name, _, err := nfsOf(s).Present()
		return name != "" && err == nil
	}
	mustState(t, s, unit.Running) // and nothing is read from the LUNs
	if err := s.tryIO(ctx); err != nil || !present() {
		t.Errorf("while I/O waits: %v, address %v", err, present())
	}
	look(125 * time.Second)
	if !present() {
		t.Error("the address is gone while I/O waits")
	}
	look(10 * time.Second)
	if present() {
		t.Error("clients can be answered with an error")
	}
	sh.attrs["nfs2 "+attrStorage+"home"] = "1"
	look(time.Second)
	if sh.attrs["nfs1 "+attrFence] != "true" {
		t.Errorf("the partner could serve: %v", sh.attrs)
	}
}

// A server whose disks come back before it is fenced is healthy: its wish to
// be fenced does not stay behind, also if another watcher expressed it.
func TestWishToBeFencedIsWithdrawn(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(testConfig())
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	sh.attrs["nfs2 "+attrStorage+"home"] = "1"
	h.cabled(true)
	ctx := t.Context()
	w := h.watcher(s)
	look := func(after time.Duration) {
		h.clock = h.clock.Add(after)
		w.look(ctx)
	}
	wish := func(when, want string) {
		t.Helper()
		if got := sh.attrs["nfs1 "+attrFence]; got != want {
			t.Errorf("%s: terminate is %q, want %q", when, got, want)
		}
	}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	lose := func() {
		t.Helper()
		h.cabled(false)
		look(time.Second)
		look(2 * time.Second)
		wish("lost", "true")
	}
	look(0)
	lose()
	look(time.Minute)
	wish("still lost", "true")
	h.cabled(true)
	look(time.Second)
	wish("found", "")
	// A loose plug: the value of the storage is still 0.
	h.cabled(false)
	look(time.Second)
	wish("lost again", "true")

	// The cluster cannot be told at first.
	h.cabled(true)
	sh.deaf = true
	look(time.Second)
	wish("found, nobody listens", "true")
	sh.deaf = false
	look(time.Second)
	wish("found, told again", "")
	look(foundAfter)

	// The watcher is replaced while it is lost, or just after.
	lose()
	w = h.watcher(s)
	h.cabled(true)
	look(0)
	wish("found by another watcher", "")

	// What an administrator set is not the watcher's to take away.
	sh.attrs["nfs1 "+attrFence] = "true"
	look(time.Second)
	wish("set by hand", "true")
}

func TestWatcherRestartsDaemons(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(testConfig())
	ctx := context.Background()
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	w := h.watcher(s)
	for i := range 3 + 1 {
		w.reacts(ctx, s, "nfs")
		if d := nfsOf(s).Nfsd.Dead(); len(d) != 0 {
			t.Fatalf("round %d: %q dead", i, d)
		}
		if i == 3 {
			break
		}
		for pid, p := range h.procs {
			if p.name == "rpc.mountd" {
				delete(h.procs, pid)
			}
		}
		if d := nfsOf(s).Nfsd.Dead(); !slices.Equal(d, []string{"rpc.mountd"}) {
			t.Fatalf("round %d: dead are %q", i, d)
		}
		h.clock = h.clock.Add(time.Second)
	}
	// Enough is enough.
	for pid, p := range h.procs {
		if p.name == "rpc.mountd" {
			delete(h.procs, pid)
		}
	}
	w.reacts(ctx, s, "nfs")
	if d := nfsOf(s).Nfsd.Dead(); !slices.Equal(d, []string{"rpc.mountd"}) {
		t.Errorf("a fourth restart: dead are %q", d)
	}
	// nfsd itself is Pacemaker's to bring back.
	h.nfsd = 0
	w.reacts(ctx, s, "nfs")
	if !slices.ContainsFunc(h.changes, func(c string) bool { return strings.Contains(c, "crm_resource --fail") }) {
		t.Errorf("the loss of nfsd was not reported: %q", h.changes)
	}
}

// A server that has lost all networks has no way to the fence devices, for as
// long as that lasts and a watcher lives.
func TestCutOffServerFencesNobody(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.addrs[netip.MustParsePrefix("10.1.0.1/24")] = "eth1"
	cfg := testConfig()
	cfg.Rings = map[string][]string{"nfs1": {"10.1.0.1", "10.0.0.1"}, "nfs2": {"10.1.0.2", "10.0.0.2"}}
	cfg.Fences = []string{"10.2.0.11", "10.2.0.12"}
	all := []string{"10.2.0.11/32", "10.2.0.12/32"}
	h.cabled(true)
	h.barred = all[:1:1] // of a watcher that was killed
	w := h.watcher(h.service(cfg))
	for _, c := range []struct {
		after           time.Duration
		private, public string
		want            []string
	}{
		{0, "1", "1", nil}, {time.Second, "0", "1", nil}, {time.Second, "1", "0", nil},
		{time.Second, "0", "0", all}, {time.Minute, "0", "0", all}, {time.Second, "", "", all},
		{time.Second, "0", "1", all}, {fencesAfter - 2*time.Second, "1", "1", all}, {time.Second, "1", "1", nil},
		{time.Second, "0", "0", all},
	} {
		h.clock = h.clock.Add(c.after)
		h.files["/sys/class/net/eth1/carrier"], h.files["/sys/class/net/eth0/carrier"] = c.private+"\n", c.public+"\n"
		w.look(t.Context())
		if !slices.Equal(h.barred, c.want) && len(h.barred)+len(c.want) > 0 {
			t.Errorf("private %q, public %q: %q", c.private, c.public, h.barred)
		}
	}
	// It ends: nothing would take the routes away again.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.run(ctx, nil)
	if len(h.barred) > 0 {
		t.Errorf("left: %q", h.barred)
	}
	// Without rings, as an earlier release wrote the file, nothing is known.
	cfg.Rings = nil
	h.clock = h.clock.Add(time.Minute)
	w.look(t.Context())
	if len(h.barred) > 0 {
		t.Errorf("%q", h.barred)
	}
}

// A disk came back after a start was refused without it: the failure is
// forgotten, once.
func TestForgive(t *testing.T) {
	sh := newShared(t)
	for _, d := range sh.disks {
		d.dirty = true
	}
	sh.disks["/dev/mapper/d0"].gone = true
	h := sh.hosts["nfs1"]
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	h.cabled(true)
	s := h.service(testConfig())
	ctx := context.Background()
	if err := s.start(ctx); !says(err, "[in-doubt] arrays=r0") {
		t.Fatalf("it starts: %v", err)
	}
	w := h.watcher(s)
	cleanups := func() (n int) {
		for _, c := range h.changes {
			if strings.HasPrefix(c, "crm_resource --cleanup --resource service-home --node nfs1") {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		gone bool
		want int
	}{{true, 0}, {true, 0}, {false, 1}, {false, 1}} {
		sh.disks["/dev/mapper/d0"].gone = c.gone
		h.clock = h.clock.Add(time.Minute)
		w.look(ctx)
		if got := cleanups(); got != c.want {
			t.Errorf("with the disk gone %v the failure was forgotten %d times, want %d", c.gone, got, c.want)
		}
	}
	if err := s.start(ctx); err != nil {
		t.Errorf("it does not start with all its disks: %v", err)
	}
}

// A start was refused because the array was in doubt. Its partner starts the array, and
// a disk is missing still: the failure is forgotten, and the next start compares anew.
func TestForgiveOldDoubt(t *testing.T) {
	sh := newShared(t)
	for _, d := range sh.disks {
		d.dirty = true
	}
	for _, d := range []string{"d0", "d1"} {
		sh.disks["/dev/mapper/"+d].gone = true
	}
	h := sh.hosts["nfs1"]
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	h.cabled(true)
	s := h.service(testConfig())
	refused := func() {
		t.Helper()
		if err := s.start(t.Context()); !says(err, "[in-doubt] arrays=r0") {
			t.Fatalf("it starts: %v", err)
		}
	}
	w, before := h.watcher(s), 0
	look := func(forgiven bool, when string) {
		t.Helper()
		h.clock = h.clock.Add(time.Minute)
		w.look(t.Context())
		n := 0
		for _, c := range h.changes {
			if strings.HasPrefix(c, "crm_resource --cleanup --resource service-home --node nfs1") {
				n++
			}
		}
		if got := n > before; got != forgiven {
			t.Errorf("%s: the failure was forgotten: %v", when, got)
		}
		before = n
	}
	refused()
	look(false, "nothing has changed")
	sh.disks["/dev/mapper/d1"].gone = false
	look(true, "one of two disks is back")
	refused()
	look(false, "compared again, and in doubt")
	for _, d := range sh.disks {
		d.events++
	}
	look(false, "the partner has started the array with a disk that is not seen here")
	for _, d := range sh.disks {
		d.events++
		d.without = 1 // d0
	}
	look(true, "the partner has started the array without it")
	look(false, "later")
	refused()
	look(false, "compared at the new event")
}
