package vdisk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Drive is a disk as a SCSI device: what it says of itself, its persistent reservations, and its
// speed. QEMU's own disks know no reservations.
//
// Sources: T10 SPC-4 (r37) and SBC-3 (r36).
type Drive struct {
	*Disk
	// Commands hold it for reading while they read and write, and one that changes reservations
	// for writing: what a preempted server has sent before is done or refused then.
	mu sync.RWMutex
	Make
	keys       map[string]uint64 // of registered nexuses
	holder     string            // the nexus that holds the reservation
	kind       byte              // its type
	generation uint32
	attention  map[string]bool // nexuses that have not heard yet that they were preempted

	speed Speed
	due   time.Time // of the next command, if the speed is bounded
	slow  sync.Mutex
}

// Make is what a drive says of itself.
type Make struct {
	Serial, Vendor, Product string
	WWN                     uint64
	SSD                     bool
}

// Speed bounds a drive; 0 is unbounded. Writes bounds writes, and IOPS then reads only.
type Speed struct{ IOPS, BytesPerSecond, Writes int64 }

// Set makes the drive another one, in the same slot, and bounds it from now on.
func (d *Drive) Set(m Make, s Speed) {
	d.mu.Lock()
	d.Make = m
	d.mu.Unlock()
	d.slow.Lock()
	defer d.slow.Unlock()
	if s != d.speed {
		d.speed, d.due = s, time.Time{}
	}
}

// Forget takes the drive's reservations, as a loss of power does. Its write cache stays.
func (d *Drive) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys, d.attention, d.holder, d.generation = nil, nil, "", 0
}

// burst is how long a drive is ahead of its bound at most, as QEMU's throttle.
//
// Source: QEMU, util/throttle.c, throttle_compute_wait
const burst = time.Second / 10

// delay is how long a command of n bytes waits for the drive.
func (d *Drive) delay(n int, write bool) time.Duration {
	d.slow.Lock()
	defer d.slow.Unlock()
	operations := d.speed.IOPS
	if d.speed.Writes > 0 && write {
		operations = d.speed.Writes
	}
	var cost time.Duration
	if operations > 0 {
		cost = time.Second / time.Duration(operations)
	}
	if d.speed.BytesPerSecond > 0 {
		cost += time.Duration(float64(n) / float64(d.speed.BytesPerSecond) * float64(time.Second))
	}
	if cost == 0 {
		return 0
	}
	now := time.Now()
	if d.due.Before(now) {
		d.due = now
	}
	wait := d.due.Sub(now) - burst
	d.due = d.due.Add(cost)
	return wait
}

const block = 512 // bytes of a logical block

// sense is a key and an additional code; the zero value is GOOD.
type sense struct{ key, asc, ascq byte }

var (
	unknownCommand = sense{5, 0x20, 0}
	badField       = sense{5, 0x24, 0}
	badList        = sense{5, 0x26, 0}
	beyondEnd      = sense{5, 0x21, 0}
	mediumError    = sense{3, 0x11, 0}
	preempted      = sense{6, 0x2a, 5} // registrations preempted
	// conflict is no sense: the command ends with RESERVATION CONFLICT.
	conflict = sense{key: 0xff}
)

// Operation codes.
const (
	opRequestSense = 0x03
	opInquiry      = 0x12
	opReportLUNs   = 0xa0
	opPRIn         = 0x5e
	opPROut        = 0x5f
)

// command is a command that a nexus has sent, with all its data.
type command struct {
	nexus string
	port  int
	block []byte // 16 bytes
	data  []byte
}

// transfer is the range of bytes that the command reads or writes.
func (c *command) transfer() (offset, length int64, media, write bool) {
	be, b := binary.BigEndian, c.block
	var at, n uint64
	switch b[0] {
	case 0x08, 0x0a: // READ(6), WRITE(6)
		if at, n = uint64(be.Uint32(b)&0x1fffff), uint64(b[4]); n == 0 {
			n = 256
		}
	case 0x28, 0x2a, 0x2e, 0x2f, 0x35, 0x41: // (10)
		at, n = uint64(be.Uint32(b[2:])), uint64(be.Uint16(b[7:]))
	case 0xa8, 0xaa: // (12)
		at, n = uint64(be.Uint32(b[2:])), uint64(be.Uint32(b[6:]))
	case 0x88, 0x8a, 0x8e, 0x8f, 0x91, 0x93: // (16)
		at, n = be.Uint64(b[2:]), uint64(be.Uint32(b[10:]))
	default:
		return 0, 0, b[0] == 0x42, b[0] == 0x42 // UNMAP
	}
	write = slices.Contains([]byte{0x0a, 0x2a, 0x2e, 0x35, 0x41, 0xaa, 0x8a, 0x8e, 0x91, 0x93}, b[0])
	return int64(min(at, 1<<50)) * block, int64(n) * block, true, write
}

// do carries a command out, and gives the data that it reads.
func (d *Drive) do(c *command) ([]byte, sense) {
	op := c.block[0]
	if op == opPROut {
		d.mu.Lock()
		defer d.mu.Unlock()
		return nil, d.change(c)
	}
	if d.hears(c) {
		return nil, preempted
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	offset, length, media, write := c.transfer()
	switch {
	case media:
		if !d.may(c.nexus, write) {
			return nil, conflict
		}
		if offset > d.Size()-length {
			return nil, beyondEnd
		}
		return d.medium(c, offset, length)
	case op == opPRIn:
		return d.reservations(c)
	case op == opInquiry:
		return d.inquiry(c)
	case op == 0x00 || op == 0x1b || op == 0x1e: // TEST UNIT READY, START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL
		return nil, sense{}
	case op == opRequestSense:
		return append([]byte{0x70, 0, 0, 0, 0, 0, 0, 10}, make([]byte, 10)...), sense{}
	case op == opReportLUNs:
		return []byte{7: 0, 3: 8, 15: 0}, sense{}
	case op == 0x25: // READ CAPACITY(10)
		b := binary.BigEndian.AppendUint32(nil, uint32(min(d.Size()/block-1, 1<<32-1)))
		return binary.BigEndian.AppendUint32(b, block), sense{}
	case op == 0x9e && c.block[1]&0x1f == 0x10: // READ CAPACITY(16): with logical block provisioning, which reads zeroes
		b := binary.BigEndian.AppendUint64(nil, uint64(d.Size()/block-1))
		b = binary.BigEndian.AppendUint32(b, block)
		return append(b, append([]byte{0, 0, 0xc0}, make([]byte, 17)...)...), sense{}
	case op == 0x1a || op == 0x5a:
		return modes(c)
	}
	return nil, unknownCommand
}

// hears says whether a nexus hears only now that it was preempted.
func (d *Drive) hears(c *command) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.attention[c.nexus] || slices.Contains([]byte{opInquiry, opReportLUNs, opRequestSense}, c.block[0]) {
		return false
	}
	delete(d.attention, c.nexus)
	return true
}

func (d *Drive) medium(c *command, offset, length int64) (out []byte, s sense) {
	var err error
	fua := c.block[1]&8 != 0
	switch c.block[0] {
	case 0x08, 0x28, 0xa8, 0x88:
		out = make([]byte, length)
		_, err = d.ReadAt(out, offset)
		fua = false
	case 0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0x8e: // also WRITE AND VERIFY
		if int64(len(c.data)) < length {
			return nil, badList
		}
		_, err = d.WriteAt(c.data[:length], offset)
		fua = fua && c.block[0] != 0x0a
	case 0x35, 0x91: // SYNCHRONIZE CACHE
		err, fua = d.Flush(), false
	case 0x2f, 0x8f: // VERIFY, without data
		fua = false
	case 0x41, 0x93: // WRITE SAME
		err, fua = d.same(c, offset, length), false
	case 0x42:
		if err = d.unmap(c.data); err == errRange {
			return nil, beyondEnd
		}
		fua = false
	}
	if err == nil && fua {
		err = d.Flush()
	}
	if err != nil {
		return nil, mediumError
	}
	return out, sense{}
}

// same writes one block many times. One of zeroes makes a hole.
func (d *Drive) same(c *command, offset, length int64) error {
	if length == 0 {
		length = d.Size() - offset
	}
	if c.block[1]&8 != 0 || len(c.data) < block || !slices.ContainsFunc(c.data[:block], func(b byte) bool { return b != 0 }) {
		return d.Zero(offset, length)
	}
	for at := int64(0); at < length; at += block {
		if _, err := d.WriteAt(c.data[:block], offset+at); err != nil {
			return err
		}
	}
	return nil
}

var errRange = errors.New("a range beyond the end")

func (d *Drive) unmap(list []byte) error {
	for at := 8; at+16 <= len(list); at += 16 {
		from, n := int64(binary.BigEndian.Uint64(list[at:]))*block, int64(binary.BigEndian.Uint32(list[at+8:]))*block
		if from < 0 || from > d.Size()-n {
			return errRange
		}
		if n > 0 {
			if err := d.Zero(from, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// modes are the caching page, with a volatile write cache, and the control page.
func modes(c *command) ([]byte, sense) {
	var pages []byte
	page := c.block[2] & 0x3f
	if page == 0x08 || page == 0x3f {
		p := make([]byte, 20)
		p[0], p[1] = 0x08, 18
		if c.block[2]>>6 != 1 { // not: which values can be changed
			p[2] = 4 // WCE
		}
		pages = append(pages, p...)
	}
	if page == 0x0a || page == 0x3f {
		pages = append(pages, 0x0a, 10, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0) // commands in any order
	}
	if pages == nil {
		return nil, badField
	}
	const dpofua = 0x10
	if c.block[0] == 0x1a {
		return append([]byte{byte(3 + len(pages)), 0, dpofua, 0}, pages...), sense{}
	}
	return append([]byte{0, byte(6 + len(pages)), 0, dpofua, 0, 0, 0, 0}, pages...), sense{}
}

// inquiry gives what QEMU's own disks say, so that a server sees the same disk.
//
// Source: QEMU, hw/scsi/scsi-disk.c, scsi_disk_emulate_vpd_page
func (d *Drive) inquiry(c *command) ([]byte, sense) {
	be := binary.BigEndian
	if c.block[1]&1 == 0 {
		b := fmt.Appendf([]byte{0, 0, 6, 0x12, 91, 0, 0, 2}, "%-8.8s%-16.16s2.5+", cmp.Or(d.Vendor, "QEMU"), cmp.Or(d.Product, "QEMU HARDDISK"))
		return append(b, make([]byte, 60)...), sense{}
	}
	var p []byte
	switch c.block[2] {
	case 0x00:
		p = []byte{0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2}
	case 0x80:
		p = []byte(d.Serial)
	case 0x83:
		serial := d.Serial[:min(len(d.Serial), 20)]
		p = append([]byte{2, 0, 0, byte(len(serial))}, serial...)
		p = be.AppendUint64(append(p, 1, 3, 0, 8), d.WWN)
		// Each path ends in a port of its own, as on a SAS disk.
		p = be.AppendUint64(append(p, 0x61, 0x93, 0, 8), d.WWN^uint64(c.port+1)<<48)
		p = append(p, 0x61, 0x94, 0, 4, 0, 0, 0, byte(c.port))
	case 0xb0:
		p = make([]byte, 60)
		// An optimal transfer of one block, which Linux ignores as one below a page. For none,
		// QEMU would write 4 MiB: md and LVM would align to that.
		// Source: QEMU, hw/scsi/scsi-generic.c; Linux, drivers/scsi/sd.c, sd_validate_opt_xfer_size
		be.PutUint32(p[8:], 1)
		// 4 GiB, the most that Linux asks for at once: an emulated processor is slow to unmap 16 TB.
		be.PutUint32(p[16:], 1<<23) // blocks of an UNMAP
		be.PutUint32(p[20:], 255)   // its ranges
		be.PutUint64(p[32:], 1<<23) // blocks of a WRITE SAME
	case 0xb1:
		p = make([]byte, 60)
		be.PutUint16(p, 7200)
		if d.SSD {
			be.PutUint16(p, 1)
		}
	case 0xb2:
		p = []byte{0, 0xe0, 2, 0} // UNMAP, WRITE SAME(16) and (10) with UNMAP; thin
	default:
		return nil, badField
	}
	return append([]byte{0, c.block[2], 0, byte(len(p))}, p...), sense{}
}

// Types of a reservation.
const (
	writeExclusive      = 1
	exclusiveAccess     = 3
	writeRegistrants    = 5
	exclusiveRegistants = 6
)

func (d *Drive) may(nexus string, write bool) bool {
	switch {
	case d.holder == "" || nexus == d.holder:
		return true
	case !write && (d.kind == writeExclusive || d.kind == writeRegistrants):
		return true
	}
	return d.kind >= writeRegistrants && d.keys[nexus] != 0
}

// reservations is PERSISTENT RESERVE IN.
func (d *Drive) reservations(c *command) ([]byte, sense) {
	be := binary.BigEndian
	b := make([]byte, 8)
	be.PutUint32(b, d.generation)
	switch c.block[1] & 0x1f {
	case 0: // READ KEYS
		for _, n := range slices.Sorted(maps.Keys(d.keys)) {
			b = be.AppendUint64(b, d.keys[n])
		}
	case 1: // READ RESERVATION
		if d.holder != "" {
			b = be.AppendUint64(b, d.keys[d.holder])
			b = append(b, 0, 0, 0, 0, 0, d.kind, 0, 0)
		}
	case 2: // REPORT CAPABILITIES: types by bit
		return []byte{0, 8, 0, 0x80, 1<<writeExclusive | 1<<exclusiveAccess | 1<<writeRegistrants | 1<<exclusiveRegistants, 0, 0, 0}, sense{}
	default:
		return nil, badField
	}
	be.PutUint32(b[4:], uint32(len(b)-8))
	return b, sense{}
}

// change is PERSISTENT RESERVE OUT.
func (d *Drive) change(c *command) sense {
	if len(c.data) < 24 {
		return badList
	}
	action, kind := c.block[1]&0x1f, c.block[2]&0x0f
	key, other := binary.BigEndian.Uint64(c.data), binary.BigEndian.Uint64(c.data[8:])
	if c.data[20] != 0 { // APTPL, all target ports, other initiators: it can none of them
		return badList
	}
	if d.keys == nil {
		d.keys, d.attention = map[string]uint64{}, map[string]bool{}
	}
	own := d.keys[c.nexus]
	if action != 6 && key != own || own == 0 && action != 0 && action != 6 {
		return conflict
	}
	switch action {
	case 0, 6: // REGISTER, REGISTER AND IGNORE EXISTING KEY
		d.generation++
		if d.keys[c.nexus] = other; other == 0 {
			d.remove(c.nexus)
		}
	case 1: // RESERVE
		if !slices.Contains([]byte{writeExclusive, exclusiveAccess, writeRegistrants, exclusiveRegistants}, kind) {
			return badField
		}
		if d.holder != "" && (d.holder != c.nexus || d.kind != kind) {
			return conflict
		}
		d.holder, d.kind = c.nexus, kind
	case 2: // RELEASE
		if d.holder == c.nexus {
			d.holder = ""
		}
	case 3: // CLEAR
		d.generation++
		for n := range d.keys {
			d.preempt(n, c.nexus)
		}
		d.remove(c.nexus)
	case 4, 5: // PREEMPT, PREEMPT AND ABORT
		if other == 0 {
			return badList
		}
		if !slices.Contains(slices.Collect(maps.Values(d.keys)), other) {
			return conflict
		}
		d.generation++
		if d.holder != "" && d.keys[d.holder] == other {
			d.holder, d.kind = c.nexus, kind
		}
		for n, k := range d.keys {
			if k == other {
				d.preempt(n, c.nexus)
			}
		}
	default:
		return badField
	}
	return sense{}
}

// remove ends a registration, and its reservation.
func (d *Drive) remove(nexus string) {
	if delete(d.keys, nexus); d.holder == nexus {
		d.holder = ""
	}
}

// preempt is remove by another nexus, which hears of it at its next command.
func (d *Drive) preempt(nexus, by string) {
	if nexus != by {
		d.remove(nexus)
		d.attention[nexus] = true
	}
}
