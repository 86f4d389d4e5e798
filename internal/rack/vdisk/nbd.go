package vdisk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The server's half of the Network Block Device protocol, as far as QEMU's
// client uses it: newstyle negotiation, simple replies.
//
// Source: doc/proto.md of the reference implementation,
// https://github.com/NetworkBlockDevice/nbd.
const (
	nbdMagic        = 0x4e42444d41474943 // "NBDMAGIC"
	nbdOptionMagic  = 0x49484156454f5054 // "IHAVEOPT"
	nbdAnswerMagic  = 0x3e889045565a9
	nbdRequestMagic = 0x25609513
	nbdReplyMagic   = 0x67446698

	nbdFixedNewstyle = 1 << 0
	nbdNoZeroes      = 1 << 1

	nbdOptAbort = 2
	nbdOptInfo  = 6
	nbdOptGo    = 7

	nbdAck        = 1
	nbdInfo       = 3
	nbdUnknown    = 1<<31 + 6
	nbdUnsupptd   = 1<<31 + 1
	nbdInfoExport = 0

	// Has flags, flush, FUA, trim, zeroes; and a flush on one connection covers
	// what the others have written.
	nbdExportFlags = 1<<0 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<8

	nbdRead   = 0
	nbdWrite  = 1
	nbdEnd    = 2
	nbdFlush  = 3
	nbdTrim   = 4
	nbdZeroes = 6

	nbdFUA = 1 << 0

	nbdEIO    = 5
	nbdEINVAL = 22

	// mostNBD bounds an option and a transfer: QEMU's own bound is 32 MiB.
	mostNBD = 32 << 20
)

// export is a disk that serveNBD serves.
type export interface {
	io.ReaderAt
	io.WriterAt
	// Zero makes the bytes zero.
	Zero(offset, length int64) error
	// Flush returns when all data written survives a loss of power.
	Flush() error
	Size() int64
}

// serveNBD serves a client until it disconnects. find returns nil for an unknown
// disk.
func serveNBD(conn net.Conn, find func(name string) export) error {
	defer conn.Close()
	rw := bufio.NewReadWriter(bufio.NewReaderSize(conn, 1<<17), bufio.NewWriterSize(conn, 1<<17))
	disk, err := negotiate(rw, find)
	if err == nil && disk != nil {
		err = transmit(rw, disk)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// put sends numbers in the protocol's byte order, then data.
func put(w *bufio.ReadWriter, data []byte, numbers ...any) error {
	for _, n := range numbers {
		if err := binary.Write(w, binary.BigEndian, n); err != nil {
			return err
		}
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Flush()
}

// negotiate returns the disk that the client chose; nil if the client chose none.
func negotiate(rw *bufio.ReadWriter, find func(name string) export) (export, error) {
	if err := put(rw, nil, uint64(nbdMagic), uint64(nbdOptionMagic), uint16(nbdFixedNewstyle|nbdNoZeroes)); err != nil {
		return nil, err
	}
	var flags uint32
	if err := binary.Read(rw, binary.BigEndian, &flags); err != nil {
		return nil, err
	}
	for {
		var head struct {
			Magic          uint64
			Option, Length uint32
		}
		if err := binary.Read(rw, binary.BigEndian, &head); err != nil {
			return nil, err
		}
		if head.Magic != nbdOptionMagic || head.Length > mostNBD {
			return nil, fmt.Errorf("magic number %#x and %d bytes where an option is expected", head.Magic, head.Length)
		}
		data := make([]byte, head.Length)
		if _, err := io.ReadFull(rw, data); err != nil {
			return nil, err
		}
		answer := func(kind uint32, data []byte) error {
			return put(rw, data, uint64(nbdAnswerMagic), head.Option, kind, uint32(len(data)))
		}
		var err error
		switch head.Option {
		case nbdOptAbort:
			return nil, answer(nbdAck, nil)
		case nbdOptInfo, nbdOptGo:
			disk := find(exportName(data))
			if disk == nil {
				err = answer(nbdUnknown, nil)
				break
			}
			info := binary.BigEndian.AppendUint16(nil, nbdInfoExport)
			info = binary.BigEndian.AppendUint64(info, uint64(disk.Size()))
			info = binary.BigEndian.AppendUint16(info, nbdExportFlags)
			if err = errors.Join(answer(nbdInfo, info), answer(nbdAck, nil)); err == nil && head.Option == nbdOptGo {
				return disk, nil
			}
		default:
			err = answer(nbdUnsupptd, nil)
		}
		if err != nil {
			return nil, err
		}
	}
}

// exportName is the name in the data of NBD_OPT_GO.
func exportName(data []byte) string {
	if len(data) < 4 || int(binary.BigEndian.Uint32(data)) > len(data)-4 {
		return ""
	}
	return string(data[4 : 4+binary.BigEndian.Uint32(data)])
}

// transmit carries out requests, one after the other.
func transmit(rw *bufio.ReadWriter, disk export) error {
	buf := make([]byte, 0, 1<<20)
	head := make([]byte, 28)
	for {
		if _, err := io.ReadFull(rw, head); err != nil {
			return err
		}
		be := binary.BigEndian
		flags, kind, cookie := be.Uint16(head[4:]), be.Uint16(head[6:]), be.Uint64(head[8:])
		offset, length := int64(be.Uint64(head[16:])), int64(be.Uint32(head[24:]))
		if magic := be.Uint32(head); magic != nbdRequestMagic {
			return fmt.Errorf("magic number %#x where a request is expected", magic)
		}
		if kind == nbdEnd {
			return nil
		}
		var data []byte
		if kind == nbdRead || kind == nbdWrite {
			if length > mostNBD {
				return fmt.Errorf("a request of %d bytes", length)
			}
			if int64(cap(buf)) < length {
				buf = make([]byte, length)
			}
			data = buf[:length]
		}
		if kind == nbdWrite {
			if _, err := io.ReadFull(rw, data); err != nil {
				return err
			}
		}
		code := carryOut(disk, kind, flags, data, offset, length)
		if kind != nbdRead || code != 0 {
			data = nil
		}
		reply := be.AppendUint32(nil, nbdReplyMagic)
		reply = be.AppendUint32(reply, code)
		reply = be.AppendUint64(reply, cookie)
		if _, err := rw.Write(reply); err != nil {
			return err
		}
		if _, err := rw.Write(data); err != nil {
			return err
		}
		// More requests wait: send this answer together with theirs.
		if rw.Reader.Buffered() >= len(head) {
			continue
		}
		if err := rw.Flush(); err != nil {
			return err
		}
	}
}

// carryOut carries out a request. It returns the protocol's error number, 0 for none.
func carryOut(disk export, kind, flags uint16, data []byte, offset, length int64) uint32 {
	if offset < 0 || offset > disk.Size()-length {
		return nbdEINVAL
	}
	var err error
	switch kind {
	case nbdRead:
		_, err = disk.ReadAt(data, offset)
	case nbdWrite:
		_, err = disk.WriteAt(data, offset)
	case nbdTrim, nbdZeroes:
		err = disk.Zero(offset, length)
	case nbdFlush:
		err = disk.Flush()
	default:
		return nbdEINVAL
	}
	if err == nil && flags&nbdFUA != 0 {
		err = disk.Flush()
	}
	if err != nil {
		return nbdEIO
	}
	return 0
}
