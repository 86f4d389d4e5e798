package resource

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// ExportLine is one directory exported to one network.
type ExportLine struct {
	Dir, Clients, FSID string
	Options            []string
}

func (e ExportLine) options() []string {
	return append(append([]string{}, e.Options...), "fsid="+e.FSID)
}

// Exports is a file under /etc/exports.d and what is exported now. It is for
// a single server; in an HA pair the resource agent exports.
type Exports struct {
	Path  string
	Lines []ExportLine
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
		fmt.Fprintf(&b, "%s %s(%s)\n", quoteExport(l.Dir), l.Clients, strings.Join(l.options(), ","))
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
	live := parseEtab(string(etab))
	stale := len(as) > 0
	for _, l := range e.Lines {
		have := live[l.Dir+" "+l.Clients]
		for _, o := range l.options() {
			stale = stale || !have[o]
		}
	}
	if stale {
		as = append(as, Action{Title: "export " + e.Path, Cmd: []string{"exportfs", "-ra"}})
	}
	return as, nil
}

func quoteExport(dir string) string {
	if strings.ContainsAny(dir, " \t") {
		return `"` + dir + `"`
	}
	return dir
}

// parseEtab maps "dir client" to the set of its options.
func parseEtab(s string) map[string]map[string]bool {
	m := map[string]map[string]bool{}
	for line := range strings.Lines(s) {
		dir, rest, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		client, opts, ok := strings.Cut(rest, "(")
		if !ok {
			continue
		}
		set := map[string]bool{}
		for o := range strings.SplitSeq(strings.TrimSuffix(opts, ")"), ",") {
			set[o] = true
		}
		m[unescape(dir)+" "+client] = set
	}
	return m
}

// NFSServer is the kernel NFS server of a single server, run by systemd.
type NFSServer struct {
	Threads  int
	Versions []string
	Lease    int // seconds
	Grace    int // seconds
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
