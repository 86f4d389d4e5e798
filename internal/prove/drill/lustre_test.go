package drill

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/test/example"
)

// Each drill is offered for every service of a Lustre brick, or is one of those that are
// refused.
func TestDrillsOnLustre(t *testing.T) {
	d := example.Design(t, "lustre-small.yaml")
	all, err := Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := strings.Fields("service-kill-nfsd service-kill-mountd service-kill-statd service-kill-nfsdcld address-gone-address address-gone-hosts " +
		"service-kill-stop-mountd service-kill-stop-statd service-kill-stop-nfsdcld full-fs-full full-fs-moved bit-rot-scrub client-crash-power")
	only := map[bool][]string{
		true:  {"two-disks-pulled", "ost-full-full"},                                    // the MDS has RAID 10, and no OST
		false: {"both-rings-passive", "both-rings-standby", "cold-start-alone-confirm"}, // both servers have an OST, so that neither is passive
	}
	for _, s := range d.Services() {
		env := fault.Env{Design: d, Injector: &pair{}, Operator: neverWhole{}, Service: s.Name}
		for _, c := range Suits(all, d) {
			want := slices.Contains(refused, c.Name()) || slices.Contains(only[s.Name == "mdt0000"], c.Name())
			err := Possible(env, c.Drill, c.Variant)
			var r *fault.Refused
			if errors.As(err, &r) != want || !want && err != nil {
				t.Errorf("%s of %s: %v; refused %v", c.Name(), s.Name, err, want)
			}
		}
	}
}

// On LUNs of arrays the same drills are offered, with the parts of an array.
func TestDrillsOnLustreArrays(t *testing.T) {
	d := example.Design(t, "lustre-brick.yaml")
	all, err := Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, c := range Suits(all, d) {
		if err := Possible(fault.Env{Design: d, Injector: &pair{}, Operator: neverWhole{}, Service: "ost0000"}, c.Drill, c.Variant); err != nil {
			refused = append(refused, c.Name())
		}
	}
	want := []string{"disk-slow-throttled", "bit-rot-scrub", "full-fs-full", "full-fs-moved", "client-crash-power", "service-kill-nfsd", "service-kill-mountd", "service-kill-statd", "service-kill-nfsdcld",
		"address-gone-address", "address-gone-hosts",
		"service-kill-stop-mountd", "service-kill-stop-statd", "service-kill-stop-nfsdcld",
		"lun-missing-hidden", "lun-hung-crash", "disk-hung-crash", "disk-hung-move", "both-rings-passive", "both-rings-standby", "cold-start-alone-confirm"}
	if d := cmp.Diff(want, refused, cmpopts.SortSlices(func(a, b string) bool { return a < b })); d != "" {
		t.Error(d)
	}
}

// A brick of NFS is not offered the drills of Lustre, and says why it refuses them.
func TestDrillsOfLustreOnNFS(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	all, err := Choose([]string{"ost-full", "lnet", "mds-and-oss"}, nil)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if offered := Suits(all, d); len(offered) > 0 {
		t.Errorf("offered: %v", offered)
	}
	for _, c := range all {
		if err := Possible(fault.Env{Design: d, Injector: &pair{}}, c.Drill, c.Variant); err == nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
	}
	if err := (&fault.Site{Scene: fault.Scene{Design: d}}).Can(fault.Fault{Kind: fault.LNetDown, On: "nfs1"}); !errors.Is(err, fault.ErrNoLustre) {
		t.Errorf("LNet of a server of NFS: %v", err)
	}
}

// Random schedules of a Lustre brick contain its faults, and none of NFS.
func TestDrawOnLustre(t *testing.T) {
	env := fault.Env{Design: example.Design(t, "lustre-small.yaml"), Injector: &pair{}, Operator: neverWhole{}}
	scene, err := planned(env)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for seed := range uint64(1000) {
		s, err := Draw(scene, seed, (&fault.Site{Scene: scene, Env: env}).Can)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Parts {
			seen[string(p.Kind)]++
			if p.Kind == fault.Kill {
				seen[p.Args[0]]++
			}
		}
	}
	if seen["lnet-down"] < 20 || seen["corosync"] < 10 || seen["nfsd"] > 0 {
		t.Errorf("drawn: %v", seen)
	}
}

// mds-and-oss freezes the server of the service, then that of the other role.
func TestMDSAndOSS(t *testing.T) {
	d := example.Design(t, "lustre-small.yaml")
	for service, want := range map[string]string{"mdt0000": "freeze mds01, wait 15s, freeze oss01", "ost0000": "freeze oss01, wait 15s, freeze mds01"} {
		s, err := planned(fault.Env{Design: d, Service: service})
		if err != nil {
			t.Fatal(err)
		}
		steps, err := mdsAndOSS(s)
		if err != nil || strings.Join(words(steps), ", ") != want {
			t.Errorf("%s: %+v, %v", service, steps, err)
		}
	}
	d.Pairs = d.Pairs[:1]
	if _, err := opposite(d, d.Services()[0]); err == nil {
		t.Error("an MDS alone has an OSS")
	}
}

// An MGS with a LUN of its own is the first service of its brick, and none that a drill
// is about unless it is named.
func TestMDSAndOSSWithOwnMGS(t *testing.T) {
	d := example.Design(t, "lustre-brick.yaml")
	for service, want := range map[string]string{"": "mdt0000: mds01, oss01", "mgt": "mgt: mds02, oss01", "ost0003": "ost0003: oss02, mds01"} {
		s, err := planned(fault.Env{Design: d, Service: service})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s: %s, %s", s.Service.Name, s.Active, s.Second); got != want {
			t.Errorf("%q: %s, not %s", service, got, want)
		}
	}
}

func TestOSTFull(t *testing.T) {
	d := example.Design(t, "lustre-small.yaml")
	s := fault.Scene{Design: d, Service: d.Service("ost0001"), Active: "oss02"}
	steps, err := ostFull(s)
	if err != nil || words(steps)[0] != "fill-ost 1 small-OST0001" || words(steps)[len(steps)-2] != "mend fill-ost 1 small-OST0001" {
		t.Errorf("%+v, %v", steps, err)
	}
	d.Lustre.OSTs = 1
	if _, err := ostFull(s); err == nil {
		t.Errorf("new files go to no other OST: %v", err)
	}
	for _, c := range []struct {
		on []string
		ok bool
	}{{[]string{"0", "0"}, true}, {[]string{"0", "1"}, false}, {nil, false}} {
		if ok, detail := elsewhere(c.on, 1); ok != c.ok {
			t.Errorf("%v: %v, %s", c.on, ok, detail)
		}
	}
}

// On Lustre a volume is kept in use: servers see no files.
func TestStuckUnfencedOnLustre(t *testing.T) {
	s, err := planned(fault.Env{Design: example.Design(t, "lustre-small.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := stuckUnfenced(s)
	if err != nil {
		t.Fatal(err)
	}
	if all := words(steps); !slices.Contains(all, "hold-fs "+s.Active+" "+s.Service.Targets[0].Device) {
		t.Errorf("%q", all)
	}
}
