package agent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// tree makes files below a directory; a content "-> x" makes a link, one
// "/" a directory.
func tree(t *testing.T, files map[string]string) HostSys {
	t.Helper()
	root := t.TempDir()
	for p, content := range files {
		p = filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(to, p)
		} else if content == "/" {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return HostSys{root: root}
}

func TestDisks(t *testing.T) {
	pg80 := func(s string) string { return "\x00\x80\x00" + string(rune(len(s))) + s }
	h := tree(t, map[string]string{
		// Two paths to one disk, with a map.
		"sys/block/sda/size":            "2048\n",
		"sys/block/sda/device/vpd_pg80": pg80("MA01    "),
		"sys/block/sda/device/wwid":     "naa.5000C500A0000001\n",
		"sys/block/sdc/size":            "2048\n",
		"sys/block/sdc/device/vpd_pg80": pg80("MA01"),
		"sys/block/sdc/device/wwid":     "naa.5000c500a0000001\n",
		"sys/block/dm-0/dm/uuid":        "mpath-35000c500a0000001\n",
		"sys/block/dm-0/dm/name":        "35000c500a0000001\n",
		"sys/block/dm-0/slaves/sda":     "/",
		"sys/block/dm-0/slaves/sdc":     "/",
		"dev/mapper/35000c500a0000001":  "",
		// A map whose link udev has not made yet.
		"sys/block/sde/size":            "8\n",
		"sys/block/sde/device/vpd_pg80": pg80("MA05"),
		"sys/block/sde/device/wwid":     "naa.5000c500a0000005\n",
		"sys/block/dm-5/dm/uuid":        "mpath-35000c500a0000005\n",
		"sys/block/dm-5/dm/name":        "35000c500a0000005\n",
		"sys/block/dm-5/slaves/sde":     "/",
		// A map by a friendly name, over the second of which no serial is known to /sys.
		"sys/block/sdb/size":                             "4096\n",
		"sys/block/sdb/dev":                              "8:16\n",
		"sys/block/sdb/device/wwid":                      "naa.5000c500a0000002\n",
		"run/udev/data/b8:16":                            "S:disk/by-id/x\nE:ID_SERIAL_SHORT=35000\nE:ID_SCSI_SERIAL=MA02\n",
		"sys/block/dm-1/dm/uuid":                         "mpath-35000c500a0000002\n",
		"sys/block/dm-1/dm/name":                         "mpatha\n",
		"sys/block/dm-1/slaves/sdb":                      "/",
		"dev/disk/by-id/dm-uuid-mpath-35000c500a0000002": "",
		// Two paths without a map.
		"sys/block/sdaa/size":                   "8\n",
		"sys/block/sdaa/device/vpd_pg80":        pg80("MA03"),
		"sys/block/sdaa/device/wwid":            "naa.5000c500a0000003\n",
		"sys/block/sdd/size":                    "8\n",
		"sys/block/sdd/device/vpd_pg80":         pg80("MA03"),
		"sys/block/sdd/device/wwid":             "naa.5000c500a0000003\n",
		"dev/disk/by-id/wwn-0x5000c500a0000003": "",
		// NVMe, virtio, and one that says nothing.
		"sys/block/nvme0n1/size":          "16\n",
		"sys/block/nvme0n1/device/serial": "NV01    \n",
		"sys/block/nvme0n1/wwid":          "eui.0025388b71b1a2c3\n",
		"sys/block/vda/size":              "32\n",
		"sys/block/vda/serial":            "state\n",
		"sys/block/vdb/size":              "32\n",
		// NVMe without an identifier, by its model and serial; of another, udev has an old
		// link.
		"sys/block/nvme2n1/device/serial":         "NV03\n",
		"dev/nvme2n1":                             "",
		"dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_NV03": "-> ../../nvme2n1",
		"sys/block/nvme3n1/device/serial":         "NV04\n",
		"dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_NV04": "-> ../../nvme2n1",
		// Disks that share a serial and are not one: two namespaces of a drive, and
		// two disks of a hypervisor. Two paths that only a t10 identifier joins.
		"sys/block/nvme1n1/queue/logical_block_size": "4096\n",
		"sys/block/nvme1n1/device/serial":            "NV02\n",
		"sys/block/nvme1n1/wwid":                     "nvme.1b36-4e563032-51454d55-00000001\n",
		"sys/block/nvme1n2/device/serial":            "NV02\n",
		"sys/block/nvme1n2/wwid":                     "nvme.1b36-4e563032-51454d55-00000002\n",
		"sys/block/vdc/serial":                       "same\n",
		"sys/block/vdd/serial":                       "same\n",
		"sys/block/sdx/device/vpd_pg80":              pg80("T1"),
		"sys/block/sdx/device/wwid":                  "t10.ATA     X   T1\n",
		"sys/block/sdy/device/vpd_pg80":              pg80("T1"),
		"sys/block/sdy/device/wwid":                  "t10.ATA     X   T1\n",
		// No disks.
		"sys/block/nvme0c0n1/size": "16\n",
		"sys/block/loop0/size":     "16\n",
		"sys/block/md127/size":     "16\n",
		"sys/block/sr0/size":       "16\n",
		"sys/block/dm-2/dm/uuid":   "LVM-x\n",
		"sys/block/dm-2/dm/name":   "vg-lv\n",
	})
	got, err := h.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []resource.DiskFact{
		{Serial: "NV01", WWN: "0025388b71b1a2c3", Device: "/dev/nvme0n1", Paths: []string{"nvme0n1"}, Size: 8192},
		{Serial: "NV02", Device: "/dev/nvme1n1", Paths: []string{"nvme1n1"}, Sector: 4096},
		{Serial: "NV02", Device: "/dev/nvme1n2", Paths: []string{"nvme1n2"}},
		{Serial: "NV03", Device: "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_NV03", Paths: []string{"nvme2n1"}},
		{Serial: "NV04", Device: "/dev/nvme3n1", Paths: []string{"nvme3n1"}},
		{Serial: "MA01", WWN: "5000c500a0000001", Device: "/dev/mapper/35000c500a0000001", Paths: []string{"sda", "sdc"}, Size: 1 << 20},
		{Serial: "MA03", WWN: "5000c500a0000003", Device: "/dev/disk/by-id/wwn-0x5000c500a0000003", Paths: []string{"sdd", "sdaa"}, Size: 4096},
		{Serial: "MA02", WWN: "5000c500a0000002", Device: "/dev/disk/by-id/dm-uuid-mpath-35000c500a0000002", Paths: []string{"sdb"}, Size: 2 << 20},
		{Serial: "MA05", WWN: "5000c500a0000005", Device: "/dev/dm-5", Paths: []string{"sde"}, Size: 4096},
		{Serial: "T1", Device: "/dev/sdx", Paths: []string{"sdx", "sdy"}},
		{Serial: "state", Device: "/dev/vda", Paths: []string{"vda"}, Size: 16384},
		{Device: "/dev/vdb", Paths: []string{"vdb"}, Size: 16384},
		{Serial: "same", Device: "/dev/vdc", Paths: []string{"vdc"}},
		{Serial: "same", Device: "/dev/vdd", Paths: []string{"vdd"}},
	}
	if d := cmp.Diff(want, got.All); d != "" {
		t.Error(d)
	}
}

// The disks of the machine the tests run on, whatever they are.
func TestDisksOfThisMachine(t *testing.T) {
	disks, err := HostSys{}.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range disks.All {
		if d.Device == "" || d.Size < 0 || len(d.Paths) == 0 {
			t.Errorf("%+v", d)
		}
	}
}

// All disks are asked for their port groups at once, because each of them may hang.
func TestPortGroupsAtOnce(t *testing.T) {
	const disks = 84
	files := map[string]string{}
	for i := range disks {
		name := fmt.Sprintf("sd%c%c", 'a'+i/26, 'a'+i%26)
		dir := fmt.Sprintf("sys/devices/2:0:%d:0", i)
		files["sys/block/"+name+"/device"] = "-> ../../devices/" + filepath.Base(dir)
		files["sys/block/"+name+"/size"] = "2048\n"
		files[dir+"/state"] = "running\n"
		files[dir+"/vpd_pg83"] = "\x00\x83\x00\x08\x61\x15\x00\x04\x00\x00\x00\x01"
	}
	h := tree(t, files)
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		all.Add(disks)
		h.askPortGroups = func(string) ([]byte, error) {
			all.Done()
			all.Wait()
			return nil, errors.New("it hangs")
		}
		if got, err := scsi(t, h); err != nil || len(got) != disks {
			t.Errorf("%d disks, %v", len(got), err)
		}
	})
}

func TestSCSI(t *testing.T) {
	page := func(group string) string {
		b, err := hex.DecodeString("0083001c" + "01030010" + "600c0ff0123456789abcdef012345678" + "61150004" + "0000" + group)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	files := map[string]string{"sys/block/nvme0n1/size": "8\n"}
	for name, group := range map[string]string{"sdb": "0001", "sdc": "0002"} {
		address := map[string]string{"sdb": "2:0:0:7", "sdc": "3:0:1:7"}[name]
		dir := "sys/devices/" + address
		files["sys/block/"+name+"/device"] = "-> ../../devices/" + address
		files["sys/block/"+name+"/size"] = "2048\n"
		files["sys/block/"+name+"/queue/minimum_io_size"] = "131072\n"
		files["sys/block/"+name+"/queue/optimal_io_size"] = "1048576\n"
		files["sys/block/"+name+"/queue/logical_block_size"] = "512\n"
		files[dir+"/vpd_pgb0"] = "\x00\xb0\x00\x3c\x00\x00\x00\x00\x00\x00\x10\x00"
		files[dir+"/wwid"] = "naa.600c0ff0123456789abcdef012345678\n"
		files[dir+"/vpd_pg83"] = page(group)
		files[dir+"/vendor"], files[dir+"/model"], files[dir+"/state"] = "DellEMC \n", "ME4             \n", "running\n"
	}
	files["sys/devices/3:0:1:7/access_state"] = "active/non-optimized\n"
	got, err := scsi(t, tree(t, files))
	if err != nil {
		t.Fatal(err)
	}
	want := []linux.SCSIDisk{{
		Device: "/dev/sdb", WWN: "600c0ff0123456789abcdef012345678", Vendor: "DellEMC", Product: "ME4", Size: 1 << 20, Chunk: 128 << 10, FullStripe: 1 << 20, MaxTransfer: 2 << 20,
		Paths: []linux.SCSIPath{
			{Name: "sdb", Host: 2, Target: 0, LUN: 7, State: "running", Group: 1},
			{Name: "sdc", Host: 3, Target: 1, LUN: 7, State: "running", Group: 2, Access: "active/non-optimized"},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// scsi lists all SCSI disks of a host.
func scsi(t *testing.T, h HostSys) ([]linux.SCSIDisk, error) {
	disks, err := h.Disks(t.Context())
	if err != nil {
		return nil, err
	}
	return h.SCSI(t.Context(), disks.All)
}
