package ocf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// sinceBoot is a host whose uptime follows its clock.
type sinceBoot struct {
	*fakeHost
	booted time.Time
}

func (b sinceBoot) ReadFile(p string) ([]byte, error) {
	if p == "/proc/uptime" {
		return fmt.Appendf(nil, "%.2f 1.0", b.clock.Sub(b.booted).Seconds()), nil
	}
	return b.fakeHost.ReadFile(p)
}

// Seven arrays that each lack a disk are waited for as long as one.
func TestOneWaitForAllArrays(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	cfg := testConfig()
	cfg.Arrays = nil
	for i := range 7 {
		a := mdraid.Array{Name: fmt.Sprintf("r%d", i), UUID: fmt.Sprintf("%032x", 0xa0+i), Need: 4}
		for j := range 6 {
			d := fmt.Sprintf("/dev/mapper/a%dd%d", i, j)
			sh.disks[d] = &fakeDisk{uuid: a.UUID, role: j, events: 100, gone: j == 5}
			a.Members = append(a.Members, d)
		}
		cfg.Arrays = append(cfg.Arrays, a)
	}
	s, begin := h.service(cfg).storage.(*mdraid.Kind), h.clock
	s.K = sinceBoot{h, begin.Add(-time.Minute)}
	verdicts, err := s.LookAll(t.Context())
	if w := h.clock.Sub(begin); w != unit.MemberWait || err != nil {
		t.Errorf("waited %v: %v", w, err)
	}
	for i, v := range verdicts {
		if len(v.Members) != 5 || !slices.Equal(v.Awaited, []int{5}) {
			t.Errorf("array %d: %+v", i, v)
		}
	}
}

// A start leaves spares out. The watcher adds a member that comes late again; the spare if no
// member comes.
func TestLateMember(t *testing.T) {
	const readd, add = "mdadm --manage /dev/md127 --re-add /dev/mapper/d5", "mdadm --manage /dev/md127 --add /dev/mapper/d6"
	for name, c := range map[string]struct {
		out    bool // md had thrown it out before
		comes  time.Duration
		locked bool // until it has come
		want   []string
		left   bool // it is still waited for at the end
	}{
		"it comes back":               {comes: time.Minute, want: []string{readd}},
		"while the service is locked": {comes: time.Minute, locked: true, want: []string{readd}},
		"it never comes":              {comes: time.Hour, want: []string{add}, left: true},
		"md had thrown it out":        {comes: time.Minute, out: true, want: []string{add}},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			h.cabled(true)
			cfg := testConfig()
			cfg.Arrays[0].Members = append(cfg.Arrays[0].Members, "/dev/mapper/d6")
			h.files["/sys/block/d6/device/state"] = "running\n"
			sh.disks["/dev/mapper/d6"] = &fakeDisk{uuid: arrayUUID, role: 6, events: 100}
			for _, d := range sh.disks {
				if c.out {
					d.without = 6
				}
			}
			sh.disks["/dev/mapper/d5"].gone = true
			s := h.service(cfg)
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(h.changes, func(x string) bool { return strings.HasPrefix(x, "mdadm --assemble") })
			if strings.Contains(h.changes[i], "/dev/mapper/d6") {
				t.Errorf("the spare is not left out: %s", h.changes[i])
			}
			w := h.watcher(s)
			begin, n := h.clock, len(h.changes)
			w.lock = func(string) (func(), error) {
				if c.locked && h.clock.Sub(begin) < c.comes+time.Minute {
					return nil, errors.New("locked")
				}
				return func() {}, nil
			}
			for h.clock.Sub(begin) < 3*time.Minute+5*time.Minute {
				h.clock = h.clock.Add(unit.WatchTick)
				sh.disks["/dev/mapper/d5"].gone = h.clock.Sub(begin) < c.comes
				w.reacts(t.Context(), s, "md")
			}
			did := slices.DeleteFunc(slices.Clone(h.changes[n:]), func(x string) bool { return !strings.HasPrefix(x, "mdadm") })
			if !slices.Equal(did, c.want) {
				t.Errorf("%q", did)
			}
			if _, err := h.ReadFile(s.storage.(*mdraid.Kind).Late.LateNote().File); (err == nil) != c.left {
				t.Errorf("waited for: %v", err)
			}
			if err := s.stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, note := range []string{s.storage.(*mdraid.Kind).Late.LateNote().File, sparesOfHome} {
				if _, err := h.ReadFile(note); err == nil {
					t.Errorf("%s outlives the service", note)
				}
			}
		})
	}
}

// No spare of another array is moved while a member of the array is waited for.
func TestSpareWaitsForLateMember(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(h.twoGroups())
	m := s.storage.(*mdraid.Kind)
	h.active, h.owner = true, "nfs1"
	if err := m.Late.LateNote().Save([]mdraid.LateArray{{UUID: md.Hex(m.Cfg.Arrays[1].UUID), Numbers: []int{3}}}); err != nil {
		t.Fatal(err)
	}
	spareDue(m, h.clock)
	m.Late.LateSince = h.clock
	for after, want := range map[time.Duration]bool{30 * time.Second: false, 3*time.Minute - time.Second: false, 3 * time.Minute: true} {
		h.clock = m.Late.LateSince.Add(after)
		if ok := spareDue(m, h.clock); ok != want {
			t.Errorf("after %v: %v", after, ok)
		}
		h.clock = m.Late.LateSince
	}
}
