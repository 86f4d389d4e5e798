package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/test/example"
)

// pair is a fake of two servers, their power and their cluster, as far as a fence
// test uses them. test/rack has real ones.
type pair struct {
	t       *testing.T
	d       *design.Design
	chassis map[string]bool
	outlets map[string]bool // by device ID
	levels  map[string]bool // in the topology, by id
	attrs   map[string]map[string]string
	boot    map[string]int
	serves  string

	// Faults of the pair.
	liar    string // device that reports success and does nothing
	dead    string // device that fails
	foreign string // device with an outlet of something else
	gate    host.Gate
	killAt  int // the test's program dies after this many commands
	acted   int
	log     []string
	fencer  string // what the fencer logged
	late    bool   // the fencer does not yet know the last change of the topology
}

func newPair(t *testing.T, d *design.Design) *pair {
	p := &pair{t: t, d: d, chassis: map[string]bool{}, outlets: map[string]bool{}, levels: map[string]bool{},
		attrs: map[string]map[string]string{"nfs1": {}, "nfs2": {}}, boot: map[string]int{}, serves: "nfs1"}
	for _, n := range d.Pairs[0].HA.Nodes {
		p.chassis[n.Name] = true
		for _, l := range d.Pairs[0].HA.Topology(n.Name) {
			if p.levels[levelID(l)] = true; l.Level == 0 {
				continue
			}
			for _, id := range l.IDs() {
				p.outlets[n.Name+" "+id] = true
			}
		}
	}
	return p
}

func levelID(l *design.FenceLevel) string { return fmt.Sprintf("fencing-%s-%d", l.Node, l.Index) }

// fed reports whether a node has power.
func (p *pair) fed(node string) bool {
	for _, f := range p.d.Levels(node)[1].Devices {
		if p.outlets[node+" "+f.ID] || p.foreign == f.ID {
			return true
		}
	}
	return false
}

func (p *pair) up(node string) bool { return p.chassis[node] && p.fed(node) }

func (p *pair) standby(node string) bool { return p.attrs[node]["standby"] == "on" }

// settle does what the cluster does by itself.
func (p *pair) settle() {
	for _, n := range []string{"nfs1", "nfs2"} {
		if p.serves == n && (p.standby(n) || !p.up(n)) {
			if o := p.d.PairWith(n).Other(n); p.up(o) && !p.standby(o) {
				p.serves = o
			}
		}
	}
}

var errKilled = errors.New("killed")

func flag(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func (p *pair) Session(name string) *host.Session {
	return hosttest.Play(p.call).Session(name).Under(p.gate)
}

func (p *pair) call(ctx context.Context, host, op string, params, result any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.killAt > 0 && p.acted >= p.killAt {
		return errKilled // a dead program runs nothing
	}
	if !p.up(host) {
		return errors.New("no route to host")
	}
	var out any
	switch q := params.(type) {
	case agent.QueryParams:
		out = p.query(q.Argv)
	case agent.RunParams:
		cmd := strings.Join(q.Action.Cmd, " ")
		if i := strings.IndexByte(cmd, '<'); i > 0 {
			cmd = cmd[:i] + flag(strings.Fields(strings.NewReplacer(`"`, " ", "=", " ").Replace(cmd[i:])), "id")
		}
		p.log = append(p.log, host+": "+cmd)
		if err := p.run(host, q.Action.Cmd); err != nil {
			return err
		}
		p.settle()
		p.acted++
		out = resource.Output{}
	case nil:
		switch op {
		case "hello":
			out = agent.Hello{BootID: fmt.Sprint(host, p.boot[host])}
		case "time":
			out = agent.TimeResult{}
		}
	}
	return hosttest.Answer(result, out)
}

func (p *pair) query(argv []string) resource.Output {
	switch argv[0] {
	case "cibadmin":
		var b strings.Builder
		b.WriteString("<cib><configuration><nodes>")
		for n, as := range p.attrs {
			fmt.Fprintf(&b, `<node uname="%s"><instance_attributes>`, n)
			for k, v := range as {
				fmt.Fprintf(&b, `<nvpair name="%s" value="%s"/>`, k, v)
			}
			b.WriteString("</instance_attributes></node>")
		}
		b.WriteString("</nodes><fencing-topology>")
		for _, n := range []string{"nfs1", "nfs2"} {
			for _, l := range p.d.Pairs[0].HA.Topology(n) {
				if p.levels[levelID(l)] {
					b.WriteString(plan.FencingLevel(l).String())
				}
			}
		}
		b.WriteString("</fencing-topology></configuration></cib>")
		return resource.Output{Stdout: b.String()}
	case "ipmitool":
		for _, n := range []string{"nfs1", "nfs2"} {
			if p.d.Levels(n)[0].Devices[0].Params["ip"] != flag(argv, "-H") {
				continue
			}
			switch {
			case !p.fed(n):
				return resource.Output{Code: 1, Stderr: "Error: Unable to establish IPMI v2 / RMCP+ session\n"}
			case p.chassis[n]:
				return resource.Output{Stdout: "Chassis Power is on\n"}
			}
			return resource.Output{Stdout: "Chassis Power is off\n"}
		}
	case "ping":
		for _, s := range p.d.Spec.Servers {
			if slices.Contains([]string{s.Address, s.Public, s.Private}, argv[len(argv)-1]) && p.up(s.Name) {
				return resource.Output{}
			}
		}
		return resource.Output{Code: 1}
	case "journalctl":
		return resource.Output{Stdout: p.fencer}
	}
	p.t.Errorf("unexpected query %q", argv)
	return resource.Output{Code: 127}
}

func (p *pair) run(host string, argv []string) error {
	switch argv[0] {
	case "crm_attribute":
		as := p.attrs[flag(argv, "--node")]
		if slices.Contains(argv, "--delete") {
			delete(as, flag(argv, "--name"))
		} else {
			as[flag(argv, "--name")] = flag(argv, "--update")
		}
	case "cibadmin":
		for id := range p.levels {
			if strings.Contains(flag(argv, "--xml-text"), `id="`+id+`"`) {
				p.levels[id] = argv[1] != "--delete"
			}
		}
	case "crm_resource":
		if to := flag(argv, "--node"); to != "" && p.up(to) {
			p.serves = to
		}
	case "stonith_admin":
		on := argv[1] == "--unfence"
		node := argv[2]
		if p.serves == node && !on {
			p.t.Errorf("%s was fenced while it served", node)
		}
		if node == host {
			p.t.Errorf("%s fences itself", node)
		}
		p.fencer = "info: of no interest\n"
		for _, l := range p.d.Pairs[0].HA.Topology(node) {
			if !p.levels[levelID(l)] && !(p.late && l.Level == 1) {
				continue
			}
			ok := p.level(l, on)
			for _, id := range l.IDs() {
				p.fencer += fmt.Sprintf("notice: Operation 'off' [77] targeting %s using %s returned %d\n", node, id, map[bool]int{true: 0, false: 1}[ok])
			}
			if p.late = false; ok {
				return nil
			}
			p.fencer += fmt.Sprintf("warning: %s[77] stderr: [ ERROR:root:Unable to connect/login ]\nwarning: %s[77] stderr: [  ]\n", l.Devices[0].Agent, l.Devices[0].Agent)
		}
		return &agent.Error{Message: "exit code 1", Cmd: argv, Code: 1, Stderr: "No such device"}
	default:
		p.t.Errorf("unexpected command %q", argv)
	}
	return nil
}

// level switches a node with one level; false if a device failed. The hedge does what all
// levels together do: off by the first that can, on by all.
func (p *pair) level(l *design.FenceLevel, on bool) bool {
	if all := p.d.Levels(l.Node); l.Level == 0 {
		if on {
			slices.Reverse(all)
		}
		whole := on
		for _, l := range all {
			if ok := p.level(l, on); ok && !on {
				return true
			} else if !ok {
				whole = false
			}
		}
		return whole
	}
	was := p.up(l.Node)
	for _, f := range l.Devices {
		switch {
		case f.ID == p.dead:
			return false
		case f.ID == p.liar:
		case l.Level == 1 && !p.fed(l.Node):
			return false
		case l.Level == 1:
			p.chassis[l.Node] = on
		default:
			p.outlets[l.Node+" "+f.ID] = on
		}
	}
	// A server boots when its power returns.
	if l.Level == 2 && on {
		p.chassis[l.Node] = true
	}
	if !was && p.up(l.Node) {
		p.boot[l.Node]++
	}
	return true
}

func (p *pair) HasAddress(context.Context, string, string) (bool, error) { return false, nil }

func (p *pair) Cluster(_ context.Context, host string) (*observe.Snapshot, error) {
	if !p.up(host) {
		return nil, errors.New("no route to host")
	}
	return p.snapshot(), nil
}

func (p *pair) snapshot() *observe.Snapshot {
	s := &observe.Snapshot{Cluster: gather.Cluster{CRM: &linux.CRM{}}, Services: []observe.ServiceState{{Name: "home", Resource: "service-home", Server: p.serves, Role: "Started"}}}
	for _, n := range []string{"nfs1", "nfs2"} {
		s.Nodes = append(s.Nodes, linux.CRMNode{Name: n, Online: p.up(n), Standby: p.standby(n)})
	}
	return s
}

// Collect returns recordings of a real cluster in the state of the pair.
func (p *pair) Collect(context.Context) observe.Facts {
	situation := "healthy"
	switch {
	case p.standby("nfs1"):
		situation = "standby"
	case p.serves == "nfs2":
		situation = "moved"
	}
	f := observe.Facts{Time: time.Unix(0, 0), Hosts: map[string]observe.Answer{}}
	for _, n := range []string{"nfs1", "nfs2"} {
		b, err := os.ReadFile(filepath.Join("../observe/testdata", situation+"."+n+".crm"))
		if err != nil {
			p.t.Fatal(err)
		}
		f.Hosts[n] = observe.Answer{Host: &gather.Host{Run: map[string]gather.RunResult{
			"crm_mon --one-shot --output-as=xml": {Output: resource.Output{Stdout: string(b)}}}}}
	}
	return f
}

// left lists the differences from the state before the test.
func (p *pair) left() []string {
	var out []string
	for n, on := range p.chassis {
		if !on {
			out = append(out, n+" is off")
		}
	}
	for _, m := range []map[string]bool{p.outlets, p.levels} {
		for id, there := range m {
			if !there {
				out = append(out, id+" is off")
			}
		}
	}
	for n, as := range p.attrs {
		for k := range as {
			if !strings.HasPrefix(k, "mortar-fence-proven-") {
				out = append(out, n+" has "+k)
			}
		}
	}
	if p.serves != "nfs1" {
		out = append(out, "home is on "+p.serves)
	}
	slices.Sort(out)
	return out
}

func all(d *design.Design) []*design.FenceLevel {
	return append(d.Levels("nfs1"), d.Levels("nfs2")...)
}

var quick = ProofOptions{Poll: time.Millisecond, Boot: time.Second, Dark: 500 * time.Millisecond}

func TestProveFencing(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	p := newPair(t, d)
	rs, err := ProveFencing(t.Context(), d, p, all(d), quick)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rs {
		got = append(got, fmt.Sprintf("%s %d %v %s", r.Node, r.Level, r.Proven, strings.Join(r.Evidence, ", ")))
	}
	dead := "no answer over SSH, no ping on 3 addresses, out of the cluster"
	want := []string{
		"nfs2 1 true its BMC says off, " + dead,
		"nfs2 2 true its BMC died with its outlets, " + dead,
		"nfs1 1 true its BMC says off, " + dead,
		"nfs1 2 true its BMC died with its outlets, " + dead,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if l := p.left(); len(l) > 0 {
		t.Errorf("left: %q", l)
	}
	if un, err := unproven(t.Context(), d, p, "nfs1"); err != nil || len(un) > 0 {
		t.Errorf("unproven: %v %v", un, err)
	}
	// The passive server's part, in full.
	wantLog := []string{
		"nfs1: crm_attribute --node nfs2 --name mortar-fence-test --update fenced --lifetime forever",
		"nfs1: cibadmin --delete --scope fencing-topology --xml-text fencing-nfs2-1",
		"nfs1: cibadmin --delete --scope fencing-topology --xml-text fencing-nfs2-3",
		"nfs1: stonith_admin --fence nfs2 --timeout 90",
		"nfs1: crm_attribute --node nfs2 --name mortar-fence-proven-1 --update",
		"nfs1: cibadmin --modify --allow-create --scope fencing-topology --xml-text fencing-nfs2-3",
		"nfs1: cibadmin --delete --scope fencing-topology --xml-text fencing-nfs2-2",
		"nfs1: stonith_admin --fence nfs2 --timeout 90",
		"nfs1: crm_attribute --node nfs2 --name mortar-fence-proven-2 --update",
		"nfs1: stonith_admin --unfence nfs2 --timeout 90",
		"nfs1: cibadmin --modify --allow-create --scope fencing-topology --xml-text fencing-nfs2-1",
		"nfs1: cibadmin --modify --allow-create --scope fencing-topology --xml-text fencing-nfs2-2",
		"nfs1: crm_attribute --node nfs2 --name mortar-fence-test --delete --lifetime forever",
	}
	for i, l := range p.log[:len(wantLog)] {
		if before, _, ok := strings.Cut(l, "--update 20"); ok {
			p.log[i] = before + "--update" // a time
		}
	}
	if diff := cmp.Diff(wantLog, p.log[:len(wantLog)]); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// If the fencer still has the old topology, the test fences again.
func TestLateTopology(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	p := newPair(t, d)
	p.late = true
	if _, err := ProveFencing(t.Context(), d, p, d.Levels("nfs2")[1:], quick); err != nil {
		t.Error(err)
	}
}

// The test finds a level that fails or lies, restores everything, and the error
// names the cause.
func TestFencingFailures(t *testing.T) {
	for _, tt := range []struct {
		name    string
		spoil   func(*pair)
		levels  func(*design.Design) []*design.FenceLevel
		want    []string // in the error
		proven  []string
		results int
	}{
		{"a dead BMC", func(p *pair) { p.dead = "fence-nfs2-bmc" }, all,
			[]string{"level 1 of fencing nfs2 (fence-nfs2-bmc: fence_ipmilan at 10.77.3.22)", "command: stonith_admin --fence nfs2 --timeout 90 (on nfs1)",
				"exit code: 1", "fence_ipmilan[77] stderr: [ ERROR:root:Unable to connect/login ]"}, []string{"nfs2 2"}, 2},
		{"a BMC that lies", func(p *pair) { p.liar = "fence-nfs2-bmc" }, all,
			[]string{"its BMC says that it is on"}, []string{"nfs2 2"}, 2},
		{"an outlet of something else", func(p *pair) { p.foreign = "fence-pdu-b" }, all,
			[]string{"still answers (its server is off) though its outlets were switched off: it has power from elsewhere"}, []string{"nfs2 1"}, 2},
		{"a dead PDU", func(p *pair) { p.dead = "fence-pdu-b" }, func(d *design.Design) []*design.FenceLevel { return d.Levels("nfs1")[1:] },
			[]string{"fence-pdu-a: fence_apc_snmp at 10.77.3.31, fence-pdu-b: fence_apc_snmp at 10.77.3.32", "nfs2: switch nfs1 on: exit code 1"}, nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := example.Design(t, "nfs-ha.yaml")
			p := newPair(t, d)
			tt.spoil(p)
			rs, err := ProveFencing(t.Context(), d, p, tt.levels(d), quick)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in: %v", w, err)
				}
			}
			var proven []string
			for _, r := range rs {
				if r.Proven {
					proven = append(proven, fmt.Sprint(r.Node, " ", r.Level))
				}
			}
			if !slices.Equal(proven, tt.proven) || len(rs) != tt.results {
				t.Errorf("proven: %q of %d, want %q of %d", proven, len(rs), tt.proven, tt.results)
			}
			// With a dead device the outlet stays off and the mark stays.
			if l := p.left(); tt.name != "a dead PDU" && len(l) > 0 {
				t.Errorf("left: %q", l)
			}
		})
	}
}

// tryRun does what mortar does: undo the changes of an interrupted test, then
// test the unproven levels.
func (p *pair) tryRun(o ProofOptions) (done bool, err error) {
	ctx := p.t.Context()
	if _, err := ResumeProofs(ctx, p.d, p, o); err != nil {
		return false, err
	}
	via := "nfs1"
	if !p.up(via) {
		via = "nfs2"
	}
	levels, err := unproven(ctx, p.d, p, via)
	if err != nil || len(levels) == 0 {
		return false, err
	}
	_, err = ProveFencing(ctx, p.d, p, levels, o)
	return false, err
}

// Killed after any command, the test succeeds when run again, and leaves nothing
// off.
func TestKilledProof(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	whole := newPair(t, d)
	if _, err := whole.tryRun(quick); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < whole.acted; n++ {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			p := newPair(t, d)
			p.killAt = n
			_, _ = p.tryRun(quick) // a killed program has no result
			if p.acted != n {
				t.Fatalf("killed after %d commands", p.acted)
			}
			p.killAt = 0
			if _, err := p.tryRun(quick); err != nil {
				t.Fatal(err)
			}
			if un, err := unproven(t.Context(), d, p, "nfs1"); err != nil || len(un) > 0 {
				t.Errorf("unproven: %v %v", un, err)
			}
			// The service may stay where the test has moved it: moving it back would
			// interrupt clients once more.
			l := slices.DeleteFunc(p.left(), func(s string) bool { return s == "home is on nfs2" })
			if len(l) > 0 {
				t.Errorf("left: %q", l)
			}
		})
	}
}

// A test that is killed after every twelve commands (an undo takes eight) still
// completes.
func TestKilledProofAgainAndAgain(t *testing.T) {
	p := newPair(t, example.Design(t, "nfs-ha.yaml"))
	for kills := 0; ; kills++ {
		if kills > 10 {
			t.Fatalf("no progress: %q", p.log[len(p.log)-18:])
		}
		p.killAt = p.acted + 12
		_, err := p.tryRun(quick)
		if err == nil {
			break
		}
	}
	if l := slices.DeleteFunc(p.left(), func(s string) bool { return s == "home is on nfs2" }); len(l) > 0 {
		t.Errorf("left: %q", l)
	}
}

func TestChosenLevels(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	for _, c := range []struct {
		node  string
		level int
		want  int
		say   string
	}{{"", 0, len(d.Fencing()), ""}, {"nfs2", 0, len(d.Levels("nfs2")), ""}, {"nfs2", 1, 1, ""}, {"nfs3", 0, 0, "choose one of nfs1, nfs2"}, {"", 3, 0, "there is no level 3"}} {
		ls, err := ChosenLevels(d, c.node, c.level)
		if len(ls) != c.want || c.say == "" && err != nil || c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("%q %d: %d levels, %v", c.node, c.level, len(ls), err)
		}
	}
}

func TestFitForProof(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	p := newPair(t, d)
	p.attrs["nfs1"]["standby"] = "on"
	_, err := ProveFencing(t.Context(), d, p, all(d), quick)
	if !hosttest.Refuses(err, "fence-test-unfit") {
		t.Errorf("%v", err)
	}
	if p.acted > 0 {
		t.Errorf("changed something: %q", p.log)
	}
	one := *d
	one.Pairs = []design.Pair{{Servers: d.Pairs[0].Servers[:1]}}
	if _, err := ProveFencing(t.Context(), &one, p, nil, quick); !hosttest.Refuses(err, "fence-test-no-pair") {
		t.Errorf("%v", err)
	}
}

// After an interrupt everything is on again before ProveFencing returns.
func TestInterruptedProof(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	whole := newPair(t, d)
	if _, err := whole.tryRun(quick); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < whole.acted; n++ {
		p := newPair(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		o := quick
		acted := 0
		p.gate.Log = func(c host.Change) {
			if c.State != host.Done {
				return
			}
			if acted++; acted == n {
				cancel()
			}
		}
		_, err := ProveFencing(ctx, d, p, all(d), o)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d: %v", n, err)
		}
		l := slices.DeleteFunc(p.left(), func(s string) bool { return s == "home is on nfs2" })
		if len(l) > 0 {
			t.Errorf("after %d: left %q", n, l)
		}
	}
}

func TestTouchedLevels(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	names := func(ls []*design.FenceLevel) []string {
		var out []string
		for _, l := range ls {
			out = append(out, fmt.Sprint(l.Node, " ", l.Level))
		}
		return out
	}
	secret := plan.Planned{Step: plan.Step{Resource: &resource.TextFile{Path: "/etc/mortar/secrets/fence-nfs1-bmc"}}}
	patch := plan.Planned{Step: plan.Step{Resource: &resource.CIB{}}, Actions: []resource.Action{{
		Stdin: []byte(`<diff><change operation="create"><primitive id="fence-pdu-b" class="stonith"/></change></diff>`)}}}
	for _, tt := range []struct {
		pending []plan.Planned
		want    []string
	}{
		{nil, nil},
		{[]plan.Planned{secret}, []string{"nfs1 1"}},
		{[]plan.Planned{patch}, []string{"nfs1 2", "nfs2 2"}}, // one PDU, both servers
		{[]plan.Planned{{Step: plan.Step{Resource: &resource.TextFile{Path: "/etc/nfs.conf"}}}}, nil},
	} {
		if diff := cmp.Diff(tt.want, names(TouchedLevels(d, tt.pending))); diff != "" {
			t.Error(diff)
		}
	}
	p := newPair(t, d)
	for _, l := range all(d) {
		p.attrs[l.Node][observe.ProofAttr(l.Level)] = observe.Proof{Fingerprint: l.Fingerprint()}.String()
	}
	before := maps.Clone(p.attrs["nfs2"])
	if err := ForgetProofs(t.Context(), d, p, "nfs2", TouchedLevels(d, []plan.Planned{secret})); err != nil {
		t.Fatal(err)
	}
	un, err := unproven(t.Context(), d, p, "nfs1")
	if err != nil || !slices.Equal(names(un), []string{"nfs1 1"}) || !maps.Equal(before, p.attrs["nfs2"]) {
		t.Errorf("%q %v", names(un), err)
	}
	// A changed address invalidates a proof, a changed delay does not.
	d2 := example.Design(t, "nfs-ha.yaml", "address: 10.77.3.22", "address: 10.77.3.99")
	if un, err = unproven(t.Context(), d2, p, "nfs1"); err != nil || !slices.Equal(names(un), []string{"nfs1 1", "nfs2 1"}) {
		t.Errorf("%q %v", names(un), err)
	}
	l := *d.Levels("nfs1")[0]
	was := l.Fingerprint()
	l.Devices = slices.Clone(l.Devices)
	l.Devices[0].Params = maps.Clone(l.Devices[0].Params)
	l.Devices[0].Params["pcmk_delay_base"] = "nfs1:9s"
	if l.Fingerprint() != was {
		t.Error("a delay makes another fingerprint")
	}
}
