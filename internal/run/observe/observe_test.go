package observe

import (
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

var update = flag.Bool("update", false, "rewrite golden files")

func theDesign(t testing.TB) *design.Design { return designOf(t, "nfs-ha") }

func designOf(t testing.TB, flavour string, edits ...string) *design.Design {
	t.Helper()
	path := "../../../examples/" + flavour + ".yaml"
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.NewReplacer(edits...).Replace(string(src))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func recorded(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var noon = time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC)

// healthy returns the facts of the healthy example brick with the service on nfs1.
// The cluster's output is recorded from Pacemaker 3.0; the files follow the kernel's
// formats.
func healthy(t testing.TB, d *design.Design) Facts {
	f := Facts{Time: noon, Hosts: map[string]Answer{}}
	for i, server := range d.Spec.Servers {
		name := server.Name
		h := &gather.Host{Hostname: name, NowNS: noon.UnixNano(), Files: map[string]string{
			"/etc/os-release": "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n",
			"/proc/uptime":    "7265.25 3000.00\n",

			"/sys/class/watchdog/watchdog0/state": "active\n",
		}, Links: map[string]string{}, Run: map[string]gather.RunResult{}, FS: map[string]gather.FS{}, Processes: map[string]int{}}
		h.Addresses = []string{fmt.Sprintf("10.77.1.1%d/24", i+1), fmt.Sprintf("10.77.2.1%d/24", i+1)}
		var status strings.Builder
		for k := range d.Disks {
			x := &d.Disks[k]
			p1, p2 := fmt.Sprintf("sd%c", 'a'+2*k), fmt.Sprintf("sd%c", 'b'+2*k)
			dm := fmt.Sprintf("dm-%d", k)
			h.Disks = append(h.Disks, resource.DiskFact{
				Serial: x.Serial, Device: "/dev/mapper/3" + x.Serial, Paths: []string{p1, p2}, Size: int64(x.Size),
				PathState: map[string]resource.PathState{p1: {State: "running", HBA: 2}, p2: {State: "running", HBA: 3}},
			})
			h.Files["/sys/block/"+dm+"/dm/name"] = "3" + x.Serial + "\n"
			h.Files["/sys/block/"+p1+"/dev"] = fmt.Sprintf("8:%d\n", 32*k)
			h.Files["/sys/block/"+p2+"/dev"] = fmt.Sprintf("8:%d\n", 32*k+16)
			for _, p := range []string{p1, p2} {
				h.Links["/sys/block/"+dm+"/slaves/"+p] = "/sys/devices/x/" + p
			}
			fmt.Fprintf(&status, "3%s: 0 3906250 multipath 2 0 0 0 1 1 A 0 2 2 8:%d A 0 0 1 8:%d A 0 0 1 \n", x.Serial, 32*k, 32*k+16)
		}
		h.Run[gather.CmdDM] = gather.RunResult{Output: resource.Output{Stdout: status.String()}}
		f.Hosts[name] = Answer{Host: h, Asked: noon.Add(-time.Second), Answered: noon.Add(time.Second)}
	}
	if d.Clustered() {
		cluster(t, f, "healthy")
		cib(t, f, "healthy.cib")
	}
	h := f.Hosts["nfs1"].Host
	g := d.Groups[0]
	h.Files["/proc/mdstat"] = "Personalities : [raid6] [raid5] [raid4] \nmd127 : active raid6 dm-3[3] dm-2[2] dm-1[1] dm-0[0]\n      3901952 blocks super 1.2 level 6, 128k chunk, algorithm 2 [4/4] [UUUU]\n      bitmap: 0/1 pages [0KB], 65536KB chunk\n\nunused devices: <none>\n"
	md := "/sys/block/md127/md/"
	h.Links["/dev/md/"+g.Name] = "/dev/md127"
	h.Files[md+"uuid"] = rfcUUID(g.UUID) + "\n"
	h.Files[md+"array_state"] = "clean\n"
	h.Files[md+"degraded"] = "0\n"
	h.Files[md+"sync_action"] = "idle\n"
	h.Files[md+"raid_disks"] = fmt.Sprintf("%d\n", g.Data+g.Parity)
	h.Files[md+"level"] = "raid6\n"
	h.Files[md+"mismatch_cnt"] = "0\n"
	for slot, m := range g.Members {
		dm := dmOf(d, m.Serial)
		h.Files[md+"dev-"+dm+"/state"] = "in_sync\n"
		h.Files[md+"dev-"+dm+"/slot"] = fmt.Sprintf("%d\n", slot)
	}
	for _, m := range g.Spares {
		dm := dmOf(d, m.Serial)
		h.Files[md+"dev-"+dm+"/state"] = "spare\n"
		h.Files[md+"dev-"+dm+"/slot"] = "none\n"
	}
	svc := d.Services()[0]
	v := svc.Storage
	h.Files["/sys/block/dm-20/dm/name"] = v.VG + "-" + v.LV + "\n"
	h.Files["/proc/self/mounts"] = fmt.Sprintf("/dev/vda / ext4 rw,relatime 0 0\n/dev/mapper/%s-%s %s xfs rw,nosuid,nodev,noatime,logbsize=256k,sunit=256,swidth=512,noquota 0 0\n", v.VG, v.LV, svc.MountPoint)
	h.FS[svc.MountPoint] = gather.FS{Size: 4_000_000_000, Avail: 3_900_000_000, Files: 2_000_000, FilesFree: 1_999_000, Millis: 0.1}
	h.Files["/proc/fs/nfsd/threads"] = fmt.Sprintf("%d\n", d.Spec.NFS.Threads)
	h.Files["/proc/fs/nfsd/versions"] = "+3 +4 -4.0 +4.1 +4.2\n"
	h.Files["/proc/fs/nfsd/v4_end_grace"] = "Y\n"
	for _, e := range d.Services()[0].Exports {
		h.Files["/var/lib/nfs/etab"] += fmt.Sprintf("%s\t%s(rw,sync,wdelay,hide,nocrossmnt,secure,no_root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,fsid=%s,anonuid=65534,anongid=65534,sec=sys,rw,secure,no_root_squash,no_all_squash)\n", e.Dir, e.Clients, e.FSID)
	}
	h.Addresses = append(h.Addresses, d.Services()[0].Address+"/24")
	h.Processes = map[string]int{"rpc.mountd": 1, "rpc.statd": 1, "nfsdcld": 1, "rpcbind": 1}

	c := &gather.Host{Hostname: "c1", NowNS: noon.UnixNano(), FS: map[string]gather.FS{}, Files: map[string]string{"/etc/os-release": "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n", "/proc/uptime": "7200 7200\n"}}
	for _, m := range d.Mounts {
		typ := "nfs4"
		if m.Version == "3" {
			typ = "nfs"
		}
		c.Files["/proc/self/mounts"] += fmt.Sprintf("%s %s %s rw,relatime,vers=%s,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=150,retrans=2,sec=sys,clientaddr=10.77.1.51,local_lock=none,addr=10.77.1.100 0 0\n", m.Source, m.Path, typ, m.Version)
		c.FS[m.Path] = gather.FS{Size: 4_000_000_000, Avail: 3_900_000_000, Millis: 0.8}
	}
	f.Hosts["c1"] = Answer{Host: c, Asked: noon.Add(-30 * time.Second), Answered: noon.Add(time.Second)}
	return f
}

// mirror adds a system mirror of two virtio disks to a server; with out the mirror
// lacks the first disk.
func mirror(h *gather.Host, out bool) {
	md := "/sys/block/md0/md/"
	for k, v := range map[string]string{"uuid": "c0ffee00-1111-2222-3333-444455556666", "array_state": "active", "degraded": "0",
		"sync_action": "idle", "raid_disks": "2", "level": "raid1", "dev-vdc/state": "in_sync", "dev-vdc/slot": "1"} {
		h.Files[md+k] = v + "\n"
	}
	h.Disks = append(h.Disks, resource.DiskFact{Serial: "sys1-" + h.Hostname, Device: "/dev/vdc", Paths: []string{"vdc"}})
	if out {
		h.Files[md+"degraded"] = "1\n"
		return
	}
	h.Files[md+"dev-vdb/state"], h.Files[md+"dev-vdb/slot"] = "in_sync\n", "0\n"
	h.Disks = append(h.Disks, resource.DiskFact{Serial: "sys0-" + h.Hostname, Device: "/dev/vdb", Paths: []string{"vdb"}})
}

func TestSystemMirror(t *testing.T) {
	d := theDesign(t)
	for _, tt := range []struct {
		name   string
		change func(h *gather.Host)
		line   string // of the host
		want   []string
		mend   string
	}{
		{"whole", func(h *gather.Host) { mirror(h, false) }, "system mirror md0: 2 of 2 disks", nil, ""},
		{"pulled", func(h *gather.Host) { mirror(h, true) }, "system mirror md0: 1 of 2 disks",
			[]string{"warning: system mirror md0 of nfs1 is degraded: 1 of 2 disks left, disk sys1-nfs1 (vdc); the disk of slot 0 is missing"},
			"replace the disk, then `mdadm --manage /dev/md0 --add DISK` on nfs1"},
		{"failed", func(h *gather.Host) {
			mirror(h, false)
			h.Files["/sys/block/md0/md/degraded"], h.Files["/sys/block/md0/md/dev-vdb/state"], h.Files["/sys/block/md0/md/dev-vdb/slot"] = "1\n", "faulty\n", "none\n"
		}, "system mirror md0: 1 of 2 disks",
			[]string{"warning: system mirror md0 of nfs1 is degraded: 1 of 2 disks left, disk sys1-nfs1 (vdc); disk sys0-nfs1 (vdb) has failed"},
			"replace the disk, then `mdadm --manage /dev/md0 --add DISK` on nfs1"},
		{"back, but not in", func(h *gather.Host) {
			mirror(h, true)
			h.Strays = []gather.Stray{{Dev: "vdd", Array: "md0"}, {Dev: "dm-3", Array: "md127"}}
		}, "system mirror md0: 1 of 2 disks",
			[]string{"warning: system mirror md0 of nfs1 is degraded: 1 of 2 disks left, disk sys1-nfs1 (vdc); disk vdd is there again but not in it"},
			"`mdadm --manage /dev/md0 --add /dev/vdd` on nfs1, if that disk is to be trusted"},
		{"being rebuilt", func(h *gather.Host) {
			mirror(h, false)
			h.Files["/sys/block/md0/md/degraded"], h.Files["/sys/block/md0/md/dev-vdb/state"] = "1\n", "spare\n"
			h.Files["/proc/mdstat"] += "md0 : active raid1 vdb[0] vdc[1]\n      1048560 blocks super 1.0 [2/1] [_U]\n      [=>...]  recovery = 10.0% (1/10) finish=1.0min speed=1K/sec\n"
		}, "system mirror md0: 1 of 2 disks", []string{
			"warning: system mirror md0 of nfs1 is degraded: 1 of 2 disks left, disk sys1-nfs1 (vdc)",
			"warning: rebuild of system mirror md0 of nfs1: 10.0 %, 60 s left"}, ""},
		{"partitions, LVM", func(h *gather.Host) {
			mirror(h, false)
			for _, x := range []string{"state", "slot"} {
				h.Files["/sys/block/md0/md/dev-vdb2/"+x] = h.Files["/sys/block/md0/md/dev-vdb/"+x]
				delete(h.Files, "/sys/block/md0/md/dev-vdb/"+x)
			}
			h.Files["/sys/block/md0/md/dev-vdb2/state"] = "faulty\n"
			h.Files["/sys/block/md0/md/degraded"] = "1\n"
			h.Links["/sys/block/dm-30/slaves/md0"] = "/sys/devices/virtual/block/md0"
			h.Files["/sys/block/dm-30/dm/name"] = "sys-root\n"
			h.Files["/proc/self/mounts"] = "/dev/mapper/sys-root / ext4 rw 0 0\n/dev/md0 /boot ext4 rw 0 0\n" + h.Files["/proc/self/mounts"]
		}, "system mirror md0 (/, /boot): 1 of 2 disks",
			[]string{"warning: system mirror md0 (/, /boot) of nfs1 is degraded: 1 of 2 disks left, disk sys1-nfs1 (vdc); disk sys0-nfs1 (vdb2) has failed"},
			"replace the disk, then `mdadm --manage /dev/md0 --add DISK` on nfs1"},
		{"striped", func(h *gather.Host) {
			mirror(h, false)
			h.Files["/sys/block/md0/md/level"] = "raid0\n"
		}, "up 2 h 1 min", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy(t, d)
			prove(d, f, d.Pairs[0].HA.Fencing)
			tt.change(f.Hosts["nfs1"].Host)
			s := Judge(d, f)
			if diff := cmp.Diff(tt.want, complaints(s)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
			host := s.Parts[0].Parts[0]
			if !strings.HasSuffix(host.Text, tt.line) {
				t.Errorf("the host's line is %q, want it to end in %q", host.Text, tt.line)
			}
			mend := ""
			for _, p := range host.Parts {
				mend += p.Mend
			}
			if mend != tt.mend {
				t.Errorf("mend %q, want %q", mend, tt.mend)
			}
		})
	}
}

func rfcUUID(s string) string {
	s = md.Hex(s)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

func dmOf(d *design.Design, serial string) string {
	return fmt.Sprintf("dm-%d", slices.IndexFunc(d.Disks, func(x design.Disk) bool { return x.Serial == serial }))
}

// cluster puts the recordings of a situation into facts; a server without a
// recording does not answer.
func cluster(t testing.TB, f Facts, situation string) {
	t.Helper()
	for _, name := range []string{"nfs1", "nfs2"} {
		b, err := os.ReadFile(filepath.Join("testdata", situation+"."+name+".crm"))
		if err != nil {
			f.Hosts[name] = Answer{Err: "no route to host"}
			continue
		}
		h := f.Hosts[name].Host
		h.Run[gather.CmdCRM] = gather.RunResult{Output: resource.Output{Stdout: string(b)}}
		if waits, err := os.ReadFile(filepath.Join("testdata", situation+"."+name+".waits")); err == nil {
			h.Run[gather.CmdWaits] = gather.RunResult{Output: resource.Output{Stdout: string(waits)}}
		}
		ring, err := os.ReadFile(filepath.Join("testdata", situation+"."+name+".ring"))
		if err != nil {
			continue // no recording: leave the links
		}
		h.Run[gather.CmdLinks] = gather.RunResult{Output: resource.Output{Stdout: string(ring)}}
	}
}

func cib(t testing.TB, f Facts, file string) {
	t.Helper()
	var c linux.CIB
	if err := xml.Unmarshal([]byte(recorded(t, file)), &c); err != nil {
		t.Fatal(err)
	}
	for _, a := range f.Hosts {
		if a.Host != nil {
			a.Host.CIB = &c
		}
	}
}

// prove records levels of fencing as proven a while ago.
func prove(d *design.Design, f Facts, levels []design.FenceLevel) {
	proveBefore(d, f, levels, 14*time.Minute)
}

func proveBefore(d *design.Design, f Facts, levels []design.FenceLevel, age time.Duration) {
	var nodes []linux.CIBNode
	for _, n := range d.Pairs[0].HA.Nodes {
		x := linux.CIBNode{Name: n.Name}
		for i := range levels {
			if l := &levels[i]; l.Node == n.Name {
				p := Proof{At: f.Time.Add(-age), Seconds: 2.25, Fingerprint: l.Fingerprint()}
				x.Attrs = append(x.Attrs, linux.CIBPair{Name: ProofAttr(l.Level), Value: p.String()})
			}
		}
		nodes = append(nodes, x)
	}
	for _, a := range f.Hosts {
		if a.Host != nil && a.Host.CIB != nil {
			c := *a.Host.CIB
			c.Nodes = nodes
			*a.Host.CIB = c
		}
	}
}

// move puts the service's facts from one server onto the other.
func move(d *design.Design, f Facts, from, to string) {
	a, b := f.Hosts[from].Host, f.Hosts[to].Host
	for p, text := range a.Files {
		if strings.HasPrefix(p, "/sys/block/md") || p == "/proc/mdstat" || p == "/proc/self/mounts" || strings.HasPrefix(p, "/proc/fs/nfsd") || p == "/var/lib/nfs/etab" || p == "/sys/block/dm-20/dm/name" {
			b.Files[p] = text
			delete(a.Files, p)
		}
	}
	for p, to := range a.Links {
		if strings.HasPrefix(p, "/dev/md/") {
			b.Links[p] = to
			delete(a.Links, p)
		}
	}
	maps.Copy(b.FS, a.FS)
	maps.Copy(b.Processes, a.Processes)
	addr := d.Services()[0].Address + "/24"
	a.Addresses = slices.DeleteFunc(a.Addresses, func(s string) bool { return s == addr })
	b.Addresses = append(b.Addresses, addr)
}

// complaints returns the texts of all parts that are not ok themselves.
func complaints(s *Status) []string {
	var out []string
	for _, p := range s.Parts {
		p.leaves(func(p *Part) {
			if p.Level != OK {
				out = append(out, p.Level.String()+": "+p.Text)
				if k := findings[p.Code]; k.Text == "" || k.Subject != "" && p.Subject == "" || strings.ContainsAny(p.Text+p.Mend, "{}") {
					out = append(out, fmt.Sprintf("no whole finding: %+v", *p))
				}
			}
		})
	}
	return out
}

const neverProven1 = "warning: fencing of nfs1 was never proven: no success since the cluster was started"
const neverProven2 = "warning: fencing of nfs2 was never proven: no success since the cluster was started"

// Of a service that does not start because blocks are in doubt, the remedy is the command
// that lists them; while parities are still compared, it is to wait.
func TestDoubtMend(t *testing.T) {
	for reason, want := range map[refusal.Code]string{
		refusal.InDoubt:   "connect the missing disk if it was there when the server died; else `mortar confirm-doubt brick.yaml home` lists what is in doubt and asks",
		refusal.Comparing: "wait: Pacemaker tries again by itself, and the next start goes on with the comparison",
		"too-few":         "when the cause is mended: `crm_resource --cleanup --resource service-home`",
	} {
		d := theDesign(t)
		f := healthy(t, d)
		cluster(t, f, "start-failed")
		torn := strings.NewReplacer("home_start_0", "service-home_start_0", "array brick1-r0 has 2 of 4 members", "["+string(reason)+"] array brick1-r0 lacks 1 of 4 members")
		for _, node := range d.Servers() {
			r := f.Hosts[node].Host.Run[gather.CmdCRM]
			r.Output.Stdout = torn.Replace(r.Output.Stdout)
			f.Hosts[node].Host.Run[gather.CmdCRM] = r
		}
		said := slices.ContainsFunc(Judge(d, f).Parts, func(p *Part) bool {
			return p.Name == "cluster" && slices.ContainsFunc(p.Parts, func(c *Part) bool { return c.Mend == want && c.Args["refusal"] == reason })
		})
		if !said {
			t.Errorf("nobody says %q", want)
		}
	}
}

// After a cold start without one server, the remedy is the exact command.
func TestColdStartMend(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	cluster(t, f, "cold-start-alone")
	want := map[string]string{}
	for _, name := range []string{"nfs1", "quorum"} {
		want[name] = "switch nfs1 on, and the cluster starts; if nfs1 is gone for good, cut its power by hand, and then `mortar confirm-off brick.yaml nfs1`"
	}
	got := map[string]string{}
	for _, p := range Judge(d, f).Parts {
		if p.Name == "cluster" {
			for _, c := range p.Parts {
				if want[c.Name] != "" {
					got[c.Name] = c.Mend
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A server that has just booted waits for a partner whose Corosync runs without
// Pacemaker.
func TestPending(t *testing.T) {
	d := theDesign(t)
	for name, tc := range map[string]struct {
		change     func(f Facts)
		text, mend string
	}{
		"no Pacemaker": {func(Facts) {},
			"fault: Corosync runs on nfs2, but Pacemaker does not: the cluster waits for it, and starts nothing that does not run already",
			"`systemctl start pacemaker` on nfs2; if it does not stay up, `systemctl stop corosync` there, and the cluster goes on without nfs2"},
		"unreachable": {func(f Facts) { f.Hosts["nfs2"] = Answer{Err: "no route to host"} }, "warning: nfs2 is joining",
			"wait; if it stays so, `stonith_admin --reboot nfs2` on nfs1 has it fenced, and the cluster goes on without it"},
	} {
		f := healthy(t, d)
		cluster(t, f, "pending")
		tc.change(f)
		var got, mend []string
		for _, p := range Judge(d, f).Parts {
			for _, c := range p.Parts {
				if p.Name == "cluster" && c.Name == "nfs2" {
					got, mend = append(got, c.Level.String()+": "+c.Text), append(mend, c.Mend)
				}
			}
		}
		if !slices.Contains(got, tc.text) || !slices.Contains(mend, tc.mend) {
			t.Errorf("%s: %q %q", name, got, mend)
		}
	}
}

// serviceRole is the role of service home in the answer of crm_mon.
var serviceRole = regexp.MustCompile(`(<resource id="(?:service-)?home"[^>]*role=")Started`)

func TestJudge(t *testing.T) {
	d := theDesign(t)
	g := d.Groups[0]
	first := g.Members[0]
	disk := func(f Facts, host, serial string) *resource.DiskFact {
		h := f.Hosts[host].Host
		i := slices.IndexFunc(h.Disks, func(x resource.DiskFact) bool { return x.Serial == serial })
		return &h.Disks[i]
	}
	without := func(f Facts, host string, drop func(resource.DiskFact) bool) {
		h := f.Hosts[host].Host
		h.Disks = slices.DeleteFunc(h.Disks, drop)
	}
	both := []string{neverProven1, neverProven2}
	away := []string{"fault: nfs1 does not answer: no route to host", "unknown: nfs1 does not answer", "fault: nfs1 is away since nfs2 has started"}
	waits := "fault: nfs2 waits for nfs1: after a cold start it has no quorum, fences no server and starts nothing before it has seen every server (wait_for_all)"
	idle := []string{"fault: service home runs nowhere (stopped)",
		"warning: fence device fence-nfs1-bmc is not watched now: the cluster has not started it",
		"warning: fence device fence-pdu-a is not watched now: the cluster has not started it",
		"warning: fence device fence-pdu-b is not watched now: the cluster has not started it", neverProven1,
		"warning: fence device fence-nfs2-bmc has no server to run on: the other one is away", neverProven2}
	coldStart := slices.Concat(away, []string{waits, "unknown: nfs1 is away", "unknown: nfs1 is away"}, idle)
	tests := []struct {
		name   string
		change func(f Facts)
		want   []string
	}{
		{"healthy but unproven", func(Facts) {}, both},
		{"client gone", func(f Facts) { f.Hosts["c1"] = Answer{Err: "dial tcp 10.77.3.51:22: i/o timeout"} },
			append([]string{"warning: c1 does not answer: dial tcp 10.77.3.51:22: i/o timeout"}, both...)},
		{"clock", func(f Facts) { f.Hosts["nfs2"].Host.NowNS -= int64(90 * time.Second) },
			append([]string{"warning: clock of nfs2 is 88 s behind that of nfs1"}, both...)},
		{"clock, perhaps", func(f Facts) { f.Hosts["c1"].Host.NowNS -= int64(30 * time.Second) }, both},
		{"one path of an enclosure", func(f Facts) {
			for i := range f.Hosts["nfs1"].Host.Disks {
				x := &f.Hosts["nfs1"].Host.Disks[i]
				if strings.HasPrefix(x.Serial, "MB") {
					delete(x.PathState, x.Paths[1])
					x.Paths = x.Paths[:1]
				}
			}
		}, append([]string{"fault: nfs1 lost path 2 of 2 to enclosure B"}, both...)},
		{"one path of a disk, failed in multipath", func(f Facts) {
			r := f.Hosts["nfs2"].Host.Run[gather.CmdDM]
			r.Stdout = strings.Replace(r.Stdout, "8:16 A 0 0 1", "8:16 F 3 0 1", 1)
			f.Hosts["nfs2"].Host.Run[gather.CmdDM] = r
		}, append([]string{"fault: nfs2 lost path 2 of 2 to disk MA01 (enclosure A bay 1) (failed in multipath)"}, both...)},
		{"one path offline", func(f Facts) {
			x := disk(f, "nfs1", "MA02")
			x.PathState[x.Paths[0]] = resource.PathState{State: "offline", HBA: 2}
		}, append([]string{"fault: nfs1 lost path 1 of 2 to disk MA02 (enclosure A bay 2) (offline)"}, both...)},
		{"all paths of the passive server to an enclosure", func(f Facts) {
			without(f, "nfs2", func(x resource.DiskFact) bool { return strings.HasPrefix(x.Serial, "MA") })
		}, append([]string{"fault: nfs2 lost all 2 paths to enclosure A"}, both...)},
		{"an HBA of nfs2 is gone", func(f Facts) {
			for i := range f.Hosts["nfs2"].Host.Disks {
				x := &f.Hosts["nfs2"].Host.Disks[i]
				delete(x.PathState, x.Paths[0])
				x.Paths = x.Paths[1:]
			}
		}, append([]string{"fault: nfs2 lost 1 of 2 paths to every enclosure"}, both...)},
		{"a member is gone and a spare is rebuilt", func(f Facts) {
			for _, n := range []string{"nfs1", "nfs2"} {
				without(f, n, func(x resource.DiskFact) bool { return x.Serial == first.Serial })
			}
			h := f.Hosts["nfs1"].Host
			md := "/sys/block/md127/md/"
			old, spare := dmOf(d, first.Serial), dmOf(d, g.Spares[0].Serial)
			delete(h.Files, md+"dev-"+old+"/state")
			delete(h.Files, md+"dev-"+old+"/slot")
			h.Files[md+"dev-"+spare+"/slot"] = "0\n"
			h.Files[md+"degraded"] = "1\n"
			h.Files[md+"sync_action"] = "recover\n"
			h.Files["/proc/mdstat"] = strings.Replace(h.Files["/proc/mdstat"], "      bitmap", "      [======>..............]  recovery = 34.2% (668000/1950976) finish=12.5min speed=1712K/sec\n      bitmap", 1)
		}, append([]string{
			fmt.Sprintf("fault: disk %s, in %s, is gone: nfs1 does not see it and nfs2 does not see it", diskName(&first), g.Name),
			fmt.Sprintf("warning: %s is being rebuilt into %s", diskName(&g.Spares[0]), g.Name),
			fmt.Sprintf("fault: %s is degraded on nfs1: 3 of 4 disks work, 1 more may fail; missing: %s", g.Name, diskName(&first)),
			fmt.Sprintf("warning: rebuild of %s: 34.2 %%, 12 min left", g.Name)}, both...)},
		{"two members failed, no spare", func(f Facts) {
			h := f.Hosts["nfs1"].Host
			md := "/sys/block/md127/md/"
			for _, k := range g.Members[:2] {
				h.Files[md+"dev-"+dmOf(d, k.Serial)+"/state"] = "faulty,blocked\n"
				h.Files[md+"dev-"+dmOf(d, k.Serial)+"/slot"] = "none\n"
			}
			h.Files[md+"degraded"] = "2\n"
		}, append([]string{
			fmt.Sprintf("fault: disk %s has failed in %s", diskName(&first), g.Name),
			fmt.Sprintf("fault: disk %s has failed in %s", diskName(&g.Members[1]), g.Name),
			fmt.Sprintf("fault: %s is degraded on nfs1: 2 of 4 disks work, one more failure loses data", g.Name)}, both...)},
		{"a spare is not in", func(f Facts) {
			h := f.Hosts["nfs1"].Host
			dev := "/sys/block/md127/md/dev-" + dmOf(d, g.Spares[0].Serial)
			delete(h.Files, dev+"/state")
			delete(h.Files, dev+"/slot")
		}, append([]string{fmt.Sprintf("warning: spare %s is not in %s: it would not stand in", diskName(&g.Spares[0]), g.Name)}, both...)},
		{"resync waits", func(f Facts) {
			h := f.Hosts["nfs1"].Host
			h.Files["/proc/mdstat"] = strings.Replace(h.Files["/proc/mdstat"], "      bitmap", "      \tresync=DELAYED\n      bitmap", 1)
		}, append([]string{fmt.Sprintf("warning: resync of %s: waiting (delayed)", g.Name)}, both...)},
		{"check runs", func(f Facts) {
			h := f.Hosts["nfs1"].Host
			h.Files["/proc/mdstat"] = strings.Replace(h.Files["/proc/mdstat"], "      bitmap", "      [==>..................]  check = 10.0% (1/10) finish=1.0min speed=1K/sec\n      bitmap", 1)
		}, both},
		{"mounted and assembled twice", func(f Facts) {
			a, b := f.Hosts["nfs1"].Host, f.Hosts["nfs2"].Host
			for p, text := range a.Files {
				if strings.HasPrefix(p, "/sys/block/md") || p == "/proc/self/mounts" || p == "/sys/block/dm-20/dm/name" {
					b.Files[p] = text
				}
			}
			b.Addresses = append(b.Addresses, "10.77.1.100/24")
		}, append([]string{
			"fault: brick1-r0 is assembled on nfs1 and nfs2 at once: writing from both destroys it",
			"fault: brick1_home/data is active on nfs1 and nfs2 at once: writing from both destroys it",
			"fault: /srv/home is mounted on nfs1 and nfs2 at once: XFS does not survive this",
			"fault: the service address 10.77.1.100 is on nfs2 too, where the service does not run"}, both...)},
		{"full", func(f Facts) {
			f.Hosts["nfs1"].Host.FS["/srv/home"] = gather.FS{Size: 1000, Avail: 10, Files: 1000, FilesFree: 100}
		}, append([]string{"fault: /srv/home on nfs1 is full: 99 % of its space used", "warning: /srv/home on nfs1 is nearly full: 90 % of its inodes used"}, both...)},
		{"file system hangs", func(f Facts) { f.Hosts["nfs1"].Host.FS["/srv/home"] = gather.FS{TimedOut: true} },
			append([]string{"fault: /srv/home on nfs1 does not answer: I/O to it hangs"}, both...)},
		{"XFS shut down", func(f Facts) { f.Hosts["nfs1"].Host.FS["/srv/home"] = gather.FS{Err: "input/output error"} },
			append([]string{"fault: /srv/home on nfs1 gives an error: input/output error (XFS shuts down after an I/O error; see the kernel log)"}, both...)},
		{"daemons", func(f Facts) {
			h := f.Hosts["nfs1"].Host
			h.Processes["nfsdcld"], h.Processes["rpc.mountd"] = 0, 0
			h.Files["/proc/fs/nfsd/threads"] = "8\n"
			h.Files["/proc/fs/nfsd/versions"] = "+3 +4 -4.0 -4.1 +4.2\n"
		}, append([]string{
			"warning: 8 nfsd threads run on nfs1, not 256",
			"fault: nfs1 does not serve NFSv4.1",
			"fault: nfsdcld does not run on nfs1: clients could not reclaim NFSv4 locks after a failover",
			"fault: rpc.mountd does not run on nfs1: no client can mount by NFSv3, and new exports are not resolved"}, both...)},
		{"async export", func(f Facts) {
			h := f.Hosts["nfs1"].Host
			h.Files["/var/lib/nfs/etab"] = strings.ReplaceAll(h.Files["/var/lib/nfs/etab"], ",sync,", ",async,")
		}, append([]string{"fault: /srv/home/data is exported async on nfs1: acknowledged writes are lost if it fails"}, both...)},
		{"exports with other options, and one that is not wanted", func(f Facts) {
			h := f.Hosts["nfs1"].Host
			h.Files["/var/lib/nfs/etab"] = strings.ReplaceAll(h.Files["/var/lib/nfs/etab"], "secure,", "insecure,") + "/srv/home/old\t*(rw,fsid=9)\n"
		}, append([]string{"warning: /srv/home/data is exported to 10.77.1.0/24 with insecure instead of secure on nfs1",
			"warning: /srv/home/old is exported to * on nfs1, which the spec does not say"}, both...)},
		{"export gone", func(f Facts) { f.Hosts["nfs1"].Host.Files["/var/lib/nfs/etab"] = "" },
			append([]string{"fault: /srv/home/data is not exported to 10.77.1.0/24 on nfs1"}, both...)},
		{"client hangs, soft, unmounted", func(f Facts) {
			h := f.Hosts["c1"].Host
			h.FS["/mnt/home"] = gather.FS{TimedOut: true, Millis: 10000}
			h.Files["/proc/self/mounts"] = strings.Replace(h.Files["/proc/self/mounts"], "/mnt/home-v3", "/mnt/elsewhere", 1)
		}, append(slices.Clone(both), "fault: /mnt/home on c1 hangs: the server did not answer within 10.0 s", "fault: /mnt/home-v3 is not mounted on c1")},
		{"client soft and other version", func(f Facts) {
			h := f.Hosts["c1"].Host
			h.Files["/proc/self/mounts"] = strings.ReplaceAll(strings.Replace(h.Files["/proc/self/mounts"], "vers=4.1", "vers=4.2", 1), ",hard,", ",soft,")
		}, append(slices.Clone(both),
			"fault: /mnt/home on c1 is mounted soft: a failover longer than its timeout gives programs I/O errors, and data may be lost",
			"warning: /mnt/home on c1 uses NFSv4.2, not v4.1",
			"fault: /mnt/home-v3 on c1 is mounted soft: a failover longer than its timeout gives programs I/O errors, and data may be lost")},

		// Recorded from a real cluster.
		{"moved, constraint left", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "moved-uncleared")
			cib(t, f, "moved-uncleared.cib")
		}, append([]string{
			"warning: service home on nfs2 since 20:51, its preferred server is nfs1",
			"warning: a left-over constraint of a move (cli-prefer-home) ties home: score INFINITY for nfs2"}, both...)},
		{"moved", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "moved")
		}, append([]string{"warning: service home on nfs2 since 20:51, its preferred server is nfs1"}, both...)},
		{"standby", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "standby")
		}, []string{
			"warning: nfs1 is in standby: it takes over nothing",
			"warning: service home on nfs2 since 20:51, its preferred server is nfs1",
			neverProven1,
			"warning: fence device fence-nfs2-bmc has no server to run on: the other one is away",
			neverProven2}},
		{"ring 0 down", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "ring0-down")
		}, append([]string{
			"fault: ring 0 (private): nfs1 and nfs2 do not reach each other",
			"warning: service home on nfs2 since 20:51, its preferred server is nfs1"}, both...)},
		{"the agent was missing on the partner", func(f Facts) {
			for _, h := range f.Hosts {
				if h.Host == nil || h.Host.Run == nil {
					continue
				}
				r := h.Host.Run[gather.CmdCRM]
				r.Stdout = strings.Replace(r.Stdout, "</node_history>",
					`<node name="nfs2"><resource_history id="home"><operation_history call="996" task="probe" rc="5" rc_text="Not installed"/></resource_history></node></node_history>`, 1)
				h.Host.Run[gather.CmdCRM] = r
			}
		}, append([]string{"fault: home cannot run on nfs2: its agent was not there when the cluster looked, and it does not look again by itself"}, both...)},
		{"pacemaker starts on the partner", func(f Facts) {
			r := f.Hosts["nfs2"].Host.Run[gather.CmdCRM]
			r.Stdout = strings.Replace(r.Stdout, `pacemakerd-state="running"`, `pacemakerd-state="starting_daemons"`, 1)
			f.Hosts["nfs2"].Host.Run[gather.CmdCRM] = r
		}, append([]string{"fault: the cluster does not run on nfs2: pacemaker is starting"}, both...)},
		{"the partner's cluster is slow", func(f Facts) {
			f.Hosts["nfs2"].Host.Run[gather.CmdCRM] = gather.RunResult{Err: "context deadline exceeded", Cause: resource.TimedOut}
		}, append([]string{"fault: the cluster on nfs2 did not answer in time"}, both...)},
		{"a long start", func(f Facts) {
			for _, node := range []string{"nfs1", "nfs2"} {
				r := f.Hosts[node].Host.Run[gather.CmdCRM]
				r.Stdout = serviceRole.ReplaceAllString(r.Stdout, "${1}Starting")
				f.Hosts[node].Host.Run[gather.CmdCRM] = r
			}
			f.Hosts["nfs1"].Host.Files["/run/mortar/progress-home.json"] = `{"what":"mount /srv/home","began":"2026-11-21T20:00:00Z","moved":"2026-11-21T20:00:40Z","far":"3200 KiB read, 128 KiB written"}`
		}, append([]string{"warning: service home is starting on nfs1: mount /srv/home, 40 s, 3200 KiB read, 128 KiB written"}, both...)},
		{"monitor failed and recovered", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "monitor-failed")
		}, append([]string{
			"warning: service home on nfs2 since 20:51, its preferred server is nfs1",
			"warning: monitor of home failed on nfs2 at 20:51: not running"}, both...)},
		{"start failed on the partner", func(f Facts) { cluster(t, f, "start-failed") }, []string{
			"fault: start of home failed on nfs2 at 20:59: error occurred: array brick1-r0 has 2 of 4 members; it cannot run on nfs2 until that is cleaned up",
			"warning: fencing of nfs1 worked 20:52, but each level of it was never proven",
			neverProven2}},
		// A cleanup erased the time of the service's start.
		{"BMC and PDUs of nfs1 do not answer", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "device-failed")
		}, []string{
			"warning: service home on nfs2, its preferred server is nfs1",
			"fault: fence device fence-nfs1-bmc (fence_ipmilan) does not work: its start failed on nfs2 at 20:51: error occurred",
			"fault: fence device fence-pdu-a (fence_apc_snmp) does not work: its start failed on nfs2 at 20:51: error occurred",
			"fault: fence device fence-pdu-b (fence_apc_snmp) does not work: its start failed on nfs2 at 20:51: error occurred",
			"fault: nfs1 cannot be fenced: no level of it works; a failure of nfs1 would stop its service",
			neverProven1, neverProven2}},
		{"nfs1 dead, fencing under way", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "fencing-failing")
		}, []string{
			"fault: nfs1 does not answer: no route to host",
			"unknown: nfs1 does not answer",
			"fault: nfs1 is lost and must be fenced before its service may start elsewhere",
			"fault: ring 0 (private): nfs1 and nfs2 do not reach each other",
			"fault: ring 1 (public): nfs1 and nfs2 do not reach each other",
			"warning: service home on nfs2, its preferred server is nfs1",
			"warning: nfs1 is being fenced", neverProven1, neverProven2}},
		{"nfs2 came back alone", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "cold-start-alone")
		}, coldStart},
		{"nfs2 came back alone, and nfs1 was confirmed off", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "cold-start-confirmed")
		}, coldStart},
		{"nfs2 came back, nfs1 is up without a cluster", func(f Facts) {
			h := f.Hosts["nfs1"]
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "cold-start-alone")
			h.Host.Run[gather.CmdCRM] = gather.RunResult{Output: resource.Output{Code: 102, Stderr: "crm_mon: Connection to cluster failed: Connection refused"}}
			f.Hosts["nfs1"] = h
		}, slices.Concat([]string{"fault: nfs1 is up, but not in the cluster", waits,
			"fault: the cluster does not run on nfs1: crm_mon: Connection to cluster failed: Connection refused",
			"fault: ring 0 (private): nfs1 and nfs2 do not reach each other",
			"fault: ring 1 (public): nfs1 and nfs2 do not reach each other"}, idle)},
		{"nfs1 back, the last try to fence it failed", func(f Facts) {
			for _, h := range []string{"nfs1", "nfs2"} {
				r := f.Hosts[h].Host.Run[gather.CmdCRM]
				r.Stdout = strings.Replace(r.Stdout, `<status code="0"`, `<fence_history><fence_event action="reboot" target="nfs1" client="a" origin="nfs2" status="failed" completed="2026-11-21 20:52:27.641955Z"/></fence_history><status code="0"`, 1)
				f.Hosts[h].Host.Run[gather.CmdCRM] = r
			}
		}, append([]string{"warning: fencing of nfs1 failed at 20:52"}, both...)},
		{"nfs1 fenced", func(f Facts) {
			move(d, f, "nfs1", "nfs2")
			cluster(t, f, "fenced")
		}, []string{
			"fault: nfs1 does not answer: no route to host",
			"unknown: nfs1 does not answer",
			"fault: nfs1 is out of the cluster: no partner is left to take over",
			"unknown: nfs1 is away", "unknown: nfs1 is away",
			"warning: service home on nfs2, its preferred server is nfs1",
			"warning: fencing of nfs1 worked 20:52, but each level of it was never proven",
			"warning: fence device fence-nfs2-bmc has no server to run on: the other one is away",
			neverProven2}},
		{"every level proven", func(f Facts) { prove(d, f, d.Pairs[0].HA.Fencing) }, nil},
		{"every level proven, 200 days ago", func(f Facts) { proveBefore(d, f, d.Pairs[0].HA.Fencing, 200*24*time.Hour) }, nil},
		{"every level proven long ago", func(f Facts) { proveBefore(d, f, d.Pairs[0].HA.Fencing, 201*24*time.Hour) }, []string{
			"warning: level 1 of fencing nfs1 (fence-nfs1-bmc) was proven 2026-05-04 21:00, more than 200 days ago (ha.fence_test_days)",
			"warning: level 2 of fencing nfs1 (fence-pdu-a + fence-pdu-b) was proven 2026-05-04 21:00, more than 200 days ago (ha.fence_test_days)",
			"warning: level 1 of fencing nfs2 (fence-nfs2-bmc) was proven 2026-05-04 21:00, more than 200 days ago (ha.fence_test_days)",
			"warning: level 2 of fencing nfs2 (fence-pdu-a + fence-pdu-b) was proven 2026-05-04 21:00, more than 200 days ago (ha.fence_test_days)"}},
		{"one level proven", func(f Facts) { prove(d, f, d.Pairs[0].HA.Fencing[:1]) }, []string{
			"warning: level 2 of fencing nfs1 (fence-pdu-a + fence-pdu-b) was never proven", neverProven2}},
		{"proven with another BMC", func(f Facts) {
			old := slices.Clone(d.Pairs[0].HA.Fencing)
			old[0].Devices = slices.Clone(old[0].Devices)
			old[0].Devices[0].Params = map[string]string{"ip": "10.77.3.99"}
			prove(d, f, old)
		}, []string{"warning: level 1 of fencing nfs1 (fence-nfs1-bmc) was proven 20:46 with another configuration"}},
		{"a fence test cut off", func(f Facts) {
			prove(d, f, d.Pairs[0].HA.Fencing)
			c := f.Hosts["nfs1"].Host.CIB
			c.Nodes[1].Attrs = append(c.Nodes[1].Attrs, linux.CIBPair{Name: AttrTesting, Value: TestingPlain})
		}, []string{"fault: a fence test of nfs2 is under way, or was cut off"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy(t, d)
			tt.change(f)
			s := Judge(d, f)
			got := complaints(s)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
			var worst Level
			for _, c := range tt.want {
				var l Level
				name, _, _ := strings.Cut(c, ":")
				if err := l.UnmarshalText([]byte(name)); err != nil {
					t.Fatal(err)
				}
				worst = max(worst, l)
			}
			if s.Level != worst {
				t.Errorf("level %v, want %v", s.Level, worst)
			}
		})
	}
}

// One server, no cluster.
func TestJudgeOneServer(t *testing.T) {
	d := designOf(t, "nfs")
	f := healthy(t, d)
	s := Judge(d, f)
	if got := complaints(s); s.Level != OK || len(got) > 0 {
		t.Errorf("level %v: %q", s.Level, got)
	}
	if len(s.Services) != 1 || s.Services[0].Server != "nfs1" {
		t.Errorf("services %+v", s.Services)
	}
	f.Hosts["nfs1"].Host.Files["/proc/fs/nfsd/threads"] = "0\n"
	if got := complaints(Judge(d, f)); len(got) != 1 || got[0] != "fault: no nfsd runs on nfs1" {
		t.Errorf("without nfsd: %q", got)
	}
	f.Hosts["nfs1"] = Answer{Err: "i/o timeout"}
	if s = Judge(d, f); s.Level != Fault || s.Faults != 1 {
		t.Errorf("without its server: %q", complaints(s))
	}
	if got := NotReady(d, f, d.Services()[0].Name, "nfs1"); len(got) != 1 || got[0].Code != "one-server" {
		t.Errorf("%q", got)
	}
}

// Judge compares an interface's MTU with that of its network, if the spec has one.
func TestMTU(t *testing.T) {
	d := designOf(t, "nfs-ha", "cidr: 10.77.1.0/24", "cidr: 10.77.1.0/24\n    mtu: 9000")
	f := healthy(t, d)
	f.Hosts["nfs1"].Host.NetLinks = []gather.Link{{Name: "eth0", MTU: 9000, Addresses: []string{"10.77.1.11/24", "10.77.1.100/24"}}, {Name: "eth1", MTU: 1500, Addresses: []string{"10.77.2.11/24"}}}
	f.Hosts["c1"].Host.NetLinks = []gather.Link{{Name: "eth0", MTU: 1500, Addresses: []string{"10.77.1.51/24"}}}
	want := []string{"warning: eth0 of c1 (10.77.1.51, network public) has MTU 1500, not 9000", neverProven1, neverProven2}
	if got := complaints(Judge(d, f)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := complaints(Judge(theDesign(t), f)); !slices.Equal(got, want[1:]) {
		t.Errorf("of a spec that gives no MTU: %q", got)
	}
}

// Judge reports a server's link that is slower than the spec says or damages frames. A
// client's link may be slower.
func TestLinkSpeed(t *testing.T) {
	d := designOf(t, "nfs-ha", "speed: 1Gb/s", "speed: 25Gb/s")
	f := healthy(t, d)
	f.Hosts["nfs1"].Host.NetLinks = []gather.Link{{Name: "eth0", MTU: 1500, Addresses: []string{"10.77.1.11/24"}, Mbits: 10000}}
	f.Hosts["nfs2"].Host.NetLinks = []gather.Link{{Name: "eth0", MTU: 1500, Addresses: []string{"10.77.1.12/24"}, Mbits: 25000, Errors: 4711}}
	f.Hosts["c1"].Host.NetLinks = []gather.Link{{Name: "eth0", MTU: 1500, Addresses: []string{"10.77.1.51/24"}, Mbits: 1000}}
	want := []string{"warning: eth0 of nfs1 (10.77.1.11, network public) has 10000 Mbit/s, not 25000",
		"warning: eth0 of nfs2 has damaged or lost 4711 frames on the wire since the host has started", neverProven1, neverProven2}
	if got := complaints(Judge(d, f)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// For a brick with RDMA, a server without the listener is a fault, and a mount over
// TCP is a finding.
func TestOverRDMA(t *testing.T) {
	d := designOf(t, "nfs-ha", "\nnfs:\n", "\nnfs:\n  transport: rdma\n")
	f := healthy(t, d)
	want := []string{"fault: nfs1 does not serve RDMA", neverProven1, neverProven2}
	for _, m := range d.Mounts {
		want = append(want, "warning: "+m.Path+" on c1 goes over TCP, which the spec does not say")
	}
	if got := complaints(Judge(d, f)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	f.Hosts["nfs1"].Host.Files["/proc/fs/nfsd/portlist"] = "rdma 20049\nrdma 20049\ntcp 2049\n"
	c := f.Hosts["c1"].Host
	c.Files["/proc/self/mounts"] = strings.ReplaceAll(c.Files["/proc/self/mounts"], "proto=tcp", "proto=rdma,port=20049")
	if got := complaints(Judge(d, f)); !slices.Equal(got, []string{neverProven1, neverProven2}) {
		t.Errorf("%q", got)
	}
}

// Judge also works if no host answers.
func TestJudgeNobody(t *testing.T) {
	d := theDesign(t)
	s := Judge(d, Facts{Time: noon})
	if s.Level == OK {
		t.Error("ok without any fact")
	}
	f := Facts{Time: noon, Hosts: map[string]Answer{}}
	for _, n := range []string{"nfs1", "nfs2", "c1"} {
		f.Hosts[n] = Answer{Err: "connection refused"}
	}
	s = Judge(d, f)
	if s.Level != Fault || s.Faults != 2 {
		t.Errorf("level %v with %d faults, want fault with 2: %v", s.Level, s.Faults, complaints(s))
	}
	// Empty answers of all agents must not give OK.
	for n := range f.Hosts {
		f.Hosts[n] = Answer{Host: &gather.Host{}}
	}
	if s = Judge(d, f); s.Level != Fault {
		t.Errorf("level %v of empty answers", s.Level)
	}
}

func TestRender(t *testing.T) {
	d := theDesign(t)
	for _, name := range []string{"healthy", "device-failed"} {
		f := healthy(t, d)
		if name != "healthy" {
			move(d, f, "nfs1", "nfs2")
		}
		cluster(t, f, name)
		h := f.Hosts["nfs1"].Host
		if name == "healthy" {
			h.Files["/proc/mdstat"] = strings.Replace(h.Files["/proc/mdstat"], "      bitmap", "      [======>..............]  resync = 34.2% (668000/1950976) finish=12.5min speed=1712K/sec\n      bitmap", 1)
		}
		s := Judge(d, f)
		s.SpecSHA256 = "0" // the example may change
		for _, look := range []struct {
			suffix string
			look   Look
		}{{"txt", Look{Width: 100}}, {"all.txt", Look{All: true}}, {"color.txt", Look{Paint: func(code, s string) string { return "\x1b[" + code + "m" + s + "\x1b[0m" }, Width: 60}}} {
			var b strings.Builder
			if err := Render(&b, s, look.look); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"."+look.suffix, b.String())
		}
		b, err := s.JSON(true)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", string(b)+"\n")
		var back Status
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, &back); diff != "" {
			t.Errorf("JSON does not give back what went in:\n%s", diff)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; rewrite with -update):\n%s", name, diff)
	}
}

func TestNotReady(t *testing.T) {
	d := theDesign(t)
	tests := []struct {
		name   string
		target string
		change func(f Facts)
		want   []Code
	}{
		{"healthy", "nfs2", func(Facts) {}, nil},
		{"stranger", "nfs7", func(Facts) {}, []Code{"host-unknown"}},
		{"silent", "nfs2", func(f Facts) { f.Hosts["nfs2"] = Answer{Err: "i/o timeout"} }, []Code{HostSilent}},
		{"no cluster", "nfs2", func(f Facts) {
			f.Hosts["nfs2"].Host.Run[gather.CmdCRM] = gather.RunResult{Output: resource.Output{Code: 102, Stdout: notConnected}}
		}, []Code{"cluster-stopped"}},
		{"blind", "nfs2", func(f Facts) {
			h := f.Hosts["nfs2"].Host
			h.Disks = slices.DeleteFunc(h.Disks, func(x resource.DiskFact) bool { return x.Serial == "MA01" })
		}, []Code{"disks-out-of-reach"}},
		{"standby", "nfs1", func(f Facts) { cluster(t, f, "standby") }, []Code{InStandby}},
		{"failed before", "nfs2", func(f Facts) { cluster(t, f, "start-failed") }, []Code{"start-failed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy(t, d)
			tt.change(f)
			var got []Code
			for _, o := range NotReady(d, f, "home", tt.target) {
				got = append(got, o.Code)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Recorded from crm_mon of Pacemaker 3.0 while Pacemaker did not run.
const notConnected = `<pacemaker-result api-version="2.38" request="crm_mon --output-as=xml -1">
  <status code="102" message="Not connected">
    <errors>
      <error>crm_mon: Connection to cluster failed: Connection refused</error>
    </errors>
  </status>
</pacemaker-result>
`

// Facts of a whole brick, recorded with `mortar status --save-facts` on a
// virtual rack (Debian 13) after apply and after real faults.
func TestRecordedBrick(t *testing.T) {
	d := theDesign(t)
	files, err := filepath.Glob("testdata/rack/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var f Facts
			if err := json.Unmarshal(b, &f); err != nil {
				t.Fatal(err)
			}
			for _, a := range f.Hosts {
				if a.Host != nil { // recorded before status asked for it
					a.Host.Files["/sys/class/watchdog/watchdog0/state"] = "active\n"
				}
			}
			var out strings.Builder
			if err := Render(&out, Judge(d, f), Look{All: true}); err != nil {
				t.Fatal(err)
			}
			golden(t, "rack-"+name+".txt", out.String())
		})
	}
}

func TestProof(t *testing.T) {
	at := time.Date(2026, 11, 22, 0, 12, 33, 0, time.UTC)
	p := Proof{At: at, Seconds: 1.94, Fingerprint: "0123456789ab"}
	q, err := ParseProof(p.String())
	if want := (Proof{At: at, Seconds: 1.9, Fingerprint: "0123456789ab"}); err != nil || q != want {
		t.Errorf("%v %v", q, err)
	}
	for _, bad := range []string{"", "yes", "2026-11-22T00:12:33Z 1.9s", "today 1.9s ab", "2026-11-22T00:12:33Z fast ab"} {
		if _, err := ParseProof(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestUnwatched(t *testing.T) {
	x, err := linux.ParseCRM(`<pacemaker-result api-version="2.38" request="crm_mon"><resources>
<clone id="mortar-watch-clone" multi_state="false"><resource id="mortar-watch" resource_agent="ocf:mortar:watch" role="Started" active="true"><node name="nfs2" id="2"/></resource>
<resource id="mortar-watch" resource_agent="ocf:mortar:watch" role="Stopped" active="false"/></clone></resources></pacemaker-result>`)
	if err != nil {
		t.Fatal(err)
	}
	v := ha{&view{crm: x}}
	if !v.unwatched("nfs1") || v.unwatched("nfs2") {
		t.Error(v.unwatched("nfs1"), v.unwatched("nfs2"))
	}
	v.crm = &linux.CRM{} // an older brick, or one of profile stock
	if v.unwatched("nfs1") {
		t.Error("a brick without watchers is unwatched")
	}
}

// A server of a pair without a watchdog that runs is reported; a single server has none.
// An export to a host name that did not resolve is missing, and nothing of Mortar's mends
// that before the name resolves.
func TestUnresolvedName(t *testing.T) {
	d := designOf(t, "nfs-ha", "clients: 10.77.1.0/24", "clients: build7.example.org")
	f := healthy(t, d)
	f.Hosts["nfs1"].Host.Files["/var/lib/nfs/etab"] = ""
	var out strings.Builder
	if err := Render(&out, Judge(d, f), Look{All: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/srv/home/data is not exported to build7.example.org on nfs1, where that name did not resolve", "getent hosts build7.example.org"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestUnguarded(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	if v := (ha{newView(d, &d.Pairs[0], f)}); !v.guarded("nfs1") || !v.guarded("nobody") {
		t.Error("a watchdog that runs is not seen")
	}
	const state = "/sys/class/watchdog/watchdog0/state"
	f.Hosts["nfs1"].Host.Files[state] = "inactive\n"
	delete(f.Hosts["nfs2"].Host.Files, state)
	for _, n := range d.Pairs[0].HA.Nodes {
		said := false
		Judge(d, f).Each(func(p *Part) { said = said || p.Has("watchdog-missing", "host", n.Name) })
		if !said {
			t.Errorf("status has no word of the watchdog of %s", n.Name)
		}
		if p := (ha{newView(d, &d.Pairs[0], f)}).member(n.Name); p.Level != OK { // it can take over all the same
			t.Errorf("%+v", p)
		}
	}
}
