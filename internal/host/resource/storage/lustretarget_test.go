package storage

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// recorded is what a tool of Lustre 2.17.57-62-gc881f8e, e2fsprogs 1.45.6.wc2
// and util-linux printed; only device names were changed.
func recorded(t *testing.T, name string) resource.Output {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../testdata/lustre-2.17.57", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return resource.Output{Stdout: string(b)}
}

var (
	lustreNIDs = []string{"10.77.1.11@tcp", "10.77.1.12@tcp"}
	lustreOST  = LustreTarget{
		Name: "home-OST000a", Device: "/dev/md/ost", Args: []string{"--ost", "--fsname=home", "--index=10"},
		MGSNIDs: lustreNIDs, ServiceNIDs: []string{"10.77.1.12@tcp", "10.77.1.11@tcp"},
	}
)

// targetOn is a host whose device carries what the tools saw.
func targetOn(t *testing.T, dev, blkid, tunefs string) *resource.Paper {
	t.Helper()
	f := &resource.Paper{Files: map[string]string{dev: "", "/proc/self/mounts": ""}, Outputs: map[string]resource.Output{
		"blkid --probe --output export " + dev: {Code: 2},
		"tunefs.lustre --dryrun " + dev:        {Code: 19, Stderr: "tunefs.lustre FATAL: Device " + dev + " has not been formatted with mkfs.lustre\n"},
	}}
	if blkid != "" {
		f.Outputs["blkid --probe --output export "+dev] = recorded(t, blkid)
	}
	if tunefs != "" {
		f.Outputs["tunefs.lustre --dryrun "+dev] = recorded(t, tunefs)
	}
	return f
}

func TestLustreTargetIsMadeOnce(t *testing.T) {
	ost := lustreOST
	make := "mkfs.lustre --ost --fsname=home --index=10 /dev/md/ost"
	for name, sys := range map[string]*resource.Paper{
		"the device is not there yet": {},
		"blank":                       targetOn(t, ost.Device, "", ""),
	} {
		as := diff(t, &ost, sys)
		wantShow(t, as, make)
		if len(as[0].Blank) != 1 || as[0].Blank[0] != ost.Device {
			t.Errorf("%s: the server does not look once more whether %s is blank: %v", name, ost.Device, as[0].Blank)
		}
	}
	if as := diff(t, &ost, targetOn(t, ost.Device, "blkid-ost", "tunefs-ost")); len(as) != 0 {
		t.Errorf("a second apply would change: %s", show(as))
	}
	// Registered and mounted: looking goes on as before.
	mounted := lustreOST
	mounted.Name = "home-OST0000"
	if as := diff(t, &mounted, targetOn(t, mounted.Device, "blkid-mounted", "tunefs-mounted")); len(as) != 0 {
		t.Errorf("a mounted target would change: %s", show(as))
	}
	mgs := &LustreTarget{Name: "MGS", Device: "/dev/md/mgs", ServiceNIDs: lustreNIDs}
	if as := diff(t, mgs, targetOn(t, mgs.Device, "blkid-mgs", "tunefs-mgs")); len(as) != 0 {
		t.Errorf("a second apply would change the MGS: %s", show(as))
	}
	mdt := &LustreTarget{Name: "home-MDT0000", Device: "/dev/md/mdt", MGSNIDs: lustreNIDs, ServiceNIDs: lustreNIDs}
	if as := diff(t, mdt, targetOn(t, mdt.Device, "blkid-mdt", "tunefs-mdt")); len(as) != 0 {
		t.Errorf("a second apply would change the MDT: %s", show(as))
	}
}

// mkfs.lustre that was killed between mke2fs and its own data left a file
// system with the label and nothing in it.
func TestLustreTargetCutShort(t *testing.T) {
	ost := lustreOST
	sys := targetOn(t, ost.Device, "blkid-ost", "")
	sys.Outputs["debugfs -c -R ls -p / /dev/md/ost"] = recorded(t, "debugfs-cut-short")
	wantShow(t, diff(t, &ost, sys), "mkfs.lustre --reformat --ost --fsname=home --index=10 /dev/md/ost")

	held := recorded(t, "debugfs-cut-short")
	held.Stdout += "/14/100644/0/0/thesis.tex/81234/\n"
	sys.Outputs["debugfs -c -R ls -p / /dev/md/ost"] = held
	refused(t, &ost, sys, "target-not-lustre", "files", "thesis.tex")

	sys.Outputs["debugfs -c -R ls -p / /dev/md/ost"] = resource.Output{Stderr: "debugfs: Bad magic number in super-block\n"}
	if as, err := resource.Diff(t.Context(), sys, &ost); err == nil || !strings.Contains(err.Error(), "shows nothing") {
		t.Errorf("a file system that debugfs cannot read counts as empty: %v %v", as, err)
	}

	registered := targetOn(t, ost.Device, "blkid-ost", "")
	o := registered.Outputs["blkid --probe --output export /dev/md/ost"]
	o.Stdout = strings.ReplaceAll(o.Stdout, "home:OST000a", "home-OST000a")
	registered.Outputs["blkid --probe --output export /dev/md/ost"] = o
	refused(t, &ost, registered, "fs-foreign", "device", "/dev/md/ost", "type", "ext4")
}

func TestForeignLustreTarget(t *testing.T) {
	for _, c := range []struct {
		name, blkid, tunefs string
		change              func(*LustreTarget)
		want                []string
	}{
		{"of another file system", "blkid-ost", "tunefs-ost", func(x *LustreTarget) { x.Name = "work-OST000a" }, []string{"target-other", "target", "home-OST000a", "fs", "home", "want", "work-OST000a"}},
		{"with another index", "blkid-ost", "tunefs-ost", func(x *LustreTarget) { x.Name = "home-OST0001" }, []string{"target-other", "target", "home-OST000a", "want", "home-OST0001"}},
		{"an MDT", "blkid-mdt", "tunefs-mdt", nil, []string{"target-other", "target", "home-MDT0000"}},
		{"an MGS", "blkid-mgs", "tunefs-mgs", nil, []string{"target-other", "target", "MGS"}},
		{"of another MGS", "blkid-ost", "tunefs-ost", func(x *LustreTarget) { x.MGSNIDs = []string{"10.9.9.9@tcp"} }, []string{"target-nids", "node", "the MGS", "nids", "10.77.1.11@tcp", "nids", "10.77.1.12@tcp", "want", "10.9.9.9@tcp"}},
		{"of other servers", "blkid-ost", "tunefs-ost", func(x *LustreTarget) { x.ServiceNIDs = []string{"10.77.1.11@tcp"} }, []string{"target-nids", "node", "its servers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ost := lustreOST
			if c.change != nil {
				c.change(&ost)
			}
			refused(t, &ost, targetOn(t, ost.Device, c.blkid, c.tunefs), c.want[0], c.want[1:]...)
		})
	}
	ost := lustreOST
	sys := targetOn(t, ost.Device, "", "")
	sys.Outputs["blkid --probe --output export /dev/md/ost"] = resource.Output{Stdout: "DEVNAME=/dev/md/ost\nUUID=6ba7b810-9dad-51d1-80b4-00c04fd430c8\nTYPE=xfs\n"}
	refused(t, &ost, sys, "fs-foreign", "device", "/dev/md/ost", "type", "xfs")
}

func TestSplitTarget(t *testing.T) {
	for in, want := range map[string]string{
		"home-OST000a": "home OST 10", "home:MDT0000": "home MDT 0", "h=OST0001": "h OST 1", "longname+OSTffff": "longname OST 65535", "MGS": "  -1", "": "  -1", "home-OSTzzzz": "  -1",
	} {
		fs, kind, i := splitTarget(in)
		if got := strings.Join([]string{fs, kind, strconv.Itoa(i)}, " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A target on a volume whose link udev has not made yet is there all the same.
func TestLustreTargetWhoseLinkIsNotMadeYet(t *testing.T) {
	sys := targetOn(t, "/dev/dm-3", "blkid-ost", "tunefs-ost")
	sys.Files["/sys/block/dm-3/dm/name"] = "small-ost\n"
	ost := lustreOST
	ost.Device = "/dev/small/ost"
	if as := diff(t, &ost, sys); len(as) > 0 {
		t.Errorf("%s", show(as))
	}
}
