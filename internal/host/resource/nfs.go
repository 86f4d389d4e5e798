package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// Exports is a file under /etc/exports.d and what is exported now. It is for
// a single server; in an HA pair the resource agent exports.
type Exports struct {
	Path  string
	Lines []nfs.Export
}

func (e *Exports) Identity() (kind, id string) { return "exports", e.Path }

// Diff compares the file and /var/lib/nfs/etab.
func (e *Exports) Diff(sys Look) ([]Action, error) {
	var b strings.Builder
	b.WriteString(Header)
	for _, l := range e.Lines {
		fmt.Fprintf(&b, "%s %s(%s)\n", quoteExport(l.Dir), l.Clients, strings.Join(append(slices.Clone(l.Options), "fsid="+l.FSID), ","))
	}
	as := sys.Want(&TextFile{Path: e.Path, Content: []byte(b.String())})
	var why []string
	for _, d := range nfs.CompareExports(nfs.ParseETab(sys.Text("/var/lib/nfs/etab")), e.Lines) {
		if d.Extra && e.foreign(sys, d.Dir) {
			continue
		}
		why = append(why, d.String())
	}
	if len(as)+len(why) > 0 {
		as = append(as, Action{Title: "export " + e.Path, Why: strings.Join(why, "; "), Cmd: []string{"exportfs", "-ra"}})
	}
	return as, nil
}

// foreign says whether a directory is exported by another file than this one.
func (e *Exports) foreign(sys Look, dir string) bool {
	return slices.ContainsFunc(append(sys.Files("/etc/exports.d/*.exports"), "/etc/exports"), func(p string) bool {
		return p != e.Path && strings.Contains(sys.Text(p), dir)
	})
}

func quoteExport(dir string) string {
	if strings.ContainsAny(dir, " \t") {
		return `"` + dir + `"`
	}
	return dir
}

// ServiceExports are the exports of a service of a pair, where it runs: they are
// changed in place. The resource agent does that, by its configuration; on a
// server on which the service does not run there is nothing to do.
type ServiceExports struct {
	Service   string
	Agent     string // program
	Config    string // of the agent
	StateDir  string
	Namespace string `json:",omitempty"`
	Exports   []nfs.Export
}

func (e *ServiceExports) Identity() (kind, id string) { return "service-exports", e.Service }

// Diff compares the table that rpc.mountd reads with what is wanted.
func (e *ServiceExports) Diff(sys Look) ([]Action, error) {
	threads := sys.Text(nfs.NFSDDir(e.Namespace) + "/threads")
	etab, there := sys.File(e.StateDir + "/etab")
	if !there || threads == "" || threads == "0" {
		return nil, nil
	}
	why := lists.Map(nfs.CompareExports(nfs.ParseETab(etab), e.Exports), nfs.ExportDifference.String)
	if sys.Exists(nfs.ExportsPending(e.Service)) {
		why = append(why, "the kernel still has exports of the table before")
	}
	if len(why) == 0 {
		return nil, nil
	}
	return []Action{{
		Title: "change the exports of " + e.Service, Why: strings.Join(why, "; "),
		Cmd: []string{e.Agent, "ocf", "exports", "--config", e.Config}, Seconds: 60,
	}}, nil
}

// NFSServer is the kernel NFS server of a single server, run by systemd.
type NFSServer struct {
	Threads     int
	Connections int // that nfsd keeps, where the kernel has such a limit
	Versions    []string
	Lease       int // seconds
	Grace       int // seconds
	RDMA        int `json:",omitempty"` // port, 0: none
}

func (n *NFSServer) Identity() (kind, id string) { return "nfs-server", "nfsd" }

// Diff reads /proc/fs/nfsd: values that were configured but not taken up
// make a restart, whenever that was lost.
func (n *NFSServer) Diff(sys Look) ([]Action, error) {
	const unit, limit = "nfs-server.service", "/proc/fs/nfsd/max_connections"
	most := strconv.Itoa(n.Connections)
	file := DropIn(unit, "[Service]\nExecStartPre=-/bin/sh -c 'test ! -e "+limit+" || echo "+most+" > "+limit+"'\n")
	file.Why = "nfs.conf has no such key"
	as := reloaded(sys, unit, sys.Want(&file))
	var why []string
	threads := sys.Text("/proc/fs/nfsd/threads")
	if threads == "" || atoi(threads) != n.Threads {
		why = append(why, fmt.Sprintf("threads %s, not %d", OrNone(threads), n.Threads))
	}
	if threads != "" && threads != "0" {
		for _, c := range []struct {
			name string
			want int
		}{{"nfsv4leasetime", n.Lease}, {"nfsv4gracetime", n.Grace}} {
			if got := sys.Text("/proc/fs/nfsd/" + c.name); got != strconv.Itoa(c.want) {
				why = append(why, fmt.Sprintf("%s %s, not %d", c.name, OrNone(got), c.want))
			}
		}
		if got := servedVersions(sys.Text("/proc/fs/nfsd/versions")); strings.Join(got, " ") != strings.Join(sorted(n.Versions), " ") {
			why = append(why, fmt.Sprintf("versions %s, not %s", strings.Join(got, " "), strings.Join(n.Versions, " ")))
		}
	}
	if threads != "" && threads != "0" && n.RDMA > 0 && !nfs.ListensRDMA(sys.Text("/proc/fs/nfsd/portlist"), n.RDMA) {
		why = append(why, fmt.Sprintf("no listener for RDMA on port %d", n.RDMA))
	}
	if len(why) > 0 {
		return append(as, Action{
			Title: "restart nfs-server", Why: strings.Join(why, "; "),
			Cmd: []string{"systemctl", "restart", unit}, Seconds: 180,
		}), nil
	}
	if got := sys.Text(limit); got != "" && got != most { // nfsd takes a new one while it runs
		as = append(as, Action{Title: "set max_connections of nfsd", Why: "it is " + got, Cmd: []string{"tee", limit}, Stdin: []byte(most + "\n")})
	}
	return as, nil
}

// servedVersions reads "+3 +4 -4.0 +4.1 +4.2": the versions a user can name.
func servedVersions(s string) []string {
	var v []string
	for f := range strings.FieldsSeq(s) {
		if n, ok := strings.CutPrefix(f, "+"); ok && n != "4" {
			v = append(v, n)
		}
	}
	return sorted(v)
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
