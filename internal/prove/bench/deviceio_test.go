package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// cachedDevices has the devices of a server with a volume, a LUN, a disk of two
// paths and two SSDs. In each sample the volume has done one more write of 4 KiB,
// each path one more read of 512 bytes, each SSD three more of both, and 4 KiB
// more are dirty.
func cachedDevices() func(server string, r gather.Request) gather.Host {
	var looks atomic.Int64
	return func(server string, r gather.Request) gather.Host {
		h := gather.Host{NowNS: time.Now().UnixNano(), Files: map[string]string{}}
		if server != "nfs2" {
			return h
		}
		if r.Disks {
			h.Disks = append(h.Disks, resource.DiskFact{Serial: "X", WWN: "5000AB", Device: "/dev/disk/by-id/x", Paths: []string{"sda"}},
				resource.DiskFact{Serial: "D7", Device: "/dev/mapper/35000cd", Paths: []string{"sdb", "sdc"}})
			for _, serial := range []string{"S1", "s2", "OTHER"} {
				h.Disks = append(h.Disks, resource.DiskFact{Serial: serial, Paths: []string{"/dev/nvme" + strings.ToLower(serial)}})
			}
			h.Files["/sys/block/dm-3/dm/name"] = "g.cached\n"
			h.Files["/sys/block/dm-2/dm/name"] = "g-da--ta\n"
			return h
		}
		n := looks.Add(1)
		for _, f := range r.Files {
			switch f {
			case "/sys/block/dm-3/stat", "/sys/block/dm-2/stat":
				h.Files[f] = fmt.Sprintf("0 0 0 0 %d 0 %d 0 0 0 0", n, 8*n)
			case "/sys/block/sda/stat", "/sys/block/sdb/stat", "/sys/block/sdc/stat":
				h.Files[f] = fmt.Sprintf("%d 0 %d 0 0 0 0 0 0 0 0", n, n)
			case "/sys/block/nvmes1/stat", "/sys/block/nvmes2/stat":
				h.Files[f] = fmt.Sprintf("%d 0 %d 0 %d 0 %d 0 0 0 0", 3*n, 3*n, 3*n, 3*n)
			}
		}
		h.Files["/sys/block/bcache0/bcache/dirty_data"] = "0.0k\n"
		h.Files["/sys/block/bcache1/bcache/dirty_data"] = fmt.Sprintf("%d.0k\n", 4*n)
		return h
	}
}

// A run has the I/O of a cached volume's devices during its measured phases.
func TestDeviceIO(t *testing.T) {
	every := sampleEvery
	sampleEvery = time.Millisecond
	t.Cleanup(func() { sampleEvery = every })
	const suite = `apiVersion: mortar/v1
kind: suite
name: cache
cold: drop
tests:
  - {name: random, phases: [rand-write], threads: [2], file: 1MiB, io: buffered}
`
	for what, c := range map[string]struct {
		devices func(string, gather.Request) gather.Host
		note    string
		plain   bool // without a cache
	}{
		"all of them":      {devices: cachedDevices()},
		"no cache":         {devices: cachedDevices(), plain: true},
		"no such device":   {devices: func(string, gather.Request) gather.Host { return gather.Host{} }, note: "no device of: volume, disks, SSDs"},
		"an agent of old":  {note: "no op observe.gather"},
		"one that is gone": {devices: goneAfter(2), note: "/sys/block/dm-3/stat is gone"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBrick(t)
			b.devices = c.devices
			d := b.design()
			v := &d.Pairs[0].Services[0].Storage
			*v = design.Storage{VG: "g", LV: "da-ta", Groups: []string{"r0"}, LUNs: []string{"/dev/lun"}, Cache: &design.Cache{SSDs: []design.Disk{{Serial: "S1"}, {Serial: "S2"}}}}
			d.Groups = []design.Group{{Name: "r0", Members: []design.Disk{{Serial: "d7"}, {Serial: "D8"}}}}
			d.Arrays = []design.Array{{LUNs: []design.LUN{{Device: "/dev/lun", WWN: "5000ab"}}}}
			if c.plain {
				v.Cache = nil
			}
			r, err := Run(context.Background(), Env{Design: d, Dial: b.dial, Version: "test"}, suiteOf(t, suite), Options{Dir: filepath.Join(t.TempDir(), "run")})
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(r.Config.Caveats, "\n")
			if c.note != "" {
				if !strings.Contains(notes, "what the devices of home did was not seen: "+c.note) {
					t.Errorf("notes: %s", notes)
				}
				return
			}
			io := r.Bench.Phases[0].Points[0].Runs[0].IO
			if len(io) != 1 || io[0].Service != "home" || io[0].Server != "nfs2" || len(io[0].Times) < 2 || c.plain != (len(io[0].Dirty) != len(io[0].Times)) {
				t.Fatalf("%+v\n%s", io, notes)
			}
			if n := len(io[0].Dirty); n > 1 && io[0].Dirty[n-1]-io[0].Dirty[n-2] != 4096 {
				t.Errorf("dirty %v", io[0].Dirty)
			}
			for i, want := range []string{"volume 0 0 1 4096", "disks 3 1536 0 0", "SSDs 6 3072 6 3072"}[:len(io[0].Devices)] {
				v := io[0].Devices[i]
				if got := fmt.Sprint(v.Name, " ", v.Reads[0], v.ReadBytes[0], v.Writes[0], v.WriteBytes[0]); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				if len(v.Reads) != len(io[0].Times)-1 {
					t.Errorf("%d intervals of %d samples", len(v.Reads), len(io[0].Times))
				}
			}
			if c.plain != (len(io[0].Devices) == 2) || io[0].Devices[1].Name != report.IODisks {
				t.Error(io[0].Devices[1].Name)
			}
		})
	}
}

// goneAfter has the devices of cachedDevices for some samples, then none.
func goneAfter(looks int64) func(string, gather.Request) gather.Host {
	var n atomic.Int64
	there := cachedDevices()
	return func(server string, r gather.Request) gather.Host {
		if !r.Disks && n.Add(1) > looks {
			return gather.Host{}
		}
		return there(server, r)
	}
}
