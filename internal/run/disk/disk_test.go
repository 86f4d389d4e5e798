package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

func brick(t *testing.T, name, more string) *design.Design {
	t.Helper()
	b, err := examples.FS.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", append(b, more...))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFind(t *testing.T) {
	p, err := Find(brick(t, "nfs-ha", ""), "ma02")
	if err != nil || p.String() != "disk MA02 (enclosure A, bay 2) of group brick1-r0" || len(p.servers) != 2 {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := Find(brick(t, "nfs-ha", ""), "XX"); err == nil {
		t.Error(err)
	}
	d := brick(t, "nss2-ha", "")
	if _, err := Find(d, d.Disks[0].Serial); err == nil {
		t.Error(err)
	}
}

// state is a RAID 6 2+2 with members in these states, on disks MA01, MB01, MA02 and
// MB02, and from the fifth on spares.
func state(p *Place, degraded int, states ...string) *State {
	st := &State{Server: "nfs1", Group: p.Group, Array: gather.Array{MDArray: linux.MDArray{Dev: "md127", Level: "raid6", RaidDisks: 4, Degraded: degraded}}}
	for i, s := range states {
		slot := i
		if i >= 4 || strings.HasPrefix(s, "spare") && !strings.Contains(s, "replacement") {
			slot = -1
		}
		dev := "dm-" + string(rune('0'+i))
		serial := []string{"MA01", "MB01", "MA02", "MB02", "MA03", "MB03"}[i]
		st.Array.Members = append(st.Array.Members, linux.MDMember{Dev: dev, States: strings.Split(s, ","), Slot: slot})
		st.disks = append(st.disks, resource.DiskFact{Serial: serial, Paths: []string{"/dev/sda", dev}})
	}
	return st
}

// A disk may leave if the group keeps redundancy: through a spare, or through its
// remaining members. The last redundancy may go only with bare, data never.
func TestMayFail(t *testing.T) {
	p, err := Find(brick(t, "nfs-ha", ""), "MA01")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		st   *State
		bare bool
		may  bool
	}{
		{"a spare takes over", state(p, 0, "in_sync", "in_sync", "in_sync", "in_sync", "spare"), false, true},
		{"no spare, one more may fail", state(p, 0, "in_sync", "in_sync", "in_sync", "in_sync"), false, true},
		{"one is missing", state(p, 1, "in_sync", "faulty", "in_sync", "in_sync"), false, false},
		{"one is missing, asked for", state(p, 1, "in_sync", "faulty", "in_sync", "in_sync"), true, true},
		{"two are missing", state(p, 2, "in_sync", "faulty", "faulty", "in_sync"), true, false},
		{"it has failed", state(p, 1, "faulty", "in_sync", "in_sync", "in_sync"), false, true},
		{"it is gone", &State{Group: p.Group, Array: gather.Array{MDArray: linux.MDArray{RaidDisks: 4, Degraded: 1}}}, false, true},
	} {
		if err := p.MayFail(c.st, c.bare); (err == nil) != c.may {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestMayReplace(t *testing.T) {
	p, err := Find(brick(t, "nfs-ha", ""), "MA01")
	if err != nil {
		t.Fatal(err)
	}
	for states, may := range map[string]bool{"in_sync": false, "in_sync,want_replacement": false, "faulty": true, "spare": true} {
		if err := p.MayReplace(state(p, 0, states, "in_sync", "in_sync", "in_sync"), "brick.yaml"); (err == nil) != may {
			t.Errorf("%s: %v", states, err)
		}
	}
}

// Members missing because of disks taken out of service do not count as a failed
// replacement.
func TestLacks(t *testing.T) {
	for more, want := range map[string]int{"": 1, "\nfailed: [MB02]\n": 0} {
		p, err := Find(brick(t, "nfs-ha", more), "MA01")
		if err != nil {
			t.Fatal(err)
		}
		if n := p.Lacks(state(p, 1, "in_sync", "in_sync", "in_sync", "faulty")); n != want {
			t.Errorf("%q: %d", more, n)
		}
	}
}

// A spare that has moved to another group is judged there: it may hold data.
func TestMovedSpare(t *testing.T) {
	src, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spec.Parse("brick.yaml", []byte(strings.NewReplacer("MA[01-03]", "MA[01-05]", "MB[01-03]", "MB[01-05]").Replace(string(src))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(sp)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	var disks []resource.DiskFact
	member := func(md string, k design.Disk, slot int, state string) {
		dev := "sd" + strings.ToLower(k.Serial)
		disks = append(disks, resource.DiskFact{Serial: k.Serial, Paths: []string{"/dev/" + dev}})
		dir := "/sys/block/" + md + "/md/dev-" + dev
		files[dir+"/state"], files[dir+"/slot"] = state+"\n", fmt.Sprint(slot)+"\n"
	}
	for i, g := range d.Groups {
		dir := fmt.Sprintf("/sys/block/md%d/md/", i)
		files[dir+"uuid"], files[dir+"array_state"], files[dir+"raid_disks"], files[dir+"degraded"], files[dir+"level"] = g.UUID, "clean", "4", "0", "raid6"
		for j, k := range g.Members {
			if i > 0 || j > 0 { // the first member of the first group is gone, and that group's spare was used before
				member(fmt.Sprint("md", i), k, j, "in_sync")
			}
		}
	}
	moved, gone := d.Groups[1].Spares[0], d.Groups[0].Members[0]
	member("md0", moved, 0, "in_sync")
	h := &gather.Host{Files: files, Disks: disks}
	for serial, want := range map[string]string{moved.Serial: "brick1-r0", gone.Serial: "brick1-r0", d.Groups[1].Members[0].Serial: "brick1-r1"} {
		p, err := Find(d, serial)
		if err != nil {
			t.Fatal(err)
		}
		st := p.state("nfs1", h)
		if st == nil || st.Group.Name != want || (st.Member(serial) != nil) != (serial != gone.Serial) {
			t.Errorf("%s: %+v", serial, st)
		}
	}
	p, err := Find(d, moved.Serial)
	if err != nil {
		t.Fatal(err)
	}
	st := p.state("nfs1", h)
	if err := p.MayReplace(st, "brick.yaml"); err == nil {
		t.Errorf("it holds data of %s: %v", st.Group.Name, err)
	}
	if st := p.state("nfs2", &gather.Host{Disks: disks}); st != nil {
		t.Errorf("%+v", st)
	}
}

// rebuilding is what a server says of group 0 while md rebuilds it, or after that.
func rebuilding(p *Place, percent string) gather.Host {
	h := gather.Host{Files: map[string]string{}}
	for f, v := range map[string]string{"array_state": "active", "degraded": "0", "sync_action": "idle", "raid_disks": "4", "uuid": p.Group.UUID, "level": "raid6"} {
		h.Files["/sys/block/md127/md/"+f] = v + "\n"
	}
	text := "Personalities : [raid6]\nmd127 : active raid6 dm-3[3] dm-2[2] dm-1[1] dm-0[0]\n      3905536 blocks super 1.2 level 6, 128k chunk, algorithm 2 [4/4] [UUUU]\n"
	if percent != "" {
		text += "      [==>..................]  recovery = " + percent + "% (37043392/292945152) finish=2.0min speed=33440K/sec\n"
	}
	h.Files["/proc/mdstat"] = text + "unused devices: <none>\n"
	return h
}

// Wait tells of md's progress until the group is idle, also across a server that does not
// answer meanwhile; called again it takes the progress up where md is.
func TestWait(t *testing.T) {
	p, err := Find(brick(t, "nfs-ha", ""), "MA01")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		looks := []string{"10.0", "20.0", "gone", "30.0", "", "", ""}
		at := 0
		hosts := hosttest.Play(func(_ context.Context, name, _ string, _, result any) error {
			if name != "nfs1" || looks[min(at, len(looks)-1)] == "gone" {
				if name == "nfs2" {
					at++
				}
				return errors.New("no route to host")
			}
			at++
			return hosttest.Answer(result, rebuilding(p, looks[min(at, len(looks))-1]))
		})
		var told []string
		on := func(g Progress) {
			told = append(told, fmt.Sprintf("%s %s %s %.0f %.0f", g.Group, g.Server, g.Action, g.Percent, g.Left))
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := p.Wait(ctx, hosts.Session, func(g Progress) { on(g); cancel() }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if st, err := p.Wait(t.Context(), hosts.Session, on); err != nil || st.Server != "nfs1" || st.Busy() {
			t.Errorf("%v, %v", st, err)
		}
		want := []string{"brick1-r0 nfs1 recovery 10 120", "brick1-r0 nfs1 recovery 20 120", "brick1-r0 nfs1 recovery 30 120"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
	})
}
