package observe

import (
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// reserved checks that each disk is reserved for the server that serves it, and that no other
// machine has registered with one. A disk that does not answer is a finding of other parts. It
// gives nothing if no disk was asked.
func (v mdStorage) reserved() (parts []*Part) {
	if v.pair.HA == nil {
		return nil
	}
	p := &Part{Name: "reservation"}
	keys, _ := pr.ParseServers(v.pair.HA.Reservations)
	own := slices.Collect(maps.Values(keys))
	states, unable, device := map[string]pr.State{}, map[string]bool{}, map[string]string{} // by serial
	for _, s := range v.answering() {
		for _, d := range s.host.SCSI {
			serial, wwn := strings.ToUpper(strings.TrimSpace(d.Serial)), strings.ToLower(d.WWN)
			if st, ok := s.host.Reservations[wwn]; ok {
				states[serial] = st
			}
			if device[serial] = d.Device; slices.Contains(s.host.Unreservable, wwn) {
				unable[serial] = true
			}
		}
	}
	if len(states)+len(unable) == 0 {
		return nil
	}
	var without []*design.Disk
	for i := range v.pair.Services {
		svc := &v.pair.Services[i]
		where, held := v.where(svc).Server, 0
		var free []*design.Disk
		disks := 0
		for _, g := range v.d.GroupsIn(&svc.Storage) {
			for _, x := range slices.Concat(g.Members, g.Spares) {
				disk, serial := x, strings.ToUpper(x.Serial)
				disks++
				st, ok := states[serial]
				switch strangers := st.Others(own...); {
				case unable[serial]:
					without = append(without, &disk)
				case !ok:
				case len(strangers) > 0:
					p.find(x.Serial, "disk-stranger", with{"disk": &disk, "key": strangers[0].String(), "mend": pr.Mend(device[serial])})
				case where != "" && keys[where] != st.Holder:
					free = append(free, &disk)
				default:
					held++
				}
			}
		}
		if where != "" {
			p.add(svc.Name, "%d of %d disks reserved for %s", held, disks, where)
		}
		if len(free) > 0 {
			p.find(svc.Name, "disk-unreserved", with{"host": where, "disks": free})
		}
	}
	if len(without) > 0 {
		p.find("without", "disk-unreservable", with{"disks": without})
	}
	return []*Part{p}
}
