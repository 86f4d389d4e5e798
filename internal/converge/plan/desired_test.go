package plan

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

var update = flag.Bool("update", false, "write golden files")

func testDesign(t *testing.T, flavour string) *design.Design {
	t.Helper()
	s, err := spec.Load("../../../examples/" + flavour + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// testSecrets gives each file its own name as content.
func testSecrets(file string) ([]byte, error) {
	return []byte("secret of " + filepath.Base(file) + "\n"), nil
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	p := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(p, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", p, d)
	}
}

func list(steps []Step) string {
	var b strings.Builder
	stage := ""
	for _, s := range steps {
		if s.Stage != stage {
			stage = s.Stage
			b.WriteString(stage + "\n")
		}
		fmt.Fprintf(&b, "  %-5s %-16s %s\n", s.Host, s.Kind(), s.Title)
	}
	return b.String()
}

// Each resource of each example is the same on the host.
func TestResourcesOnTheWire(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		d, p, _ := offline(t, f)
		for _, s := range p.Steps {
			b, err := json.Marshal(s.Resource)
			if err != nil {
				t.Fatal(err)
			}
			r, err := resource.Decode(slices.Concat(resource.Kinds, storage.Kinds), s.Kind(), b)
			if err != nil {
				t.Fatalf("%s: %s: %v", d.Name, s.Title, err)
			}
			again, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(b), string(again)); d != "" {
				t.Errorf("%s: %s is not the same after the wire:\n%s", f, s.Title, d)
			}
		}
	}
}

func findStep(t *testing.T, steps []Step, kind, title string) Step {
	t.Helper()
	for _, s := range steps {
		if s.Kind() == kind && strings.Contains(s.Title, title) {
			return s
		}
	}
	t.Fatalf("no step of kind %s with %q in\n%s", kind, title, list(steps))
	return Step{}
}

// Secrets go into secret files and nowhere else, but for the SNMP community,
// which the CIB must hold.
func TestSecretsStaySecret(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	for i := range d.Spec.PDUs {
		p := &d.Spec.PDUs[i]
		p.CommunityFile, p.SNMP = "secrets/"+p.Name, nil
	}
	d, err := design.New(d.Spec)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := Desired(d, Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range steps {
		switch r := s.Resource.(type) {
		case *resource.TextFile:
			if strings.Contains(string(r.Content), "secret of") {
				seen++
				if !r.Secret || r.Mode != 0 && r.Mode&0o077 != 0 {
					t.Errorf("%s: a secret in a file that is shown or readable", r.Path)
				}
			}
		case *resource.CIB:
			if strings.Contains(r.Configuration, "secret of bmc") {
				t.Error("a BMC's password is in the CIB")
			}
			if !strings.Contains(r.Configuration, "secret of pdu-a") || len(r.Secret) == 0 {
				t.Error("the community is not there, or would be shown")
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d secret files, not the two BMC passwords on two servers", seen)
	}
}

func clusterWith(host, role string) Facts {
	c := clusterOf(true, linux.CRMResource{ID: "service-home", Role: role, Nodes: onNode(host)})
	return Facts{Hosts: map[string]resource.HostFacts{"nfs1": {Cluster: c}, "nfs2": {Cluster: c}}}
}

// Storage is dealt with on one server: where it is up, and never brought up
// or down behind a cluster's back.
func TestPlaceOfStorage(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	assembled := Facts{Hosts: map[string]resource.HostFacts{"nfs2": {Arrays: []linux.MDArray{{UUID: strings.ReplaceAll(d.Groups[0].UUID, ":", "")}}}}}
	starting := clusterWith("", "")
	starting.Hosts["nfs1"].Cluster.DC.Present = false
	fresh := Facts{Hosts: map[string]resource.HostFacts{"nfs1": {Cluster: clusterOf(false)}}}
	unconfigured := Facts{Hosts: map[string]resource.HostFacts{"nfs1": {Cluster: clusterOf(true)}}}
	// Pacemaker is stopped everywhere; one server's CIB knows the service.
	down := Facts{Hosts: map[string]resource.HostFacts{"nfs1": {}, "nfs2": {Configured: []linux.CRMResource{{ID: "fence-nfs1-bmc"}, {ID: "service-home"}}}}}
	downElse := Facts{Hosts: map[string]resource.HostFacts{"nfs1": {Configured: []linux.CRMResource{{ID: "service-other"}}}}}
	b := &builder{d: d}
	note := func(digest string) Facts {
		return Facts{Hosts: map[string]resource.HostFacts{"nfs2": {Built: map[string]string{d.Services()[0].Storage.VG: digest}}}}
	}
	for _, c := range []struct {
		name                             string
		facts                            Facts
		host                             string
		assemble, volume, mount, release bool
	}{
		{"new", Facts{}, "nfs1", true, true, true, true},
		{"left assembled on the other", assembled, "nfs2", true, true, true, true},
		{"cluster not configured yet", unconfigured, "nfs1", true, true, true, true},
		{"running on the other", clusterWith("nfs2", "Started"), "nfs2", false, true, false, false},
		{"stopped by the cluster", clusterWith("", "Stopped"), "nfs1", false, false, false, false},
		{"cluster stopped", down, "nfs1", false, false, false, false},
		{"a stopped cluster with another service", downElse, "nfs1", true, true, true, true},
		{"starting", starting, "nfs1", false, false, false, false},
		{"built and being released", note(b.digest(d.Services()[0])), "nfs2", false, false, false, true},
		{"another brick was built", note("0"), "nfs1", true, true, true, true},
		{"new cluster without a coordinator", fresh, "nfs1", true, true, true, true},
	} {
		steps, err := Desired(d, c.facts, testSecrets)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]bool{}
		for _, s := range steps {
			if s.Stage == StageStorage || s.Stage == StageDisks || s.Kind() == "release-storage" {
				kinds[s.Kind()] = true
				if s.Host != c.host {
					t.Errorf("%s: %s on %s, not %s", c.name, s.Title, s.Host, c.host)
				}
			}
			if a, ok := s.Resource.(*storage.Array); ok && a.Assemble != c.assemble {
				t.Errorf("%s: assemble is %v", c.name, a.Assemble)
			}
			if s.Stage == StageStorage && (len(s.Guards) == 2) != c.release {
				t.Errorf("%s: %s has %d guards", c.name, s.Title, len(s.Guards))
			}
		}
		for kind, want := range map[string]bool{"volume-group": c.volume, "xfs": c.volume, "mount": c.mount, "release-storage": c.release} {
			if kinds[kind] != want {
				t.Errorf("%s: %s is %v, not %v", c.name, kind, kinds[kind], want)
			}
		}
	}
}

// An array that two servers have stops everything.
func TestTwoOwners(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	has := resource.HostFacts{Arrays: []linux.MDArray{{State: "clean", UUID: strings.ReplaceAll(d.Groups[0].UUID, ":", "")}}}
	for _, f := range []Facts{
		{Hosts: map[string]resource.HostFacts{"nfs1": has, "nfs2": has}},
		{Hosts: map[string]resource.HostFacts{"nfs1": {Arrays: has.Arrays, Cluster: clusterWith("nfs1", "Started").Hosts["nfs1"].Cluster}, "nfs2": has}},
	} {
		_, err := Desired(d, f, testSecrets)
		var r Refusals
		if !errors.As(err, &r) || !r[0].Has("storage-used-twice", "storage", "", "servers", "nfs1", "servers", "nfs2") {
			t.Errorf("%v", err)
		}
	}
}

// Storage under construction has an owner that the resource agent refuses.
func TestOwnerUnderConstruction(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	steps, err := Desired(d, Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	vg := findStep(t, steps, "volume-group", "").Resource.(*storage.VolumeGroup)
	r := findStep(t, steps, "release-storage", "").Resource.(*storage.ReleaseStorage)
	if vg.SystemID != "mortar-brick1-building" || vg.RestID != "mortar-brick1" || r.SystemID != vg.SystemID || r.RestID != vg.RestID {
		t.Errorf("%+v, %+v", vg, r)
	}
}

// The pass phrases of SNMPv3 are in files that only root reads, and neither in
// the CIB nor in an argument of the fence agent.
func TestSNMPv3(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	user := &spec.SNMP{User: "fencer", Auth: "SHA-256", AuthFile: "auth", Privacy: "AES", PrivacyFile: "privacy"}
	for i := range d.Spec.PDUs {
		d.Spec.PDUs[i].SNMP = user
	}
	d, err := design.New(d.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(d.Warnings, func(w design.Warning) bool { return w.Rule == "snmp" }) {
		t.Errorf("%+v", d.Warnings)
	}
	steps, err := Desired(d, Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		switch r := s.Resource.(type) {
		case *resource.TextFile:
			if strings.HasSuffix(r.Path, "/snmp.conf") {
				got = append(got, s.Host+" "+r.Path)
				want := resource.Header + "defVersion 3\ndefSecurityName fencer\ndefSecurityLevel authPriv\ndefAuthType SHA-256\ndefPrivType AES\n" +
					"defAuthPassphrase \"secret of auth\"\ndefPrivPassphrase \"secret of privacy\"\n"
				if !r.Secret || r.Mode != 0o600 || string(r.Content) != want {
					t.Errorf("%+v\n%s", r, r.Content)
				}
			}
		case *resource.CIB:
			for _, bad := range []string{"secret of auth", "secret of privacy", "community"} {
				if strings.Contains(r.Configuration, bad) {
					t.Errorf("%q is in the CIB", bad)
				}
			}
			for _, good := range []string{`name="snmp_version" value="3"`, `name="username" value="fencer"`, `name="snmp_sec_level" value="authPriv"`,
				`name="snmpset_path" value="/usr/bin/env SNMPCONFPATH=/etc/mortar/secrets/fence-pdu-a /usr/bin/snmpset"`} {
				if !strings.Contains(r.Configuration, good) {
					t.Errorf("%q is not in the CIB", good)
				}
			}
		}
	}
	if want := []string{"nfs1 /etc/mortar/secrets/fence-pdu-a/snmp.conf", "nfs1 /etc/mortar/secrets/fence-pdu-b/snmp.conf", "nfs2 /etc/mortar/secrets/fence-pdu-a/snmp.conf", "nfs2 /etc/mortar/secrets/fence-pdu-b/snmp.conf"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"short", `has "quotes"`, `back\\slash`, "has\ttab 1", "größer als 8"} {
		if _, err := Desired(d, Facts{}, func(string) ([]byte, error) { return []byte(bad), nil }); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// apply looks at the room of each server before it changes anything, and at no client's.
func TestServersNeedRoom(t *testing.T) {
	d, p, _ := offline(t, "nfs-ha.yaml")
	asked := map[string]bool{}
	for _, s := range p.Steps {
		if h, ok := s.Resource.(*resource.Host); ok {
			asked[s.Host] = h.Room
		}
	}
	for _, h := range d.Servers() {
		if !asked[h] {
			t.Errorf("%s is not looked at", h)
		}
	}
	for _, c := range d.Spec.Clients {
		if asked[c.Name] {
			t.Errorf("client %s is refused for its own file systems", c.Name)
		}
	}
	if p.Steps[0].Stage != StageHosts {
		t.Errorf("first is %s", p.Steps[0].Stage)
	}
}
