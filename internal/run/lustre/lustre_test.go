package lustre

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// played are fake hosts of lustre-small with the answers of a rack with Lustre
// 2.17.57 (testdata/2.17.57), by host and command. Answers of a test take
// precedence.
type played struct {
	t       *testing.T
	answers map[string]string
	ran     []string
	// onRun is called for each action; may be nil.
	onRun func(command, stdin string) error
	code  map[string]int // exit codes, by a part of the command
}

func (p *played) play(_ context.Context, host, op string, params, result any) error {
	switch x := params.(type) {
	case agent.QueryParams:
		key := host + " " + strings.Join(x.Argv, " ")
		text, ok := p.answers[key]
		if !ok || text == "-" {
			return fmt.Errorf("no answer to %q", key)
		}
		stdout, stderr, failed := strings.Cut(text, "exit 19: ")
		if failed {
			return hosttest.Answer(result, resource.Output{Code: 19, Stdout: stdout, Stderr: stderr})
		}
		return hosttest.Answer(result, resource.Output{Stdout: text})
	case agent.RunParams:
		c := host + " " + strings.Join(x.Action.Cmd, " ")
		p.ran = append(p.ran, c)
		if p.onRun != nil {
			if err := p.onRun(c, string(x.Action.Stdin)); err != nil {
				return err
			}
		}
		var out resource.Output
		for part, code := range p.code {
			if strings.Contains(c, part) {
				out.Code, out.Stdout = code, "device /dev/mapper/vg-lv\n"
			}
		}
		return hosttest.Answer(result, out)
	}
	return fmt.Errorf("nobody plays %s", op)
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/2.17.57/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stopsAndStarts has the targets of oss02 be gone while the cluster keeps its service stopped.
func (p *played) stopsAndStarts() {
	dl := p.answers["oss02 lctl dl"]
	p.onRun = func(c, _ string) error {
		switch {
		case strings.Contains(c, "Stopped"):
			p.answers["oss02 lctl dl"] = ""
		case strings.Contains(c, "--delete-parameter"):
			p.answers["oss02 lctl dl"] = dl
		}
		return nil
	}
}

// open opens the file system of the rack; answers replace or extend the recorded
// ones.
func open(t *testing.T, answers map[string]string) (*FS, *played) {
	t.Helper()
	s, err := spec.Load("../../../examples/lustre-small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &played{t: t, answers: map[string]string{
		"mds01 lctl dl":                   recorded(t, "dl-mds01.txt"),
		"mds02 lctl dl":                   "",
		"oss01 lctl dl":                   recorded(t, "dl-oss01.txt"),
		"oss02 lctl dl":                   recorded(t, "dl-oss02.txt"),
		"mds01 lctl pool_list small":      recorded(t, "pools.txt"),
		"mds01 lctl pool_list small.disk": recorded(t, "pool.txt"),
		"mds01 lctl get_param mdt.small-MDT0000.exports.*.uuid":                                 recorded(t, "exports.txt"),
		"node01 lfs df -N --output=source /small":                                               "small-MDT0000_UUID\n",
		"mds01 lctl get_param osp.*.max_create_count":                                           recorded(t, "create-count.txt"),
		"node01 ls -d /small/results/":                                                          "/small/results/\n",
		"node01 ls -d /small/":                                                                  "/small/\n",
		"node01 lfs find /small --ost 1 --type f --print0":                                      "/small/a b\x00/small/c\x00",
		"node01 lfs find /small --ost 0 --type f --print0":                                      "",
		"node01 lfs df -N --output=source,size,used,avail,itotal,iused /small":                  recorded(t, "df.txt"),
		"mds01 lctl get_param mdd.small-MDT0000.lfsck_namespace mdd.small-MDT0000.lfsck_layout": recorded(t, "lfsck.txt"),
	}}
	for k, v := range answers {
		p.answers[k] = v
	}
	f, err := Open(t.Context(), d, hosttest.Play(p.play).Session)
	if err != nil {
		t.Fatal(err)
	}
	return f, p
}

// onlySessions are hosts whose cluster is not asked.
type onlySessions struct {
	procedure.Hosts
	by host.ByName
}

func (h onlySessions) Session(name string) *host.Session { return h.by(name) }

func carryOut(f *FS, p *Plan) error {
	return procedure.Run(context.Background(), onlySessions{by: f.hosts}, p, procedure.Options{})
}

// withPool has a second pool, which is not in the spec.
var withPool = map[string]string{
	"mds01 lctl pool_list small":      "Pools from small:\nsmall.disk\nsmall.fast\n",
	"mds01 lctl pool_list small.fast": "Pool: small.fast\nsmall-OST0001_UUID\n",
}

func TestPools(t *testing.T) {
	f, _ := open(t, nil)
	got, err := f.Pools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Pool{{"disk", []string{"small-OST0000", "small-OST0001"}, true}}, got); diff != "" {
		t.Error(diff)
	}
}

// Each procedure has the expected commands, or is refused.
func TestPlans(t *testing.T) {
	ctx := t.Context()
	closed := map[string]string{"mds01 lctl get_param osp.*.max_create_count": "osp.small-OST0000-osc-MDT0000.max_create_count=20000\nosp.small-OST0001-osc-MDT0000.max_create_count=0\n"}
	for name, c := range map[string]struct {
		answers map[string]string
		plan    func(f *FS) (*Plan, error)
		want    []string // commands; or the refusal
		refused string
	}{
		"create": {nil, func(f *FS) (*Plan, error) {
			return f.PoolCreate(ctx, "fast", []string{"1", "OST0000", "small-OST0001"})
		},
			[]string{"mds01 lctl pool_new small.fast", "mds01 lctl pool_add small.fast small-OST0001 small-OST0000"}, ""},
		"create without OSTs":    {nil, func(f *FS) (*Plan, error) { return f.PoolCreate(ctx, "fast", nil) }, nil, "pool-no-osts"},
		"create by a bad name":   {nil, func(f *FS) (*Plan, error) { return f.PoolCreate(ctx, "a b", []string{"0"}) }, nil, "pool-name pool=a b"},
		"create none":            {nil, func(f *FS) (*Plan, error) { return f.PoolCreate(ctx, "none", []string{"0"}) }, nil, "pool-name pool=none"},
		"create of no OST":       {nil, func(f *FS) (*Plan, error) { return f.PoolCreate(ctx, "fast", []string{"OST0002"}) }, nil, "target-no-such word=OST0002 what=OST fs=small targets=OST0000 targets=OST0001"},
		"create one of the spec": {nil, func(f *FS) (*Plan, error) { return f.PoolCreate(ctx, "disk", []string{"0"}) }, nil, "pool-in-spec pool=disk"},
		"create again":           {withPool, func(f *FS) (*Plan, error) { return f.PoolCreate(ctx, "fast", []string{"0"}) }, nil, "pool-exists pool=fast"},
		"add":                    {withPool, func(f *FS) (*Plan, error) { return f.PoolAdd(ctx, "fast", []string{"0", "1"}) }, []string{"mds01 lctl pool_add small.fast small-OST0000"}, ""},
		"add what is there":      {withPool, func(f *FS) (*Plan, error) { return f.PoolAdd(ctx, "fast", []string{"1"}) }, nil, ""},
		"add to none":            {withPool, func(f *FS) (*Plan, error) { return f.PoolAdd(ctx, "slow", []string{"1"}) }, nil, "pool-no-such pool=slow pools=fast"},
		"remove":                 {withPool, func(f *FS) (*Plan, error) { return f.PoolRemove(ctx, "fast", []string{"1"}) }, []string{"mds01 lctl pool_remove small.fast small-OST0001"}, ""},
		"destroy": {withPool, func(f *FS) (*Plan, error) { return f.PoolDestroy(ctx, "fast", nil) },
			[]string{"mds01 lctl pool_remove small.fast small-OST0001", "mds01 lctl pool_destroy small.fast"}, ""},
		"destroy one of the spec": {nil, func(f *FS) (*Plan, error) { return f.PoolDestroy(ctx, "disk", nil) }, nil, "pool-in-spec pool=disk"},
		"no MGS":                  {map[string]string{"mds01 lctl dl": ""}, func(f *FS) (*Plan, error) { return f.PoolCreate(ctx, "fast", []string{"0"}) }, nil, "lustre-device-stopped device=MGS"},

		"drain": {nil, func(f *FS) (*Plan, error) { return f.Drain(ctx, "1") },
			[]string{"mds01 lctl set_param osp.small-OST0001-osc-MDT*.max_create_count=0", "node01: move its files to other OSTs"}, ""},
		"drain the last": {closed, func(f *FS) (*Plan, error) { return f.Drain(ctx, "0") }, nil, "ost-last"},
		"drain a full one": {map[string]string{"node01 lfs df -N --output=source,size,used,avail,itotal,iused /small": "small-OST0000_UUID 100 99 1 9 9\nsmall-OST0001_UUID 100 5 95 9 9\n"},
			func(f *FS) (*Plan, error) { return f.Drain(ctx, "0") }, nil, "ost-no-room ost=small-OST0000"},
		"drain no OST":          {nil, func(f *FS) (*Plan, error) { return f.Drain(ctx, "small-MDT0000") }, nil, "target-no-such word=small-MDT0000 what=OST"},
		"fill":                  {closed, func(f *FS) (*Plan, error) { return f.Fill(ctx, "1") }, []string{"mds01 lctl set_param osp.small-OST0001-osc-MDT*.max_create_count=20000"}, ""},
		"fill an open one":      {nil, func(f *FS) (*Plan, error) { return f.Fill(ctx, "1") }, nil, ""},
		"retire one with files": {nil, func(f *FS) (*Plan, error) { return f.Retire(ctx, "1") }, nil, "ost-in-use ost=small-OST0001 files=2 example=/small/a b"},
		"retire one in a pool":  {nil, func(f *FS) (*Plan, error) { return f.Retire(ctx, "0") }, nil, "ost-in-pool ost=small-OST0000 pool=disk"},
		"retire": {map[string]string{"mds01 lctl pool_list small": "Pools from small:\n"}, func(f *FS) (*Plan, error) { return f.Retire(ctx, "0") },
			[]string{"mds01 lctl set_param -P osp.small-OST0000-osc-MDT*.max_create_count=0", "mds01 lctl set_param -P osc.small-OST0000-*.active=0"}, ""},

		"layout": {nil, func(f *FS) (*Plan, error) {
			return f.SetLayout(ctx, "results", Layout{Count: -1, Size: 4 * spec.MiB, Pool: "disk"})
		}, []string{"node01 lfs setstripe --stripe-count -1 --stripe-size 4194304 --pool disk /small/results"}, ""},
		"layout of too many":  {nil, func(f *FS) (*Plan, error) { return f.SetLayout(ctx, "results", Layout{Count: 3}) }, nil, "stripe-count count=3 osts=2"},
		"layout of odd size":  {nil, func(f *FS) (*Plan, error) { return f.SetLayout(ctx, "results", Layout{Size: 1000}) }, nil, "stripe-size"},
		"layout of no pool":   {nil, func(f *FS) (*Plan, error) { return f.SetLayout(ctx, "results", Layout{Pool: "x"}) }, nil, "pool-no-such pool=x"},
		"layout of nothing":   {nil, func(f *FS) (*Plan, error) { return f.SetLayout(ctx, "results", Layout{}) }, nil, "layout-empty"},
		"layout elsewhere":    {nil, func(f *FS) (*Plan, error) { return f.SetLayout(ctx, "/etc", Layout{Count: 1}) }, nil, "path-outside path=/etc mount=/small"},
		"layout above":        {nil, func(f *FS) (*Plan, error) { return f.SetLayout(ctx, "../etc", Layout{Count: 1}) }, nil, "path-outside path=../etc"},
		"layout of the whole": {nil, func(f *FS) (*Plan, error) { return f.SetLayout(ctx, "/small", Layout{Count: 1}) }, nil, "layout-in-spec path=/small"},

		"lfsck": {nil, func(f *FS) (*Plan, error) { return f.LFSCK(true) },
			[]string{"mds01 lctl lfsck_start -M small-MDT0000 -A -t namespace,layout -r --dryrun=on", "mds01: wait until it has checked everything"}, ""},
		"fsck": {nil, func(f *FS) (*Plan, error) { return f.FSCK("ost0001", true) }, []string{
			"oss01 crm_resource --resource service-ost0001 --meta --set-parameter target-role --parameter-value Stopped", "oss01: wait until it is stopped",
			"oss02 /usr/local/sbin/mortar ocf --config /etc/mortar/service-ost0001.json on-volume small-OST0001 -- e2fsck -f -y {}",
			"oss01 crm_resource --resource service-ost0001 --meta --delete-parameter target-role", "oss01: wait until it is there"}, ""},
		"fsck of nothing":       {nil, func(f *FS) (*Plan, error) { return f.FSCK("OST0007", false) }, nil, "target-no-such word=OST0007 fs=small targets=MGT targets=MDT0000 targets=OST0000 targets=OST0001"},
		"fsck without a server": {map[string]string{"oss01 lctl dl": "-"}, func(f *FS) (*Plan, error) { return f.FSCK("OST0001", false) }, nil, "host-no-answer host=oss01"},
		"writeconf with clients": {map[string]string{"mds01 lctl get_param mdt.small-MDT0000.exports.*.uuid": recorded(t, "exports.txt") + "mdt.small-MDT0000.exports.10.20.1.2@tcp.uuid=5f9a6b2e-57b5-4ab6-8f5e-3d1b0f2c7a61\n"},
			func(f *FS) (*Plan, error) { return f.Writeconf(ctx) }, nil, "lustre-client-mounted client=10.20.1.2@tcp"},
		"writeconf with a client beside one that is gone": {map[string]string{"mds01 lctl get_param mdt.small-MDT0000.exports.*.uuid": "mdt.small-MDT0000.exports.10.20.1.2@tcp.uuid=5f9a6b2e-57b5-4ab6-8f5e-3d1b0f2c7a61\nexit 19: " +
			"error: read_param: '/sys/kernel/debug/lustre/mdt/small-MDT0000/exports/10.20.1.1@tcp/uuid': No such device\n"},
			func(f *FS) (*Plan, error) { return f.Writeconf(ctx) }, nil, "lustre-client-mounted client=10.20.1.2@tcp"},
		"writeconf": {nil,
			func(f *FS) (*Plan, error) { return f.Writeconf(ctx) }, []string{
				"mds01 crm_resource --resource service-mdt0000 --meta --set-parameter target-role --parameter-value Stopped", "mds01: wait until it is stopped",
				"oss01 crm_resource --resource service-ost0000 --meta --set-parameter target-role --parameter-value Stopped", "oss01: wait until it is stopped",
				"oss01 crm_resource --resource service-ost0001 --meta --set-parameter target-role --parameter-value Stopped", "oss01: wait until it is stopped",
				"mds01 /usr/local/sbin/mortar ocf --config /etc/mortar/service-mdt0000.json on-volume small-MDT0000 -- tunefs.lustre --writeconf {}",
				"oss01 /usr/local/sbin/mortar ocf --config /etc/mortar/service-ost0000.json on-volume small-OST0000 -- tunefs.lustre --writeconf {}",
				"oss02 /usr/local/sbin/mortar ocf --config /etc/mortar/service-ost0001.json on-volume small-OST0001 -- tunefs.lustre --writeconf {}",
				"mds01 crm_resource --resource service-mdt0000 --meta --delete-parameter target-role", "mds01: wait until it is there",
				"oss01 crm_resource --resource service-ost0000 --meta --delete-parameter target-role", "oss01: wait until it is there",
				"oss01 crm_resource --resource service-ost0001 --meta --delete-parameter target-role", "oss01: wait until it is there",
				"mds01: make pool small.disk again: lctl pool_new small.disk",
				"mds01: add its OSTs: lctl pool_add small.disk small-OST0000 small-OST0001"}, ""},
		"lfsck without an OST": {map[string]string{"oss02 lctl dl": ""}, func(f *FS) (*Plan, error) { return f.LFSCK(false) }, nil, "lustre-device-stopped device=small-OST0001"},
	} {
		t.Run(name, func(t *testing.T) {
			f, hosts := open(t, c.answers)
			p, err := c.plan(f)
			if c.refused != "" {
				if !hosttest.Refuses(err, c.refused) {
					t.Errorf("%v, want %q", err, c.refused)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if diff := cmp.Diff(c.want, shown(p)); diff != "" || (p.Nothing == "") != (len(c.want) > 0) {
				t.Errorf("%q\n%s", p.Nothing, diff)
			}
			if len(hosts.ran) > 0 {
				t.Errorf("planning ran %q", hosts.ran)
			}
		})
	}
}

func shown(p *Plan) []string {
	var out []string
	for _, s := range p.Steps {
		if s.Action == nil {
			out = append(out, s.On+": "+s.Title)
		} else {
			out = append(out, s.On+" "+strings.Join(s.Action.Cmd, " "))
		}
	}
	return out
}

// Drain moves all files, with any name, and names a file that it cannot move.
func TestDrainMovesFiles(t *testing.T) {
	const find = "node01 lfs find /small --ost 1 --type f --print0"
	for name, stays := range map[string]bool{"all move": false, "one stays": true} {
		f, hosts := open(t, nil)
		var moved []string
		hosts.onRun = func(c, stdin string) error {
			if !strings.Contains(c, "lfs migrate --block --null") {
				return nil
			}
			moved = append(moved, stdin)
			hosts.answers[find] = ""
			if stays {
				hosts.answers[find] = "/small/c\x00"
				return errors.New("exit code 16")
			}
			return nil
		}
		p, err := f.Drain(t.Context(), "1")
		if err != nil {
			t.Fatal(err)
		}
		err = carryOut(f, p)
		if (err != nil) != stays || stays && !strings.Contains(err.Error(), "1 files stay on small-OST0001, e.g. /small/c") {
			t.Errorf("%s: %v", name, err)
		}
		if moved[0] != "/small/a b\x00/small/c\x00" {
			t.Errorf("%s: moved %q", name, moved)
		}
	}
}

func TestBalance(t *testing.T) {
	f, _ := open(t, nil)
	got, err := f.Balance(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if want := (Usage{"small-OST0000", 29669304, 1412, 28090116, 458880, 299, true, ""}); got[1] != want {
		t.Errorf("%+v", got[1])
	}
}

// A layout check without one OST ends the wait with an error.
func TestChecks(t *testing.T) {
	f, _ := open(t, nil)
	got, _, err := f.Checks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Check{{"namespace", "completed", 16, 0, 0, 0, true}, {"layout", "partial", 3, 0, 0, 1, true}}, got); diff != "" {
		t.Error(diff)
	}
	p, err := f.LFSCK(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := carryOut(f, p); err == nil || !strings.Contains(err.Error(), `LFSCK of the layout ended as "partial"`) {
		t.Error(err)
	}
	if p, err = f.LFSCK(false); err != nil {
		t.Fatal(err)
	}
	if err := carryOut(f, p); err == nil || !strings.Contains(err.Error(), "runs with dryrun on instead of off") {
		t.Errorf("a repair that only looks: %v", err)
	}
	for key, want := range map[string]bool{"nlinks_repaired": true, "repaired_dangling": true, "inconsistent_orphan": true, "checked_phase1": false, "unknown_inconsistency": false} {
		if isFinding(key) != want {
			t.Error(key)
		}
	}
}

// A check that finds damage fails with the output of e2fsck. The service starts
// again after a check only, and stays stopped after a failed repair.
func TestFSCKOfADamagedTarget(t *testing.T) {
	for _, repair := range []bool{false, true} {
		f, hosts := open(t, nil)
		p, err := f.FSCK("OST0001", repair)
		if err != nil {
			t.Fatal(err)
		}
		hosts.code = map[string]int{"e2fsck": 4}
		hosts.stopsAndStarts()
		if err := carryOut(f, p); err == nil || !strings.Contains(err.Error(), "small-OST0001 is damaged") {
			t.Error(err)
		}
		if started := hosts.answers["oss02 lctl dl"] != ""; started == repair {
			t.Errorf("repair %v: started %v; ran %q", repair, started, hosts.ran)
		}
	}
}

// An agent of an earlier release ends with the code of wrong arguments, which is one of e2fsck's.
func TestFSCKByAnOlderAgent(t *testing.T) {
	f, hosts := open(t, nil)
	p, err := f.FSCK("OST0001", false)
	if err != nil {
		t.Fatal(err)
	}
	hosts.stopsAndStarts()
	if err := carryOut(f, p); err == nil || !strings.Contains(err.Error(), "of an earlier release") {
		t.Error(err)
	}
}

func TestUnmounted(t *testing.T) {
	const gone = "error: read_param: '/sys/kernel/debug/lustre/mdt/small-MDT0000/exports/10.20.1.1@tcp/uuid': No such device\n"
	for text, want := range map[string]bool{gone: true, gone + gone: true, "": false, gone + "error: get_param: out of memory\n": false, "error: get_param: param_path 'mdt': No such device\n": false} {
		if unmounted(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
