package gather

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

func TestGather(t *testing.T) {
	pool := &statfsPool{waiting: map[string]time.Time{}}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(comm))
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h := gather(t.Context(), agent.HostSys{}, pool, Request{
		Files: []string{"/proc/self/mounts", "/proc/sys/kernel/ostyp?", "/does/not/exist"}, Links: []string{"/proc/self/exe"},
		Run: [][]string{{"readlink", "-e", dir}, {"no-such-command-here"}, {"tail", "-n", "0", "-F", "/dev/null"}}, FS: []string{"/", "/does/not/exist"},
		Processes: []string{name, "no-such-process"}, Disks: true, CIB: true, NICs: true, TimeoutMS: 500})
	if h.Files["/proc/sys/kernel/ostype"] != "Linux\n" || h.Files["/proc/self/mounts"] == "" {
		t.Errorf("files: %q", h.Files)
	}
	if _, ok := h.Files["/does/not/exist"]; ok {
		t.Error("a file that is not there was read")
	}
	for _, l := range h.NetLinks {
		if l.Driver == "" {
			t.Errorf("%s: no driver: %+v", l.Name, l)
		}
	}
	if exe, _ := os.Executable(); h.Links["/proc/self/exe"] != exe {
		t.Errorf("links: %q, want %s", h.Links, exe)
	}
	if r := h.Run["readlink -e "+dir]; r.Stdout != dir+"\n" || r.Err != "" {
		t.Errorf("readlink: %+v", r)
	}
	if r := h.Run["no-such-command-here"]; r.Err == "" {
		t.Errorf("no-such-command-here: %+v", r)
	}
	if r := h.Run["tail -n 0 -F /dev/null"]; r.Err == "" || r.Cause != resource.TimedOut {
		t.Errorf("tail -F: %+v", r)
	}
	if fs := h.FS["/"]; fs.Size == 0 || fs.Err != "" {
		t.Errorf("statfs /: %+v", fs)
	}
	if fs := h.FS["/does/not/exist"]; fs.Err == "" {
		t.Errorf("statfs of nothing: %+v", fs)
	}
	if h.Processes[name] < 1 || h.Processes["no-such-process"] != 0 {
		t.Errorf("processes: %v", h.Processes)
	}
}

// While a statfs hangs, the pool starts no second one for the same path.
func TestStatfsStuck(t *testing.T) {
	p := &statfsPool{waiting: map[string]time.Time{"/hangs": time.Now()}}
	if fs := p.statfs(t.Context(), "/hangs", time.Hour); !fs.TimedOut {
		t.Errorf("%+v", fs)
	}
}

const fenceCIB = `<cib><configuration><resources>
<primitive id="service-home" class="ocf" type="service"/>
<primitive id="fence-pdu-a" class="stonith" type="fence_apc_snmp"><instance_attributes id="x">
<nvpair id="a" name="community" value="hunter2"/><nvpair id="b" name="ip" value="10.77.3.31"/></instance_attributes></primitive>
</resources></configuration></cib>`

func TestOutletsOfNoDevice(t *testing.T) {
	// For a device that the cluster does not know, the answer is an error and no
	// program runs.
	got := askOutlets(t.Context(), tree{linux.CIBFile: fenceCIB}, []OutletAsk{{"fence-pdu-b", "1"}}, time.Minute)
	if len(got) != 1 || got[0].On || !strings.Contains(got[0].Err, "fence-pdu-b is not in the cluster's configuration") {
		t.Errorf("%+v", got)
	}
}

// tree is a host whose files are given.
type tree map[string]string

func (r tree) Glob(pattern string) (out []string, _ error) {
	for p := range r {
		if ok, err := filepath.Match(pattern, p); err != nil {
			return nil, err
		} else if ok {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (r tree) ReadFile(p string) ([]byte, error) {
	if s, ok := r[p]; ok {
		return []byte(s), nil
	}
	return nil, os.ErrNotExist
}
func (tree) Stat(string) (resource.FileInfo, error)                { return resource.FileInfo{}, os.ErrNotExist }
func (tree) Readlink(string) (string, error)                       { return "", os.ErrNotExist }
func (tree) Reservation(context.Context, string) (pr.State, error) { return pr.State{}, nil }
func (tree) Disks(context.Context) (*resource.DiskList, error)     { return &resource.DiskList{}, nil }
func (tree) Query(context.Context, ...string) (resource.Output, error) {
	return resource.Output{}, os.ErrNotExist
}
func (tree) Initrd(context.Context, string, []string) (map[string]string, error) {
	return nil, os.ErrNotExist
}

func TestStrays(t *testing.T) {
	const uuid = "c0ffee00-1111-2222-3333-444455556666"
	r := tree{
		"/sys/block/md0": "", "/sys/block/md0/md/array_state": "clean\n",
		"/sys/block/md0/md/uuid":    uuid + "\n",
		"/sys/block/md0/md/dev-vdc": "",
		"/sys/class/block/vda/dev":  "254:0\n", "/run/udev/data/b254:0": "E:ID_FS_TYPE=erofs\n",
		"/sys/class/block/vdb/dev": "254:16\n", "/run/udev/data/b254:16": "S:disk/by-id/virtio-sys0\nE:ID_FS_UUID=" + uuid + "\nE:ID_FS_TYPE=linux_raid_member\n",
		"/sys/class/block/vdc/dev": "254:32\n", "/run/udev/data/b254:32": "E:ID_FS_UUID=" + uuid + "\nE:ID_FS_TYPE=linux_raid_member\n",
		"/sys/class/block/sda/dev": "8:0\n", "/run/udev/data/b8:0": "E:ID_FS_UUID=00000000-1111-2222-3333-444455556666\nE:ID_FS_TYPE=linux_raid_member\n",
		"/sys/class/block/sdb/dev": "8:16\n",
	}
	if diff := cmp.Diff([]Stray{{"vdb", "md0"}}, strays(r)); diff != "" {
		t.Error(diff)
	}
	if got := strays(tree{}); got != nil {
		t.Errorf("%v on a host without arrays", got)
	}
}

func TestPaces(t *testing.T) {
	before := map[string]linux.DiskStat{"dm-1": {Done: 10, MS: 100}, "dm-2": {Done: 5, MS: 50, InFlight: 1}, "dm-3": {Done: 5, MS: 50}, "dm-4": {Done: 9}}
	after := map[string]linux.DiskStat{"dm-1": {Done: 14, MS: 140}, "dm-2": {Done: 5, MS: 50, InFlight: 4}, "dm-3": {Done: 5, MS: 50, InFlight: 1}, "dm-4": {Done: 1}, "dm-5": {Done: 3}}
	got := paces(before, after, time.Second)
	if len(got) != 2 || got["dm-1"] != (Pace{4, 10}) || got["dm-2"] != (Pace{0, 1000}) {
		t.Errorf("got %+v: dm-1 took 10 ms for each of four, dm-2 was waited for all the time, of the others nothing can be said", got)
	}
}

func TestOnlyOwn(t *testing.T) {
	// onlyOwn keeps only Mortar's attributes of a node.
	c, err := linux.ParseCIB([]byte(`<cib><configuration><nodes><node id="1" uname="nfs1"><instance_attributes id="nodes-1">` +
		`<nvpair id="a" name="mortar-fence-test" value="standby"/><nvpair id="b" name="ipmi_password" value="hunter2"/></instance_attributes></node></nodes></configuration></cib>`))
	if onlyOwn(c); err != nil || c.Attr("nfs1", "mortar-fence-test") != "standby" || len(c.Nodes[0].Attrs) != 1 {
		t.Errorf("%+v %v", c, err)
	}
}

// The kernel's own multipath joins the controllers of an NVMe namespace: each is a path.
func TestDivideNVMe(t *testing.T) {
	d := resource.DiskFact{Paths: []string{"/dev/nvme0n1"}, PathState: map[string]resource.PathState{
		"nvme0n1": {HBA: -1}, "nvme0": {HBA: -1, State: "live"}, "nvme1": {HBA: -1, State: "connecting"}}}
	if good, bad := d.Divide(nil); len(good) != 1 || good[0] != "nvme0" || len(bad) != 1 || bad["nvme1"] != "connecting" {
		t.Errorf("%v work, %v do not", good, bad)
	}
	d.PathState = map[string]resource.PathState{"nvme0n1": {HBA: -1, State: "live"}}
	if good, bad := d.Divide(nil); len(good) != 1 || good[0] != "nvme0n1" || len(bad) > 0 {
		t.Errorf("one controller: %v work, %v do not", good, bad)
	}
}
