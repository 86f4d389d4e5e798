package rack

import (
	"bytes"
	"fmt"
	"io/fs"
)

// cpioWriter writes the "newc" archive that the kernel unpacks as its
// initramfs.
//
// Source: Documentation/driver-api/early-userspace/buffer-format.rst of
// Linux.
type cpioWriter struct {
	buf   bytes.Buffer
	inode int
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioLink = 0o120000
	cpioChar = 0o020000
)

func (w *cpioWriter) dir(name string)                { w.entry(name, cpioDir|0o755, nil, 0, 0) }
func (w *cpioWriter) link(name, target string)       { w.entry(name, cpioLink|0o777, []byte(target), 0, 0) }
func (w *cpioWriter) char(name string, maj, min int) { w.entry(name, cpioChar|0o600, nil, maj, min) }
func (w *cpioWriter) file(name string, mode fs.FileMode, data []byte) {
	w.entry(name, cpioFile|int(mode.Perm()), data, 0, 0)
}

func (w *cpioWriter) entry(name string, mode int, data []byte, maj, min int) {
	w.inode++
	links := 1
	if mode&cpioDir != 0 && mode&cpioFile != cpioFile {
		links = 2
	}
	fmt.Fprintf(&w.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		w.inode, mode, 0, 0, links, 0, len(data), 0, 0, maj, min, len(name)+1, 0)
	w.buf.WriteString(name)
	w.buf.WriteByte(0)
	w.pad()
	w.buf.Write(data)
	w.pad()
}

func (w *cpioWriter) pad() {
	for w.buf.Len()%4 != 0 {
		w.buf.WriteByte(0)
	}
}

// close ends the archive and returns it.
func (w *cpioWriter) close() []byte {
	w.inode = -1
	w.entry("TRAILER!!!", 0, nil, 0, 0)
	return w.buf.Bytes()
}
