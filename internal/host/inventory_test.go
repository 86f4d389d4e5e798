package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// What the file says counts more than ssh's configuration, which a default does not.
func TestInventoryOfFile(t *testing.T) {
	text, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "brick.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := spec.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Inventory(s)
	if h := all["nfs1"]; err != nil || h.User != "root" || h.Port != 0 || h.KnownHosts != "" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestInventory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", "/home/admin")
	s := &spec.Spec{
		File: filepath.Join(dir, "brick.yaml"), Name: "b1",
		SSH:     spec.SSH{User: "root", Port: 22, Identity: "id", KnownHosts: "~/.ssh/known_hosts"},
		Servers: []spec.Server{{Name: "nfs1", Address: "10.0.0.1", HostKey: "ssh-ed25519 AAAA"}},
		Clients: []spec.Client{{Name: "c1", Address: "10.0.0.2"}},
	}
	lock := filepath.Join(dir, ".mortar/b1/lock")
	want := map[string]Target{
		"nfs1": {LockFile: lock, Name: "nfs1", Address: "10.0.0.1", Identity: filepath.Join(dir, "id"), HostKey: "ssh-ed25519 AAAA"},
		"c1":   {LockFile: lock, Name: "c1", Address: "10.0.0.2", Identity: filepath.Join(dir, "id")},
	}
	got, err := Inventory(s)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	file := InventoryFile(s)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"netns":"mortar-b1","hosts":[{"name":"nfs1","role":"server","address":"10.9.0.1","port":2222,"user":"root","identity_file":"id_rack","host_key":"ssh-ed25519 BBBB","netns":"mortar-b1"},{"name":"gone"}]}`)
	want["nfs1"] = Target{LockFile: lock, Name: "nfs1", Address: "10.9.0.1", Port: 2222, User: "root", Identity: filepath.Join(filepath.Dir(file), "id_rack"),
		HostKey: "ssh-ed25519 BBBB", NetNS: "mortar-b1"}
	if got, err = Inventory(s); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	write("{")
	if _, err := Inventory(s); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}

// The inventory of a rack gives the spec its scale, and WWNs where it has none.
func TestHardware(t *testing.T) {
	s := &spec.Spec{File: filepath.Join(t.TempDir(), "brick.yaml"), Name: "b1",
		Arrays:     []spec.Array{{Name: "A1"}, {Name: "A2", WWNs: []string{"typed"}}},
		Enclosures: []spec.Enclosure{{Disks: []spec.DiskList{{Size: 12 * spec.TB}}}},
	}
	if err := Hardware(s); err != nil || s.Arrays[0].WWNs != nil || s.Enclosures[0].Disks[0].Size != 12*spec.TB {
		t.Errorf("no inventory: %v %+v", err, s)
	}
	file := InventoryFile(s)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"scale":1000,"wwns":{"A1":["w0","w1"],"A2":["x0"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Hardware(s); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]spec.Array{{Name: "A1", WWNs: []string{"w0", "w1"}}, {Name: "A2", WWNs: []string{"typed"}}}, s.Arrays); d != "" {
		t.Error(d)
	}
	if got := s.Enclosures[0].Disks[0].Size; got != 12*spec.TB/1000/spec.MiB*spec.MiB {
		t.Errorf("size %d", got)
	}
}
