package resource

import (
	"encoding/json"
	"strings"
	"testing"
)

const mirrorUUID = "99999999:22222222:33333333:44444444"

var journalTable = JournalTable{
	Mirror: "b-j0", UUID: mirrorUUID, Table: "11111111-2222-4333-8444-555555555555", Assemble: true,
	Parts: []JournalPart{
		{Name: "b-r0", Start: 1 << 20, Size: 20 << 20, Device: "/dev/disk/by-id/md-uuid-x-part1"},
		{Name: "b-r1", Start: 21 << 20, Size: 20 << 20, Device: "/dev/disk/by-id/md-uuid-x-part2"},
	},
}

// sfdiskJSON is what sfdisk of util-linux 2.38 prints of the table that journalTable
// writes.
const sfdiskJSON = `{
   "partitiontable": {
      "label": "gpt", "id": "11111111-2222-4333-8444-555555555555", "device": "/dev/md127", "unit": "sectors",
      "firstlba": 2048, "lastlba": 131038, "sectorsize": 512,
      "partitions": [
         {"node": "/dev/md127p1", "start": 2048, "size": 40960, "type": "A19D880F-05FC-4D3B-A006-743F0F84911E", "uuid": "E61DE575-B77C-2840-B06A-B842E0FFF4D9", "name": "b-r0"},
         {"node": "/dev/md127p2", "start": 43008, "size": 40960, "type": "A19D880F-05FC-4D3B-A006-743F0F84911E", "uuid": "5669A606-B6A4-C247-8249-B0B3F7B7CD41", "name": "b-r1"}
      ]
   }
}`

func TestJournalTable(t *testing.T) {
	const wait = "udevadm wait --timeout=100 /dev/disk/by-id/md-uuid-x-part1 /dev/disk/by-id/md-uuid-x-part2"
	const write = "sfdisk --quiet --wipe always --wipe-partitions always "
	sys := &fakeSys{files: map[string]string{"/proc/self/mounts": ""}, links: map[string]string{}, outputs: map[string]Output{}}
	j := journalTable
	as := diff(t, &j, sys)
	if len(as) != 3 || strings.Join(as[0].Cmd, " ") != write+"/dev/md/b-j0" || as[1].Cmd[1] != "settle" || strings.Join(as[2].Cmd, " ") != wait {
		t.Fatalf("before the mirror is there: %s", show(as))
	}
	const script = "label: gpt\nlabel-id: 11111111-2222-4333-8444-555555555555\n" +
		"1 : start=1024KiB, size=20480KiB, type=linux-raid, name=b-r0\n2 : start=21504KiB, size=20480KiB, type=linux-raid, name=b-r1\n"
	if string(as[0].Stdin) != script {
		t.Errorf("sfdisk is told\n%s", as[0].Stdin)
	}
	j.Assemble = false
	wantShow(t, diff(t, &j, sys), "") // the cluster has the mirror, elsewhere
	j.Assemble = true

	addArray(sys, "md127", mirrorUUID, "clean", "nvme0n1", "nvme1n1")
	sys.outputs["sfdisk --json /dev/md127"] = Output{Code: 1, Stderr: "sfdisk: /dev/md127: does not contain a recognized partition table\n"}
	if as := diff(t, &j, sys); len(as) != 3 || strings.Join(as[0].Cmd, " ") != write+"/dev/md127" {
		t.Errorf("a mirror without a table: %s", show(as))
	}
	// A table that was on the SSDs before, where the mirror's data begins.
	sys.outputs["sfdisk --json /dev/md127"] = Output{Stdout: strings.Replace(sfdiskJSON, "11111111-", "91111111-", 1)}
	if as := diff(t, &j, sys); len(as) != 3 {
		t.Errorf("another brick's table: %s", show(as))
	}
	// A brick that was built before has lost its table, not its journals.
	j.Assemble = false
	refused(t, &j, sys, "mirror b-j0 (/dev/md127) carries partition table 91111111-2222-4333-8444-555555555555, not 11111111-2222-4333-8444-555555555555", "b-r0 (20971520 bytes at 1048576), b-r1")
	sys.outputs["sfdisk --json /dev/md127"] = Output{Code: 1, Stderr: "sfdisk: /dev/md127: does not contain a recognized partition table\n"}
	refused(t, &j, sys, "mirror b-j0 (/dev/md127) carries no partition table", "restore the table")
	sys.outputs["sfdisk --json /dev/md127"] = Output{Stdout: sfdiskJSON}
	wantShow(t, diff(t, &j, sys), wait) // it is there: the names are waited for
	sys.outputs["sfdisk --json /dev/md127"] = Output{Stdout: strings.Replace(sfdiskJSON, "11111111-", "91111111-", 1)}
	j.Assemble = true
	sys.files["/sys/class/block/md127/md127p1/partition"] = "1\n"
	sys.files["/sys/class/block/md127p1/holders/md126/x"] = ""
	refused(t, &j, sys, "mirror b-j0 (/dev/md127) is in use by md126")

	sys.outputs["sfdisk --json /dev/md127"] = Output{Stdout: sfdiskJSON}
	wantShow(t, diff(t, &j, sys), wait) // udev is late
	sys.files["/dev/disk/by-id/md-uuid-x-part1"], sys.files["/dev/disk/by-id/md-uuid-x-part2"] = "", ""
	wantShow(t, diff(t, &j, sys), "")
	j.Parts = j.Parts[:1]
	refused(t, &j, sys, "the partitions of mirror b-j0 are b-r0 (20971520 bytes at 1048576), b-r1", "is not divided anew")

	// What cannot be read is not taken for a mirror without a table.
	sys.outputs["sfdisk --json /dev/md127"] = Output{Code: 1, Stderr: "sfdisk: cannot open /dev/md127: Input/output error\n"}
	if as, err := wire(t, &j).Diff(t.Context(), sys); err == nil || !strings.Contains(err.Error(), "Input/output error") {
		t.Errorf("%s, %v", show(as), err)
	}
}

// A journal's mirror, and an array that writes to a partition of it first.
func TestArrayWithJournal(t *testing.T) {
	blankDisks := func() *fakeSys {
		sys := twoPathDisks(true)
		sys.outputs["mdadm --examine"] = Output{Code: 1}
		sys.outputs["wipefs --no-act --json"] = Output{}
		return sys
	}
	mirror := &Array{Name: "b-j0", UUID: mirrorUUID, Level: 1, Members: twoRefs, Assemble: true}
	wantShow(t, diff(t, mirror, blankDisks()), `
mdadm --create /dev/md/b-j0 --run --metadata=1.2 --level=1 --raid-devices=2 --uuid=`+mirrorUUID+` --name=b-j0 --homehost=any --bitmap=internal --assume-clean /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102 DESTROYS MA01 MA02
udevadm wait --timeout=100 /dev/md/b-j0`)
	mirror.Assemble = false
	refused(t, mirror, blankDisks(), "is on none of its disks", "take storage.journal out of the spec")

	const part = "/dev/disk/by-id/md-uuid-x-part1"
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs, Journal: part, Assemble: true}
	sys := blankDisks()
	wantShow(t, diff(t, a, sys), `
mdadm --create /dev/md/r0 --run --metadata=1.2 --level=6 --raid-devices=2 --chunk=128 --uuid=`+groupUUID+` --name=r0 --homehost=any --bitmap=none /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102 --write-journal `+part+` DESTROYS MA01 MA02
udevadm wait --timeout=100 /dev/md/r0`)
	if as := diff(t, a, sys); len(as[0].Blank) != 2 {
		t.Errorf("blank must be %q", as[0].Blank)
	}
	for _, p := range []string{"sda", "sdb", "sdc", "sdd"} {
		sys.files["/sys/block/"+p+"/device/scsi_disk/2:0:0:0/zeroing_mode"] = "writesame_16_unmap\n"
	}
	if s := show(diff(t, a, sys)); !strings.Contains(s, "--create /dev/md/r0 --assume-clean") || !strings.Contains(s, "--write-journal "+part) {
		t.Error(s)
	}
	if s := show(diff(t, &Array{Name: "b-j0", UUID: mirrorUUID, Level: 1, Members: twoRefs, Assemble: true}, sys)); strings.Contains(s, "fallocate") {
		t.Errorf("a mirror is zeroed: %s", s)
	}

	// Stopped: an apply was cut short.
	const examined = `/dev/mapper/35000c50000000101:
    Feature Map : 0x200
     Array UUID : 11111111:22222222:33333333:44444444
         Events : 12
   Device Role : Active device 0
`
	stopped := twoPathDisks(true)
	stopped.outputs["wipefs --no-act --json"] = Output{}
	stopped.outputs["mdadm --examine"] = Output{Stdout: examined}
	wantShow(t, diff(t, a, stopped), `
mdadm --assemble /dev/md/r0 --uuid=`+groupUUID+` --run /dev/mapper/35000c50000000101 `+part+`
udevadm wait --timeout=100 /dev/md/r0`)
	without := *a
	without.Journal = ""
	refused(t, &without, stopped, "has a write journal, and the spec has none")
	stopped.outputs["mdadm --examine"] = Output{Stdout: strings.Replace(examined, "0x200", "0x1", 1)}
	refused(t, a, stopped, "array r0 was built without a write journal", "take storage.journal out of the spec")

	// Running.
	up := twoPathDisks(true)
	addArray(up, "md127", groupUUID, "clean", "dm-0", "dm-1", "md126p1")
	up.files["/dev/md/r0"] = ""
	up.files["/sys/block/md127/md/consistency_policy"] = "journal\n"
	for dev, state := range map[string]string{"dm-0": "in_sync", "dm-1": "in_sync", "md126p1": "journal"} {
		up.files["/sys/block/md127/md/dev-"+dev+"/state"] = state + "\n"
	}
	wantShow(t, diff(t, a, up), "")
	refused(t, &without, up, "has a write journal, and the spec has none")
	up.files["/sys/block/md127/md/dev-md126p1/state"] = "faulty,journal\n"
	wantShow(t, diff(t, a, up), "") // a journal that failed is not taken out
	up.files["/sys/block/md127/md/consistency_policy"] = "bitmap\n"
	refused(t, a, up, "array r0 was built without a write journal")
}

// The mirror is released after the arrays whose journals are on it.
func TestReleaseWithJournal(t *testing.T) {
	r := &ReleaseStorage{VG: "b_home", LV: "data", SystemID: "mortar-b-building", RestID: "mortar-b", MountPoint: "/srv/home",
		Arrays: map[string]string{groupUUID: "r0"}, Mirrors: map[string]string{mirrorUUID: "j0"}}
	sys := twoPathDisks(true)
	sys.outputs["lvm vgs"] = Output{Stdout: `{"report":[{"vg":[]}]}`}
	addArray(sys, "md126", mirrorUUID, "clean", "nvme0n1")
	addArray(sys, "md127", groupUUID, "clean", "dm-0", "md126p1")
	wantShow(t, diff(t, r, sys), "mdadm --stop /dev/md127 /dev/md126")
	if asked := strings.Join(sys.asked, "\n"); strings.Contains(asked, "/dev/md126") {
		t.Errorf("the mirror is no physical volume: %s", asked)
	}
	delete(sys.files, "/sys/block/md127/md/array_state")
	for f := range sys.files {
		if strings.HasPrefix(f, "/sys/block/md127/") {
			delete(sys.files, f)
		}
	}
	wantShow(t, diff(t, r, sys), "mdadm --stop /dev/md126") // killed between the two
}

// The agent's config lists the SSDs of the journal's mirror by device.
func TestOCFConfigWithJournal(t *testing.T) {
	o := &OCFConfig{Path: "/etc/mortar/service-home.json", Members: [][]DiskRef{twoRefs}, Journal: twoRefs,
		Template: []byte(`{"service":"home","arrays":[{"name":"r0","uuid":"x","members":null,"journal":1}],"journal":{"name":"j0","uuid":"y","members":null}}`)}
	as := diff(t, o, twoPathDisks(true))
	var got struct {
		Journal struct{ Members []string }
	}
	if len(as) != 1 || json.Unmarshal(as[0].File.Content, &got) != nil || strings.Join(got.Journal.Members, " ") != "/dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102" {
		t.Errorf("%s", show(as))
	}
	o.Journal = nil
	if _, err := wire(t, o).Diff(t.Context(), twoPathDisks(true)); err == nil {
		t.Error("a journal without SSDs")
	}
}
