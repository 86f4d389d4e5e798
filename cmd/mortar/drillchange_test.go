package main

import (
	"context"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// The commands of a drill are those that a user types, with the lock that the drill has.
func TestDrillCommands(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // without known hosts no connection is made
	file := specFile(t, "nfs-ha")
	before, err := cli.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var changed *design.Design
	c := &inject.Commands{Console: &cli.Console{Env: env}, File: file, Say: func(string) {}, Changed: func(d *design.Design) { changed = d }}
	release, err := plan.Lock(before.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := mortar(t, "apply", file, "--yes"); code != exitBadInput {
		t.Errorf("apply beside a drill: %d, %s", code, stderr)
	}
	for name, args := range map[string][]string{
		"apply": {"--yes", "--json"}, "plan": {"--detailed-exitcode", "--json"}, "disk fail": {"MA01", "--yes", "--json"}, "disk replace": {"MA01", "--with", "MA01-2", "--yes", "--json"},
		"server replace": {"nfs2", "--skip-fence-test", "--yes", "--json"}, "upgrade": {"--reboot-only", "--skip-fence-test", "--yes", "--json"},
		"grow": {"--disks", "A=MA04", "--disks", "A=MA05", "--disks", "B=MB04", "--disks", "B=MB05", "--yes", "--json"},
	} {
		changed = nil
		d, err := c.Run(t.Context(), name, args...)
		if err == nil || !strings.Contains(err.Error(), "nfs") || strings.Contains(err.Error(), "wait for it to end") || strings.Contains(err.Error(), "--help") {
			t.Errorf("%s: %v", name, err)
		}
		if d == nil || changed != d || d.SHA256 != before.SHA256 {
			t.Errorf("%s: the spec is another one after a refusal", name)
		}
	}
	release()
}

// On real hardware what takes a hand is refused with what to do; on a rack a growth needs disks.
func TestChangesByHand(t *testing.T) {
	d, err := cli.Load(specFile(t, "nfs-ha"))
	if err != nil {
		t.Fatal(err)
	}
	op := inject.NewOperator(d, nil)
	for name, want := range map[string]string{"change-disk": "swapped by hand", "change-server": "put in by hand", "change-grow": "cannot be undone", "change-upgrade": ""} {
		dr, v, err := drill.Find(name, "")
		if err != nil {
			t.Fatal(err)
		}
		err = drill.Possible(fault.Env{Design: d, Injector: &inject.Hardware{Design: d}, Operator: op}, dr, v)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s on hardware: %v, want %q", name, err, want)
		}
		if err := drill.Possible(inject.OnRack(d, ""), dr, v); err != nil {
			t.Errorf("%s on a rack: %v", name, err)
		}
	}
}

func TestUnusedDisks(t *testing.T) {
	d, err := cli.Load(specFile(t, "nfs-ha"))
	if err != nil {
		t.Fatal(err)
	}
	st := &rack.RackStatus{}
	for _, x := range [][2]string{{"enca", "MA01"}, {"encb", "mb01"}, {"enca", "MA04"}, {"encb", "MB04"}, {"encz", "ZZ01"}, {"", "SSD1"}, {"enca", "MA05"}} {
		st.Disks = append(st.Disks, rack.DiskStatus{Enclosure: x[0], Serial: x[1], Present: x[1] != "MA05"})
	}
	in := &inject.Rack{Design: d, Disks: func(context.Context) ([][]string, error) { return disksIn(st), nil }}
	got, err := in.UnusedDisks(t.Context())
	if err != nil || len(got) != 2 || got[0] != (fault.UnusedDisk{Enclosure: "A", Serial: "MA04"}) || got[1] != (fault.UnusedDisk{Enclosure: "B", Serial: "MB04"}) {
		t.Errorf("%v, %v", got, err)
	}
}
