package observe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// nfsKind are exports of a file system at an address.
type nfsKind struct{ *view }

func (v nfsKind) request(s *design.Service, r *Request) {
	r.Processes = serverProcesses
	for _, f := range []string{"threads", "versions", "v4_end_grace", "nfsv4leasetime", "portlist"} {
		r.Files = append(r.Files, ocf.NFSDDir(s.Namespace)+"/"+f)
	}
	r.Files = append(r.Files, etabOf(s))
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
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	n := 0
	for i := range v.pair.Services {
		vol := &v.pair.Services[i]
		var on []*server
		for _, s := range v.servers {
			if _, ok := s.mountOf(vol); ok {
				on = append(on, s)
			}
		}
		switch {
		case len(on) == 0 && len(v.silent()) > 0:
			p.add(Unknown, vol.MountPoint, "mounted on no server that answers; %s may have it", list(v.silent()))
			continue
		case len(on) == 0:
			p.add(Fault, vol.MountPoint, "%s is not mounted on any server", vol.MountPoint)
			continue
		case len(on) > 1:
			c := p.add(Fault, vol.MountPoint, "%s is mounted on %s at once: XFS does not survive this", vol.MountPoint, list(serverNames(on)))
			c.Mend = "stop the service on one of them now, and find out why fencing did not"
			continue
		}
		s := on[0]
		m, _ := s.mountOf(vol)
		fs := s.host.FS[vol.MountPoint]
		c := p.add(OK, vol.MountPoint, "%s on %s", m.Type, s.name)
		st := &vol.Storage
		dev, other := "/dev/mapper/"+linux.DMName(st.VG, st.LV), st.Backing()
		if k := st.Cache; k != nil {
			dev, other = k.Device, k.Device
		} else if cached := "/dev/mapper/" + st.VG + ".cached"; m.Source == cached {
			other = cached // after its removal a cache passes all I/O through until the service stops
		}
		if m.Source != dev && m.Source != other {
			c.add(Fault, "device", "%s on %s is mounted from %s, not from %s", vol.MountPoint, s.name, m.Source, dev)
		}
		if _, ro := m.Option("ro"); ro {
			c.add(Fault, "mount", "%s is mounted read-only on %s", vol.MountPoint, s.name)
		}
		switch {
		case fs.TimedOut:
			c.add(Fault, "answer", "%s on %s does not answer: I/O to it hangs", vol.MountPoint, s.name)
		case fs.Err != "":
			c.add(Fault, "answer", "%s on %s gives an error: %s (XFS shuts down after an I/O error; see the kernel log)", vol.MountPoint, s.name, fs.Err)
		case fs.Size > 0:
			used := 100 * float64(fs.Size-min(fs.Avail, fs.Size)) / float64(fs.Size)
			c.Text += fmt.Sprintf(", %s, %.0f %% used", size(fs.Size), used)
			full(c, vol.MountPoint, s.name, "space", used)
			if fs.Files > 0 {
				full(c, vol.MountPoint, s.name, "inodes", 100*float64(fs.Files-min(fs.FilesFree, fs.Files))/float64(fs.Files))
			}
		}
		n++
	}
	p.Text = fmt.Sprintf("%d of %d mounted", n, len(v.pair.Services))
	return p
}

func full(c *Part, path, host, what string, used float64) {
	switch {
	case used >= spaceFault:
		c.add(Fault, what, "%s on %s is full: %.0f %% of its %s used", path, host, used, what)
	case used >= spaceWarn:
		c.add(Warning, what, "%s on %s is nearly full: %.0f %% of its %s used", path, host, used, what)
	}
}

// exports checks that the service's server has nfsd, its daemons, the exports and
// the address, and that no other server has the address.
func (v nfsKind) exports() *Part {
	p := &Part{Name: "export"}
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	n := 0
	for i := range v.pair.Services {
		svc := &v.pair.Services[i]
		w := v.where(svc)
		s := v.byName[w.Server]
		if s == nil {
			// The cluster does not know the server: use the one with the address.
			for _, x := range v.servers {
				if x.hasAddress(svc.Address) {
					s = x
				}
			}
		}
		switch {
		case s == nil && len(v.silent()) > 0:
			p.add(Unknown, svc.Name, "service %s runs on no server that answers; %s may have it", svc.Name, list(v.silent()))
			continue
		case s == nil:
			p.add(Fault, svc.Name, "service %s (%s) runs on no server", svc.Name, svc.Address)
			continue
		case s.host == nil:
			p.add(Unknown, svc.Name, "service %s is on %s, which does not answer", svc.Name, s.name)
			continue
		}
		c := p.add(OK, svc.Name, "")
		v.serving(c, svc, s)
		n++
	}
	p.Text = fmt.Sprintf("%d of %d services exported", n, len(v.pair.Services))
	return p
}

func (v nfsKind) serving(c *Part, svc *design.Service, s *server) {
	h := s.host
	nfsd := ocf.NFSDDir(svc.Namespace)
	threads, _ := strconv.Atoi(strings.TrimSpace(h.Files[nfsd+"/threads"]))
	c.Text = fmt.Sprintf("%s on %s, %d nfsd threads", svc.Address, s.name, threads)
	if threads == 0 {
		c.add(Fault, "nfsd", "no nfsd runs on %s", s.name)
	} else if want := v.d.Spec.NFS.Threads; want > 0 && threads < want {
		c.add(Warning, "nfsd", "%d nfsd threads run on %s, not %d", threads, s.name, want)
	}
	if threads > 0 {
		have := map[string]bool{}
		for _, f := range strings.Fields(h.Files[nfsd+"/versions"]) {
			have[strings.TrimPrefix(f, "+")] = strings.HasPrefix(f, "+")
		}
		for _, want := range v.d.Spec.NFS.Versions {
			if on, known := have[want]; len(have) > 0 && (!known || !on) {
				c.add(Fault, "NFSv"+want, "%s does not serve NFSv%s", s.name, want)
			}
		}
		if v.d.Spec.NFS.RDMA() {
			if ocf.ListensRDMA(h.Files[nfsd+"/portlist"], design.RDMAPort) {
				c.Text += ", TCP and RDMA"
			} else {
				c.add(Fault, "RDMA", "%s does not serve RDMA", s.name)
			}
		}
		if strings.TrimSpace(h.Files[nfsd+"/v4_end_grace"]) == "N" {
			c.add(OK, "grace", "in grace: clients reclaim their locks, new ones wait")
		}
		need := []string{"nfsdcld"}
		if slices.Contains(v.d.Spec.NFS.Versions, "3") {
			need = append(need, "rpc.mountd", "rpc.statd", "rpcbind")
		}
		for _, name := range need {
			if k, asked := h.Processes[inNamespace(name, svc.Namespace)]; asked && k == 0 {
				f := c.add(Fault, name, "%s does not run on %s: %s", name, s.name, daemonUse[name])
				f.Mend = "its log (journalctl) says why; the cluster restarts the service when its monitor sees it"
			}
		}
	}
	if !s.hasAddress(svc.Address) {
		c.add(Fault, "address", "the service address %s is not on %s", svc.Address, s.name)
	}
	for _, x := range v.servers {
		if x != s && x.hasAddress(svc.Address) {
			f := c.add(Fault, "address", "the service address %s is on %s too, where the service does not run", svc.Address, x.name)
			f.Mend = "take it off with `ip addr del`, and find out why fencing did not"
		}
	}
	v.exported(c, svc, s)
}

// exported compares the table that the server's rpc.mountd reads with the service's
// exports and their options.
func (v nfsKind) exported(c *Part, svc *design.Service, s *server) {
	var want []ocf.Export
	for _, e := range svc.Exports {
		want = append(want, ocf.Export{Dir: e.Dir, Clients: e.Clients, FSID: e.FSID, Options: e.Options})
	}
	for _, d := range ocf.CompareExports(ocf.ParseETab(s.host.Files[etabOf(svc)]), want) {
		var f *Part
		switch {
		case d.Unresolved() && v.pair.HA != nil:
			f = c.add(Fault, d.Dir, "%s is not exported to %s on %s, where that name did not resolve", d.Dir, d.Clients, s.name)
			f.Mend = fmt.Sprintf("see that `getent hosts %s` answers on %s; within 30 s the watcher exports to it. An address in the spec needs no name service", d.Clients, s.name)
			continue
		case d.Missing:
			f = c.add(Fault, d.Dir, "%s is not exported to %s on %s", d.Dir, d.Clients, s.name)
		case d.Extra && v.pair.HA == nil:
			continue // the export may come from another file
		case d.Extra:
			f = c.add(Warning, d.Dir, "%s is exported to %s on %s, which the spec does not say", d.Dir, d.Clients, s.name)
		case slices.Contains(d.Have, "async"):
			f = c.add(Fault, d.Dir, "%s is exported async on %s: acknowledged writes are lost if it fails", d.Dir, s.name)
		case slices.Contains(d.Have, "ro"):
			f = c.add(Fault, d.Dir, "%s is exported read-only on %s", d.Dir, s.name)
		default:
			f = c.add(Warning, d.Dir, "%s on %s", d, s.name)
		}
		f.Mend = "`mortar apply`"
	}
}

var daemonUse = map[string]string{
	"nfsdcld":    "clients could not reclaim NFSv4 locks after a failover",
	"rpc.mountd": "no client can mount by NFSv3, and new exports are not resolved",
	"rpc.statd":  "NFSv3 locks would not be recovered after a failover",
	"rpcbind":    "NFSv3 clients cannot find the server's ports",
}
