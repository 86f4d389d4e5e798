package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
	"github.com/mortarhpc/mortar/internal/serve/lustre"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// lustreKind are targets of a Lustre file system on ldiskfs. They are mounted
// by the resource agent only: a target registers with the MGS when it starts for
// the first time, so the services of the MDS start before those of the OSS.
//
// Source: Lustre Operations Manual, 10.1, 11.2 and 13.2
type lustreKind struct{ *builder }

// Lustre's own packages have a step of their own: see lustrePackages.
func (b lustreKind) serverPackages(distro.Packages) []string { return nil }

func (b lustreKind) clientPackages(distro.Packages) []string { return nil }

func (b lustreKind) modules() []string { return nil }

func (b lustreKind) caches() bool { return false }

func (b lustreKind) client(h string) {
	p := b.distro(h).Packages
	b.add(StagePackages, h, "packages of Lustre", b.facts.Lustre.packages(p.LustreClient, p.LustreServer))
	b.add(StageKernel, h, "kernel modules", &resource.Modules{Options: b.settings("client", "module")})
	b.lnet(h)
}

// lnet is the network of Lustre on one node.
func (b lustreKind) lnet(h string) {
	b.add(StageKernel, h, "LNet", LNetOf(b.d, h))
	b.add(StageKernel, h, "udev rule for parameters of Lustre", resource.LustreRules())
}

// LNetOf is LNet on a node of a Lustre brick.
func LNetOf(d *design.Design, node string) *resource.LNet {
	return &resource.LNet{Networks: d.Lustre.LNET, Address: d.PublicOf(node)}
}

// volumes: each target has one; the last takes what is left.
func (b lustreKind) volumes(s *design.Service) []volume {
	out := lists.Map(s.Targets, func(t design.Target) volume { return volume{t.Volume, int64(t.Size)} })
	out[len(out)-1].size = 0
	return out
}

func (b lustreKind) builtOn(*design.Service) string { return "" }

// content are the targets. A running one is only read.
func (b lustreKind) content(s *design.Service, p place, _ []string) {
	for _, t := range s.Targets {
		name, mgs := t.Name, b.d.Lustre.MGSNIDs
		if t.Kind == "mgs" {
			name, mgs = "MGS", nil
		}
		b.add(StageStorage, p.host, "target "+t.Name, &storage.LustreTarget{
			Name: name, Device: t.Device, Args: slices.Clone(t.MkfsArgs[:len(t.MkfsArgs)-1]), MGSNIDs: mgs, ServiceNIDs: t.ServiceNIDs, Why: targetWhy(t),
		})
	}
}

func targetWhy(t design.Target) string {
	switch t.Kind {
	case "mgs":
		return "configuration of the file system; either server may mount it"
	case "mdt":
		return fmt.Sprintf("room for %d million files; either server may mount it", t.Inodes/1_000_000)
	}
	return fmt.Sprintf("stride %d and stripe-width %d blocks of 4 KiB: one full RAID stripe; as a rule on %s", t.Stride, t.StripeWidth, t.Server)
}

func (b lustreKind) server(h string) error {
	b.add(StagePackages, h, "packages of Lustre", b.facts.Lustre.packages(b.distro(h).Packages.LustreServer, nil))
	b.lnet(h)
	return b.agents(StageAgent, h, func(*design.Service) {})
}

// constraints: the MGS starts before the targets that register with it, as far
// as one cluster can tell.
func (b lustreKind) constraints(all *resource.Element) {
	var mgs string
	for _, s := range b.services() {
		id := resource.ServiceID(s.Name)
		if s.Targets[0].Kind == "mgs" {
			mgs = id
			continue
		}
		if mgs != "" {
			all.Add(resource.El("rsc_order", "id", "order-"+mgs+"-"+id, "first", mgs, "then", id, "kind", "Optional"))
		}
	}
}

func (b lustreKind) agent(s *design.Service, c *ocf.Config) error {
	c.LustreService = &lustre.LustreService{FSName: b.d.Lustre.FSName}
	for _, t := range s.Targets {
		c.Targets = append(c.Targets, lustre.Target{Kind: t.Kind, Index: t.Index, Volume: t.Volume, MountPoint: t.MountPoint})
		if t.Kind == "mgs" {
			c.Servers = b.d.Lustre.ServerNIDs
		}
	}
	return nil
}

func (b lustreKind) served() {
	l := b.d.Lustre
	// The MGS keeps them; whichever server of the MDS has it is the one that acts.
	for _, p := range b.d.Pairs {
		if p.Role != "mds" {
			continue
		}
		for _, h := range p.Servers {
			home := h == p.Services[0].Preferred
			for _, set := range l.Params {
				name, value, _ := strings.Cut(set, "=")
				b.add(StageWhole, h, "setting "+name, &resource.LustreParam{Name: name, Value: value, Home: home})
			}
			for _, pool := range l.Pools {
				b.add(StageWhole, h, "pool "+pool.Name, &resource.LustrePool{FSName: l.FSName, Name: pool.Name, OSTs: pool.Indices(l.OSTs), Home: home})
			}
		}
	}
	for i, m := range b.d.Mounts {
		b.add(StageClients, m.Client, "mount "+m.Path, &storage.MountPoint{
			Source: m.Source, Path: m.Path, Type: "lustre", Fstab: true,
			Options: b.d.FstabOptions(m),
		})
		if i == 0 {
			b.add(StageClients, m.Client, "default striping", &resource.LustreStriping{Path: m.Path, Count: l.StripeCount, Size: int64(l.StripeSize)})
		}
	}
}
