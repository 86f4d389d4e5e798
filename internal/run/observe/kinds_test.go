package observe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
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

// texts are what is wrong in a part, by level.
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
	sees := func(lose func(host string, l design.LUN, path int) bool) Facts {
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for _, s := range d.Servers() {
			h := &Host{Hostname: s, Files: map[string]string{}}
			for n, l := range d.LUNs() {
				x := DiskState{DiskFact: resource.DiskFact{WWN: l.WWN, Size: int64(l.Size)}, PathState: map[string]PathState{}}
				for p := range d.PathsTo(&d.Arrays[0], s) {
					dev := fmt.Sprintf("sd%c%c", 'a'+n, 'a'+p)
					state := "running"
					if lose(s, l, p) {
						state = "transport-offline"
					}
					x.Paths = append(x.Paths, dev)
					x.PathState[dev] = PathState{State: state}
				}
				if !lose(s, l, -1) {
					h.Disks = append(h.Disks, x)
				}
			}
			f.Hosts[s] = Answer{Host: h}
		}
		return f
	}
	first := d.LUNs()[0].Name
	for name, c := range map[string]struct {
		lose func(host string, l design.LUN, path int) bool
		want string
	}{
		"all":        {func(string, design.LUN, int) bool { return false }, ""},
		"one path":   {func(h string, l design.LUN, p int) bool { return h == "nss2" && l.Name == first && p == 0 }, "by 3 of 4 paths"},
		"every path": {func(h string, l design.LUN, p int) bool { return h == "nss2" && l.Name == first && p >= 0 }, "all paths from nss2 to LUN " + first + " have failed"},
		"not mapped": {func(h string, l design.LUN, p int) bool { return h == "nss1" && l.Name == first && p < 0 }, "nss1 does not see LUN " + first},
	} {
		parts := newView(d, &d.Pairs[0], sees(c.lose)).storage().parts()
		got := texts(parts[0])
		if len(parts) != 1 || c.want == "" && got != "" || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
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
		"unknown": {on: on{"oss02": {"small-OST0001"}}, dead: "oss01", want: []string{"unknown: mounted on no server that answers; oss01 may have it"}},
		"sick":    {on: on{"oss01": {"small-OST0000"}, "oss02": {"small-OST0001"}}, health: "device small-OST0001 reported unhealthy\nNOT HEALTHY", want: []string{"fault: Lustre on oss01 is not healthy: device small-OST0001 reported unhealthy NOT HEALTHY", "fault: Lustre on oss02 is not healthy: device small-OST0001 reported unhealthy NOT HEALTHY"}},
	} {
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for _, s := range oss.Servers {
			h := &Host{Hostname: s, Files: map[string]string{lustreHealth: c.health}}
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
