package design

import (
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Times follow from the size: of the smallest brick they are what they were, and of one with
// 240 disks of 24 TB and 8 TB of cache those of docs/limits.md.
func TestTimesOfSizes(t *testing.T) {
	small := example(t, "nfs-ha")
	for name, want := range map[string]string{"start-timeout": "180s", "stop-timeout": "180s", "start-limit": "21600s"} {
		if got := small.Value("pacemaker", name); got != want {
			t.Errorf("nfs-ha: %s is %s, want %s", name, got, want)
		}
	}
	if got := MoveTime(small); got != 7*time.Minute {
		t.Errorf("a move of the small brick is waited for %v", got)
	}
	if n := allocationGroups(1528 * spec.TiB); n != 1528 {
		t.Errorf("an XFS of 1,528 TiB has %d allocation groups", n)
	}

	large := largest()
	if groups, log := xfsOf(large); groups != 4191 || log != spec.GiB {
		t.Errorf("%d allocation groups, a log of %s", groups, log)
	}
	start, stop, dirty := startSeconds(large), stopSeconds(large), dirtyBytes(large)
	if start < 700 || start > 720 {
		t.Errorf("a start may take %d s", start)
	}
	if stop < 300 || stop > 320 {
		t.Errorf("a stop may take %d s", stop)
	}
	// 240 disks, 200 accesses each second, 6 for a write of 4 KiB: 32 MB/s, half of the stop.
	if want := spec.Bytes(240*200/6*4096) * spec.Bytes(stop/2); dirty > want || dirty < want-spec.MiB {
		t.Errorf("%s of dirty data, want %s", dirty, want)
	}
	large.Spec.Storage.RAID.Level, large.Disks[0].Type = 10, "nvme"
	if got := dirtyBytes(large); got != mostDirty {
		t.Errorf("NVMe: %s of dirty data", got)
	}
	large.Spec.Servers = []spec.Server{{Memory: 20 * spec.GiB}}
	if got := dirtyBytes(large); got != 4*spec.GiB {
		t.Errorf("20 GiB of memory: %s of dirty data", got)
	}
}

// largest is a design of 24 groups of 10 disks of 24 TB.
func largest() *Design { return groups(24, 8, 24*spec.TB) }

// groups is a design of so many groups with two parities.
func groups(n, data int, size spec.Bytes) *Design {
	s := &spec.Spec{}
	s.Storage.RAID = spec.RAID{Level: 6, Data: data, Parity: 2, Chunk: 512 * spec.KiB, Groups: n}
	d := &Design{Spec: s}
	for range n {
		g := Group{Level: 6, Data: data, Parity: 2, Chunk: 512 * spec.KiB, Service: "home"}
		for range data + 2 {
			g.Members = append(g.Members, Disk{Size: size, Type: "nl-sas"})
		}
		d.Groups, d.Disks = append(d.Groups, g), append(d.Disks, g.Members...)
	}
	d.Pairs = []Pair{{Services: []Service{{Name: "home", NFS: &NFS{}}}}}
	return d
}
