package resource

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Exports is a file under /etc/exports.d and what is exported now. It is for
// a single server; in an HA pair the resource agent exports.
type Exports struct {
	Path  string
	Lines []ocf.Export
}

// Kind is "exports".
func (e *Exports) Kind() string { return "exports" }

// ID is the file.
func (e *Exports) ID() string { return e.Path }

// Diff compares the file and /var/lib/nfs/etab.
func (e *Exports) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	var b strings.Builder
	b.WriteString(Header)
	for _, l := range e.Lines {
		fmt.Fprintf(&b, "%s %s(%s)\n", quoteExport(l.Dir), l.Clients, strings.Join(append(slices.Clone(l.Options), "fsid="+l.FSID), ","))
	}
	f := TextFile{Path: e.Path, Content: []byte(b.String())}
	as, err := f.Diff(ctx, sys)
	if err != nil {
		return nil, err
	}
	etab, err := sys.ReadFile("/var/lib/nfs/etab")
	if err != nil && !absent(err) {
		return nil, err
	}
	var why []string
	for _, d := range ocf.CompareExports(ocf.ParseETab(string(etab)), e.Lines) {
		if d.Extra {
			if foreign, err := e.foreign(sys, d.Dir); err != nil {
				return nil, err
			} else if foreign {
				continue
			}
		}
		why = append(why, d.String())
	}
	if len(as)+len(why) > 0 {
		as = append(as, Action{Title: "export " + e.Path, Why: strings.Join(why, "; "), Cmd: []string{"exportfs", "-ra"}})
	}
	return as, nil
}

// foreign says whether a directory is exported by another file than this one.
func (e *Exports) foreign(sys Sys, dir string) (bool, error) {
	files, err := sys.Glob("/etc/exports.d/*.exports")
	if err != nil {
		return false, err
	}
	for _, p := range append(files, "/etc/exports") {
		b, err := sys.ReadFile(p)
		if err != nil && !absent(err) {
			return false, err
		}
		if p != e.Path && strings.Contains(string(b), dir) {
			return true, nil
		}
	}
	return false, nil
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
	Exports   []ocf.Export
}

// Kind is "service-exports".
func (e *ServiceExports) Kind() string { return "service-exports" }

// ID is the service.
func (e *ServiceExports) ID() string { return e.Service }

// Diff compares the table that rpc.mountd reads with what is wanted.
func (e *ServiceExports) Diff(_ context.Context, sys Sys) ([]Action, error) {
	threads, err := readTrim(sys, ocf.NFSDDir(e.Namespace)+"/threads")
	if err != nil {
		return nil, err
	}
	etab, err := sys.ReadFile(e.StateDir + "/etab")
	if absent(err) || threads == "" || threads == "0" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var why []string
	for _, d := range ocf.CompareExports(ocf.ParseETab(string(etab)), e.Exports) {
		why = append(why, d.String())
	}
	if pending, err := exists(sys, ocf.ExportsPending(e.Service)); err != nil {
		return nil, err
	} else if pending {
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
	Threads  int
	Versions []string
	Lease    int // seconds
	Grace    int // seconds
	RDMA     int `json:",omitempty"` // port, 0: none
}

// Kind is "nfs-server".
func (n *NFSServer) Kind() string { return "nfs-server" }

// ID is "nfsd".
func (n *NFSServer) ID() string { return "nfsd" }

// Diff reads /proc/fs/nfsd: values that were configured but not taken up
// make a restart, whenever that was lost.
func (n *NFSServer) Diff(_ context.Context, sys Sys) ([]Action, error) {
	var why []string
	threads, err := readTrim(sys, "/proc/fs/nfsd/threads")
	if err != nil {
		return nil, err
	}
	if threads == "" || atoi(threads) != n.Threads {
		why = append(why, fmt.Sprintf("threads %s, not %d", orNone(threads), n.Threads))
	}
	if threads != "" && threads != "0" {
		for _, c := range []struct {
			name string
			want int
		}{{"nfsv4leasetime", n.Lease}, {"nfsv4gracetime", n.Grace}} {
			got, err := readTrim(sys, "/proc/fs/nfsd/"+c.name)
			if err != nil {
				return nil, err
			}
			if got != strconv.Itoa(c.want) {
				why = append(why, fmt.Sprintf("%s %s, not %d", c.name, orNone(got), c.want))
			}
		}
		vs, err := readTrim(sys, "/proc/fs/nfsd/versions")
		if err != nil {
			return nil, err
		}
		if got := servedVersions(vs); strings.Join(got, " ") != strings.Join(sorted(n.Versions), " ") {
			why = append(why, fmt.Sprintf("versions %s, not %s", strings.Join(got, " "), strings.Join(n.Versions, " ")))
		}
	}
	if threads != "" && threads != "0" && n.RDMA > 0 {
		ports, err := sys.ReadFile("/proc/fs/nfsd/portlist")
		if err != nil && !absent(err) {
			return nil, err
		}
		if !ocf.ListensRDMA(string(ports), n.RDMA) {
			why = append(why, fmt.Sprintf("no listener for RDMA on port %d", n.RDMA))
		}
	}
	if len(why) == 0 {
		return nil, nil
	}
	return []Action{{
		Title: "restart nfs-server", Why: strings.Join(why, "; "),
		Cmd: []string{"systemctl", "restart", "nfs-server.service"}, Seconds: 180,
	}}, nil
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

func sorted(s []string) []string {
	s = append([]string{}, s...)
	sort.Strings(s)
	return s
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
