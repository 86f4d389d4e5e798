package pr

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrHeedless says that a disk takes a reservation and lets writes through that it forbids, or
// refuses those that it allows.
var ErrHeedless = errors.New("it knows reservations and does not heed them")

// Heeds shows on a disk that carries nothing that it heeds a reservation: over a second path,
// which stands for another server, a write is refused, and over the path that holds the
// reservation it is not. The block that it writes it has read before. The error is ErrHeedless, ErrUnable, or
// why nothing was shown. Afterwards nothing is registered.
func Heeds(own Key, holder, other string) error {
	h, o := device(holder), device(other)
	block, err := h.middle()
	if err != nil {
		return err
	}
	if err := h.Register(own); err != nil {
		return err
	}
	defer h.Unregister()
	if err := h.Reserve(own); err != nil {
		return err
	}
	switch err := o.write(block); {
	case err == nil:
		return fmt.Errorf("%w: a write over %s got through while %s held the disk", ErrHeedless, other, holder)
	case !errors.Is(err, ErrConflict):
		return err
	}
	if err := h.write(block); err != nil {
		return fmt.Errorf("%w: a write over %s, which holds the disk: %w", ErrHeedless, holder, err)
	}
	return nil
}

// sample is a logical block of a disk.
type sample struct {
	at   uint64
	data []byte
}

// middle reads the block in the middle of the disk.
//
// Source: T10 SBC-3 (r36), READ CAPACITY(16), READ(16)
func (d device) middle() (sample, error) {
	capacity := make([]byte, 32)
	ask := make([]byte, 16)
	ask[0], ask[1], ask[13] = 0x9e, 0x10, byte(len(capacity))
	if _, err := d.repeat(ask, capacity, false); err != nil {
		return sample{}, unable(err)
	}
	size := binary.BigEndian.Uint32(capacity[8:])
	if size < 512 || size > 1<<16 {
		return sample{}, fmt.Errorf("%s has logical blocks of %d bytes", string(d), size)
	}
	s := sample{binary.BigEndian.Uint64(capacity) / 2, make([]byte, size)}
	_, err := d.repeat(transfer(0x88, s.at), s.data, false)
	return s, err
}

func (d device) write(s sample) error {
	_, err := d.repeat(transfer(0x8a, s.at), s.data, true)
	return err
}

// transfer is the command block of READ(16) or WRITE(16) of one block.
func transfer(op byte, at uint64) []byte {
	b := make([]byte, 16)
	b[0], b[13] = op, 1
	binary.BigEndian.PutUint64(b[2:], at)
	return b
}
