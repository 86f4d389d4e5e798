package observe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// nfsKind are exports of a file system at an address.
type nfsKind struct{ *view }

func (v nfsKind) request(s *design.Service, r *gather.Request) {
	r.Processes = serverProcesses
	for _, f := range []string{"threads", "versions", "v4_end_grace", "nfsv4leasetime", "portlist"} {
		r.Files = append(r.Files, nfs.NFSDDir(s.Namespace)+"/"+f)
	}
	r.Files = append(r.Files, gather.ETab(s.Namespace, s.StateDir))
	if s.Namespace != "" {
		r.Namespaces = append(r.Namespaces, s.Namespace)
	}
	r.FS = append(r.FS, s.MountPoint)
}

func (v nfsKind) parts() []*Part { return []*Part{v.fileSystems(), v.exports()} }

// fileSystems checks that each file system is mounted only on the service's server,
// is writable, answers, and is not full.
func (v nfsKind) fileSystems() *Part {
	p := &Part{Name: "file system"}
	n := 0
	for i := range v.pair.Services {
		vol := &v.pair.Services[i]
		s := v.only(p, vol.MountPoint, "fs", func(s *server) bool { _, ok := s.mountOf(vol); return ok })
		if s == nil {
			if last := p.Parts[len(p.Parts)-1]; v.pair.HA == nil && last.Code == "fs-missing" {
				last.Mend = fmt.Sprintf("`mortar apply` mounts it; if XFS does not take it, `mortar repair SPEC %s` looks at it", vol.Name)
			}
			continue
		}
		m, _ := s.mountOf(vol)
		fs := s.host.FS[vol.MountPoint]
		c := p.add(vol.MountPoint, "%s on %s", m.Type, s.name)
		st := &vol.Storage
		dev, other := "/dev/mapper/"+linux.DMName(st.VG, st.LV), st.Backing()
		if k := st.Cache; k != nil {
			dev, other = k.Device, dev // not yet: see cache-past
		} else if cached := "/dev/mapper/" + st.VG + ".cached"; m.Source == cached {
			other = cached // after its removal a cache passes all I/O through until the service stops
		}
		if m.Source != dev && m.Source != other {
			c.find("device", "fs-source", with{"fs": vol.MountPoint, "host": s.name, "source": m.Source, "want": dev})
		}
		if m.ReadOnly() {
			c.find("mount", "fs-readonly", with{"fs": vol.MountPoint, "host": s.name})
		}
		switch {
		case fs.TimedOut:
			c.find("answer", "fs-hangs", with{"fs": vol.MountPoint, "host": s.name})
		case fs.Err != "":
			c.find("answer", "fs-error", with{"fs": vol.MountPoint, "host": s.name, "error": fs.Err})
		case fs.Size > 0:
			used := percentUsed(fs.Size, fs.Avail)
			c.Text += fmt.Sprintf(", %s, %.0f %% used", size(fs.Size), used)
			fullness(c, vol.MountPoint, s.name, "space", used)
			if fs.Files > 0 {
				fullness(c, vol.MountPoint, s.name, "inodes", percentUsed(fs.Files, fs.FilesFree))
			}
		}
		n++
	}
	p.Text = fmt.Sprintf("%d of %d mounted", n, len(v.pair.Services))
	return p
}

func fullness(c *Part, path, host, what string, used float64) {
	switch {
	case used >= spaceFault:
		c.find(what, Full, with{"fs": path, "host": host, "used": used, "of": what})
	case used >= spaceWarn:
		c.find(what, "nearly-full", with{"fs": path, "host": host, "used": used, "of": what})
	}
}

// exports checks that the service's server has nfsd, its daemons, the exports and
// the address, and that no other server has the address.
func (v nfsKind) exports() *Part {
	p := &Part{Name: "export"}
	n := 0
	for i := range v.pair.Services {
		svc := &v.pair.Services[i]
		w := v.where(svc)
		s := v.byName[w.Server]
		if s == nil {
			// The cluster does not know the server: use the one with the address.
			for _, x := range v.servers {
				if x.host.HasAddress(svc.Address) {
					s = x
				}
			}
		}
		switch {
		case s == nil:
			v.only(p, svc.Name, "service", func(*server) bool { return false })
			continue
		case s.host == nil:
			p.find(svc.Name, "service-unseen", with{"service": svc.Name, "host": s.name})
			continue
		}
		c := p.add(svc.Name, "")
		v.serving(c, svc, s)
		n++
	}
	p.Text = fmt.Sprintf("%d of %d services exported", n, len(v.pair.Services))
	return p
}

func (v nfsKind) serving(c *Part, svc *design.Service, s *server) {
	h := s.host
	nfsd := nfs.NFSDDir(svc.Namespace)
	threads, _ := strconv.Atoi(strings.TrimSpace(h.Files[nfsd+"/threads"]))
	c.Text = fmt.Sprintf("%s on %s, %d nfsd threads", svc.Address, s.name, threads)
	if threads == 0 {
		c.find("nfsd", "nfsd-missing", with{"host": s.name})
	} else if want := v.d.Spec.NFS.Threads; want > 0 && threads < want {
		c.find("nfsd", "nfsd-threads", with{"threads": threads, "host": s.name, "want": want})
	}
	if threads > 0 {
		have := map[string]bool{}
		for _, f := range strings.Fields(h.Files[nfsd+"/versions"]) {
			have[strings.TrimPrefix(f, "+")] = strings.HasPrefix(f, "+")
		}
		for _, want := range v.d.Spec.NFS.Versions {
			if on, known := have[want]; len(have) > 0 && (!known || !on) {
				c.find("NFSv"+want, "nfs-version", with{"host": s.name, "version": want})
			}
		}
		if v.d.Spec.NFS.RDMA() {
			if nfs.ListensRDMA(h.Files[nfsd+"/portlist"], design.RDMAPort) {
				c.Text += ", TCP and RDMA"
			} else {
				c.find("RDMA", "rdma-missing", with{"host": s.name})
			}
		}
		if strings.TrimSpace(h.Files[nfsd+"/v4_end_grace"]) == "N" {
			c.add("grace", "in grace: clients reclaim their locks, new ones wait")
		}
		need := []string{"nfsdcld"}
		if slices.Contains(v.d.Spec.NFS.Versions, "3") {
			need = append(need, "rpc.mountd", "rpc.statd", "rpcbind")
		}
		for _, name := range need {
			if k, asked := h.Processes[gather.InNamespace(name, svc.Namespace)]; asked && k == 0 {
				c.find(name, "daemon-missing", with{"daemon": name, "host": s.name, "use": daemonUse[name]})
			}
		}
	}
	if !s.host.HasAddress(svc.Address) {
		c.find("address", "address-missing", with{"address": svc.Address, "host": s.name})
	}
	for _, x := range v.servers {
		if x != s && x.host.HasAddress(svc.Address) {
			c.find("address", "address-twice", with{"address": svc.Address, "host": x.name})
		}
	}
	v.exported(c, svc, s)
}

// exported compares the table that the server's rpc.mountd reads with the service's
// exports and their options.
func (v nfsKind) exported(c *Part, svc *design.Service, s *server) {
	var want []nfs.Export
	for _, e := range svc.Exports {
		want = append(want, nfs.Export{Dir: e.Dir, Clients: e.Clients, FSID: e.FSID, Options: e.Options})
	}
	for _, d := range nfs.CompareExports(nfs.ParseETab(s.host.Files[gather.ETab(svc.Namespace, svc.StateDir)]), want) {
		var code Code
		switch {
		case d.Unresolved() && v.pair.HA != nil:
			code = "export-unresolved"
		case d.Missing:
			code = "export-missing"
		case d.Extra && v.pair.HA == nil:
			continue // the export may come from another file
		case d.Extra:
			code = "export-extra"
		case slices.Contains(d.Have, "async"):
			code = "export-async"
		case slices.Contains(d.Have, "ro"):
			code = "export-readonly"
		default:
			code = "export-options"
		}
		c.find(d.Dir, code, with{"export": d.Dir, "clients": d.Clients, "host": s.name, "difference": d.String()})
	}
}

var daemonUse = map[string]string{
	"nfsdcld":    "clients could not reclaim NFSv4 locks after a failover",
	"rpc.mountd": "no client can mount by NFSv3, and new exports are not resolved",
	"rpc.statd":  "NFSv3 locks would not be recovered after a failover",
	"rpcbind":    "NFSv3 clients cannot find the server's ports",
}
