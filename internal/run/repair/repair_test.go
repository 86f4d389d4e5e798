package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
	"github.com/mortarhpc/mortar/test/example"
)

// What xfs_repair 6.1 printed.
const (
	needs = `Phase 1 - find and verify superblock...
        - max_mem = 1024, icount = 1280, imem = 5, dblock = 261888, dmem = 127
Required memory for repair is greater that the maximum specified
with the -m option. Please increase it to at least 48.
`
	noSuperblock = `Phase 1 - find and verify superblock...
bad primary superblock - bad magic number !!!

attempting to find secondary superblock...
.found candidate secondary superblock...
verified secondary superblock...
would write modified primary superblock
Primary superblock would have been modified.
Cannot proceed further in no_modify mode.
Exiting now.
`
	damage = `Phase 2 - using internal log
        - zero log...
        - scan filesystem freespace and inode maps...
agf has bad CRC for ag 0
would reset bad agf for ag 0
Phase 3 - for each AG...
        - agno = 0
imap claims in-use inode 259 is free, would correct imap
No modify flag set, skipping phase 5
`
	dirty = `Phase 2 - using internal log
        - zero log...
ERROR: The filesystem has valuable metadata changes in a log which needs to
be replayed.  Mount the filesystem to replay the log, and unmount it before
re-running xfs_repair.
`
	ignored = "ALERT: The filesystem has valuable metadata changes in a log which is being\nignored because the -n option was used.\n"
)

// damagedVolume is the recording of a healthy cluster, with the service stopped.
const damagedVolume = "damaged"

var onServer = regexp.MustCompile(`(?s)role="Started" active="true"[^>]*>\s*<node name="nfs1" id="1" cached="true"/>\s*</resource>\s*</resources>`)

// play has the hosts of a brick, and a volume with damage.
type play struct {
	t         *testing.T
	d         *design.Design
	situation string // of the recordings of package observe
	mounts    map[string]string

	sick, noSB, dirty bool // what is on the volume
	unmountable       bool
	masked            bool
	dumped            bool
	room, ram         int64  // bytes
	dies              string // a command that fails
	old               bool   // the agents are of an earlier release
	stopped           bool
	ran               []string
	tool              func(argv []string) (resource.Output, error) // runs xfs_*
}

func (p *play) Session(name string) *host.Session { return hosttest.Play(p.call).Session(name) }

func (p *play) Collect(context.Context) observe.Facts {
	f := observe.Facts{Time: time.Unix(0, 0), Hosts: map[string]observe.Answer{}}
	for _, name := range p.d.Servers() {
		h := &gather.Host{Files: map[string]string{"/proc/self/mounts": p.mounts[name]}}
		if p.d.Clustered() {
			situation := strings.Replace(p.situation, damagedVolume, "healthy", 1)
			b, err := os.ReadFile(filepath.Join("../observe/testdata", situation+"."+name+".crm"))
			if p.situation == damagedVolume {
				b = onServer.ReplaceAll(b, []byte(`role="Stopped" active="false" failed="false" nodes_running_on="0"/></resources>`))
			}
			if err != nil {
				f.Hosts[name] = observe.Answer{Err: "i/o timeout"}
				continue
			}
			h.Run = map[string]gather.RunResult{gather.CmdCRM: {Output: resource.Output{Stdout: string(b)}}}
		}
		f.Hosts[name] = observe.Answer{Host: h}
	}
	return f
}

func (p *play) Cluster(context.Context, string) (*observe.Snapshot, error) {
	st := observe.ServiceState{Name: "home", Resource: "home", Role: "Stopped"}
	if !p.stopped {
		st.Role, st.Server = "Started", "nfs1"
		if p.sick || p.dirty {
			return nil, errors.New("a service that is damaged was started")
		}
	}
	return &observe.Snapshot{Cluster: gather.Cluster{CRM: &linux.CRM{}}, Services: []observe.ServiceState{st}}, nil
}

func (p *play) HasAddress(context.Context, string, string) (bool, error) { return false, nil }

func (p *play) call(_ context.Context, name, op string, params, result any) error {
	switch x := params.(type) {
	case agent.ReadParams:
		return hosttest.Answer(result, agent.ReadResult{Content: fmt.Appendf(nil, "MemTotal: 9 kB\nMemAvailable: %d kB\nSwapFree: 0 kB\n", p.ram>>10)})
	case agent.QueryParams:
		out := resource.Output{}
		switch c := strings.Join(x.Argv, " "); {
		case strings.HasPrefix(c, "df "):
			out.Stdout = fmt.Sprintf("Avail\n%d\n", p.room)
		case strings.HasPrefix(c, "ls -d ") && !p.dumped:
			out.Code = 2
		case strings.HasPrefix(c, "systemctl is-enabled") && p.masked:
			out = resource.Output{Code: 1, Stdout: "masked\n"}
		}
		return hosttest.Answer(result, out)
	case agent.RunParams:
		return p.run(name, x.Action, result)
	}
	return fmt.Errorf("nobody plays %s", op)
}

func (p *play) run(name string, a resource.Action, result any) error {
	c := strings.Join(a.Cmd, " ")
	if a.File != nil {
		c = "write " + a.File.Path
	}
	c = strings.TrimPrefix(c, "/usr/local/sbin/mortar ocf --config /etc/mortar/service-home.json ")
	p.ran = append(p.ran, name+" "+c)
	out := resource.Output{Stdout: "device /dev/mapper/vg-lv\n"}
	switch {
	case p.tool != nil && len(a.Cmd) > 0 && strings.HasPrefix(a.Cmd[0], "xfs_"):
		var err error
		if out, err = p.tool(a.Cmd); err != nil {
			return err
		}
		p.unmountable = p.unmountable && (a.Cmd[0] != "xfs_repair" || a.Cmd[1] == "-n")
	case p.dies != "" && strings.Contains(c, p.dies):
		return &agent.Error{Message: a.Title + ": exit code 1", Code: 1}
	case p.old && strings.HasPrefix(c, ocf.OnVolume):
		out = resource.Output{Code: 2, Stderr: "usage: service {start|stop}"}
	case strings.Contains(c, "Stopped"), strings.Contains(c, "stop nfs-server"):
		p.stopped = true
	case strings.Contains(c, "--delete-parameter target-role"):
		p.stopped = false
	case strings.Contains(c, "-m 1") && p.noSB, strings.Contains(c, "xfs_repair -n") && p.noSB:
		out.Code, out.Stderr = 1, noSuperblock
	case strings.Contains(c, "-m 1"):
		out.Code, out.Stderr = 1, needs
	case strings.Contains(c, "xfs_repair -n"):
		if p.dirty {
			out.Stderr = ignored
		}
		if p.sick {
			out.Code, out.Stderr = 1, out.Stderr+damage
		}
	case strings.Contains(c, ocf.TryMount), strings.HasPrefix(c, "mount "):
		out = resource.Output{}
		if p.unmountable {
			out = resource.Output{Code: 1, Stderr: "try-mount: a note\nocf-exit-reason:[damaged] mount /srv/home: structure needs cleaning\n"}
			if strings.HasPrefix(c, "mount ") {
				out = resource.Output{Code: 32, Stderr: "mount: Structure needs cleaning.\n"}
			}
		} else {
			p.dirty = false
		}
	case strings.Contains(c, "xfs_repair -L"):
		p.dirty, p.sick, p.unmountable = false, false, false
	case strings.Contains(c, "xfs_repair") && p.dirty:
		out.Code, out.Stderr = 2, dirty
	case strings.Contains(c, "xfs_repair"):
		p.sick, p.noSB, p.unmountable = false, false, false
	}
	if out.Code != 0 && !slices.Contains(a.OKCodes, out.Code) {
		return &agent.Error{Message: fmt.Sprintf("%s: exit code %d", a.Title, out.Code), Code: out.Code, Stderr: out.Stderr}
	}
	return hosttest.Answer(result, out)
}

// synctested runs a test in a bubble, whose waits take no time.
func synctested(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// damaged is a brick whose service failed because of its volume.
func damaged(t *testing.T) *play {
	return &play{t: t, d: example.Design(t, "nfs-ha.yaml"), situation: damagedVolume, sick: true, unmountable: true, room: 1 << 40, ram: 1 << 30}
}

func (p *play) repair(o Options) (string, error) {
	var out bytes.Buffer
	c := &cli.Console{Env: &cli.Env{}, Out: &out, Err: &out, In: strings.NewReader(""), Yes: true}
	o.Wait = 10 * time.Second
	err := Run(p.t.Context(), c, p.d, p, o)
	return out.String(), err
}

const (
	set, del = "crm_resource --resource home --meta --set-parameter ", "crm_resource --resource home --meta --delete-parameter "
	onVolume = "on-volume /srv/home -- "
)

// steps are the commands on a server, with the dump's time cut off.
func steps(node string, all ...string) (out []string) {
	for _, c := range all {
		out = append(out, node+" "+c)
	}
	return out
}

func (p *play) steps() (out []string) {
	for _, c := range p.ran {
		if before, _, ok := strings.Cut(c, "home-2"); ok {
			c = before + "home-TIME"
		}
		out = append(out, c)
	}
	return out
}

var (
	looks = []string{set + "target-role --parameter-value Stopped", set + "is-managed --parameter-value false", onVolume + "xfs_repair -n -vv -m 1 {}", onVolume + "xfs_repair -n {}"}
	dumps = []string{"write /var/lib/mortar/metadump", onVolume + "xfs_metadump -o {} /var/lib/mortar/metadump/home.metadump.part", "mv /var/lib/mortar/metadump/home.metadump.part /var/lib/mortar/metadump/home.metadump"}
	mends = []string{"try-mount /srv/home", onVolume + "xfs_repair {}"}
	again = []string{onVolume + "xfs_repair -n {}"}
	names = []string{"mv --no-clobber /var/lib/mortar/metadump/home.metadump /var/lib/mortar/metadump/home-TIME"}
	start = []string{"crm_resource --resource home --cleanup", del + "is-managed", del + "target-role"}
)

func TestRepair(t *testing.T) {
	for name, c := range map[string]struct {
		brick func(*play)
		o     Options
		want  []string
		says  string
		fails string // part of the error, or a code with arguments
	}{
		"damaged": {nil, Options{}, slices.Concat(looks, dumps, mends, again, names, start), "needs 48.00 MiB of memory", ""},
		"what was wrong is shown": {nil, Options{}, slices.Concat(looks, dumps, mends, again, names, start),
			"damaged: agf has bad CRC for ag 0; would reset bad agf for ag 0; imap claims", ""},
		"no damage": {func(p *play) { p.sick = false }, Options{}, slices.Concat(looks, start), "no damage", ""},
		"a log that a mount replays": {func(p *play) { p.sick, p.dirty, p.unmountable = false, true, false }, Options{},
			slices.Concat(looks, dumps, mends, again, names, start), "XFS mounts it", ""},
		"a log that no mount replays":                  {func(p *play) { p.dirty = true }, Options{}, slices.Concat(looks, dumps, mends), "XFS does not mount it: [damaged] mount /srv/home: structure needs cleaning", "--zero-log"},
		"the log may go, and nobody says what is lost": {func(p *play) { p.dirty = true }, Options{ZeroLog: true}, slices.Concat(looks, dumps, mends), "", "give --confirm home"},
		"the log goes": {func(p *play) { p.dirty = true }, Options{ZeroLog: true, Confirm: "home"},
			slices.Concat(looks, dumps, mends, []string{onVolume + "xfs_repair -L {}"}, again, names, start), "", ""},
		"the log may go, and a mount replays it": {func(p *play) { p.dirty, p.unmountable = true, false }, Options{ZeroLog: true, Confirm: "home"}, slices.Concat(looks, dumps, mends, again, names, start), "", ""},
		"no superblock":                          {func(p *play) { p.noSB = true }, Options{}, looks, "the first superblock is damaged", "repair-no-dump"},
		"no superblock, no dump":                 {func(p *play) { p.noSB = true }, Options{NoDump: true}, slices.Concat(looks, mends, again, start), "", ""},
		"no room for the dump":                   {func(p *play) { p.room = 100 << 20 }, Options{}, looks, "", "repair-no-room host=nfs1 free=100.00 MiB"},
		"no memory":                              {func(p *play) { p.ram = 40 << 20 }, Options{}, looks[:3], "", "fallocate -l 1G /var/swap-repair"},
		"cut short at the repair":                {func(p *play) { p.dies = "xfs_repair {}" }, Options{}, slices.Concat(looks, dumps, mends), "", "service home is kept stopped"},
		"a dump of the run before":               {func(p *play) { p.dumped = true }, Options{}, slices.Concat(looks, mends, again, names, start), "", ""},
		"an agent of an earlier release":         {func(p *play) { p.old = true }, Options{}, looks[:3], "", "xfs_repair needs: exit code 2"},
		"it runs":                                {func(p *play) { p.situation = "healthy" }, Options{}, nil, "service home runs on nfs1", ""},
		"it runs, and is stopped":                {func(p *play) { p.situation, p.sick = "healthy", false }, Options{Stop: true}, slices.Concat(looks, start), "", ""},
		"no such service":                        {nil, Options{Service: "scratch"}, nil, "", "service-no-such service=scratch services=home"},
		"no such server":                         {nil, Options{On: "c1"}, nil, "", "repair-not-there server=c1 service=home"},
		"nobody answers":                         {func(p *play) { p.situation = "none" }, Options{}, nil, "", "cluster-no-answer"},
		"the partner may live":                   {func(p *play) { p.situation = "fencing-failing" }, Options{}, nil, "", "repair-not-fenced host=nfs1 error=i/o timeout"},
		"mounted by hand":                        {func(p *play) { p.mounts = map[string]string{"nfs2": "/dev/mapper/x /srv/home xfs rw 0 0\n"} }, Options{}, nil, "", "repair-mounted path=/srv/home host=nfs2"},
	} {
		synctested(t, name, func(t *testing.T) {
			p := damaged(t)
			if c.brick != nil {
				c.brick(p)
			}
			out, err := p.repair(c.o)
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) && !hosttest.Refuses(err, c.fails) || !strings.Contains(out, c.says) {
				t.Errorf("%v, want %q and %q\n%s", err, c.fails, c.says, out)
			}
			if diff := cmp.Diff(steps("nfs1", c.want...), p.steps()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A partner that the cluster has fenced cannot mount the volume; what it owned is taken from it.
func TestRepairWithoutThePartner(t *testing.T) {
	p := damaged(t)
	p.situation = "fenced"
	p.stopped = true
	out, err := p.repair(Options{Stop: true})
	if err != nil || !slices.Contains(p.ran, "nfs2 on-volume /srv/home off=nfs1 -- xfs_repair {}") || !slices.Contains(p.ran, "nfs2 try-mount /srv/home off=nfs1") {
		t.Errorf("%v\n%s\n%s", err, out, strings.Join(p.ran, "\n"))
	}
}

func TestRepairOfASingleServer(t *testing.T) {
	p := damaged(t)
	p.d = example.Design(t, "nfs.yaml")
	node, at, dev := p.d.Servers()[0], p.d.Services()[0].MountPoint, p.d.Services()[0].Storage.Mounted()
	out, err := p.repair(Options{})
	unit := mountUnit(at)
	want := steps(node, "systemctl stop nfs-server.service", "systemctl mask "+unit, "systemctl stop "+unit,
		"xfs_repair -n -vv -m 1 "+dev, "xfs_repair -n "+dev, dumps[0], "xfs_metadump -o "+dev+" /var/lib/mortar/metadump/home.metadump.part", dumps[2],
		"mount "+at, "umount "+at, "xfs_repair "+dev, "xfs_repair -n "+dev, names[0], "systemctl unmask "+unit, "mount "+at, "systemctl start nfs-server.service")
	if diff := cmp.Diff(want, p.steps()); diff != "" || err != nil {
		t.Errorf("%v\n%s(-want +got):\n%s", err, out, diff)
	}
	p.ran, p.mounts = nil, map[string]string{node: dev + " " + at + " xfs rw 0 0\n"}
	if out, err := p.repair(Options{}); err != nil || len(p.ran) > 0 || !strings.Contains(out, "runs on "+node) {
		t.Errorf("it runs: %v, ran %q\n%s", err, p.ran, out)
	}
	p.masked = true // a run that was cut short while it tried the mount
	if out, err := p.repair(Options{}); err != nil || len(p.ran) == 0 {
		t.Errorf("a run that was cut short: %v\n%s", err, out)
	}
}

func TestRepairOfLustre(t *testing.T) {
	p := damaged(t)
	p.d = example.Design(t, "lustre-brick.yaml")
	svc := p.d.Services()[0].Name
	if _, err := p.repair(Options{Service: svc}); err == nil {
		t.Error(err)
	}
}

func TestMountUnit(t *testing.T) {
	for at, want := range map[string]string{"/srv/home": "srv-home.mount", "/srv/a-b/": `srv-a\x2db.mount`, "/.x/ü": `\x2ex-\xc3\xbc.mount`} {
		if got := mountUnit(at); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
}

func TestNeed(t *testing.T) {
	n := parseNeed(needs)
	if n != (need{true, 1280, 48 << 20}) || parseNeed(noSuperblock).known {
		t.Errorf("%+v", n)
	}
	n.inodes = 100e6
	if got := rough(n.time(48)); got != "11 minutes" {
		t.Error(got)
	}
	if got := logBytes([]string{"-d", "su=128k,sw=2", "-l", "size=64m,su=4k"}); got != 64<<20 {
		t.Error(got)
	}
	if got := logBytes(nil); got != 2<<30 {
		t.Error(got)
	}
	text := strings.Repeat("bad\n", 30)
	if got := toolWords(text); !strings.HasSuffix(got, "; and 10 more lines") {
		t.Error(got)
	}
}

// The tools of this machine, on an image: what they print is understood, and the file system is
// whole at the end.
func TestRepairWithTheRealTools(t *testing.T) {
	for name, c := range map[string]struct {
		seek, count string
		o           Options
	}{
		"headers":    {"seek=1", "count=3", Options{}},
		"superblock": {"seek=0", "count=1", Options{NoDump: true}},
	} {
		t.Run(name, func(t *testing.T) {
			image := filepath.Join(t.TempDir(), "image")
			tool := func(argv ...string) (resource.Output, error) {
				var out, errs bytes.Buffer
				x := exec.Command(argv[0], argv[1:]...)
				x.Stdout, x.Stderr, x.Env = &out, &errs, append(os.Environ(), "LC_ALL=C")
				err := x.Run()
				if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
					err = nil
				}
				return resource.Output{Code: x.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}, err
			}
			if f, err := os.Create(image); err != nil || f.Truncate(1<<30) != nil || f.Close() != nil {
				t.Fatal(err)
			}
			for _, argv := range [][]string{{"mkfs.xfs", "-q", "-s", "size=4096", "-d", "su=128k,sw=2", "-l", "size=64m,su=4k", image},
				{"dd", "if=/dev/zero", "of=" + image, "bs=4096", "conv=notrunc", c.seek, c.count}} {
				if out, err := tool(argv...); err != nil || out.Code != 0 {
					t.Fatal(argv, out, err)
				}
			}
			p := damaged(t)
			p.d = example.Design(t, "nfs.yaml")
			dev, kept := p.d.Services()[0].Storage.Mounted(), filepath.Join(t.TempDir(), "dump")
			p.tool = func(argv []string) (resource.Output, error) {
				argv = slices.Clone(argv)
				for i, w := range argv {
					if w == dev {
						argv[i] = image
					} else if strings.HasSuffix(w, ".metadump.part") {
						argv[i] = kept
					}
				}
				return tool(argv...)
			}
			out, err := p.repair(c.o)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if _, err := os.Stat(kept); (err == nil) == c.o.NoDump {
				t.Errorf("the dump: %v", err)
			}
			if x, err := tool("xfs_repair", "-n", image); err != nil || x.Code != 0 || !strings.Contains(out, "damaged: ") || !strings.Contains(out, "repaired: ") {
				t.Errorf("%v, %v\n%s", err, x, out)
			}
		})
	}
}
