package observe

import (
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
		var got []*Part
		for _, p := range Judge(d, f).Parts {
			for _, g := range p.Parts {
				for _, x := range g.Parts {
					if x.Name == "enclosure" {
						got = append(got, x)
					}
				}
			}
		}
		found := len(got) == 1 && got[0].Has("enclosure-crowded", "group", g.Name, "enclosure", "A", "members", "3") && strings.Contains(got[0].Mend, "--replace /dev/")
		if found != crowded || !crowded && len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
