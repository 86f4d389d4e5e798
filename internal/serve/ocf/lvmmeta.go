package ocf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// vgMeta is what the agent needs of a volume group's metadata. It is read in
// process because one run of an LVM tool costs more than the whole rest of
// the check, and a monitor should be able to see that ownership has changed.
type vgMeta struct {
	VG       string
	Seqno    uint64
	SystemID string
}

// metaReader reads blocks of one device, as kernel.Host.ReadBlocks.
type metaReader func(off int64, n int) ([]byte, error)

// readVGMeta reads the metadata of the volume group a physical volume is in.
// Source: the on-disk format 2, lvm2 lib/format_text/layout.h.
func readVGMeta(read metaReader) (*vgMeta, error) {
	le := binary.LittleEndian
	head, err := read(0, 4096)
	if err != nil {
		return nil, err
	}
	var pv []byte
	for s := 0; s < 4; s++ {
		l := head[s*512 : s*512+512]
		if string(l[:8]) == "LABELONE" && string(l[24:32]) == "LVM2 001" {
			if off := int(le.Uint32(l[20:])); off < 512-40 {
				pv = l[off:]
			}
			break
		}
	}
	if pv == nil {
		return nil, errors.New("no LVM label")
	}
	// pv_header: uuid, size, then two lists of (offset, size) ended by zeros:
	// data areas, metadata areas.
	list := pv[40:]
	next := func() (uint64, uint64, bool) {
		if len(list) < 16 {
			return 0, 0, false
		}
		o, n := le.Uint64(list), le.Uint64(list[8:])
		list = list[16:]
		return o, n, o != 0
	}
	for {
		if _, _, ok := next(); !ok {
			break
		}
	}
	for {
		start, size, ok := next()
		if !ok {
			return nil, errors.New("the physical volume has no metadata area")
		}
		m, err := readMDA(read, start, size)
		if err == nil {
			return m, nil
		}
		if len(list) < 16 || le.Uint64(list) == 0 {
			return nil, err
		}
	}
}

// maxMetadata bounds the text of a volume group; thousands of volumes need a
// few MiB.
const maxMetadata = 64 << 20

const mdaMagic = " LVM2 x[5A%r0N*>"

func readMDA(read metaReader, start, size uint64) (*vgMeta, error) {
	le := binary.LittleEndian
	if start%4096 != 0 || size < 4096 || size > 1<<30 {
		return nil, fmt.Errorf("LVM metadata area at %d with %d bytes is not one this agent can read", start, size)
	}
	h, err := read(int64(start), 4096)
	if err != nil {
		return nil, err
	}
	if string(h[4:20]) != mdaMagic {
		return nil, errors.New("LVM metadata area without its magic")
	}
	off, n := le.Uint64(h[40:]), le.Uint64(h[48:])
	if off < 512 || off >= size || n == 0 || n > min(size-512, maxMetadata) {
		return nil, errors.New("LVM metadata area without a volume group")
	}
	text := make([]byte, 0, n)
	for n > 0 {
		chunk := min(n, size-off)
		part, err := readRange(read, start+off, chunk)
		if err != nil {
			return nil, err
		}
		text = append(text, part...)
		n -= chunk
		off = 512 // the area is a ring behind its header
	}
	return parseVGText(bytes.TrimRight(text, "\x00"))
}

// readRange reads any range by whole blocks.
func readRange(read metaReader, off, n uint64) ([]byte, error) {
	first := off &^ 4095
	last := (off + n + 4095) &^ 4095
	b, err := read(int64(first), int(last-first))
	if err != nil {
		return nil, err
	}
	return b[off-first:][:n], nil
}

var vgAssign = regexp.MustCompile(`^\s*(\w+)\s*=\s*(.*)$`)

// parseVGText reads the first level of a volume group's text.
func parseVGText(text []byte) (*vgMeta, error) {
	var m vgMeta
	depth := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasSuffix(line, "{"):
			if depth == 0 && m.VG == "" {
				m.VG = strings.TrimSpace(strings.TrimSuffix(line, "{"))
			}
			depth++
		case line == "}":
			depth--
		case depth == 1:
			a := vgAssign.FindStringSubmatch(line)
			if a == nil {
				continue
			}
			switch a[1] {
			case "seqno":
				n, err := strconv.ParseUint(a[2], 10, 64)
				if err != nil {
					return nil, fmt.Errorf("LVM metadata: seqno %q", a[2])
				}
				m.Seqno = n
			case "system_id":
				m.SystemID = strings.Trim(a[2], `"`)
			}
		}
	}
	if m.VG == "" || m.Seqno == 0 {
		return nil, errors.New("LVM metadata without name or sequence number")
	}
	return &m, nil
}
