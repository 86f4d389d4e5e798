package observe

import (
	"fmt"
	"strings"
	"testing"
)

// Status warns of a group that would not survive the loss of an enclosure any more, because
// spares stood in, and says how to move a member back.
func TestStatusOfCrowdedEnclosure(t *testing.T) {
	d := designOf(t, "nfs-ha")
	g := d.Groups[0]
	for name, crowded := range map[string]bool{"as designed": false, "a spare in the other enclosure": true} {
		f := healthy(t, d)
		files := f.Hosts["nfs1"].Host.Files
		put := func(serial, slot, state string) {
			dir := "/sys/block/md127/md/dev-" + dmOf(d, serial)
			files[dir+"/slot"], files[dir+"/state"] = slot+"\n", state+"\n"
		}
		if crowded {
			gone := g.Members[1] // in enclosure B
			put(gone.Serial, "none", "spare")
			spare := g.Spares[0]
			if spare.Enclosure == gone.Enclosure {
				spare = g.Spares[1]
			}
			put(spare.Serial, "1", "in_sync")
		}
		var got string
		for _, p := range Judge(d, f).Parts {
			for _, g := range p.Parts {
				for _, x := range g.Parts {
					if x.Name == "enclosure" {
						got += x.Text + " → " + x.Mend
					}
				}
			}
		}
		want := fmt.Sprintf("%s would not survive the loss of enclosure A: 3 of its members are there", g.Name)
		if strings.Contains(got, want) != crowded || crowded && !strings.Contains(got, "--replace /dev/") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
