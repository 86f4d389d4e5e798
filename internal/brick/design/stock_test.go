package design

import (
	"slices"
	"strings"
	"testing"
)

func stockExample(t *testing.T) *Design {
	t.Helper()
	return build(t, strings.Replace(string(example(t, "nfs-ha").Spec.Source), "flavour: nfs-ha\n", "flavour: nfs-ha\nprofile: stock\n", 1))
}

// Profile stock is the same brick with plain values: layout, identities and
// what keeps data safe are the same.
func TestStock(t *testing.T) {
	tuned, stock := example(t, "nfs-ha"), stockExample(t)
	for i, g := range tuned.Groups {
		if h := stock.Groups[i]; g.UUID != h.UUID || g.Chunk != h.Chunk || len(g.Members) != len(h.Members) {
			t.Errorf("group %s differs", g.Name)
		}
	}
	if a, b := tuned.Services()[0], stock.Services()[0]; a.FSUUID != b.FSUUID || a.Storage.VG != b.Storage.VG || a.Storage.SystemID != b.Storage.SystemID {
		t.Error("the volume is another one")
	}
	if !slices.Contains(stock.Services()[0].Exports[0].Options, "sync") {
		t.Error("stock is not sync")
	}
	if len(stock.Pairs[0].HA.Fencing) != len(tuned.Pairs[0].HA.Fencing) || stock.Value("pacemaker", "stonith-enabled") != "true" {
		t.Error("stock is fenced otherwise")
	}
	if stock.Pairs[0].HA.TokenMS != 3000 || stock.Spec.NFS.Lease != 90 || stock.Spec.NFS.Threads != 8 || stock.Value("pacemaker", "priority-fencing-delay") != "" {
		t.Errorf("token %d, lease %d, threads %d", stock.Pairs[0].HA.TokenMS, stock.Spec.NFS.Lease, stock.Spec.NFS.Threads)
	}
	for _, m := range stock.Mounts {
		for _, o := range m.Options {
			if strings.HasPrefix(o, "timeo") || strings.HasPrefix(o, "rsize") || strings.HasPrefix(o, "nconnect") {
				t.Errorf("a client mounts with %s", o)
			}
		}
	}
	if len(stock.Differs) == 0 || len(tuned.Differs) > 0 {
		t.Errorf("%d and %d differences", len(stock.Differs), len(tuned.Differs))
	}
	for _, x := range stock.Differs {
		if x.Tuned == x.Stock {
			t.Errorf("%s does not differ", x.Name)
		}
	}
	// The spec that was read is left alone.
	if s := stock.Spec; s.HA == tuned.Spec.HA {
		t.Error("the spec's own HA was changed")
	}
	var warned []string
	for _, w := range stock.Warnings {
		if w.Rule == "profile" {
			warned = append(warned, w.Text)
		}
	}
	if len(warned) != 4 { // threads, lease, grace and token_ms are in the example
		t.Errorf("warnings: %q", warned)
	}
}
