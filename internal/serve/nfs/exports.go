package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Exported is a line of exportfs' table, which is rpc.mountd's list of exports.
type Exported struct {
	Dir, Clients string
	Options      []string
}

// ParseETab reads exportfs' table: directory, tab, client(options). Source:
// exportfs(8), /var/lib/nfs/etab.
func ParseETab(text string) []Exported {
	var out []Exported
	for line := range strings.Lines(text) {
		dir, rest, ok := strings.Cut(strings.TrimSpace(line), "\t")
		client, opts, ok2 := strings.Cut(rest, "(")
		if ok && ok2 {
			out = append(out, Exported{linux.Unescape(dir), client, strings.Split(strings.TrimSuffix(opts, ")"), ",")})
		}
	}
	return out
}

func (e Export) options() []string { return append(slices.Clone(e.Options), "fsid="+e.FSID) }

// ExportDifference describes how one export in a table differs from the wanted
// one.
type ExportDifference struct {
	Dir, Clients string
	// Missing: the table lacks a wanted export. Extra: the table has an export
	// that is not wanted.
	Missing, Extra bool
	// Have and Want are the options that differ, if the export is neither
	// missing nor extra.
	Have, Want []string
}

// Unresolved says whether nothing differs but that the table lacks an export to a host
// name: the name did not resolve when the table was made. The watcher adds it once it does.
func (d ExportDifference) Unresolved() bool {
	return d.Missing && linux.ClientsOf(d.Clients) == linux.ToHost
}

func (d ExportDifference) String() string {
	switch {
	case d.Missing:
		return fmt.Sprintf("%s is not exported to %s", d.Dir, d.Clients)
	case d.Extra:
		return fmt.Sprintf("%s is exported to %s, which is not configured", d.Dir, d.Clients)
	}
	return fmt.Sprintf("%s is exported to %s with %s instead of %s", d.Dir, d.Clients, orDefault(d.Have), orDefault(d.Want))
}

func orDefault(options []string) string {
	if len(options) == 0 {
		return "the default"
	}
	return strings.Join(options, ",")
}

// CompareExports lists the differences between a table and the wanted exports.
// It compares options by their meaning, because the table also lists the
// defaults.
func CompareExports(table []Exported, want []Export) []ExportDifference {
	live := map[[2]string]Exported{}
	for _, e := range table {
		live[[2]string{e.Dir, e.Clients}] = e
	}
	var out []ExportDifference
	for _, w := range want {
		key := [2]string{w.Dir, w.Clients}
		have, ok := live[key]
		delete(live, key)
		if !ok {
			out = append(out, ExportDifference{Dir: w.Dir, Clients: w.Clients, Missing: true})
			continue
		}
		if h, o := differing(have.Options, w.options()); len(h)+len(o) > 0 {
			out = append(out, ExportDifference{Dir: w.Dir, Clients: w.Clients, Have: h, Want: o})
		}
	}
	for _, e := range table { // in the table's order
		if _, left := live[[2]string{e.Dir, e.Clients}]; left {
			out = append(out, ExportDifference{Dir: e.Dir, Clients: e.Clients, Extra: true})
		}
	}
	return out
}

// differing returns the options that only one of the lists has.
func differing(a, b []string) (onlyA, onlyB []string) {
	x, y := exportProperties(a), exportProperties(b)
	names := maps.Clone(x)
	maps.Copy(names, y)
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if x[n] == y[n] {
			continue
		}
		if x[n] != "" {
			onlyA = append(onlyA, x[n])
		}
		if y[n] != "" {
			onlyB = append(onlyB, y[n])
		}
	}
	return onlyA, onlyB
}

// exportFlags are the options without a value, in pairs; the first of a pair is
// the default. Source: exports(5).
var exportFlags = [][2]string{
	{"ro", "rw"}, {"sync", "async"}, {"wdelay", "no_wdelay"}, {"hide", "nohide"}, {"nocrossmnt", "crossmnt"}, {"secure", "insecure"},
	{"root_squash", "no_root_squash"}, {"no_all_squash", "all_squash"}, {"no_subtree_check", "subtree_check"},
	{"secure_locks", "insecure_locks"}, {"acl", "no_acl"}, {"no_pnfs", "pnfs"},
}

// exportSynonyms are second names of options. Source: exports(5).
var exportSynonyms = map[string]string{"auth_nlm": "secure_locks", "no_auth_nlm": "insecure_locks"}

// exportProperties gives the meaning of a list of options, with defaults filled
// in: name of the property → the option that sets it. The table repeats some
// flags behind each sec=, for its flavours; the last flag holds.
func exportProperties(options []string) map[string]string {
	p := map[string]string{"anonuid": "anonuid=65534", "anongid": "anongid=65534"}
	property := map[string]string{}
	for _, pair := range exportFlags {
		p[pair[0]] = pair[0]
		property[pair[0]], property[pair[1]] = pair[0], pair[0]
	}
	var sec []string
	for _, o := range options {
		name, value, valued := strings.Cut(o, "=")
		switch {
		case name == "sec":
			sec = append(sec, value)
		case name == "anonuid" || name == "anongid":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				value = strconv.Itoa(int(int32(n))) // exportfs prints it so
			}
			p[name] = name + "=" + value
		case valued:
			p[name] = o
		default:
			if s := exportSynonyms[o]; s != "" {
				o = s
			}
			if of := property[o]; of != "" {
				p[of] = o
			} else if o != "" {
				p[o] = o
			}
		}
	}
	if len(sec) == 0 {
		sec = []string{"sys"}
	}
	p["sec"] = "sec=" + strings.Join(sec, " ")
	return p
}

// exportsDiffer is a fault of exports that differ from the configuration.
// Clients are still served; mendExports changes the exports in place.
type exportsDiffer struct{ error }

func differences(d []ExportDifference) error {
	all := lists.Map(d, ExportDifference.String)
	return errors.New(strings.Join(all, "; "))
}

// ExportsPending is a file that exists while the table of a service's exports
// has changed and the kernel has not read it yet.
func ExportsPending(service string) string { return scratch(service) + "/pending" }

// scratch is where a table is made before it is used.
func scratch(service string) string { return unit.RunDir + "/exports-" + service }

func (s *exporter) etab() string { return s.cfg.StateDir + "/etab" }

// exported reads the service's table.
func (s *exporter) exported() ([]Exported, error) {
	b, err := s.K.ReadFile(s.etab())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return ParseETab(string(b)), nil
}

func (s *exporter) exportState() (unit.State, error) {
	// If the volume's table is not bound, the exports belong to another NFS
	// server.
	if st, err := s.bindState(); err != nil || st != unit.Running {
		return unit.Stopped, nil
	}
	table, err := s.exported()
	if err != nil {
		return unit.Broken, err
	}
	if len(table) == 0 && s.threads() == 0 {
		return unit.Stopped, nil
	}
	// A name that does not resolve is no fault: another server would not resolve it either.
	d := slices.DeleteFunc(CompareExports(table, s.cfg.Exports), ExportDifference.Unresolved)
	if len(d) > 0 {
		return unit.Broken, exportsDiffer{differences(d)}
	}
	if s.exportsPending() {
		return unit.Broken, exportsDiffer{errors.New("the kernel still has exports of the table before")}
	}
	return unit.Running, nil
}

func (s *exporter) exportsPending() bool {
	_, err := s.K.ReadFile(ExportsPending(s.Service))
	return err == nil
}

func (s *exporter) startExports(ctx context.Context) error {
	if err := s.setExports(ctx); errors.As(err, new(Unresolved)) {
		s.Log.Note("%v; the watcher exports them once they resolve", err)
	} else if err != nil {
		return err
	}
	s.volume.keepRoom(reserve / 64) // from here on clients may fill the volume
	return nil
}

// Unresolved is the error of exports that are not in the table because their names do not
// resolve, or not within nameWait. All others are.
type Unresolved struct{ error }

// nameWait is how long all host names together may take to resolve. Clients wait for a
// start meanwhile. A resolver whose servers are dead takes longer for one name: 5 s for each
// server, twice.
// Source: resolv.conf(5), timeout and attempts
const nameWait = 5 * time.Second

// setExports replaces the table in one step: clients see all changes at one
// moment, and the other exports are served throughout. Its error is unresolved if only that
// is left.
func (s *exporter) setExports(ctx context.Context) error {
	table, err := s.exported()
	if err != nil {
		return err
	}
	var missing error
	if len(CompareExports(table, s.cfg.Exports)) > 0 {
		for _, e := range s.cfg.Exports {
			if err := s.K.Mkdir(e.Dir, 0, -1, -1); err != nil {
				return err
			}
		}
		text, err := s.makeTable(ctx, s.binds())
		if err != nil && !errors.As(err, new(Unresolved)) {
			return err
		}
		missing = err
		if made := ParseETab(string(text)); slices.EqualFunc(made, table, sameExport) && !s.exportsPending() {
			return missing
		}
		if err := s.K.Save(ExportsPending(s.Service), nil); err != nil {
			return err
		}
		// rpc.mountd reads the table again only if it is a new file.
		if err := s.K.Save(s.etab(), text); err != nil {
			return fmt.Errorf("the table of exports stays as it was: %w", err)
		}
	} else if !s.exportsPending() {
		return nil
	}
	// exportfs -f empties the kernel's table; the kernel then asks rpc.mountd.
	if _, err := s.In.Run(ctx, kernel.Command{Argv: []string{"exportfs", "-f"}, Binds: s.binds()}); err != nil {
		return err
	}
	if err := s.K.Remove(ExportsPending(s.Service)); err != nil {
		return err
	}
	if _, err = s.exportState(); err != nil {
		return err
	}
	return missing
}

func sameExport(a, b Exported) bool {
	return a.Dir == b.Dir && a.Clients == b.Clients && slices.Equal(a.Options, b.Options)
}

// makeTable runs exportfs on separate tables of the configured exports and returns the
// table if it is right. exportfs does not notice a full file system: it leaves an empty
// table and reports success (seen with nfs-utils 2.6.2). Nor does its exit code report a
// name that does not resolve (2.6.2, 2.8.3). Each host name has a table of its own, because
// exportfs locks the one that it changes, and the names are resolved side by side. The error
// is unresolved if nothing else is wrong with the table.
func (s *exporter) makeTable(ctx context.Context, binds []kernel.Bind) ([]byte, error) {
	var plain []Export
	var named [][]Export
	for _, e := range s.cfg.Exports {
		if linux.ClientsOf(e.Clients) == linux.ToHost {
			named = append(named, []Export{e})
		} else {
			plain = append(plain, e)
		}
	}
	text, err := s.tableOf(ctx, scratch(s.Service), binds, plain)
	if err != nil {
		return nil, err
	}
	if d := CompareExports(ParseETab(string(text)), plain); len(d) > 0 {
		return nil, fmt.Errorf("exportfs did not do what it was told: %w", differences(d))
	}
	made, errs := make([][]byte, len(named)), make([]error, len(named))
	nctx, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	var wg sync.WaitGroup
	for i, e := range named {
		wg.Go(func() {
			var err error
			if made[i], err = s.tableOf(nctx, fmt.Sprintf("%s/name-%d", scratch(s.Service), i), binds, e); err != nil {
				errs[i] = fmt.Errorf("%s is not exported to %s: %w", e[0].Dir, e[0].Clients, err)
			} else if d := CompareExports(ParseETab(string(made[i])), e); len(d) > 0 {
				errs[i] = differences(d)
			}
		})
	}
	wg.Wait()
	var missing []string
	for i, err := range errs {
		if err != nil {
			missing = append(missing, err.Error())
			continue
		}
		text = append(text, made[i]...)
	}
	if len(missing) > 0 {
		return text, Unresolved{fmt.Errorf("%s; names of clients must resolve on this server, as exportfs has them in its table", strings.Join(missing, "; "))}
	}
	return text, nil
}

// tableOf runs exportfs on a table in dir.
func (s *exporter) tableOf(ctx context.Context, dir string, binds []kernel.Bind, exports []Export) ([]byte, error) {
	if err := s.K.Mkdir(dir, 0o700, 0, 0); err != nil {
		return nil, err
	}
	if err := s.K.Empty(dir + "/etab"); err != nil {
		return nil, err
	}
	// This bind comes first: a later one may hide its source.
	binds = append([]kernel.Bind{{From: dir, At: nfsDir}}, slices.DeleteFunc(slices.Clone(binds), func(b kernel.Bind) bool { return b.At == nfsDir })...)
	for _, e := range exports {
		// -i makes exportfs ignore the server's /etc/exports.
		argv := []string{"exportfs", "-i", "-o", strings.Join(e.options(), ","), e.Clients + ":" + e.Dir}
		if _, err := s.In.Run(ctx, kernel.Command{Argv: argv, Binds: binds}); err != nil {
			return nil, err
		}
	}
	return s.K.ReadFile(dir + "/etab")
}

// change changes the table of a service that runs here to its configuration,
// under the lock of the service.
func (s *exporter) change(ctx context.Context) error {
	fresh, release, err := s.svc.FreshExports(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.cfg.Exports = fresh
	if st, err := s.bindState(); err != nil || st != unit.Running || s.threads() == 0 {
		return err // the service does not run here
	}
	err = s.setExports(ctx)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w; make room on %s", err, s.cfg.MountPoint)
	}
	return err
}

// mendWait is how long a monitor waits for exportfs, which may ask a name
// service, and for another action that holds the lock. Pacemaker grants a
// monitor more.
const mendWait = 10 * time.Second

// mendExports calls change for a monitor whose only faults are differences in
// the exports. If change fails, mendExports reports no fault as long as one of
// the exports is served: on another server the same change would fail, and
// there for all exports.
func (s *exporter) mendExports(ctx context.Context, st unit.State, fault error) (unit.State, error) {
	differ := func(e error) bool { return errors.As(e, new(exportsDiffer)) }
	if !unit.OnlyFaults(fault, differ) {
		return st, fault
	}
	s.Log.Note("%v: changing that", fault)
	mctx, cancel := context.WithTimeout(ctx, mendWait)
	defer cancel()
	s.Log.NoteErr(s.change(mctx), "exports")
	if st, fault = s.svc.Check(); !unit.OnlyFaults(fault, differ) {
		return st, fault
	}
	table, err := s.exported()
	if err != nil {
		return unit.Broken, err
	}
	for _, w := range s.cfg.Exports {
		if slices.ContainsFunc(table, func(e Exported) bool { return e.Dir == w.Dir && e.Clients == w.Clients }) {
			return unit.Running, nil
		}
	}
	return st, fault
}

// copy is the exporter of the same service with a config of its own.
func (s *exporter) copy() *exporter {
	host, cfg := *s.Host, *s.cfg
	cfg.Exports = slices.Clone(cfg.Exports)
	c := New(&host, &cfg, s.lv, s.svc)
	c.In = s.In
	return c.exports
}

// namesEvery is how often the watcher tries names that did not resolve.
const namesEvery = 30 * time.Second

// namesDue exports to host names that did not resolve before, once they do.
func (s *exporter) namesDue(w unit.Watch) unit.Act {
	table, err := s.exported()
	if err != nil {
		return nil
	}
	var missing []Export
	for _, e := range s.cfg.Exports {
		if slices.ContainsFunc(CompareExports(table, []Export{e}), ExportDifference.Unresolved) {
			missing = append(missing, e)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// A resolver that does not answer must not hold the service's lock.
	return func(ctx context.Context) {
		probe := s.copy()
		probe.Service, probe.cfg.Exports = s.Service+".names", missing
		if text, err := probe.exports.makeTable(ctx, s.binds()); len(text) == 0 {
			if s.unmade.News("", fmt.Sprint(err)) {
				w.Log("%v", err)
			}
			return
		}
		if err := s.copy().exports.change(context.WithoutCancel(ctx)); err != nil {
			w.Log("exports of %s: %v", s.Service, err)
			return
		}
		w.Record("export to names that did not resolve before: all exports of %s are served", s.Service)
	}
}

// try runs exportfs on a configuration that is not in use yet, with a directory
// of the host instead of those on the volume.
func (s *exporter) try(ctx context.Context) error {
	try := s.copy()
	cfg := try.cfg
	try.In, try.Service = s.K, s.Service+".try"
	var names []string
	for i := range cfg.Exports {
		dir := fmt.Sprintf("%s/%d.d", scratch(try.Service), i)
		if err := s.K.Mkdir(dir, 0o700, 0, 0); err != nil {
			return err
		}
		names = append(names, dir, cfg.Exports[i].Dir)
		cfg.Exports[i].Dir = dir
	}
	if _, err := try.exports.makeTable(ctx, nil); err != nil {
		return errors.New(strings.NewReplacer(names...).Replace(err.Error()))
	}
	return nil
}

func (s *exporter) stopExports(ctx context.Context) error {
	if st, err := s.exportState(); err == nil && st == unit.Stopped {
		return nil
	}
	// The table is emptied in place, which needs no room on a volume that
	// clients have filled. One whose disks are gone takes no write; nfsd, which ends next, exports nothing then.
	s.Log.NoteErr(s.K.Empty(s.etab()), "")
	if id, err := s.namespace(); err != nil || id == "" && s.cfg.Namespace != "" {
		return err // the volume's table left the host with the bind
	}
	_, err := s.In.Run(ctx, kernel.Command{Argv: []string{"exportfs", "-f"}, Binds: s.binds()})
	return err
}
