package storage

import (
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// An SSD that carries nothing but this cache is known by the names in its
// partition table and by the arrays in its partitions, whether or not its
// cache is up. The kernel tells no names of partitions that it was told of, and has none that
// the other server has made.
func TestCacheSSDsOfThisBrick(t *testing.T) {
	const ours, others = "c1ea0001-0000-0000-0000-000000000000", "0be50000-0000-0000-0000-000000000000"
	gpt := `{"device":"nvme1n1","offset":"0x200","type":"gpt"},{"device":"nvme1n1","offset":"0x3ffffe00","type":"gpt"},{"device":"nvme1n1","offset":"0x1fe","type":"PMBR"}`
	table := func(name string) resource.Output {
		return resource.Output{Stdout: `{"partitiontable":{"label":"gpt","device":"/dev/nvme1n1","unit":"sectors","partitions":[{"node":"/dev/nvme1n1p1","start":2048,"size":1949696,"type":"A19D880F-05FC-4D3B-A006-743F0F84911E","name":"` + name + `"}]}}`}
	}
	member := func(uuid string) resource.Output {
		return resource.Output{Stdout: "DEVNAME=/dev/nvme1n1\nUUID=" + uuid + "\nTYPE=linux_raid_member\n"}
	}
	const partitioned = "a partition table (gpt) and a partition table (gpt) and a partition table (PMBR), not made by this brick"
	for _, c := range []struct {
		what   string
		table  resource.Output
		inside resource.Output
		want   string // found by the refusal; "": none
	}{
		{"its own", table("mortar-clean"), member(ours), ""},
		{"its own, made and never filled", table("mortar-clean"), resource.Output{Code: 2}, ""},
		{"a file system in a partition of that name", table("mortar-clean"), resource.Output{Stdout: "DEVNAME=/dev/nvme1n1\nTYPE=xfs\n"}, "a signature of xfs, not made by this brick"},
		{"another's partition", table("data"), member(ours), partitioned},
		{"another's array in a partition of that name", table("mortar-clean"), member(others), "a member of md array 0be50000:00000000:00000000:00000000, not made by this brick"},
		{"a table that cannot be read", resource.Output{Code: 1, Stderr: "failed"}, member(ours), partitioned},
	} {
		sys := &resource.Paper{
			Files: map[string]string{
				"/proc/mdstat": "Personalities :\nunused devices: <none>\n", "/proc/self/mounts": "", "/dev/nvme1n1": "", "/proc/swaps": "Filename Type Size Used Priority\n",
			},
			Drives: []resource.DiskFact{{Device: "/dev/nvme1n1", Serial: "KS01", Size: 1 << 30}},
			Outputs: map[string]resource.Output{
				"wipefs --no-act --json /dev/nvme1n1":                                          {Stdout: `{"signatures":[` + gpt + `]}`},
				"blkid --probe --output export --offset 1048576 --size 998244352 /dev/nvme1n1": c.inside,
				"sfdisk --json /dev/nvme1n1":                                                   c.table,
			},
		}
		r := &CacheSSDs{Host: "nfs1", List: []WantedDisk{{DiskRef: DiskRef{Serial: "KS01"}}}, Arrays: []string{ours}, Check: true}
		as, err := resource.Diff(t.Context(), sys, r)
		if c.want != "" {
			wantRefusal(t, as, err, "disks-not-blank", "disks", "KS01", "found", c.want)
		} else if err != nil || len(as) > 0 {
			t.Errorf("%s: %v, %v", c.what, as, err)
		}
	}
}

// Layers come below a file system that is in use on the volume itself: a cluster's agent does it
// at the next start of the service, a single server at once, with the file system away for
// seconds. The SSDs come after that.
func TestCacheFront(t *testing.T) {
	c := Cache{Path: "/etc/mortar/cache-home.json", VG: "b_home", LV: "data", Header: "cacheheader", Device: "/dev/mapper/b_home.cached", Config: []byte(`{}`)}
	sys := &resource.Paper{
		Files: map[string]string{"/proc/self/mounts": "/dev/mapper/b_home-data /srv/home xfs rw 0 0\n", "/sys/block/dm-3/dm/name": "b_home-data\n", "/dev/dm-3": "",
			"/sys/block/dm-4/dm/name": "b_home-cacheheader\n", "/dev/b_home/cacheheader": ""},
		Links:   map[string]string{"/dev/mapper/b_home-data": "/dev/dm-3", "/dev/b_home/data": "/dev/dm-3"},
		Outputs: map[string]resource.Output{},
	}
	needs := func(text string) {
		sys.Outputs["/usr/local/sbin/mortar host-cache needs {}"] = resource.Output{Stdout: text + "\n"}
	}
	const host = "/usr/local/sbin/mortar host-cache "
	const file = " /etc/mortar/cache-home.json"
	const wait = "udevadm wait --timeout=100 /dev/mapper/b_home.cached"
	managed := &CacheFront{Cache: c, Managed: true}
	single := &CacheFront{Cache: c, Stop: []string{"nfs-server.service"}, Options: []string{"noatime", "nofail"}}
	const stop, start = "systemctl stop nfs-server.service\numount /srv/home\n", host + "start" + file + "\n" + wait
	const mount = "\nmount -t xfs -o noatime /dev/mapper/b_home.cached /srv/home\nsystemctl start nfs-server.service"
	for _, x := range []struct{ says, managed, single string }{
		{"make both layers of bcache over the volume; partition SSD A", host + "prepare" + file, stop + host + "prepare" + file + "\n" + start + mount},
		{"start both layers of bcache over the volume", "", stop + start + mount},
	} {
		needs(x.says)
		wantShow(t, diff(t, managed, sys), x.managed)
		wantShow(t, diff(t, single, sys), x.single)
		wantShow(t, diff(t, &c, sys), "") // no SSD yet
	}
	sys.Files["/proc/self/mounts"] = "" // an apply was ended behind umount
	wantShow(t, diff(t, single, sys), start)
	sys.Files["/proc/self/mounts"], sys.Files["/dev/mapper/b_home.cached"] = "/dev/mapper/b_home.cached /srv/home xfs rw 0 0\n", ""
	needs("partition SSD A")
	wantShow(t, diff(t, managed, sys), "")
	wantShow(t, diff(t, single, sys), "")
	wantShow(t, diff(t, &c, sys), host+"apply"+file+"\n"+wait)
	needs("")
	wantShow(t, diff(t, &c, sys), "")
}
