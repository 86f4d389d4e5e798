package vdisk

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Disks have a write cache that a flush empties, and that loses its content with their
// power. Here the cache is the memory of a process that serves the disks over iSCSI; the
// rack kills the process to cut their power. There is one process for the shared disks
// (see shelves), and one for the disks inside each server. The file below never loses
// data, since the host keeps its power.
//
// A RAID array's disks have no such cache: arrays keep their cache over a loss of
// power.

const (
	// CacheBlock is the size of a block, which is written back as a whole: a page of
	// the host.
	CacheBlock = 4096
	// CacheBlocks is the number of blocks in a disk's cache: 8 MiB. Real disks have
	// up to 512 MiB, but here the host's memory holds the caches of all disks.
	CacheBlocks = 2048
)

// Disk is an image file behind such a cache.
type Disk struct {
	file *os.File
	size int64

	mu    sync.Mutex
	dirty map[int64][]byte // by block number
	spare [][]byte
}

func Open(file string) (*Disk, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Disk{file: f, size: info.Size(), dirty: map[int64][]byte{}}, nil
}

func (d *Disk) Size() int64 { return d.size }

// pieces calls fn for the part of each block within length bytes from offset on:
// the block, where the part begins in it and in the request, and its length.
func pieces(offset, length int64, fn func(block, in, at, n int64) error) error {
	for at := int64(0); at < length; {
		block, in := (offset+at)/CacheBlock, (offset+at)%CacheBlock
		n := min(CacheBlock-in, length-at)
		if err := fn(block, in, at, n); err != nil {
			return err
		}
		at += n
	}
	return nil
}

func (d *Disk) ReadAt(b []byte, offset int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.file.ReadAt(b, offset)
	if err != nil || len(d.dirty) == 0 {
		return n, err
	}
	return n, pieces(offset, int64(len(b)), func(block, in, at, n int64) error {
		if have := d.dirty[block]; have != nil {
			copy(b[at:at+n], have[in:])
		}
		return nil
	})
}

func (d *Disk) WriteAt(b []byte, offset int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := pieces(offset, int64(len(b)), func(block, in, at, n int64) error {
		have := d.dirty[block]
		if have == nil {
			have = d.block()
			if n < CacheBlock {
				clear(have)
				if _, err := d.file.ReadAt(have, block*CacheBlock); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
			}
			d.dirty[block] = have
		}
		copy(have[in:], b[at:at+n])
		return nil
	})
	if err == nil && len(d.dirty) > CacheBlocks {
		err = d.writeBack(CacheBlocks / 2)
	}
	return len(b), err
}

// block returns memory for a block, with any content.
func (d *Disk) block() []byte {
	if n := len(d.spare); n > 0 {
		b := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return b
	}
	return make([]byte, CacheBlock)
}

// Zero writes at once, which a disk may do at any time.
func (d *Disk) Zero(offset, length int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if offset+length == d.size { // the last block may be partial, and is freed as a whole
		length += -(offset + length) & (CacheBlock - 1)
	}
	for block, have := range d.dirty {
		from, to := max(offset-block*CacheBlock, 0), min(offset+length-block*CacheBlock, CacheBlock)
		switch {
		case to-from == CacheBlock: // written back later it would fill the hole
			delete(d.dirty, block)
			d.spare = append(d.spare, have)
		case from < to:
			clear(have[from:to])
		}
	}
	return unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
}

func (d *Disk) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writeBack(0)
}

// writeBack writes blocks to the file until only left blocks remain, in no particular
// order: as with a real disk, the order of unflushed writes is undefined.
func (d *Disk) writeBack(left int) error {
	for block, have := range d.dirty {
		if len(d.dirty) <= left {
			return nil
		}
		// The last block of a file may be partial.
		if _, err := d.file.WriteAt(have[:min(CacheBlock, d.size-block*CacheBlock)], block*CacheBlock); err != nil {
			return err
		}
		delete(d.dirty, block)
		d.spare = append(d.spare, have)
	}
	return nil
}
