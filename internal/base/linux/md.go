package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/md"
)

// Tree is a host's /sys, or what was copied of it.
type Tree interface {
	// ReadFile gives an error that satisfies errors.Is(err, fs.ErrNotExist) for
	// a file that is not there.
	ReadFile(path string) ([]byte, error)
	// ReadDir names what is in a directory. A directory that is not there has nothing in it,
	// or gives that error.
	ReadDir(path string) ([]string, error)
}

// list names what is in a directory; nothing if it is not there.
func list(t Tree, dir string) ([]string, error) {
	names, err := t.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// padding is what devices and the kernel put around a value.
const padding = " \t\r\n\x00"

// Line is the first line of a small file, without what pads it; "" if it cannot be read.
func Line(t Tree, path string) string {
	b, err := t.ReadFile(path)
	if err != nil {
		return ""
	}
	l, _, _ := strings.Cut(string(b), "\n")
	return strings.Trim(l, padding)
}

// Files is what was copied of a host, by path, as a Tree.
type Files map[string]string

// ReadFile gives a file that was copied.
func (f Files) ReadFile(p string) ([]byte, error) {
	text, ok := f[p]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

// ReadDir names what is in a directory, sorted.
func (f Files) ReadDir(dir string) ([]string, error) {
	names := map[string]bool{}
	for p := range f {
		if rest, ok := strings.CutPrefix(p, dir+"/"); ok {
			n, _, _ := strings.Cut(rest, "/")
			names[n] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// MDArray is an md array as the kernel has it.
// Source: Documentation/admin-guide/md.rst of the kernel.
type MDArray struct {
	Dev       string // md127
	UUID      string // 32 hex digits; "" or zeros while the array is inactive
	Level     string // raid6
	State     string // array_state: clean, active, inactive …
	Layout    uint32
	Chunk     int // bytes
	RaidDisks int
	Degraded  int    // members that are missing
	Size      int64  // bytes of each member that are used
	Action    string // sync_action: idle, resync, recovery, check, repair …
	// Mismatches are the sectors that did not match in the last check or repair. The
	// kernel also counts what a resync writes anew, which is no damage: 0.
	Mismatches int64
	Members    []string // kernel names: dm-3, sda
}

// Running tells whether the array does I/O.
func (a MDArray) Running() bool {
	return a.State != "" && a.State != "inactive" && a.State != "clear"
}

// MDArrays reads the arrays of a host. Devices that were opened and never used
// are left out.
func MDArrays(t Tree) ([]MDArray, error) {
	names, err := list(t, "/sys/block")
	if err != nil {
		return nil, err
	}
	var as []MDArray
	for _, n := range names {
		if !strings.HasPrefix(n, "md") {
			continue
		}
		a := MDArray{Dev: n}
		r := reader{t: t, dir: "/sys/block/" + n + "/md/"}
		a.State = r.line("array_state")
		if a.Members, err = list(t, "/sys/block/"+n+"/slaves"); err != nil {
			return nil, err
		}
		if a.State == "" || a.State == "clear" && len(a.Members) == 0 {
			if r.err != nil {
				return nil, r.err
			}
			continue
		}
		a.UUID, a.Level, a.Layout = md.Hex(r.line("uuid")), r.line("level"), uint32(r.number("layout"))
		// "4 (3)" while it is reshaped; absent while it is inactive.
		a.Chunk, a.RaidDisks, a.Degraded = r.number("chunk_size"), r.number("raid_disks"), r.number("degraded")
		a.Size = int64(r.number("component_size")) * 1024
		a.Action = r.line("sync_action")
		// The last action is the present one while there is one. Kernels have called
		// it resync and recovery, or recover.
		if last := r.line("last_sync_action"); !strings.HasPrefix(last, "re") || last == "repair" {
			a.Mismatches = int64(r.number("mismatch_cnt"))
		}
		if r.err != nil {
			return nil, r.err
		}
		as = append(as, a)
	}
	return as, nil
}

// sector is the unit of sysfs, bytes.
const sector = 512

// MDMember is a device of an array.
type MDMember struct {
	Dev    string
	States []string // in_sync, faulty, spare, write_error …
	Slot   int      // -1: none
	Offset int64    // where its data begins, bytes
}

func (m MDMember) Is(state string) bool { return slices.Contains(m.States, state) }

// MDMembers reads the members of an array, those that it has thrown out too.
// Source: Documentation/admin-guide/md.rst, dev-XXX.
func MDMembers(t Tree, dev string) ([]MDMember, error) {
	dir := "/sys/block/" + dev + "/md"
	names, err := list(t, dir)
	if err != nil {
		return nil, err
	}
	var ms []MDMember
	for _, n := range names {
		of, ok := strings.CutPrefix(n, "dev-")
		if !ok {
			continue
		}
		r := reader{t: t, dir: dir + "/" + n + "/"}
		m := MDMember{Dev: of, States: strings.Split(r.line("state"), ","), Slot: -1, Offset: int64(r.number("offset")) * sector}
		if slot, err := strconv.Atoi(r.line("slot")); err == nil {
			m.Slot = slot
		}
		if r.err != nil {
			return nil, r.err
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// MDSparesFiles are the notes of the spares of a server's services that no array has: package mdraid
// keeps them out of the arrays until a member fails.
const MDSparesFiles = "/run/mortar/spares-*.json"

// MDSpares reads these notes: the UUIDs of the arrays that spares are of, by their devices.
func MDSpares(t Tree) (map[string]string, error) {
	dir, pattern := path.Split(MDSparesFiles)
	names, err := list(t, path.Clean(dir))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, n := range names {
		if is, _ := path.Match(pattern, n); !is {
			continue
		}
		text, err := t.ReadFile(dir + n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the service has stopped
		}
		if err == nil {
			err = json.Unmarshal(text, &out)
		}
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", dir, n, err)
		}
	}
	return out, nil
}

// MDPresent tells for each slot of an array whether md reads data from its member.
// md does not read from a member that it has thrown out, nor from one whose rebuild
// has not ended. also is a further condition on the member; it may be nil.
func MDPresent(disks int, members []MDMember, also func(MDMember) bool) []bool {
	present := make([]bool, disks)
	for _, m := range members {
		if m.Slot >= 0 && m.Slot < disks && m.Is("in_sync") && (also == nil || also(m)) {
			present[m.Slot] = true
		}
	}
	return present
}

// reader reads small files below a directory, and keeps the first error that
// is more than a missing file. The kernel answers ENODEV or EBUSY for an array
// that is being stopped at this moment: that one is gone.
// Source: drivers/md/md.c, md_attr_show
type reader struct {
	t   Tree
	dir string
	err error
}

func (r *reader) line(name string) string {
	b, err := r.t.ReadFile(r.dir + name)
	if err != nil {
		gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EBUSY)
		if r.err == nil && !gone {
			r.err = fmt.Errorf("%s%s: %w", r.dir, name, err)
		}
		return ""
	}
	l, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(l)
}

func (r *reader) number(name string) int {
	n, _ := strconv.Atoi(strings.Fields(r.line(name) + " 0")[0])
	return n
}
