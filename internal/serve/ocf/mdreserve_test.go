package ocf

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

const (
	diskOf1  = `nfs1 1 nfs2 0, held by "nfs1"`
	diskFree = `nfs1 0 nfs2 0, held by ""`
)

// disk is the reservation of a disk of the model.
func (sh *shared) disk(i int) *fakeLUN { return &sh.disks[fmt.Sprintf("/dev/mapper/d%d", i)].res }

// A start reserves every disk before it reads the first superblock, takes those of the partner,
// and goes without a disk that does not answer, as long as the level can spare it.
func TestDisksAreReserved(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*shared, *fakeHost)
		refuse string
		not    []int // disks that are not reserved
	}{
		"no server":              {func(*shared, *fakeHost) {}, "", nil},
		"the partner":            {func(sh *shared, _ *fakeHost) { heldBy(sh, "nfs2") }, "", nil},
		"itself, crashed":        {func(sh *shared, _ *fakeHost) { heldBy(sh, "nfs1") }, "", nil},
		"the partner registered": {func(sh *shared, _ *fakeHost) { heldBy(sh, "nfs2"); sh.disk(1).holder = "" }, "", nil},
		"two hang": {func(sh *shared, h *fakeHost) {
			heldBy(sh, "nfs2")
			h.hung = map[string]bool{"/dev/mapper/d0": true, "/dev/mapper/d5": true}
		}, "", []int{0, 5}},
		"three hang": {func(sh *shared, h *fakeHost) {
			h.hung = map[string]bool{"/dev/mapper/d0": true, "/dev/mapper/d1": true, "/dev/mapper/d5": true}
		}, "[too-few] array=r0 missing=3 level=6", []int{0, 1, 2, 3, 4, 5}},
		"one knows none":  {func(sh *shared, _ *fakeHost) { sh.disks["/dev/mapper/d2"].unable = true }, "", []int{2}},
		"a third machine": {func(sh *shared, _ *fakeHost) { sh.disk(3).take("backup-host") }, "disk d3: keys of no server of this cluster are registered: 0x0000000000000bad: another machine uses it", []int{0, 1, 2, 3, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			sh, h, s, _ := reserved(t, storageSpecimens[onResDisks])
			c.before(sh, h)
			err := s.start(t.Context())
			if (err == nil) != (c.refuse == "") || err != nil && !says(err, c.refuse) {
				t.Fatal(err)
			}
			if at := slices.IndexFunc(h.changes, func(c string) bool { return strings.HasPrefix(c, "mdadm") }); err == nil && slices.ContainsFunc(h.changes[at:], func(c string) bool { return strings.HasPrefix(c, "reserve /dev") }) {
				t.Errorf("%q", h.changes)
			}
			if err != nil {
				if err := s.stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 6 {
				// A path of before the crash may still be registered.
				if got := strings.Replace(registered(sh.disk(i)), "nfs1 2", "nfs1 1", 1); (got == diskOf1) == slices.Contains(c.not, i) {
					t.Errorf("disk %d: %s", i, got)
				}
			}
			if err != nil {
				return
			}
			if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
				t.Error(st, err)
			}
			// The partner's reservation of a disk that was left out is taken once it answers.
			clear(h.hung)
			if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
				t.Error(st, err)
			}
			for i := range 6 {
				if got := strings.Replace(registered(sh.disk(i)), "nfs1 2", "nfs1 1", 1); got != diskOf1 && !sh.disks[fmt.Sprintf("/dev/mapper/d%d", i)].unable {
					t.Errorf("disk %d answers: %s", i, got)
				}
			}
			if err := s.stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				if got := registered(sh.disk(i)); got != diskFree {
					t.Errorf("after the stop disk %d: %s", i, got)
				}
			}
		})
	}
}

// What a monitor finds of the reservations of a service that runs, and does; and what the
// watcher sees before.
func TestDisksStayReserved(t *testing.T) {
	forget := func(l *fakeLUN) { l.keys, l.holder, l.generation = nil, "", 0 }
	for name, c := range map[string]struct {
		then  func(*shared, *fakeHost)
		reset bool
		want  string // of disk 0
	}{
		"nothing": {func(*shared, *fakeHost) {}, false, diskOf1},
		"taken":   {func(sh *shared, _ *fakeHost) { heldBy(sh, "nfs2") }, true, `nfs1 0 nfs2 1, held by "nfs2"`},
		"taken, and multipathd came late": {func(sh *shared, _ *fakeHost) {
			sh.disk(0).take("nfs2")
			sh.disk(0).keys["nfs1 x"] = fakeKey("nfs1")
		}, true, `nfs1 1 nfs2 1, held by "nfs2"`},
		"one taken":                        {func(sh *shared, _ *fakeHost) { sh.disk(0).take("nfs2") }, true, `nfs1 0 nfs2 1, held by "nfs2"`},
		"taken and left":                   {func(sh *shared, _ *fakeHost) { forget(sh.disk(0)); sh.disk(0).generation = 9 }, true, diskFree},
		"without power":                    {func(sh *shared, _ *fakeHost) { forget(sh.disk(0)) }, false, diskOf1},
		"a stranger":                       {func(sh *shared, _ *fakeHost) { sh.disk(0).take("backup-host") }, false, `nfs1 0 nfs2 0, held by "backup-host"`},
		"no path":                          {func(_ *shared, h *fakeHost) { delete(h.files, "/sys/block/d0/device/state") }, false, diskOf1},
		"not held":                         {func(sh *shared, _ *fakeHost) { sh.disk(0).holder = "" }, false, diskOf1},
		"the partner is registered":        {func(sh *shared, _ *fakeHost) { sh.disk(0).keys["nfs2 x"] = fakeKey("nfs2") }, false, diskOf1},
		"a new disk":                       {func(sh *shared, h *fakeHost) { newDisk(sh, h) }, false, diskOf1},
		"a late disk that the partner had": {func(sh *shared, h *fakeHost) { newDisk(sh, h); sh.disk(0).take("nfs2") }, false, diskOf1},
		"never reserved": {func(sh *shared, h *fakeHost) {
			for i := range 6 {
				forget(sh.disk(i))
			}
			delete(h.files, "/run/mortar/reserved-home")
		}, false, diskOf1},
		"never reserved, and the partner has it": {func(sh *shared, h *fakeHost) {
			heldBy(sh, "nfs2")
			delete(h.files, "/run/mortar/reserved-home")
		}, true, `nfs1 0 nfs2 1, held by "nfs2"`},
	} {
		for _, by := range []string{"monitor", "stop", "watcher"} {
			t.Run(name+"/"+by, func(t *testing.T) {
				sh, h, s, _ := reserved(t, storageSpecimens[onResDisks])
				if err := s.start(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.then(sh, h)
				n := len(h.changes)
				switch by {
				case "monitor":
					if _, err := s.monitor(t.Context()); (err != nil) != c.reset {
						t.Error(err)
					}
				case "stop":
					if err := s.stop(t.Context()); (err != nil) != c.reset {
						t.Error(err)
					}
				case "watcher":
					g := h.watcher(s).guardOf(s)
					for i := 0; i < 6 && !h.dead; i++ {
						g.look(t.Context())
					}
				}
				did := h.changes[n:]
				if reset := slices.Contains(did, "poke /proc/sysrq-trigger b"); reset != c.reset && (by != "watcher" || strings.HasPrefix(name, "never") == false) {
					t.Errorf("%q", did)
				}
				// No client may be answered by a server that counts as fenced.
				if by == "watcher" && h.dead && (len(did) < 2 || !strings.HasPrefix(did[0], "address - ")) {
					t.Errorf("%q: the address is not given up first", did)
				}
				if by == "monitor" {
					if got := registered(sh.disk(0)); got != c.want {
						t.Errorf("%s, want %s", got, c.want)
					}
				}
			})
		}
	}
}

// newDisk makes disk 0 one that this server has not reserved yet.
func newDisk(sh *shared, h *fakeHost) {
	*sh.disk(0) = fakeLUN{generation: 4}
	h.files["/run/mortar/reserved-home"] = "/dev/mapper/d1\n/dev/mapper/d2\n"
}

// An order goes to a process and comes back whole.
func TestOrders(t *testing.T) {
	sh, h, s, _ := reserved(t, storageSpecimens[onResDisks])
	o := pr.Order{Do: pr.DoTake, What: "disk d0", Device: "/dev/mapper/d0", Node: "nfs1", Servers: s.cfg.keys(), Paths: []string{"/dev/d0"}}
	if d := o.Carry(h.Path); d.Err() != nil || d.Holder != fakeKey("nfs1") || registered(sh.disk(0)) != diskOf1 {
		t.Errorf("%+v", d)
	}
	a := h.Ask(t.Context(), kernel.AskLimit, []kernel.Question{{Dev: "/dev/mapper/d0", Order: &o}})
	if len(a) != 1 || a[0].Err != nil || !strings.Contains(string(a[0].Data), fakeKeys["nfs1"]) {
		t.Errorf("%+v", a)
	}
}
