package design

import "slices"

// Measured is what a server measures itself against: what the metrics of a pair
// need to know of the design. `apply` writes it to a file on each server, so that
// a server need not have the spec. It holds no secrets.
type Measured struct {
	Brick    string            `json:"brick"`
	Server   string            `json:"server"`
	Cluster  bool              `json:"cluster"`
	Groups   []MeasuredGroup   `json:"groups,omitempty"` // md arrays of the pair
	LUNs     []MeasuredLUN     `json:"luns,omitempty"`
	Disks    []MeasuredDisk    `json:"disks,omitempty"` // of md arrays, with spares
	Services []MeasuredService `json:"services"`
	// Cache is the service whose volume is behind a cache of SSDs.
	Cache   string          `json:"cache,omitempty"`
	Fencing []MeasuredLevel `json:"fencing,omitempty"`
}

// MeasuredGroup is an md array.
type MeasuredGroup struct {
	Name  string `json:"name"`
	UUID  string `json:"uuid"`
	Disks int    `json:"disks"`
}

// MeasuredLUN is a LUN and how many paths the server has to it.
type MeasuredLUN struct {
	Name  string `json:"name"` // of its multipath map
	Array string `json:"array"`
	Paths int    `json:"paths"`
}

type MeasuredDisk struct {
	Serial    string `json:"serial"`
	WWN       string `json:"wwn,omitempty"`
	Group     string `json:"group,omitempty"`
	Enclosure string `json:"enclosure,omitempty"`
	Bay       int    `json:"bay,omitempty"`
}

// MeasuredService is a service with its file systems.
type MeasuredService struct {
	Name   string   `json:"name"`
	Mounts []string `json:"mounts"`
	// Namespace, StateDir and Exports are of NFS; Exports is nil for another kind.
	Namespace string   `json:"namespace,omitempty"`
	StateDir  string   `json:"state_dir,omitempty"`
	Exports   []Export `json:"exports,omitempty"`
}

// MeasuredLevel is a level of fencing.
type MeasuredLevel struct {
	Server      string `json:"server"`
	Level       int    `json:"level"`
	Fingerprint string `json:"fingerprint"`
}

// Measure says what a server of a pair measures itself against.
func (d *Design) Measure(p *Pair, server string) Measured {
	m := Measured{Brick: d.Name, Server: server, Cluster: p.HA != nil}
	for i := range p.Services {
		s := &p.Services[i]
		x := MeasuredService{Name: s.Name, Mounts: s.MountPoints()}
		if s.NFS != nil {
			x.Namespace, x.StateDir, x.Exports = s.Namespace, s.StateDir, s.Exports
		}
		m.Services = append(m.Services, x)
		if s.Storage.Cache != nil {
			m.Cache = s.Name
		}
		for _, l := range d.LUNsIn(&s.Storage) {
			for j := range d.Arrays {
				if a := &d.Arrays[j]; a.Name == l.Array && a.Family != "perc" {
					m.LUNs = append(m.LUNs, MeasuredLUN{Name: l.Name, Array: l.Array, Paths: d.PathsTo(a, server)})
				}
			}
		}
		if len(s.Storage.LUNs) > 0 {
			continue // its groups are inside of the array
		}
		for _, g := range d.GroupsIn(&s.Storage) {
			m.Groups = append(m.Groups, MeasuredGroup{Name: g.Name, UUID: g.UUID, Disks: len(g.Members)})
			for i, x := range slices.Concat(g.Members, g.Spares) {
				if x.Failed {
					continue // the group does without it
				}
				k := MeasuredDisk{Serial: x.Serial, WWN: x.WWN, Enclosure: x.Enclosure, Bay: x.Bay}
				if i < len(g.Members) {
					k.Group = g.Name
				}
				m.Disks = append(m.Disks, k)
			}
		}
	}
	if p.HA != nil {
		for i := range p.HA.Fencing {
			l := &p.HA.Fencing[i]
			m.Fencing = append(m.Fencing, MeasuredLevel{Server: l.Node, Level: l.Level, Fingerprint: l.Fingerprint()})
		}
	}
	return m
}
