// Package sg sends SCSI commands to a disk over one path (SG_IO) and returns the
// answer of the disk or of the path. It knows no command by name.
package sg

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrConflict is the answer to a command of a path that a reservation keeps out,
// or that is not registered with the key that it gave.
var ErrConflict = errors.New("reservation conflict")

// ErrPath is a failure of the path: the command did not reach the disk.
var ErrPath = errors.New("the path failed")

// Answer is a status of a LUN that is not GOOD.
type Answer struct {
	Device     string
	Status     byte
	Sense      byte // its key
	ASC, ASCQ  byte
	HostStatus uint16 // the kernel's; if it is not 0 the path failed
}

// Is says that a command did not reach the LUN: the path failed, or its
// controller does not serve the LUN now.
func (a Answer) Is(err error) bool {
	return err == ErrPath && (a.HostStatus != 0 || a.Status == checkCondition && a.Sense == senseNotReady) //nolint:errorlint // it is one of a kind
}

func (a Answer) Error() string {
	if a.HostStatus != 0 {
		return fmt.Sprintf("%s: the path failed (host status %#x)", a.Device, a.HostStatus)
	}
	said := fmt.Sprintf("%s: status %#02x, sense %x/%02x/%02x", a.Device, a.Status, a.Sense, a.ASC, a.ASCQ)
	if a.Illegal() {
		said += ": it does not know this command"
	}
	return said
}

// Statuses and sense keys. Source: T10 SAM-5, 5.3; SPC-4, 4.5.6.
const (
	good           = 0x00
	checkCondition = 0x02
	busy           = 0x08
	conflict       = 0x18
	taskSetFull    = 0x28

	senseNotReady  = 0x2
	senseIllegal   = 0x5
	senseAttention = 0x6
	senseAborted   = 0xb
)

// Attention says that the path has missed something, and that the command is to be
// sent again.
func (a Answer) Attention() bool { return a.Status == checkCondition && a.Sense == senseAttention }

// Illegal says that the LUN does not know the command.
func (a Answer) Illegal() bool { return a.Status == checkCondition && a.Sense == senseIllegal }

// Busy reports whether the LUN may accept the same command later.
func (a Answer) Busy() bool {
	return a.Status == busy || a.Status == taskSetFull || a.Status == checkCondition &&
		(a.Sense == senseAborted || a.Sense == senseNotReady && a.ASC == 0x04 && a.ASCQ != 0x0b && a.ASCQ != 0x0c)
}

// header is sg_io_hdr. Source: Linux, include/scsi/sg.h.
type header struct {
	interfaceID    int32
	direction      int32
	commandLength  uint8
	senseLength    uint8
	vectors        uint16
	dataLength     uint32
	data           unsafe.Pointer
	command        unsafe.Pointer
	sense          unsafe.Pointer
	timeout        uint32 // ms
	flags          uint32
	id             int32
	user           unsafe.Pointer
	status         uint8
	masked         uint8
	message        uint8
	senseWritten   uint8
	host           uint16
	driver         uint16
	left           int32
	duration, info uint32
}

const (
	sgIO     = 0x2285
	toDevice = -2
	toUs     = -3
)

// Do sends one command and gives how many bytes came. The kernel ends the command
// after the timeout, and then begins to mend the path.
//
// A LUN that answers anything but GOOD is an Answer, or ErrConflict; a path that does
// not work is ErrPath.
func Do(device string, block, data []byte, write bool, timeout time.Duration) (int, error) {
	// Not for writing: udev looks at every disk that was open for that.
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrPath, err)
	}
	defer f.Close()
	sense := make([]byte, 64)
	h := header{interfaceID: 'S', direction: toUs, commandLength: uint8(len(block)), senseLength: uint8(len(sense)), dataLength: uint32(len(data)), timeout: uint32(timeout.Milliseconds()),
		data: unsafe.Pointer(&data[0]), command: unsafe.Pointer(&block[0]), sense: unsafe.Pointer(&sense[0])}
	if write {
		h.direction = toDevice
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range []*byte{&data[0], &block[0], &sense[0]} {
		pin.Pin(p)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), sgIO, uintptr(unsafe.Pointer(&h))); errno != 0 {
		return 0, fmt.Errorf("%w: %w", ErrPath, &os.PathError{Op: "SG_IO", Path: device, Err: errno})
	}
	switch {
	case h.host != 0 || h.status != good && h.status != conflict:
		a := Answer{Device: device, Status: h.status, HostStatus: h.host}
		a.Sense, a.ASC, a.ASCQ = senseOf(sense[:h.senseWritten])
		return 0, a
	case h.status == conflict:
		return 0, fmt.Errorf("%s: %w", device, ErrConflict)
	}
	return max(len(data)-int(h.left), 0), nil
}

// senseOf reads sense data of both formats. Source: SPC-4, 4.5.
func senseOf(b []byte) (key, asc, ascq byte) {
	switch {
	case len(b) < 4:
	case b[0]&0x7f >= 0x72:
		return b[1] & 0xf, b[2], b[3]
	case len(b) >= 14:
		return b[2] & 0xf, b[12], b[13]
	}
	return 0, 0, 0
}
