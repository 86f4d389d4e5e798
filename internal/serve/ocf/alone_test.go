package ocf

import (
	"slices"
	"strings"
	"testing"
)

// This server is alone with the devices in use if each of them has its reservation and no key
// besides, over all paths.
func TestAlone(t *testing.T) {
	register := func(l *fakeLUN) { l.keys["nfs2 x"] = fakeKey("nfs2") }
	for name, c := range map[string]struct {
		on   int
		then func(*shared, *fakeHost, *Config)
		want bool
	}{
		"disks":                          {onResDisks, func(*shared, *fakeHost, *Config) {}, true},
		"without reservations":           {onDisks, func(*shared, *fakeHost, *Config) {}, false},
		"the partner holds a disk":       {onResDisks, func(sh *shared, _ *fakeHost, _ *Config) { sh.disk(5).take("nfs2") }, false},
		"the partner registered a disk":  {onResDisks, func(sh *shared, _ *fakeHost, _ *Config) { register(sh.disk(5)) }, false},
		"a stranger registered a disk":   {onResDisks, func(sh *shared, _ *fakeHost, _ *Config) { sh.disk(5).keys["x x"] = 0xbad }, false},
		"a disk forgot":                  {onResDisks, func(sh *shared, _ *fakeHost, _ *Config) { *sh.disk(5) = fakeLUN{} }, false},
		"a disk is registered, not held": {onResDisks, func(sh *shared, _ *fakeHost, _ *Config) { sh.disk(5).holder = "" }, false},
		"a disk knows none":              {onResDisks, func(sh *shared, _ *fakeHost, _ *Config) { sh.disks["/dev/mapper/d5"].unable = true }, false},
		"a disk hangs":                   {onResDisks, func(_ *shared, h *fakeHost, _ *Config) { h.hung = map[string]bool{"/dev/mapper/d5": true} }, false},
		"a disk hangs that md has thrown out": {onResDisks, func(_ *shared, h *fakeHost, _ *Config) {
			h.hung, h.degr = map[string]bool{"/dev/mapper/d5": true}, 1
		}, true},
		"a disk has no path":        {onResDisks, func(_ *shared, h *fakeHost, _ *Config) { delete(h.files, "/sys/block/d5/device/state") }, false},
		"a disk of no config":       {onResDisks, func(_ *shared, _ *fakeHost, c *Config) { c.Arrays[0].Members = c.Arrays[0].Members[:5] }, false},
		"LUNs":                      {onReserved, func(*shared, *fakeHost, *Config) {}, true},
		"a bare LUN":                {onBareLUNs, func(*shared, *fakeHost, *Config) {}, true},
		"LUNs without reservations": {onLUNs, func(*shared, *fakeHost, *Config) {}, false},
		"the partner holds a LUN":   {onReserved, func(sh *shared, _ *fakeHost, _ *Config) { sh.luns[1].take("nfs2") }, false},
		"the partner registered":    {onReserved, func(sh *shared, _ *fakeHost, _ *Config) { register(sh.luns[1]) }, false},
		"a path is not registered":  {onReserved, func(sh *shared, _ *fakeHost, _ *Config) { delete(sh.luns[1].keys, "nfs1 /dev/sd13") }, false},
		"a LUN without a path":      {onReserved, func(sh *shared, _ *fakeHost, _ *Config) { sh.luns[1].paths = 0 }, false},
		"a LUN is gone":             {onReserved, func(sh *shared, _ *fakeHost, _ *Config) { sh.luns[1].gone = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			sh, h, s, _ := reserved(t, storageSpecimens[c.on])
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.then(sh, h, s.cfg)
			if got := s.Alone(t.Context()); got != c.want {
				t.Errorf("alone: %v", got)
			}
		})
	}
}

// After a crash of the partner a target starts without the wait for MMP if this server is alone
// with its devices, and with it otherwise. What e2fsck has marked stays.
func TestTargetsOfACrashedServer(t *testing.T) {
	for name, c := range map[string]struct {
		on      int
		then    func(*shared, *fakeHost)
		watched bool
	}{
		"reserved disks":            {onResDisks, func(*shared, *fakeHost) {}, false},
		"reserved LUNs":             {onReserved, func(*shared, *fakeHost) {}, false},
		"bare LUNs":                 {onBareLUNs, func(*shared, *fakeHost) {}, false},
		"disks without":             {onDisks, func(*shared, *fakeHost) {}, true},
		"LUNs without":              {onLUNs, func(*shared, *fakeHost) {}, true},
		"one disk knows none":       {onResDisks, func(sh *shared, _ *fakeHost) { sh.disks["/dev/mapper/d2"].unable = true }, true},
		"another program has it":    {onResDisks, func(_ *shared, h *fakeHost) { h.claimed = true }, true},
		"e2fsck works on it":        {onResDisks, func(sh *shared, _ *fakeHost) { sh.mmp["dm-7"], sh.mmp["dm-8"] = mmpChecking, mmpChecking }, true},
		"the server had stopped it": {onResDisks, func(sh *shared, _ *fakeHost) { clear(sh.mmp) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			sh, cfg := brick(t, storageSpecimens[c.on], serviceSpecimens[2])
			dead, h := sh.hosts["nfs1"], sh.hosts["nfs2"]
			if err := dead.service(cfg).start(t.Context()); err != nil {
				t.Fatal(err)
			}
			dead.crash()
			c.then(sh, h)
			if err := h.service(cfg).start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if (len(h.watched) == 2) != c.watched || (len(h.watched) == 0) == c.watched {
				t.Errorf("watched: %q", h.watched)
			}
			wrote := slices.ContainsFunc(h.changes, func(x string) bool { return strings.HasPrefix(x, "write ") })
			if may := !c.watched && name != "the server had stopped it"; wrote != may {
				t.Errorf("%q", h.changes)
			}
		})
	}
}
