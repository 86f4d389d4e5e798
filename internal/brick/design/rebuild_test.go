package design

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// A rebuild of 24 TB: the kernel's own limits, and Mortar's.
func TestRebuildHours(t *testing.T) {
	g := &Group{Level: 6, Members: []Disk{{Size: 24 * spec.TB, Type: "nl-sas"}}}
	for _, c := range []struct {
		name       string
		settings   []Setting
		rest, load float64
	}{
		{"the kernel's", nil, 33.3, 6510},
		{"Mortar's", []Setting{{Kind: "sysctl", Name: "dev.raid.speed_limit_min", Value: "48828"}, {Kind: "sysctl", Name: "dev.raid.speed_limit_max", Value: "300000"}}, 33.3, 133.3},
	} {
		rest, load := RebuildHours(&Design{Settings: c.settings}, g)
		if math.Abs(rest-c.rest) > 0.1 || math.Abs(load-c.load) > 1 {
			t.Errorf("%s: %.1f h at rest and %.1f h under load, want %.1f and %.1f", c.name, rest, load, c.rest, c.load)
		}
	}
	if rest, load := RebuildHours(&Design{}, &Group{Array: "a", Members: g.Members}); rest != 0 || load != 0 {
		t.Errorf("a group inside an array takes %g and %g h: the array decides", rest, load)
	}
}

// Scrubs of 20 groups of 24 TB, one after the other, would take 110 days under load.
func TestScrubsAtOnce(t *testing.T) {
	d := &Design{Settings: []Setting{{Kind: "sysctl", Name: "dev.raid.speed_limit_min", Value: "48828"}}}
	group := func(size spec.Bytes) Group {
		return Group{Level: 6, Members: []Disk{{Size: size, Type: "nl-sas"}}}
	}
	for _, c := range []struct {
		groups, want int
		size         spec.Bytes
	}{{0, 1, 0}, {1, 1, 24 * spec.TB}, {8, 4, 24 * spec.TB}, {20, 8, 24 * spec.TB}, {20, 1, 2 * spec.GB}} {
		var all []Group
		for range c.groups {
			all = append(all, group(c.size))
		}
		if got := ScrubsAtOnce(d, all); got != c.want {
			t.Errorf("%d groups of %s: %d at once, want %d", c.groups, c.size, got, c.want)
		}
	}
}

// Values that grow with the brick have a bound.
func TestBounds(t *testing.T) {
	d := &Design{Spec: &spec.Spec{}}
	r := spec.RAID{Level: 6, Data: 10, Parity: 2, Chunk: 512 * spec.KiB}
	for groups, want := range map[int]int{0: 10240, 1: 10240, 3: 30720, 20: 32768} {
		if got := (tuning{Design: d, RAID: r}).ReadAhead(groups); got != want {
			t.Errorf("read-ahead over %d groups is %d KiB, want %d", groups, got, want)
		}
	}
	big := &Target{Kind: "mdt", Size: 24 * spec.TB}
	d.Groups, d.Lustre = []Group{{Name: "m", Level: 10, Data: 4, Chunk: 64 * spec.KiB}}, &Lustre{}
	big.Group = "m"
	builder{d}.target(big)
	if big.Inodes != math.MaxUint32 || big.Usable <= 0 {
		t.Errorf("an MDT of 24 TB has %d inodes and %s", big.Inodes, big.Usable)
	}
	if text := hoursText(6510); !strings.HasSuffix(text, " days") {
		t.Error(text)
	}
}

// A brick of NVMe disks has no values of SCSI, and a higher ceiling for md.
func TestNVMeSettings(t *testing.T) {
	d := example(t, "nvme-ha")
	for _, s := range d.Settings {
		if s.Kind == "multipath" || s.Name == "nr_requests" {
			t.Errorf("%s %s = %s is shown", s.Kind, s.Name, s.Value)
		}
	}
	if got := d.Value("sysctl", "dev.raid.speed_limit_max"); got != "4000000" {
		t.Errorf("the ceiling of a rebuild is %s KiB/s", got)
	}
	// SCSI reserves no NVMe disk, and check says so.
	warned := slices.ContainsFunc(d.Warnings, func(w Warning) bool { return w.Rule == "reservations" })
	if keys := d.Pairs[0].HA.Reservations; keys != nil || !warned {
		t.Errorf("keys %v, warnings %+v", keys, d.Warnings)
	}
}
