package nodeimage

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/mortarhpc/mortar/internal/base/initrd"
)

// kernelPayload cuts the compressed kernel out of a bzImage.
//
// Source: Documentation/arch/x86/boot.rst of Linux, "The Real-Mode Kernel
// Header": setup_sects, payload_offset, payload_length.
func kernelPayload(bz []byte) ([]byte, error) {
	if len(bz) < 0x250 || string(bz[0x202:0x206]) != "HdrS" {
		return nil, fmt.Errorf("not a Linux kernel image")
	}
	if v := binary.LittleEndian.Uint16(bz[0x206:]); v < 0x208 {
		return nil, fmt.Errorf("boot protocol %d.%d is too old", v>>8, v&0xff)
	}
	sects := int(bz[0x1f1])
	if sects == 0 {
		sects = 4
	}
	start := uint64(sects+1)*512 + uint64(binary.LittleEndian.Uint32(bz[0x248:]))
	end := start + uint64(binary.LittleEndian.Uint32(bz[0x24c:]))
	if end > uint64(len(bz)) || end-start < 8 {
		return nil, fmt.Errorf("the kernel image is truncated")
	}
	return bz[start:end], nil
}

// uncompressedKernel returns the ELF file inside a bzImage. In emulation the kernel
// would take seconds to decompress itself at every boot.
func uncompressedKernel(ctx context.Context, bz []byte) ([]byte, error) {
	p, err := kernelPayload(bz)
	if err != nil {
		return nil, err
	}
	// The size of the uncompressed data follows the stream in 4 bytes; only in
	// gzip these bytes are part of the stream.
	body := p[:len(p)-4]
	if bytes.HasPrefix(p, []byte{0x1f, 0x8b}) {
		body = p
	}
	out, err := initrd.Decompress(ctx, body)
	if err != nil {
		return nil, err
	}
	if size := binary.LittleEndian.Uint32(p[len(p)-4:]); uint32(len(out)) != size {
		return nil, fmt.Errorf("the kernel inside the image has %d bytes, want %d", len(out), size)
	}
	if !bytes.HasPrefix(out, []byte("\x7fELF")) {
		return nil, fmt.Errorf("the kernel inside the image is no ELF file")
	}
	return out, nil
}
