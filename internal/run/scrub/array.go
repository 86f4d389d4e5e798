package scrub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/quick"
	"github.com/mortarhpc/mortar/internal/base/raid6"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// Array is a running md RAID 6 on this host.
type Array struct {
	Dev   string // md127
	Disks int
	Chunk int64 // bytes
	Size  int64 // used bytes of each member
	// Members by slot.
	Members []Member

	sys  string // its md directory in sysfs
	poke func(file, value string) error
}

// Member is one disk of the array.
type Member struct {
	Dev    string // dm-3
	Offset int64  // where its data begins, bytes
}

// sector of sysfs and of md, bytes.
const sector = 512

// Open reads the kernel's description of an array; path is any name of the array,
// e.g. /dev/md/brick1-r0. Open refuses a degraded or syncing array and other
// layouts: without one member the wrong one cannot be located.
func Open(path string) (*Array, error) {
	real, err := quick.Resolve(path)
	if err != nil {
		return nil, err
	}
	here := resource.Tree{Sys: agent.HostSys{}}
	arrays, err := linux.MDArrays(here)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(arrays, func(m linux.MDArray) bool { return m.Dev == filepath.Base(real) })
	if i < 0 {
		return nil, fmt.Errorf("%s is no md array", path)
	}
	m := arrays[i]
	a := &Array{Dev: m.Dev, Disks: m.RaidDisks, Chunk: int64(m.Chunk), Size: m.Size, sys: filepath.Join("/sys/block", m.Dev, "md"), poke: kernel.New().Poke}
	switch {
	case m.Level != "raid6" || m.Layout != raid6.LeftSymmetric:
		return nil, fmt.Errorf("%s is %s with layout %d; only raid6 with the layout left-symmetric (%d) is known here", path, m.Level, m.Layout, raid6.LeftSymmetric)
	case m.Degraded != 0 || m.Action != "idle":
		return nil, fmt.Errorf("%s is not whole and idle (degraded %d, %s): wait until it is", path, m.Degraded, m.Action)
	case a.Disks < 4 || a.Chunk < raid6.Block || a.Chunk%raid6.Block != 0 || a.Size < a.Chunk:
		return nil, fmt.Errorf("%s has %d disks, chunks of %d bytes and %d bytes of each disk", path, a.Disks, a.Chunk, a.Size)
	}
	members, err := linux.MDMembers(here, m.Dev)
	if err != nil {
		return nil, err
	}
	for slot := range a.Disks {
		i := slices.IndexFunc(members, func(m linux.MDMember) bool { return m.Slot == slot && m.Is("in_sync") && m.Offset > 0 })
		if i < 0 {
			return nil, fmt.Errorf("%s has no member in sync in slot %d", path, slot)
		}
		a.Members = append(a.Members, Member{Dev: members[i].Dev, Offset: members[i].Offset})
	}
	return a, nil
}

func (a *Array) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(a.sys, name))
	return strings.TrimSpace(string(b)), err
}

func (a *Array) number(name string) (int64, error) {
	s, err := a.read(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", name, a.Dev, err)
	}
	return n, nil
}

// write writes a value to a file of md in sysfs. It retries for a moment, since the
// kernel returns EBUSY while it finishes the previous check.
func (a *Array) write(name, value string) error {
	for try := 0; ; try++ {
		err := a.poke(filepath.Join(a.sys, name), value)
		if !errors.Is(err, unix.EBUSY) || try == 50 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Rows is the number of rows of chunks in the array.
func (a *Array) Rows() int64 { return a.Size / a.Chunk }

// Check makes the kernel compare data and parities of a range of rows, at the speed
// of the disks. It returns the number of sectors that did not match.
//
// Source: Documentation/admin-guide/md.rst, sync_action, sync_min, mismatch_cnt
func (a *Array) Check(ctx context.Context, from, to int64) (mismatches int64, err error) {
	per := a.Chunk / sector
	end := strconv.FormatInt(to*per, 10)
	if to >= a.Rows() {
		end = "max"
	}
	// Raise the maximum first: the kernel refuses a minimum above it.
	for _, w := range [][2]string{{"sync_max", "max"}, {"sync_min", strconv.FormatInt(from*per, 10)}, {"sync_max", end}, {"sync_action", "check"}} {
		if err := a.write(w[0], w[1]); err != nil {
			return 0, fmt.Errorf("%s %s: %w", w[0], w[1], err)
		}
	}
	defer func() {
		err = errors.Join(err, a.write("sync_action", "idle"), a.write("sync_max", "max"), a.write("sync_min", "0"))
	}()
	for {
		action, err := a.read("sync_action")
		if err != nil {
			return 0, err
		}
		if action != "check" {
			// md ends only at the end of the array, and then forgets the begin. Source: md_do_sync()
			if place, err := a.number("sync_min"); err != nil || place != 0 || end != "max" {
				return 0, cmp.Or(err, fmt.Errorf("the check of %s was ended from outside", a.Dev))
			}
			break
		}
		// At a maximum below the end of the array md waits instead of ending.
		done, err := a.read("sync_completed")
		if err != nil {
			return 0, err
		}
		if at, _, ok := strings.Cut(done, " "); ok && end != "max" {
			if n, err := strconv.ParseInt(at, 10, 64); err == nil && n >= to*per {
				break
			}
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return a.number("mismatch_cnt")
}

// Finding is a run of wrong blocks of one member, or with Member "" a run of
// mismatches whose wrong member is unknown.
type Finding struct {
	Row    int64  `json:"row"`              // of chunks, from 0
	Member string `json:"member,omitempty"` // device; dm-3
	Slot   int    `json:"slot"`             // of the member; -1: unknown
	Offset int64  `json:"offset"`           // on the member's device, bytes
	Bytes  int64  `json:"bytes"`
	Holds  string `json:"holds"` // data, P or Q
	Mended bool   `json:"mended"`
}

// Scan finds the wrong members in a range of rows, and with mend writes the right
// data to them. The kernel suspends writes to a row while Scan mends it.
func (a *Array) Scan(ctx context.Context, from, to int64, mend bool, found func(Finding)) (err error) {
	files := make([]*os.File, a.Disks)
	defer func() {
		for _, f := range files {
			if f != nil {
				err = errors.Join(err, f.Close())
			}
		}
	}()
	bufs := make([][]byte, a.Disks)
	for i, m := range a.Members {
		// With O_DIRECT, since md itself does not use the page cache.
		mode := os.O_RDONLY
		if mend {
			mode = os.O_RDWR
		}
		if files[i], err = os.OpenFile("/dev/"+m.Dev, mode|unix.O_DIRECT|unix.O_SYNC, 0); err != nil {
			return err
		}
		bufs[i] = linux.Aligned(int(a.Chunk))
	}
	for row := from; row < min(to, a.Rows()); row++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, err := a.look(files, bufs, row)
		if err != nil {
			return err
		}
		if l.OK() {
			continue
		}
		if err := a.row(files, bufs, row, mend, found); err != nil {
			return fmt.Errorf("row %d: %w", row, err)
		}
	}
	return nil
}

// look reads a row and locates the wrong blocks.
func (a *Array) look(files []*os.File, bufs [][]byte, row int64) (raid6.Located, error) {
	for i, f := range files {
		if _, err := f.ReadAt(bufs[i], a.Members[i].Offset+row*a.Chunk); err != nil {
			return raid6.Located{}, fmt.Errorf("%s: %w", a.Members[i].Dev, err)
		}
	}
	p, q, data := a.parts(bufs, row)
	return raid6.Locate(p, q, data)
}

func (a *Array) parts(bufs [][]byte, row int64) (p, q []byte, data [][]byte) {
	ip, iq, id := raid6.Layout{Disks: a.Disks}.Row(row)
	for _, i := range id {
		data = append(data, bufs[i])
	}
	return bufs[ip], bufs[iq], data
}

// row looks at a row again while writes to it are suspended, since a mismatch may
// have been a write under way.
func (a *Array) row(files []*os.File, bufs [][]byte, row int64, mend bool, found func(Finding)) (err error) {
	width := a.Chunk * int64(a.Disks-2) / sector
	// In sectors of the array; md suspends no writes while low is not below high.
	// Source: Documentation/admin-guide/md.rst, suspend_lo
	if err := errors.Join(a.write("suspend_lo", strconv.FormatInt(row*width, 10)), a.write("suspend_hi", strconv.FormatInt((row+1)*width, 10))); err != nil {
		return errors.Join(err, a.write("suspend_hi", "0"), a.write("suspend_lo", "0"))
	}
	defer func() {
		err = errors.Join(err, a.write("suspend_hi", "0"), a.write("suspend_lo", "0"))
	}()
	l, err := a.look(files, bufs, row)
	if err != nil || l.OK() {
		return err
	}
	p, q, data := a.parts(bufs, row)
	if mend {
		raid6.Mend(p, q, data, l)
	}
	ip, iq, id := raid6.Layout{Disks: a.Disks}.Row(row)
	for b := range int(a.Chunk / raid6.Block) {
		culprit, ok := l.Bad[b]
		if !ok {
			continue
		}
		slot, holds := 0, "data"
		switch culprit {
		case raid6.P:
			slot, holds = ip, "P"
		case raid6.Q:
			slot, holds = iq, "Q"
		default:
			slot = id[culprit]
		}
		m := a.Members[slot]
		x := Finding{Row: row, Member: m.Dev, Slot: slot, Offset: m.Offset + row*a.Chunk + int64(b*raid6.Block), Bytes: raid6.Block, Holds: holds}
		if mend {
			if _, err := files[slot].WriteAt(bufs[slot][b*raid6.Block:(b+1)*raid6.Block], x.Offset); err != nil {
				return fmt.Errorf("%s: %w", m.Dev, err)
			}
			x.Mended = true
		}
		found(x)
	}
	for _, b := range l.Unknown {
		found(Finding{Row: row, Slot: -1, Offset: int64(b * raid6.Block), Bytes: raid6.Block, Holds: "data"})
	}
	return nil
}

// Forget empties md's stripe cache: after a repair it may still hold wrong data.
func (a *Array) Forget() error {
	size, err := a.read("stripe_cache_size")
	if err != nil {
		return err
	}
	const least = "17" // Source: raid5_set_cache_size in drivers/md/raid5.c
	return errors.Join(a.write("stripe_cache_size", least), a.write("stripe_cache_size", size))
}

// Result of a scrub.
type Result struct {
	Array      string    `json:"array"`   // the name given by the caller
	Dev        string    `json:"dev"`     // the kernel's name
	Bytes      int64     `json:"bytes"`   // checked bytes of all members together
	Percent    float64   `json:"percent"` // of the array that were checked
	Mismatches int64     `json:"mismatches_sectors"`
	Findings   []Finding `json:"findings"` // the first mostFindings
	Found      int       `json:"found"`    // wrong blocks
	Mended     int       `json:"mended"`
	Unknown    int       `json:"unknown"` // mismatching blocks whose wrong member is unknown
	// Left is the number of sectors that still do not match after the repair.
	Left int64 `json:"left_sectors"`
}

// few is the number of rows up to which Scrub looks block by block. For more it first
// narrows the range down with the kernel's faster check.
const few = 64

// mostFindings bounds the findings in a result.
const mostFindings = 1000

// Scrub checks the whole array and finds the wrong members of mismatches. With mend
// it repairs these and checks the places again.
func (a *Array) Scrub(ctx context.Context, mend bool) (Result, error) {
	r := Result{Dev: a.Dev, Bytes: a.Size * int64(a.Disks), Percent: 100, Findings: []Finding{}}
	var wrong [][2]int64
	var err error
	if r.Mismatches, err = a.narrow(ctx, 0, a.Rows(), &wrong); err != nil {
		return r, err
	}
	for _, w := range wrong {
		err := a.Scan(ctx, w[0], w[1], mend, func(f Finding) {
			r.Found++
			switch {
			case f.Slot < 0:
				r.Unknown++
			case f.Mended:
				r.Mended++
			}
			if len(r.Findings) < mostFindings {
				r.Findings = append(r.Findings, f)
			}
		})
		if err != nil {
			return r, err
		}
	}
	if !mend {
		r.Left = r.Mismatches
		return r, nil
	}
	if err := a.Forget(); err != nil {
		return r, err
	}
	for _, w := range wrong {
		n, err := a.Check(ctx, w[0], w[1])
		if err == nil && n > 0 {
			// Check again: the first check may have used stripes of the cache, and
			// it has replaced them.
			n, err = a.Check(ctx, w[0], w[1])
		}
		if err != nil {
			return r, err
		}
		r.Left += n
	}
	return r, nil
}

// Compare checks the array from its begin on, for so long, in ranges that grow while they are
// quick. A check that md delays for twice the time is an error.
func (a *Array) Compare(ctx context.Context, within time.Duration) (Result, error) {
	r := Result{Dev: a.Dev, Findings: []Finding{}}
	ctx, cancel := context.WithTimeout(ctx, 2*within)
	defer cancel()
	rows, began := int64(0), time.Now()
	for step := int64(few); rows < a.Rows() && time.Since(began) < within; {
		last := time.Now()
		n, err := a.Check(ctx, rows, rows+step)
		if err != nil {
			return r, err
		}
		r.Mismatches += n
		rows = min(rows+step, a.Rows())
		if time.Since(last) < within/20 {
			step *= 4
		}
	}
	r.Left, r.Bytes, r.Percent = r.Mismatches, rows*a.Chunk*int64(a.Disks), 100*float64(rows)/float64(a.Rows())
	return r, nil
}

// narrow checks a range part by part and collects the ranges of few rows with
// mismatches. It returns the mismatches of the whole range.
func (a *Array) narrow(ctx context.Context, from, to int64, wrong *[][2]int64) (mismatches int64, err error) {
	if to-from <= few {
		n, err := a.Check(ctx, from, to)
		if n > 0 {
			*wrong = append(*wrong, [2]int64{from, to})
		}
		return n, err
	}
	step := max(few, (to-from+15)/16)
	for at := from; at < to; at += step {
		end := min(at+step, to)
		n, err := a.Check(ctx, at, end)
		mismatches += n
		switch {
		case err != nil:
			return mismatches, err
		case n == 0:
		case end-at <= few:
			*wrong = append(*wrong, [2]int64{at, end})
		default:
			if _, err := a.narrow(ctx, at, end, wrong); err != nil {
				return mismatches, err
			}
		}
	}
	return mismatches, nil
}
