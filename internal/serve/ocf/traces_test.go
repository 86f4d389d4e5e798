package ocf

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// A server that a person says is off is looked for on its disks and by ARP, from its partner.
func TestTrace(t *testing.T) {
	ring := netip.MustParsePrefix("10.1.0.1/24")
	for name, c := range map[string]struct {
		on      int
		alive   bool
		while   func(*shared)
		life    []string // parts of what is found
		unknown string
	}{
		"off":                       {0, false, nil, nil, ""},
		"it answers":                {0, true, nil, []string{"it answers ARP from nfs2 at 10.0.0.1 (02:00:00:00:00:99)", "it answers ARP from nfs2 at 10.1.0.1"}, ""},
		"it writes":                 {0, false, func(sh *shared) { sh.disks["/dev/mapper/d3"].events += 2 }, []string{"something writes to the disks of service home, and nfs2 does not: /dev/mapper/d3 of array r0 changed within 6 s"}, ""},
		"it begins to write":        {0, false, func(sh *shared) { sh.disks["/dev/mapper/d3"].dirty = true }, []string{"/dev/mapper/d3 of array r0 changed"}, ""},
		"a disk goes meanwhile":     {0, false, func(sh *shared) { sh.disks["/dev/mapper/d3"].gone = true }, nil, "1 of the 6 shared disks"},
		"LUNs at rest":              {onReserved, false, nil, nil, ""},
		"LUNs without reservations": {2, false, nil, nil, "nothing on the disks of service home tells"},
		"it registers":              {onReserved, false, func(sh *shared) { sh.luns[1].take("nfs1") }, []string{"LUN array-l1 changed"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sh, cfg := brick(t, storageSpecimens[c.on], serviceSpecimens[0])
			cfg.Rings = map[string][]string{"nfs1": {"10.1.0.1", "10.0.0.1"}, "nfs2": {"10.1.0.2", "10.0.0.2"}}
			sh.hosts["nfs1"].dead = !c.alive
			sh.hosts["nfs1"].addrs[ring] = "eth1"
			h := sh.hosts["nfs2"]
			h.addrs[netip.MustParsePrefix("10.1.0.2/24")] = "eth1"
			h.slept = func() {
				if c.while != nil {
					c.while(sh)
				}
			}
			got, err := trace(t.Context(), []*service{h.service(cfg)}, "nfs1")
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Life) != len(c.life) {
				t.Fatalf("%+v", got)
			}
			for i, want := range c.life {
				if !strings.Contains(got.Life[i], want) {
					t.Errorf("%q lacks %q", got.Life[i], want)
				}
			}
			if all := strings.Join(got.Unknown, "; "); !strings.Contains(all, c.unknown) || all != "" && c.unknown == "" {
				t.Errorf("unknown: %q", all)
			}
			if c.life == nil && !strings.HasPrefix(c.unknown, "nothing") && (!slices.Contains(got.Off, "nfs1 does not answer ARP from nfs2 at 10.0.0.1, 10.1.0.1") || !slices.Contains(got.Off, "the disks of service home have not changed for 6 s")) {
				t.Errorf("off: %q", got.Off)
			}
			if len(h.changes) > 0 {
				t.Errorf("a look changes something: %q", h.changes)
			}
		})
	}
	// What this server has itself changes by itself.
	sh, cfg := brick(t, storageSpecimens[0], serviceSpecimens[0])
	h := sh.hosts["nfs2"]
	s := h.service(cfg)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh.hosts["nfs1"].dead = true
	h.slept = func() { sh.disks["/dev/mapper/d3"].events++ }
	got, err := trace(t.Context(), []*service{s}, "nfs1")
	if err != nil || len(got.Life) > 0 || !strings.Contains(strings.Join(got.Unknown, ""), "has the disks of service home itself") {
		t.Errorf("%+v, %v", got, err)
	}
}
