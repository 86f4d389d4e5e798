package drill

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
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

// The services of the pair come after the one under test, then those of other pairs, which the
// drill is not about.
func TestSubjects(t *testing.T) {
	d := twoServices()
	d.Pairs[0].Servers = []string{"nfs1", "nfs2"}
	d.Pairs = append(d.Pairs, design.Pair{Servers: []string{"mds1", "mds2"}, Services: []design.Service{{Name: "mdt0000"}}})
	for service, want := range map[string]string{"home": "home scratch mdt0000!", "scratch": "scratch home mdt0000!", "mdt0000": "mdt0000 home! scratch!"} {
		e := &engine{Site: fault.Site{Scene: fault.Scene{Design: d, Service: d.Service(service)}}}
		if err := e.listSubjects(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range e.subjects {
			if x.Apart {
				x.Service += "!"
			}
			got = append(got, x.Service)
		}
		if strings.Join(got, " ") != want || len(e.leads()) != 1 {
			t.Errorf("%s: %q", service, got)
		}
	}
}

func TestServiceOfADrill(t *testing.T) {
	env := fault.Env{Design: twoServices()}
	for asked, want := range map[string]string{"": "home", "home": "home", "scratch": "scratch"} {
		env.Service = asked
		if s, err := tested(env); err != nil || s.Name != want {
			t.Errorf("%q: %v, %v", asked, s.Name, err)
		}
	}
	env.Service = "attic"
	if _, err := tested(env); err == nil {
		t.Error("a service that is not there")
	}
}
