package design

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// The groups of a service in a cluster share their spares. Nothing moves them on a
// single server, nor between the targets of Lustre, which are services of their own.
func TestSharedSpares(t *testing.T) {
	edit := func(name string, pairs ...string) *Design {
		src, err := fs.ReadFile(examples.FS, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(pairs...).Replace(string(src))
		if text == string(src) {
			t.Fatalf("%s is as it was", name)
		}
		return build(t, text)
	}
	nine := []string{"MA[01-03]", "MA[01-05]", "MB[01-03]", "MB[01-04]", "spares: 2", "spares: 1"} // two groups of 2+2
	for name, c := range map[string]struct {
		d       *Design
		peers   string // of the first group
		warning string
	}{
		"nfs-ha":    {edit("nfs-ha", nine...), "brick1-r1", ""},
		"nfs":       {edit("nfs", nine...), "brick1-r1", "1 spare for 2 groups: nothing moves a spare to another group on a single server"},
		"Lustre":    {edit("lustre-small", "OAN[01-05]", "OAN[01-04]", "bays: 5, module: oss, disks: [{serial: \"OBN", "bays: 5, module: oss, disks: [{serial: \"OBN", "level: 6, data: 2, spares: 2", "level: 6, data: 2, spares: 1"), "", "1 spare for 2 groups in module oss: nothing moves a spare to another group that is another target's"},
		"one group": {example(t, "nfs-ha"), "", ""},
	} {
		group := &c.d.Groups[0]
		if c.d.Lustre != nil {
			group = &c.d.GroupsOf("oss")[0]
		}
		var peers []string
		for _, p := range c.d.Peers(group) {
			peers = append(peers, p.Name)
		}
		if got := strings.Join(peers, " "); got != c.peers {
			t.Errorf("%s: peers %q, want %q", name, got, c.peers)
		}
		i := slices.IndexFunc(c.d.Warnings, func(w Warning) bool { return w.Rule == "spares" })
		if got := i >= 0; got != (c.warning != "") || got && c.d.Warnings[i].Text != c.warning {
			t.Errorf("%s: %+v", name, c.d.Warnings)
		}
	}
}

// A group whose members failed has the spares of its peers, too.
func TestFailedWithSharedSpares(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("MA[01-03]", "MA[01-05]", "MB[01-03]", "MB[01-04]", "spares: 2", "spares: 1").Replace(string(src))
	d := build(t, text)
	var serials []string
	for _, k := range d.Groups[1].Members {
		serials = append(serials, k.Serial)
	}
	for n, ok := range map[int]bool{2: true, 3: true, 4: false} {
		s, err := spec.Parse("brick.yaml", []byte(text+"\nfailed: ["+strings.Join(serials[:n], ", ")+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(s); (err == nil) != ok {
			t.Errorf("%d failed: %v", n, err)
		}
	}
}
