package linux

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// files are files of which some cannot be read.
type files struct{ Files }

func (f files) ReadFile(p string) ([]byte, error) {
	switch f.Files[p] {
	case "EBUSY":
		return nil, &fs.PathError{Op: "read", Path: p, Err: unix.EBUSY}
	case "EIO":
		return nil, errors.New("input/output error")
	}
	return f.Files.ReadFile(p)
}

func TestMDArrays(t *testing.T) {
	f := files{Files{
		"/sys/block/sda/dev":              "8:0\n",
		"/sys/block/md0/md/array_state":   "clear\n", // opened, never used
		"/sys/block/md9/dev":              "9:9\n",   // no md directory
		"/sys/block/md126/md/array_state": "inactive\n",
		"/sys/block/md126/slaves/dm-7/x":  "",
	}}
	for name, text := range map[string]string{
		"array_state": "clean", "level": "raid10", "layout": "258", "uuid": "5d1c0aaa-0123-4567-89ab-cdef00000001",
		"chunk_size": "131072", "raid_disks": "4 (3)", "degraded": "1", "component_size": "1950976", "sync_action": "recover", "mismatch_cnt": "8", "last_sync_action": "check",
		"dev-dm-1/state": "in_sync", "dev-dm-1/slot": "0", "dev-dm-2/state": "faulty,blocked", "dev-dm-2/slot": "none", "dev-dm-2/offset": "2048",
		"dev-dm-3/state": "spare", "dev-dm-3/slot": "1", "dev-dm-4/state": "in_sync,write_error", "dev-dm-4/slot": "3",
	} {
		f.Files["/sys/block/md127/md/"+name] = text + "\n"
	}
	for _, d := range []string{"dm-1", "dm-2", "dm-3", "dm-4"} {
		f.Files["/sys/block/md127/slaves/"+d+"/x"] = ""
	}
	got, err := MDArrays(f)
	want := []MDArray{
		{Dev: "md126", State: "inactive", Members: []string{"dm-7"}},
		{Dev: "md127", UUID: "5d1c0aaa0123456789abcdef00000001", Level: "raid10", State: "clean", Layout: 258, Chunk: 131072, RaidDisks: 4, Degraded: 1,
			Size: 1950976 << 10, Action: "recover", Mismatches: 8,
			Members: []string{"dm-1", "dm-2", "dm-3", "dm-4"}},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	f.Files["/sys/block/md127/md/last_sync_action"] = "resync\n"
	if resynced, err := MDArrays(f); err != nil || resynced[1].Mismatches != 0 {
		t.Errorf("what a resync wrote anew counts as damage: %+v, %v", resynced, err)
	}
	if got[0].Running() || !got[1].Running() {
		t.Error("an inactive array does no I/O, a clean one does")
	}
	ms, err := MDMembers(f, "md127")
	if err != nil || len(ms) != 4 || ms[1].Slot != -1 || !ms[1].Is("blocked") || ms[1].Offset != 1<<20 {
		t.Errorf("%+v, %v", ms, err)
	}
	if d := cmp.Diff([]bool{true, false, false, true}, MDPresent(4, ms, nil)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]bool{true, false, false, false}, MDPresent(4, ms, func(m MDMember) bool { return m.Dev != "dm-4" })); d != "" {
		t.Error(d)
	}
	// One that is being stopped, seen half-way.
	f.Files["/sys/block/md3/md/array_state"] = "EBUSY"
	if as, err := MDArrays(f); err != nil || len(as) != 2 {
		t.Errorf("%+v, %v", as, err)
	}
	f.Files["/sys/block/md127/md/degraded"] = "EIO"
	if _, err := MDArrays(f); err == nil {
		t.Errorf("a file that cannot be read counts as absent: %v", err)
	}
}
