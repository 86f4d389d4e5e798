package drill

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

func twoServices() *design.Design {
	d := &design.Design{Pairs: []design.Pair{{Services: []design.Service{
		{Name: "home", NFS: &design.NFS{MountPoint: "/srv/home"}},
		{Name: "scratch", NFS: &design.NFS{MountPoint: "/srv/scratch"}},
	}}}}
	for _, s := range []string{"home", "scratch"} {
		for _, v := range []string{"4.1", "3"} {
			d.Mounts = append(d.Mounts, design.ClientMount{Client: "c1", Service: s, Source: "10.0.0.9:/srv/" + s, Path: "/mnt/" + s + "-" + v, Version: v})
		}
	}
	return d
}

// With two services both are under load. A challenger tries a held lock on the
// same file system, by the other protocol.
func TestJobsOfTwoServices(t *testing.T) {
	js, err := jobs(twoServices(), "scratch", "r1", "/run/mortar", 8)
	if err != nil || len(js) != 1 {
		t.Fatal(js, err)
	}
	names := map[string]bool{}
	for _, w := range js[0].job.Writers {
		names[w.Name] = true
	}
	if len(names) != 8 || !names["scratch-v3-c1-osync"] {
		t.Errorf("writers %v", names)
	}
	var tried []string
	for _, l := range js[0].job.Locks {
		if l.Role == workload.Challenge {
			tried = append(tried, l.Dir+" "+l.File)
		}
	}
	want := []string{"/mnt/home-3/.mortar home-v4.1-c1-held", "/mnt/home-4.1/.mortar home-v3-c1-held",
		"/mnt/scratch-3/.mortar scratch-v4.1-c1-held", "/mnt/scratch-4.1/.mortar scratch-v3-c1-held"}
	if !slices.Equal(tried, want) {
		t.Errorf("tried %q", tried)
	}
}

// Services of another pair are not among the others, since they have a cluster of
// their own.
func TestOthers(t *testing.T) {
	d := twoServices()
	d.Pairs = append(d.Pairs, design.Pair{Services: []design.Service{{Name: "mdt0000"}}})
	var names []string
	for _, o := range others(d, "home") {
		names = append(names, o.service.Name)
	}
	if !slices.Equal(names, []string{"scratch"}) || len(others(d, "mdt0000")) > 0 {
		t.Error(names)
	}
}

// Lustre has no drills on files or daemons of a server.
func TestDrillsOfLustre(t *testing.T) {
	d := twoServices()
	d.Pairs[0].Services = []design.Service{{Name: "ost0000"}, {Name: "ost0001"}}
	s := Scene{Design: d, Service: &d.Pairs[0].Services[0], Active: "oss01", Passive: "oss02"}
	for name, steps := range map[string]func(Scene) ([]Step, error){
		"servers see no files": fullFS, "service ost0000 has no nfsd": kill("nfsd"), "service ost0000 has no rpc.statd": kill("rpc.statd"), "service ost0000 has no rpc.mountd": hang("rpc.mountd"),
	} {
		if _, err := steps(s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := kill("corosync")(s); err != nil {
		t.Error(err)
	}
}

func TestOtherService(t *testing.T) {
	const s = int64(1e9)
	for name, c := range map[string]struct {
		spoil  func(e *evidence, o *other)
		failed []string
		says   string
	}{
		"on the partner": {func(*evidence, *other) {}, nil, "it stayed on nfs2; its clients' longest stall was 0.40 s"},
		"moved away":     {func(_ *evidence, o *other) { o.location = []string{"nfs1"} }, []string{"service scratch"}, "it runs on [nfs1], not on [nfs2]"},
		"gone":           {func(_ *evidence, o *other) { o.location = nil }, []string{"service scratch"}, "it runs on []"},
		"beside the other": {func(_ *evidence, o *other) {
			o.on = "nfs1"
			o.looks = map[string][]look{"nfs1": {{99 * s, 99 * s, true}}, "nfs2": {{106 * s, 106 * s, true}}}
		}, nil, "it moved from nfs1 to nfs2 as well"},
		"beside it, and left behind": {func(_ *evidence, o *other) { o.on, o.location = "nfs1", []string{"nfs1"} }, []string{"service scratch"}, "not on [nfs2]"},
		"beside it, and only that one was told to move": {func(e *evidence, o *other) {
			o.on, o.location, e.byCommand = "nfs1", []string{"nfs1"}, true
		}, nil, "it stayed on nfs1"},
		"restarted, though it had to stay": {func(e *evidence, _ *other) {
			e.expect.Where, e.expect.Fencing, e.location = Stays, Nobody, []string{e.active}
			e.events = []report.Event{{NS: 103 * s, Host: "nfs2", Source: "pacemaker", Kind: report.EventStopped, Text: "Result of stop operation for service-scratch on nfs2: OK"}}
		}, []string{"service scratch"}, "it runs on nfs2, but was stopped or started meanwhile: 3.00 s after the fault, on nfs2"},
		"mounted twice": {func(_ *evidence, o *other) {
			o.looks["nfs1"] = []look{{99 * s, 99 * s, true}, {103 * s, 103 * s, true}, {110 * s, 110 * s, true}}
		}, []string{"volume of scratch"}, "stayed on nfs2"},
		"blind": {func(_ *evidence, o *other) { o.looks = nil }, []string{"volume of scratch"}, "stayed"},
	} {
		e := evidenceOf()
		o := &other{service: &design.Service{Name: "scratch"}, on: "nfs2", location: []string{"nfs2"}, stall: 0.4,
			looks: map[string][]look{"nfs1": {{99 * s, 99 * s, false}}, "nfs2": {{99 * s, 99 * s, true}, {106 * s, 106 * s, true}}}}
		e.others = []*other{o}
		c.spoil(&e, o)
		checks := judge(e)
		if got := failed(checks); !slices.Equal(got, c.failed) {
			t.Errorf("%s: failed %q, want %q", name, got, c.failed)
		}
		said := ""
		for _, x := range checks {
			if x.Name == "service scratch" {
				said = x.Detail
			}
		}
		if !strings.Contains(said, c.says) {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// Only the stalls of the service under test count as stalls of the drill.
func TestLoadOfOneService(t *testing.T) {
	l := loaded{client: "c1", mounts: map[string]design.ClientMount{"a": {Service: "home"}, "b": {Service: "scratch"}},
		result: workload.Result{
			Workers: []workload.WorkerResult{{Worker: "a", Kind: "writer"}, {Worker: "b", Kind: "writer"}},
			Stalls:  []workload.Stall{{Worker: "a", StartNs: 10, Seconds: 7}, {Worker: "b", StartNs: 10, Seconds: 2}},
		}}
	for service, want := range map[string]float64{"home": 7, "scratch": 2, "": 7} {
		ls := of([]loaded{l}, service)
		if len(ls) != 1 || longestStall(ls[0], 0, true) != want {
			t.Errorf("%q: %+v", service, ls)
		}
	}
	if ls := of([]loaded{l}, "none"); ls != nil {
		t.Errorf("%+v", ls)
	}
	if len(l.result.Workers) != 2 {
		t.Error("the results themselves were changed")
	}
}

func TestServiceOfADrill(t *testing.T) {
	env := Env{Design: twoServices()}
	for asked, want := range map[string]string{"": "home", "home": "home", "scratch": "scratch"} {
		env.Service = asked
		if s, err := env.service(); err != nil || s.Name != want {
			t.Errorf("%q: %v, %v", asked, s.Name, err)
		}
	}
	env.Service = "attic"
	if _, err := env.service(); err == nil || !strings.Contains(err.Error(), "[home scratch]") {
		t.Error(err)
	}
}
