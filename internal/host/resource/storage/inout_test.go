package storage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

// diskSys is this machine with image files for disks: what they carry is
// made, and read, with the real tools.
type diskSys struct {
	agent.HostSys
	disks []resource.DiskFact
}

// Query runs a command on image files that may run on disks.
func (d diskSys) Query(ctx context.Context, argv ...string) (resource.Output, error) {
	asks := slices.Clone(argv)
	for i, a := range asks {
		if strings.Contains(a, ".img") {
			asks[i] = "/dev/" + path.Base(a)
		}
	}
	if err := resource.ReadOnly(asks); err != nil {
		return resource.Output{}, err
	}
	out, err := command.Cmd{Argv: argv, Timeout: time.Minute}.Run(ctx)
	return resource.Output(out), err
}

func (d diskSys) Reservation(context.Context, string) (pr.State, error) { return pr.State{}, nil }
func (d diskSys) Disks(context.Context) (*resource.DiskList, error) {
	return resource.ListDisks(d.disks), nil
}

const size = 16 << 20

func image(t *testing.T) string {
	t.Helper()
	// wipefs names a device by the last part of its path.
	f, err := os.CreateTemp(t.TempDir(), "disk-*.img")
	if err != nil {
		t.Fatal(err)
	}
	p := f.Name()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return p
}

func run(t *testing.T, argv ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	c.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LVM_SUPPRESS_FD_WARNINGS=1", "LC_ALL=C")
	if p, err := exec.LookPath("/usr/sbin/" + argv[0]); err == nil {
		c.Path, c.Err = p, nil
	}
	b, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, b)
	}
	return string(b)
}

// superblock writes an md superblock of version 1.2 for member role of an
// array. This machine's kernel may have no md, so mdadm cannot make one;
// that this is one it reads is checked by TestSuperblockIsMdadms.
// Source: include/uapi/linux/raid/md_p.h, struct mdp_superblock_1.
func superblock(t *testing.T, p, uuid string, role, events int) {
	t.Helper()
	id, err := hex.DecodeString(strings.ReplaceAll(uuid, ":", ""))
	if err != nil || len(id) != 16 {
		t.Fatalf("uuid %s: %v", uuid, err)
	}
	const maxDev = 128
	b := make([]byte, 256+2*maxDev)
	le := binary.LittleEndian
	le.PutUint32(b[0:], 0xa92b4efc)
	le.PutUint32(b[4:], 1)
	copy(b[16:], id)
	copy(b[32:], "any:brick1-r0")
	le.PutUint32(b[72:], 6)                // level
	le.PutUint32(b[76:], 2)                // layout
	le.PutUint64(b[80:], size/512-2048-16) // sectors used
	le.PutUint32(b[88:], 256)              // chunk, sectors
	le.PutUint32(b[92:], 4)                // members
	le.PutUint64(b[128:], 2048)            // data offset
	le.PutUint64(b[136:], size/512-2048)   // data size
	le.PutUint64(b[144:], 8)               // own offset, sectors
	le.PutUint32(b[160:], uint32(role))
	copy(b[168:], id)
	b[168] ^= byte(role + 1)
	le.PutUint64(b[200:], uint64(events))
	le.PutUint32(b[220:], maxDev)
	for i := range maxDev {
		v := uint16(0xffff)
		if i < 4 {
			v = uint16(i)
		}
		le.PutUint16(b[256+2*i:], v)
	}
	var sum uint64
	for i := 0; i < len(b); i += 4 {
		sum += uint64(le.Uint32(b[i:]))
	}
	le.PutUint32(b[216:], uint32(sum)+uint32(sum>>32))
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

const (
	ours   = "11111111:22222222:33333333:44444444"
	others = "99999999:22222222:33333333:44444444"
)

func TestSuperblockIsMdadms(t *testing.T) {
	p := image(t)
	superblock(t, p, ours, 2, 17)
	out := run(t, "mdadm", "--examine", p)
	for _, w := range []string{"Array UUID : " + ours, "Raid Level : raid6", "Device Role : Active device 2", "Events : 17", " - correct"} {
		if !strings.Contains(out, w) {
			t.Errorf("mdadm does not see %q:\n%s", w, out)
		}
	}
}

// loop makes a block device of an image until the test ends.
func loop(t *testing.T, p string) string {
	t.Helper()
	dev := strings.TrimSpace(run(t, "losetup", "--find", "--show", p))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", dev, err, out)
		}
	})
	return dev
}

func refuses(err error, code string, args ...string) bool {
	var r *resource.Refusal
	return errors.As(err, &r) && r.Has(code, args...)
}

// Disks that carry anything not made by the brick are refused, unless their
// serial was typed; then what is on them is named, and gone after the action.
func TestDisksAreSacred(t *testing.T) {
	for _, c := range []struct {
		name, group string
		plant       func(*testing.T, string)
		want        string // "": the disk is free to use
	}{
		{"blank", ours, func(*testing.T, string) {}, ""},
		{"member of our array", ours, func(t *testing.T, p string) { superblock(t, p, ours, 0, 9) }, ""},
		{"foreign ext4", ours, func(t *testing.T, p string) { run(t, "mkfs.ext4", "-q", "-F", "-L", "precious", p) }, "a signature of ext4 labelled 'precious'"},
		{"LVM physical volume", ours, func(t *testing.T, p string) { run(t, "lvm", "pvcreate", "--yes", "--devices", p, p) }, "an LVM physical volume"},
		{"member of another array", ours, func(t *testing.T, p string) { superblock(t, p, others, 0, 9) }, "a member of md array " + others + " labelled 'any:brick1-r0'"},
		{"unused disk of the brick with our member", "", func(t *testing.T, p string) { superblock(t, p, ours, 0, 9) }, "a member of another array of this brick"},
		{"partition table", ours, func(t *testing.T, p string) {
			// One Linux partition from sector 2048, and the mark at the end.
			entry := []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x40, 0, 0}
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(append(entry, make([]byte, 48)...), 446)
			if err == nil {
				_, err = f.WriteAt([]byte{0x55, 0xaa}, 510)
			}
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "a partition table (dos)"},
		{"swap", ours, func(t *testing.T, p string) { run(t, "mkswap", p) }, "a signature of swap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := loop(t, image(t))
			c.plant(t, p)
			before, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			sys := diskSys{disks: []resource.DiskFact{{Serial: "MA01", Device: p, Size: size}}}
			d := &storage.Disks{Host: "nfs1", Check: true, Arrays: []string{ours}, List: []storage.WantedDisk{
				{DiskRef: storage.DiskRef{Serial: "MA01", Enclosure: "A", Bay: 1}, Group: c.group},
			}}
			as, err := resource.Diff(t.Context(), sys, d)
			if c.want == "" {
				if err != nil || len(as) != 0 {
					t.Fatalf("not free to use: %v %v", err, as)
				}
				return
			}
			code, found := "disks-not-blank", c.want+", not made by this brick"
			if c.want == "a member of another array of this brick" {
				code, found = "disks-in-other-group", c.want // never to wipe what is this brick's own
			}
			if !refuses(err, code, "disks", "MA01", "found", found) {
				t.Fatalf("not refused: %v %v", err, as)
			}
			after, err := os.ReadFile(p)
			if err != nil || !bytes.Equal(before, after) {
				t.Fatalf("looking has changed the disk (%v)", err)
			}

			d.List[0].Wipe = true
			as, err = resource.Diff(t.Context(), sys, d)
			if err != nil || len(as) != 1 || len(as[0].Destroys) != 1 || as[0].Destroys[0] != "MA01" {
				t.Fatalf("no wipe of MA01: %v %v", as, err)
			}
			run(t, as[0].Cmd...)
			if as, err = resource.Diff(t.Context(), sys, d); err != nil || len(as) != 0 {
				t.Errorf("not clean after the wipe: %v %v", as, err)
			}
		})
	}
}

// Disks with blocks of 512 and of 4096 bytes are not put together, neither at first nor by a
// disk that is added; disks that are together already stay.
func TestSectorsAreNotMixed(t *testing.T) {
	disk := func(sys *diskSys, d *storage.Disks, serial string, sector int64, group, set, carries string) {
		p := loop(t, image(t))
		if carries != "" {
			superblock(t, p, carries, len(d.List), 20)
		}
		sys.disks = append(sys.disks, resource.DiskFact{Serial: serial, Device: p, Size: size, Sector: sector})
		d.List = append(d.List, storage.WantedDisk{DiskRef: storage.DiskRef{Serial: serial, Enclosure: "A", Bay: len(d.List) + 1}, Group: group, Set: set})
	}
	for _, c := range []struct {
		name       string
		sector     int64  // of the second disk; the first has 512
		group, set string // of the second
		carries    string // the second
		refused    bool
	}{
		{"one array", 4096, ours, "home", "", true},
		{"two arrays of a volume group", 4096, others, "home", "", true},
		{"two volume groups", 4096, others, "scratch", "", false},
		{"like disks", 512, ours, "home", "", false},
		{"not known", 0, ours, "home", "", false},
		{"together already", 4096, ours, "home", ours, false},
		{"no group", 4096, "", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sys diskSys
			d := &storage.Disks{Host: "nfs1", Check: true, Arrays: []string{ours, others}}
			disk(&sys, d, "MA01", 512, ours, "home", ours)
			disk(&sys, d, "MA02", c.sector, c.group, c.set, c.carries)
			as, err := resource.Diff(t.Context(), sys, d)
			if !c.refused {
				if err != nil || len(as) > 0 {
					t.Errorf("%v, %v", as, err)
				}
				return
			}
			if !refuses(err, "disk-sectors-mixed", "disk", "MA02", "sizes", "logical blocks of 512 bytes (MA01) and logical blocks of 4096 bytes (MA02)") {
				t.Errorf("%v, %v", as, err)
			}
			d.List[1].Sector = 512
			if _, err := resource.Diff(t.Context(), sys, d); err == nil || !strings.Contains(err.Error(), "has logical blocks of 4096 bytes, not the 512 of the spec") {
				t.Error(err)
			}
		})
	}
}

// A disk that carries a superblock of another array of its service is a spare that has
// moved there. Without a service it is refused.
func TestDiskOfAnotherArrayOfTheService(t *testing.T) {
	var sys diskSys
	d := &storage.Disks{Host: "nfs1", Check: true, Arrays: []string{ours, others}}
	for i, has := range []string{ours, ours, others, others, ours} {
		p := loop(t, image(t))
		superblock(t, p, has, i%4, 20)
		w := storage.WantedDisk{DiskRef: storage.DiskRef{Serial: string(rune('A' + i))}, Group: has, Set: "home"}
		sys.disks = append(sys.disks, resource.DiskFact{Serial: w.Serial, Device: p, Size: size})
		d.List = append(d.List, w)
	}
	d.List[4].Group = others
	if as, err := resource.Diff(t.Context(), sys, d); err != nil || len(as) > 0 {
		t.Errorf("%v, %v", as, err)
	}
	for i := range d.List {
		d.List[i].Set = ""
	}
	if as, err := resource.Diff(t.Context(), sys, d); err == nil || !strings.Contains(err.Error(), "disk E (enclosure , bay 0) carries a member of another array of this brick") {
		t.Errorf("%v, %v", as, err)
	}
}

// An array whose superblocks are there is never created again, and one that
// lacks too many members is refused; only a creation that was cut short
// before its first event is repeated.
func TestArrayFromSuperblocks(t *testing.T) {
	for _, c := range []struct {
		name   string
		roles  int // members with our superblock
		events int
		want   string // first words of the actions, "" for none
		refuse string
	}{
		{"new", 0, 0, "mdadm --create", ""},
		{"all there", 4, 20, "mdadm --assemble", ""},
		{"two missing", 2, 20, "mdadm --assemble", ""},
		{"three missing", 1, 20, "", "array-members-gone"},
		{"cut short", 1, 0, "mdadm --zero-superblock, mdadm --create", ""},
		{"cut short after the last superblock", 4, 0, "mdadm --assemble", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &storage.Array{Name: "brick1-r0", UUID: ours, Level: 6, Chunk: 128 << 10, Assemble: true}
			var sys diskSys
			for i := range 4 {
				p := image(t)
				if i < c.roles {
					superblock(t, p, ours, i, c.events)
				}
				serial := string(rune('A' + i))
				sys.disks = append(sys.disks, resource.DiskFact{Serial: serial, Device: p, Size: size})
				a.Members = append(a.Members, storage.DiskRef{Serial: serial})
			}
			as, err := resource.Diff(t.Context(), sys, a)
			if c.refuse != "" {
				if !refuses(err, c.refuse, "members", "1", "want", "4") {
					t.Fatalf("not refused: %v %v", err, as)
				}
				return
			}
			var did []string
			for _, act := range as[:max(len(as)-1, 0)] { // the last waits for udev
				did = append(did, strings.Join(act.Cmd[:2], " "))
				if created := act.Cmd[1] == "--create"; (len(act.Destroys) == 4) != created || (len(act.Blank) == 4) != created {
					t.Errorf("%s is marked as destroying %v, blank %v", act.Title, act.Destroys, act.Blank)
				}
			}
			if got := strings.Join(did, ", "); err != nil || got != c.want {
				t.Fatalf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

// Superblocks of the other groups of its service do not keep an array from being created
// or assembled.
func TestArrayBesideOthers(t *testing.T) {
	for events, want := range map[int]string{-1: "mdadm --create", 3: "mdadm --assemble"} {
		a := &storage.Array{Name: "brick1-r1", UUID: ours, Level: 6, Chunk: 128 << 10, Assemble: true, Peers: []string{others}}
		var sys diskSys
		for i := range 8 {
			p := image(t)
			ref := storage.DiskRef{Serial: string(rune('A' + i))}
			switch {
			case i >= 4:
				superblock(t, p, others, i-4, 20)
				a.Pool = append(a.Pool, ref)
			case events >= 0:
				superblock(t, p, ours, i, events)
			}
			if i < 4 {
				a.Members = append(a.Members, ref)
			}
			sys.disks = append(sys.disks, resource.DiskFact{Serial: ref.Serial, Device: p, Size: size})
		}
		as, err := resource.Diff(t.Context(), sys, a)
		if err != nil || len(as) == 0 || strings.Join(as[0].Cmd[:2], " ") != want {
			t.Errorf("%d events: %v, %v, want %s", events, as, err, want)
		}
	}
}

// silent is a host whose mdadm prints nothing.
type silent struct{ diskSys }

func (s silent) Query(ctx context.Context, argv ...string) (resource.Output, error) {
	if argv[0] == "mdadm" {
		return resource.Output{Code: 1, Stderr: "mdadm: cannot open /dev/mapper/x: Device or resource busy\n"}, nil
	}
	return s.diskSys.Query(ctx, argv...)
}

// An mdadm that says nothing is no reason to create an array over one that
// wipefs sees.
func TestNothingIsCreatedOverASilentAnswer(t *testing.T) {
	a := &storage.Array{Name: "brick1-r0", UUID: ours, Level: 6, Chunk: 128 << 10, Assemble: true}
	var sys silent
	for i := range 4 {
		p := image(t)
		superblock(t, p, ours, i, 20)
		serial := string(rune('A' + i))
		sys.disks = append(sys.disks, resource.DiskFact{Serial: serial, Device: p, Size: size})
		a.Members = append(a.Members, storage.DiskRef{Serial: serial})
	}
	as, err := resource.Diff(t.Context(), sys, a)
	if !refuses(err, "array-superblock", "disk", "A", "array", "brick1-r0") {
		t.Fatalf("%v, %v", as, err)
	}
}

func TestMustBeBlank(t *testing.T) {
	var sys diskSys
	blank, used := image(t), image(t)
	superblock(t, used, others, 0, 1)
	if err := storage.MustBeBlank(t.Context(), sys, []string{blank}); err != nil {
		t.Error(err)
	}
	err := storage.MustBeBlank(t.Context(), sys, []string{blank, used})
	if !refuses(err, "disk-written-since", "device", used, "found", "a member of md array "+others+" labelled 'any:brick1-r0'") {
		t.Error(err)
	}
	if err := storage.MustBeBlank(t.Context(), sys, []string{used + ".none"}); err == nil {
		t.Error("a device that cannot be read counts as blank")
	}
}

func TestXFSOnAnImage(t *testing.T) {
	const uuid = "6ba7b810-9dad-51d1-80b4-00c04fd430c8"
	p := image(t)
	if err := os.Truncate(p, 2<<30); err != nil {
		t.Fatal(err)
	}
	sys := diskSys{}
	x := &storage.XFS{Device: p, UUID: uuid, Args: []string{"-q", "-L", "home", "-m", "uuid=" + uuid, "-s", "size=4096", "-d", "su=128k,sw=2", "-l", "size=64m,su=32k"}}
	as, err := resource.Diff(t.Context(), sys, x)
	if err != nil || len(as) != 1 {
		t.Fatalf("no mkfs: %v %v", as, err)
	}
	run(t, as[0].Cmd...)
	if as, err = resource.Diff(t.Context(), sys, x); err != nil || len(as) != 0 {
		t.Fatalf("a second apply would change: %v %v", as, err)
	}
	// mkfs.xfs that was killed leaves inprogress set.
	run(t, "xfs_db", "-x", "-c", "sb 0", "-c", "write inprogress 1", p)
	as, err = resource.Diff(t.Context(), sys, x)
	if err != nil || len(as) != 1 || as[0].Cmd[1] != "-f" {
		t.Fatalf("the half-made file system is not made again: %v %v", as, err)
	}
	run(t, as[0].Cmd...)
	other := *x
	other.UUID = "00000000-9dad-51d1-80b4-00c04fd430c8"
	if _, err = resource.Diff(t.Context(), sys, &other); !refuses(err, "fs-foreign", "type", "xfs") {
		t.Errorf("a foreign file system is not refused: %v", err)
	}
	ext := image(t)
	run(t, "mkfs.ext4", "-q", "-F", ext)
	if _, err = resource.Diff(t.Context(), sys, &storage.XFS{Device: ext, UUID: uuid}); !refuses(err, "fs-foreign", "type", "ext4") {
		t.Errorf("a foreign file system is not refused: %v", err)
	}
}

// The volume group on a loop device, with the real LVM: made with a system
// ID that is no host's, seen again, and refused to another brick.
func TestVolumeGroupOnALoopDevice(t *testing.T) {
	dev := loop(t, image(t))
	sys := diskSys{}
	v := &storage.VolumeGroup{Name: "brick1_home", PVs: []string{dev}, SystemID: "mortar-brick1-building", RestID: "mortar-brick1", Align: 1 << 20, ExtentSize: 4 << 20, LV: "data"}
	as, err := resource.Diff(t.Context(), sys, v)
	if err != nil || len(as) != 1 {
		t.Fatalf("no vgcreate: %v %v", as, err)
	}
	run(t, as[0].Cmd...)
	if as, err = resource.Diff(t.Context(), sys, v); err != nil || len(as) != 0 {
		t.Fatalf("a second apply would change: %v %v", as, err)
	}
	out := run(t, "lvm", "pvs", "--foreign", "--noheadings", "--units", "b", "-o", "vg_systemid,pe_start,vg_extent_size", "--devices", dev,
		"--config", `global{system_id_source="lvmlocal"} local{system_id="mortar-brick1-building"}`)
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "mortar-brick1-building 1048576B 4194304B") {
		t.Errorf("system ID, start of data or extent size are not as wanted: %s", out)
	}
	l := &storage.LogicalVolume{VG: "brick1_home", Name: "data", PVs: []string{dev}, SystemID: "mortar-brick1-building", Stripes: 1, Activate: true}
	as, err = resource.Diff(t.Context(), sys, l)
	if err != nil || len(as) != 1 || !strings.Contains(strings.Join(as[0].Cmd, " "), "lvcreate") {
		t.Errorf("no lvcreate: %v %v", as, err)
	}
	// Released, and no cluster has it yet: taken back. A node's: refused.
	vgchange := func(from, to string) {
		run(t, "lvm", "vgchange", "--yes", "--systemid", to, "--config", `global{system_id_source="lvmlocal"} local{system_id="`+from+`"}`, "--devices", dev, "brick1_home")
	}
	vgchange("mortar-brick1-building", "mortar-brick1")
	as, err = resource.Diff(t.Context(), sys, v)
	if err != nil || len(as) != 1 || as[0].Title != "take volume group brick1_home back to build it" {
		t.Fatalf("not taken back: %v %v", as, err)
	}
	run(t, as[0].Cmd...)
	if as, err = resource.Diff(t.Context(), sys, v); err != nil || len(as) != 0 {
		t.Fatalf("taken back twice: %v %v", as, err)
	}
	vgchange("mortar-brick1-building", "nfs2")
	if as, err = resource.Diff(t.Context(), sys, v); !refuses(err, "vg-owned", "owner", "nfs2") {
		t.Fatalf("a node's volume group is not refused: %v %v", as, err)
	}
	other := *v
	other.Name = "brick2_home"
	if _, err = resource.Diff(t.Context(), sys, &other); !refuses(err, "vg-other", "vg", "brick1_home") {
		t.Errorf("another brick's volume group is not refused: %v", err)
	}
}
