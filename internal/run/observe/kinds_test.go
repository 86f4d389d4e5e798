package observe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// derived is the design of an example that cannot be built yet.
func derived(t *testing.T, name string) *design.Design {
	t.Helper()
	s, err := spec.Load("../../../examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// texts returns the findings of a part, with their levels.
func texts(p *Part) string {
	var out []string
	p.leaves(func(c *Part) {
		if c.Level != OK {
			out = append(out, fmt.Sprintf("%v: %s", c.Level, c.Text))
		}
	})
	return strings.Join(out, "\n")
}

func TestLUNs(t *testing.T) {
	d := derived(t, "nss7.4-ha")
	for i := range d.Arrays {
		for j := range d.Arrays[i].LUNs {
			d.Arrays[i].LUNs[j].WWN = fmt.Sprintf("600c0ff%09x", 16*i+j)
		}
	}
	first := d.LUNs()[0].Name
	access := func(l design.LUN, group int) string {
		if group == l.Controller+1 {
			return "active/optimized"
		}
		return "active/non-optimized"
	}
	type lose func(h *gather.Host, server string, l design.LUN, x *linux.SCSIDisk)
	sees := func(change lose) Facts {
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for _, s := range d.Servers() {
			h := &gather.Host{Hostname: s, Files: map[string]string{}, Run: map[string]gather.RunResult{}}
			for n, l := range d.LUNs() {
				x := linux.SCSIDisk{WWN: l.WWN, Size: int64(l.Size), Vendor: "DellEMC", Product: "ME4"}
				for p := range 4 {
					x.Paths = append(x.Paths, linux.SCSIPath{Name: fmt.Sprintf("sd%c%c", 'a'+n, 'a'+p), State: "running", LUN: int64(l.Number), Group: p%2 + 1, Access: access(l, p%2+1)})
				}
				if change(h, s, l, &x); x.WWN != "" {
					h.SCSI = append(h.SCSI, x)
				}
			}
			f.Hosts[s] = Answer{Host: h}
		}
		return f
	}
	for name, c := range map[string]struct {
		change lose
		want   string
	}{
		"as designed": {func(*gather.Host, string, design.LUN, *linux.SCSIDisk) {}, ""},
		"one path": {func(_ *gather.Host, s string, l design.LUN, x *linux.SCSIDisk) {
			if s == "nss2" && l.Name == first {
				x.Paths[0].State = "transport-offline"
			}
		}, "warning: nss2: LUN " + first + " has 3 of 4 paths: 1 by controller A and 2 by controller B"},
		"a path that multipath gave up": {func(h *gather.Host, s string, l design.LUN, x *linux.SCSIDisk) {
			if s == "nss2" && l.Name == first {
				h.Files["/sys/block/"+x.Paths[1].Name+"/dev"] = "8:16"
				h.Run[gather.CmdDM] = gather.RunResult{Output: resource.Output{Stdout: "x: 0 2048 multipath 2 0 0 0 1 1 A 0 1 2 8:16 F 1 0 1 \n"}}
			}
		}, "warning: nss2: LUN " + first + " has 3 of 4 paths: 2 by controller A and 1 by controller B"},
		"every path": {func(_ *gather.Host, s string, l design.LUN, x *linux.SCSIDisk) {
			for i := range x.Paths {
				if s == "nss2" && l.Name == first {
					x.Paths[i].State = "offline"
				}
			}
		}, "fault: nss2: LUN " + first + " has 4 paths, and none of them works"},
		"not mapped": {func(_ *gather.Host, s string, l design.LUN, x *linux.SCSIDisk) {
			if s == "nss1" && l.Name == first {
				x.WWN = ""
			}
		}, "fault: nss1: LUN " + first + " is not there: LUN 0 of array nss7"},
		"a controller is out": {func(_ *gather.Host, _ string, _ design.LUN, x *linux.SCSIDisk) {
			x.Paths = []linux.SCSIPath{x.Paths[1], x.Paths[3]}
		}, "warning: nss1 and nss2: each of the 8 LUNs of array nss7 has 2 of 4 paths"},
		"LUNs moved to the other controller": {func(_ *gather.Host, _ string, l design.LUN, x *linux.SCSIDisk) {
			for i := range x.Paths {
				x.Paths[i].Access = access(design.LUN{Controller: 1}, x.Paths[i].Group)
			}
		}, "warning: nss1 and nss2: each of the LUNs nss7-lun0, nss7-lun2, nss7-lun4 and nss7-lun6 belongs to controller B, and in the design to controller A"},
	} {
		parts := newView(d, &d.Pairs[0], sees(c.change)).storage().parts()
		got := texts(parts[0])
		if len(parts) != 1 || c.want == "" && got != "" || !strings.HasPrefix(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Status names the server that holds a LUN's reservation, and wrong reservations.
func TestReservations(t *testing.T) {
	d := derived(t, "nss7.4-ha")
	l := &d.Arrays[0].LUNs[0]
	l.WWN = "600c0ff000000000"
	key := map[string]pr.Key{"stranger": 0xbad}
	for n, text := range d.Pairs[0].HA.Reservations {
		k, err := pr.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		key[n] = k
	}
	const active = `<resource id="service-scratch" role="Started" managed="true"><node name="nss1"/></resource>`
	for name, c := range map[string]struct {
		crm    string
		holder string
		paths  int // registered paths of the holder
		want   string
	}{
		"held":             {active, "nss1", 4, "reserved for nss1"},
		"an old path":      {active, "nss1", 5, "reserved for nss1"},
		"a path without":   {active, "nss1", 3, "warning: nss1: LUN nss7-lun0 has 4 paths of which 3 are registered"},
		"the partner's":    {active, "nss2", 4, "fault: nss1: LUN nss7-lun0 is reserved for nss2, not for the server that serves it"},
		"nobody's":         {active, "", 0, "fault: nss1: LUN nss7-lun0 is reserved for no server"},
		"a stranger's":     {active, "stranger", 1, "fault: nss1: LUN nss7-lun0 is used by another host: reservation key 0x0000000000000bad"},
		"stopped":          {"", "", 0, "8 LUNs, each by 4 paths"},
		"stopped, crashed": {"", "nss2", 4, "reserved for nss2"},
	} {
		st := pr.State{Holder: key[c.holder], Keys: slices.Repeat([]pr.Key{key[c.holder]}, c.paths)}
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for _, s := range d.Servers() {
			x := linux.SCSIDisk{WWN: l.WWN, Size: int64(l.Size)}
			for _, p := range []string{"sda", "sdb", "sdc", "sdd"} {
				x.Paths = append(x.Paths, linux.SCSIPath{Name: p, State: "running"})
			}
			f.Hosts[s] = Answer{Host: &gather.Host{Hostname: s, SCSI: []linux.SCSIDisk{x}, Reservations: map[string]pr.State{l.WWN: st},
				Run: map[string]gather.RunResult{gather.CmdCRM: {Output: resource.Output{Stdout: "<pacemaker-result><resources>" + c.crm + "</resources></pacemaker-result>"}}}}}
		}
		array := newView(d, &d.Pairs[0], f).storage().parts()[0].Parts[0]
		if got := array.Text + "\n" + texts(array); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLustreTargets(t *testing.T) {
	d := derived(t, "lustre-small")
	oss := &d.Pairs[1]
	type on map[string][]string // server to targets
	for name, c := range map[string]struct {
		on     on
		dead   string
		health string
		want   []string
	}{
		"at home": {on: on{"oss01": {"small-OST0000"}, "oss02": {"small-OST0001"}}},
		"moved":   {on: on{"oss02": {"small-OST0000", "small-OST0001"}}, want: []string{"warning: on oss02; its home is oss01"}},
		"twice":   {on: on{"oss01": {"small-OST0000"}, "oss02": {"small-OST0000", "small-OST0001"}}, want: []string{"fault: target small-OST0000 is mounted on oss01 and oss02 at once: this destroys it"}},
		"nowhere": {on: on{"oss02": {"small-OST0001"}}, want: []string{"fault: target small-OST0000 is not mounted on any server"}},
		"unknown": {on: on{"oss02": {"small-OST0001"}}, dead: "oss01", want: []string{"unknown: target small-OST0000 is mounted on no server that answers; oss01 may have it"}},
		"sick":    {on: on{"oss01": {"small-OST0000"}, "oss02": {"small-OST0001"}}, health: "device small-OST0001 reported unhealthy\nNOT HEALTHY", want: []string{"fault: Lustre on oss01 is not healthy: device small-OST0001 reported unhealthy NOT HEALTHY", "fault: Lustre on oss02 is not healthy: device small-OST0001 reported unhealthy NOT HEALTHY"}},
	} {
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for _, s := range oss.Servers {
			h := &gather.Host{Hostname: s, Files: map[string]string{lustreHealth: c.health}}
			for _, target := range c.on[s] {
				h.Files["/proc/self/mounts"] += "/dev/mapper/x /lustre/" + target + " lustre ro,svname=" + target + " 0 0\n"
			}
			if s == c.dead {
				f.Hosts[s] = Answer{Err: "no route"}
			} else {
				f.Hosts[s] = Answer{Host: h}
			}
		}
		got := texts(newView(d, oss, f).kind().parts()[0])
		if got != strings.Join(c.want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The texts are from Lustre 2.17.57; those of a recovery under way are from lustre-release, ldlm/ldlm_lib.c.
func TestLustreRecoveryAndSpace(t *testing.T) {
	d := derived(t, "lustre-small")
	oss := &d.Pairs[1]
	room := func(target string, avail int) string {
		return fmt.Sprintf("osd-ldiskfs.%s.kbytestotal=1000\nosd-ldiskfs.%s.kbytesavail=%d\nosd-ldiskfs.%s.filestotal=100\nosd-ldiskfs.%s.filesfree=99\n", target, target, avail, target, target)
	}
	status := func(target, text string) string { return "obdfilter." + target + ".recovery_status=\n" + text + "\n" }
	const complete = "status: COMPLETE\nrecovery_start: 1795399259\nrecovery_duration: 1\ncompleted_clients: 1/1\nreplayed_requests: 0\nIR: DISABLED"
	for name, c := range map[string]struct {
		first, second string // of the two OSTs
		want          []string
	}{
		"well": {status("small-OST0000", complete) + room("small-OST0000", 900), status("small-OST0001", "status: INACTIVE") + room("small-OST0001", 890), nil},
		"recovering": {status("small-OST0000", "status: RECOVERING\nrecovery_start: 1795399259\ntime_remaining: 120\nconnected_clients: 1/3\nreq_replay_clients: 1") + room("small-OST0000", 900),
			status("small-OST0001", complete) + room("small-OST0001", 900), []string{"warning: in recovery (recovering): 1 of 3 clients are back; it waits 120 s more for the others"}},
		// Source: lustrefs-exporter, fixtures/recovery-multiple-recovering.txt: the clients that are done have no total.
		"recovering, with clients that are done": {status("small-OST0000", "status: RECOVERING\ntime_remaining: 119\nconnected_clients: 3/7\ncompleted_clients: 2") + room("small-OST0000", 900),
			status("small-OST0001", complete) + room("small-OST0001", 900), []string{"warning: in recovery (recovering): 3 of 7 clients are back; it waits 119 s more for the others"}},
		"clients of another form": {status("small-OST0000", strings.Replace(complete, "1/1", "many", 1)) + room("small-OST0000", 900), status("small-OST0001", complete) + room("small-OST0001", 900),
			[]string{`unknown: recovery of small-OST0000 is not understood: clients "many"`}},
		"inodes of another form": {status("small-OST0000", complete) + strings.Replace(room("small-OST0000", 900), "filesfree=99", "filesfree=lots", 1), status("small-OST0001", complete) + room("small-OST0001", 900),
			[]string{"unknown: 10 % of its space used; how many inodes are used is not understood"}},
		"evicted": {status("small-OST0000", strings.Replace(complete, "1/1", "1/2", 1)) + room("small-OST0000", 900), status("small-OST0001", complete) + room("small-OST0001", 900),
			[]string{"warning: 1 of 2 clients did not come back after the last start, and were evicted"}},
		"full and uneven": {status("small-OST0000", complete) + room("small-OST0000", 20), status("small-OST0001", complete) + room("small-OST0001", 900),
			[]string{"fault: small-OST0000 on oss01 is full: 98 % of its space used", "warning: small-OST0000 is 98 % full and small-OST0001 10 %: new files go to the emptier ones"}},
		"nothing known": {"", status("small-OST0001", complete) + room("small-OST0001", 900), []string{"unknown: no server that answers knows of it", "unknown: no server that answers knows of it"}},
	} {
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for i, out := range []string{c.first, c.second} {
			h := &gather.Host{Hostname: oss.Servers[i], Run: map[string]gather.RunResult{gather.CmdTargets: {Output: resource.Output{Stdout: out}}}}
			f.Hosts[oss.Servers[i]] = Answer{Host: h}
		}
		k := newView(d, oss, f).kind().(lustreKind)
		var got []string
		for _, p := range []*Part{k.recovery(), k.space()} {
			if s := texts(p); s != "" {
				got = append(got, s)
			}
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
