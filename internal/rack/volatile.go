package rack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Disks have a write cache that a flush empties, and that loses its content with their
// power. Here the cache is the memory of a process that serves the disks over NBD; the
// rack kills the process to cut their power. There is one process for the shared disks
// (see shelves), and one for the disks inside each server. The file below never loses
// data, since the host keeps its power.
//
// A RAID array's disks have no such cache: arrays keep their cache over a loss of
// power.

const (
	// cacheBlock is the size of a block, which is written back as a whole: a page of
	// the host.
	cacheBlock = 4096
	// cacheBlocks is the number of blocks in a disk's cache: 8 MiB. Real disks have
	// up to 512 MiB, but here the host's memory holds the caches of all disks.
	cacheBlocks = 2048
)

// diskTime bounds the work of qemuIO, which takes seconds at most.
const diskTime = time.Minute

// shelves is the process of the shared disks.
const shelves = "shelves"

// volatileDisk is an image file behind such a cache.
type volatileDisk struct {
	file *os.File
	size int64

	mu    sync.Mutex
	dirty map[int64][]byte // by block number
	spare [][]byte
}

func openVolatile(file string) (*volatileDisk, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &volatileDisk{file: f, size: info.Size(), dirty: map[int64][]byte{}}, nil
}

func (d *volatileDisk) Size() int64 { return d.size }

// pieces calls fn for the part of each block within length bytes from offset on:
// the block, where the part begins in it and in the request, and its length.
func pieces(offset, length int64, fn func(block, in, at, n int64) error) error {
	for at := int64(0); at < length; {
		block, in := (offset+at)/cacheBlock, (offset+at)%cacheBlock
		n := min(cacheBlock-in, length-at)
		if err := fn(block, in, at, n); err != nil {
			return err
		}
		at += n
	}
	return nil
}

func (d *volatileDisk) ReadAt(b []byte, offset int64) (int, error) {
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

func (d *volatileDisk) WriteAt(b []byte, offset int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := pieces(offset, int64(len(b)), func(block, in, at, n int64) error {
		have := d.dirty[block]
		if have == nil {
			have = d.block()
			if n < cacheBlock {
				clear(have)
				if _, err := d.file.ReadAt(have, block*cacheBlock); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
			}
			d.dirty[block] = have
		}
		copy(have[in:], b[at:at+n])
		return nil
	})
	if err == nil && len(d.dirty) > cacheBlocks {
		err = d.writeBack(cacheBlocks / 2)
	}
	return len(b), err
}

// block returns memory for a block, with any content.
func (d *volatileDisk) block() []byte {
	if n := len(d.spare); n > 0 {
		b := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return b
	}
	return make([]byte, cacheBlock)
}

// Zero writes at once, which a disk may do at any time.
func (d *volatileDisk) Zero(offset, length int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if offset+length == d.size { // the last block may be partial, and is freed as a whole
		length += -(offset + length) & (cacheBlock - 1)
	}
	for block, have := range d.dirty {
		from, to := max(offset-block*cacheBlock, 0), min(offset+length-block*cacheBlock, cacheBlock)
		switch {
		case to-from == cacheBlock: // written back later it would fill the hole
			delete(d.dirty, block)
			d.spare = append(d.spare, have)
		case from < to:
			clear(have[from:to])
		}
	}
	return unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
}

func (d *volatileDisk) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writeBack(0)
}

// writeBack writes blocks to the file until only left blocks remain, in no particular
// order: as with a real disk, the order of unflushed writes is undefined.
func (d *volatileDisk) writeBack(left int) error {
	for block, have := range d.dirty {
		if len(d.dirty) <= left {
			return nil
		}
		// The last block of a file may be partial.
		if _, err := d.file.WriteAt(have[:min(cacheBlock, d.size-block*cacheBlock)], block*cacheBlock); err != nil {
			return err
		}
		delete(d.dirty, block)
		d.spare = append(d.spare, have)
	}
	return nil
}

// insideName is the process of the disks inside a server.
func insideName(server string) string { return "disks-" + server }

// shelf is the process that serves a shared disk, or an SSD inside a server.
func (d Disk) shelf() string {
	if d.Node != "" {
		return insideName(d.Node)
	}
	return shelves
}

// nbdSocket is the socket of a process that serves disks, in the run directory.
func nbdSocket(process string) string { return process + ".nbd" }

// imagesOf returns the image files that a process serves, by the export's name.
func (r *rack) imagesOf(process string) map[string]string {
	out := map[string]string{}
	for _, d := range r.cfg.sharedDisks() {
		if d.array == nil && process == shelves {
			out[d.blockID()] = diskImage(r.dir, d.Name)
		}
	}
	for i, d := range r.cfg.SSDs {
		if d.shelf() == process {
			out[ssdID(i)] = diskImage(r.dir, d.Name)
		}
	}
	for i := range r.cfg.Nodes {
		n := &r.cfg.Nodes[i]
		if !isServer(n) || insideName(n.Name) != process {
			continue
		}
		for _, d := range systemDisksOf(r.dir, n) {
			out[d.blockID()] = d.Image
		}
	}
	return out
}

// qemuIO runs commands of qemu-io(1) on each of some disks that a process serves: on the
// disk with its cache. qemu-io then closes the disk, which flushes it.
func (r *rack) qemuIO(ctx context.Context, process string, disks []string, commands ...string) error {
	// A relative path, as in ServeDisks.
	argv := []string{"env", "--chdir=" + runDir(r.dir), "qemu-io"}
	for _, d := range disks {
		argv = append(argv, "-c", "open -o driver=nbd,export="+d+",server.type=unix,server.path="+nbdSocket(process))
		for _, c := range commands {
			argv = append(argv, "-c", c)
		}
		argv = append(argv, "-c", "close")
	}
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	return run(ctx, argv...)
}

// shelvesPowered reports whether the shared disks have power. They are connected to
// every PDU, so they lose power when all outlets of all PDUs are off.
func (h *hardware) shelvesPowered(c *Config) bool {
	return len(c.PDUs) == 0 || slices.ContainsFunc(c.PDUs, func(p PDU) bool {
		for o := 1; o <= p.Outlets; o++ {
			if !h.Off[outletKey(p.Name, o)] {
				return true
			}
		}
		return false
	})
}

// powerShelves switches the shared disks on or off. Off they lose their unwritten data.
func (r *rack) powerShelves(ctx context.Context, h *hardware) error {
	if !h.shelvesPowered(r.cfg) {
		return stop(r.dir, shelves)
	}
	return r.startDisks(ctx, shelves)
}

// startDisks switches a process's disks on unless they are on.
func (r *rack) startDisks(ctx context.Context, name string) error {
	if running(r.dir, name) != nil || len(r.imagesOf(name)) == 0 {
		return nil
	}
	socket := filepath.Join(runDir(r.dir), nbdSocket(name))
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return startDaemon(ctx, r.dir, r.cfg.netns(), name, func() bool {
		conn, err := dialSocket(ctx, runDir(r.dir), nbdSocket(name))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, selfBinary(r.dir), "rack", "_disks", r.dir, name, pidFile(r.dir, name))
}

// ServeDisks is the hidden command that serves disks of the rack in dir until it is killed.
func ServeDisks(ctx context.Context, dir, process string) error {
	r, err := openChild(dir)
	if err != nil {
		return err
	}
	disks := map[string]*volatileDisk{}
	for name, image := range r.imagesOf(process) {
		if disks[name], err = openVolatile(image); err != nil {
			return err
		}
	}
	// A relative path, since a socket's path must be shorter than 108 bytes; spawn
	// starts this process in the run directory.
	l, err := net.Listen("unix", nbdSocket(process))
	if err != nil {
		return err
	}
	return serveDisks(ctx, l, disks)
}

// serveDisks serves disks by name to all clients.
func serveDisks(ctx context.Context, l net.Listener, disks map[string]*volatileDisk) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		go func() {
			err := serveNBD(conn, func(name string) export {
				if d := disks[name]; d != nil {
					return d
				}
				return nil
			})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}
