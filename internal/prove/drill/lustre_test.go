package drill

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// Each drill is offered for every service of a Lustre brick, or is refused for one of
// these reasons.
func TestDrillsOnLustre(t *testing.T) {
	d := exampleDesign(t, "lustre-small.yaml")
	all, err := Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{
		"service-kill-nfsd": "has no nfsd", "service-kill-mountd": "has no rpc.mountd", "service-kill-statd": "has no rpc.statd", "service-kill-nfsdcld": "has no nfsdcld",
		"address-gone-address": "no address of its own", "address-gone-hosts": "no address of its own",
		"service-kill-stop-mountd": "has no rpc.mountd", "service-kill-stop-statd": "has no rpc.statd", "service-kill-stop-nfsdcld": "has no nfsdcld",
		"full-fs-full": "servers see no files of this brick: ost-full", "full-fs-moved": "servers see no files",
		"bit-rot-scrub": "servers see no files", "client-crash-power": "no second client",
	}
	onlyMDS := map[string]string{"two-disks-pulled": "cannot lose 2 disks", "ost-full-full": "service mdt0000 has no OST"} // RAID 10
	twoOSTs := map[string]string{"both-rings-passive": "neither server is passive", "both-rings-standby": "neither server is passive", "cold-start-alone-confirm": "neither server is passive"}
	for _, s := range d.Services() {
		env := Env{Design: d, Injector: &pair{}, Operator: neverWhole{}, Service: s.Name}
		for _, c := range Suits(all, d) {
			want := refused[c.Name()]
			if s.Name == "mdt0000" && want == "" {
				want = onlyMDS[c.Name()]
			}
			if s.Name != "mdt0000" && want == "" {
				want = twoOSTs[c.Name()]
			}
			err := Possible(env, c.Drill, c.Variant)
			var r *Refused
			if want == "" && err != nil || want != "" && (!errors.As(err, &r) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s of %s: %v; want %q", c.Name(), s.Name, err, want)
			}
		}
	}
}

// On LUNs of arrays the same drills are offered, with the parts of an array.
func TestDrillsOnLustreArrays(t *testing.T) {
	d := exampleDesign(t, "lustre-brick.yaml")
	all, err := Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, c := range Suits(all, d) {
		if err := Possible(Env{Design: d, Injector: &pair{}, Operator: neverWhole{}, Service: "ost0000"}, c.Drill, c.Variant); err != nil {
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
	d := exampleDesign(t, "nfs-ha.yaml")
	all, err := Choose(lustreDrills, nil)
	if err != nil || len(all) != len(lustreDrills) {
		t.Fatal(all, err)
	}
	if offered := Suits(all, d); len(offered) > 0 {
		t.Errorf("offered: %v", offered)
	}
	for _, c := range all {
		if err := Possible(Env{Design: d, Injector: &pair{}}, c.Drill, c.Variant); err == nil || !strings.Contains(err.Error(), "no Lustre") {
			t.Errorf("%s: %v", c.Name(), err)
		}
	}
	if err := (&engine{env: Env{Design: d}}).can(Fault{Kind: LNetDown, On: "nfs1"}); !errors.Is(err, errNoLustre) {
		t.Errorf("LNet of a server of NFS: %v", err)
	}
}

// Random schedules of a Lustre brick contain its faults, and none of NFS.
func TestDrawOnLustre(t *testing.T) {
	env := Env{Design: exampleDesign(t, "lustre-small.yaml"), Injector: &pair{}, Operator: neverWhole{}}
	scene, err := planned(env)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for seed := range uint64(1000) {
		s, err := Draw(scene, seed, (&engine{env: env}).can)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Parts {
			seen[string(p.Kind)]++
			if p.Kind == Kill {
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
	d := exampleDesign(t, "lustre-small.yaml")
	for service, want := range map[string]string{"mdt0000": "freeze mds01, freeze oss01", "ost0000": "freeze oss01, freeze mds01"} {
		s, err := planned(Env{Design: d, Service: service})
		if err != nil {
			t.Fatal(err)
		}
		steps, err := mdsAndOSS(s)
		if err != nil || len(steps) != 2 || steps[0].Fault.String()+", "+steps[1].Fault.String() != want || steps[0].Wait != between {
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
	d := exampleDesign(t, "lustre-brick.yaml")
	for service, want := range map[string]string{"": "mdt0000: mds01, oss01", "mgt": "mgt: mds02, oss01", "ost0003": "ost0003: oss02, mds01"} {
		s, err := planned(Env{Design: d, Service: service})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s: %s, %s", s.Service.Name, s.Active, s.Second); got != want {
			t.Errorf("%q: %s, not %s", service, got, want)
		}
	}
}

// withSecond adds the take-over of an OSS, 15 s after the first fault.
func withSecond() evidence {
	e := evidenceOf()
	const s = int64(1e9)
	at := e.fault + 15*s
	e.second = &evidence{drill: e.drill, expect: e.expect, fault: at, active: "oss1", survivor: "oss2", resource: "service-ost0000", nodes: []string{"oss1", "oss2"}, service: "ost0000",
		location: []string{"oss2"}, looks: map[string][]look{"oss1": {{at, at, true}, {at + 40*s, at + 40*s, false}}, "oss2": {{at, at, false}, {at + 30*s, at + 30*s, true}}}}
	e.events = append(e.events,
		report.Event{NS: at + 6*s, Host: "oss2", Source: "pacemaker", Kind: report.EventFenced, Text: "Peer oss1 was terminated (reboot) by oss2 on behalf of x: OK"},
		report.Event{NS: at + 7*s, Host: "oss2", Source: "ocf", Kind: report.EventStarting, Text: "start begins"},
		report.Event{NS: at + 30*s, Host: "oss2", Source: "ocf", Kind: report.EventStarted, Text: "start took 23 s"})
	e.second.events = ofHosts(e.events, e.second.nodes)
	return e
}

// The verdict covers both services, each with its own pair's events only.
func TestJudgeSecond(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(e *evidence)
		failed []string
	}{
		"both took over":       {func(*evidence) {}, nil},
		"the second stayed":    {func(e *evidence) { e.second.location = []string{"oss1"} }, []string{"service where it belongs (ost0000)"}},
		"the first stayed":     {func(e *evidence) { e.location = []string{"nfs1"} }, []string{"service where it belongs"}},
		"the second unfenced":  {func(e *evidence) { e.second.events = e.second.events[1:] }, []string{"fenced before taken over (ost0000)"}},
		"the second too early": {func(e *evidence) { e.second.events[1].NS = e.second.fault + 1 }, []string{"fenced before taken over (ost0000)"}},
		// A start on the other pair is none of the first service.
		"an early start there": {func(e *evidence) {
			e.events = append(e.events, report.Event{NS: e.fault + 1, Host: "oss2", Source: "ocf", Kind: report.EventStarting})
		}, nil},
		"the second twice": {func(e *evidence) {
			e.second.looks["oss1"] = append(e.second.looks["oss1"][:1], look{e.second.fault + 29e9, e.second.fault + 29e9, true}, look{e.second.fault + 31e9, e.second.fault + 31e9, true})
		}, []string{"never mounted twice (ost0000)"}},
	} {
		e := withSecond()
		c.spoil(&e)
		if got := failed(judge(e)); !slices.Equal(got, c.failed) {
			t.Errorf("%s: failed checks %q, want %q", name, got, c.failed)
		}
	}
}

func TestOSTFull(t *testing.T) {
	d := exampleDesign(t, "lustre-small.yaml")
	s := Scene{Design: d, Service: d.Service("ost0001"), Active: "oss02"}
	steps, err := ostFull(s)
	if err != nil || steps[0].Fault.String() != "fill-ost 1 small-OST0001" || !steps[len(steps)-1].Mend {
		t.Errorf("%+v, %v", steps, err)
	}
	d.Lustre.OSTs = 1
	if _, err := ostFull(s); err == nil || !strings.Contains(err.Error(), "one OST") {
		t.Errorf("new files go to no other OST: %v", err)
	}
	if got := sizes(17<<40, 8<<40); !slices.Equal(got, []int64{8 << 40, 8 << 40, 1 << 40}) || sizes(-5, 8) != nil {
		t.Errorf("parts %d", got)
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
	s, err := planned(Env{Design: exampleDesign(t, "lustre-small.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := stuckUnfenced(s)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(steps, func(st Step) bool { return st.Fault.Kind == HoldFS })
	if i < 0 || steps[i].Fault.Args[0] != s.Service.Targets[0].Device || !isDevice(steps[i].Fault.Args[0]) {
		t.Errorf("%+v", steps)
	}
}
