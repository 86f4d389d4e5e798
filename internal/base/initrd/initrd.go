// Package initrd reads the files of an initial RAM disk as the kernel unpacks
// it: archives of cpio(5), one after the other, of which any may be
// compressed.
//
// Source: Documentation/driver-api/early-userspace/buffer-format.rst of Linux.
package initrd

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strconv"
	"strings"

	"github.com/pierrec/lz4/v4"
)

// compressions that Debian's mkinitramfs knows, by their first bytes. Each but
// those that Go has is undone by the program that made it.
var compressions = []struct {
	magic, name string
	open        func(ctx context.Context, r io.Reader) (io.ReadCloser, error)
}{
	{"\x1f\x8b", "gzip", func(_ context.Context, r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
	{"BZh", "bzip2", func(_ context.Context, r io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(bzip2.NewReader(r)), nil
	}},
	{"\x28\xb5\x2f\xfd", "zstd", program("zstd", "-dcq")},
	{"\xfd7zXZ\x00", "xz", program("xz", "-dcq")},
	{"]\x00\x00", "lzma", program("xz", "-dcq", "--format=lzma")},
	{"\x02\x21\x4c\x18", "lz4", func(_ context.Context, r io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(lz4.NewReader(r)), nil
	}},
	{"\x89LZO\x00", "lzop", program("lzop", "-dcq")},
}

const (
	cpioMagic   = "070701" // or 070702, with sums that the kernel ignores
	headerBytes = 110
	trailer     = "TRAILER!!!"
	maxName     = 4096
	// maxFile bounds a file that is kept: those that are asked for are
	// configuration.
	maxFile = 4 << 20
)

// Files returns the regular files of the image whose names want accepts, by path
// without a leading slash. Of two with the same path the last counts, as it
// does for the kernel.
func Files(ctx context.Context, image io.Reader, want func(name string) bool) (map[string][]byte, error) {
	a := &archive{ctx: ctx, want: want, files: map[string][]byte{}}
	if err := a.read(image, false); err != nil {
		return nil, err
	}
	return a.files, nil
}

type archive struct {
	ctx   context.Context
	want  func(string) bool
	files map[string][]byte
}

// read goes through the archives of a stream. One that is compressed is the
// last, as mkinitramfs(8) writes it.
func (a *archive) read(stream io.Reader, compressed bool) error {
	r := bufio.NewReaderSize(stream, 1<<16)
	for some := false; ; some = true {
		if err := skipZeros(r); errors.Is(err, io.EOF) && some {
			return nil
		} else if err != nil {
			return fmt.Errorf("it is empty: %w", err)
		}
		magic, _ := r.Peek(len(cpioMagic)) // shorter at the end, where nothing matches
		if string(magic) == cpioMagic || string(magic) == "070702" {
			if err := a.cpio(r); err != nil {
				return err
			}
			continue
		}
		if compressed {
			return fmt.Errorf("what was compressed starts with % x: not an archive of cpio", magic)
		}
		return decompress(a.ctx, r, magic, func(z io.Reader) error { return a.read(z, true) })
	}
}

// Decompress undoes the compression of a part of an initial RAM disk, or of a kernel,
// which its first bytes tell.
func Decompress(ctx context.Context, data []byte) ([]byte, error) {
	var out []byte
	err := decompress(ctx, bytes.NewReader(data), data[:min(len(data), len(cpioMagic))], func(z io.Reader) (err error) {
		out, err = io.ReadAll(z)
		return err
	})
	return out, err
}

// decompress calls read with what is compressed in a stream that starts with magic.
func decompress(ctx context.Context, r io.Reader, magic []byte, read func(z io.Reader) error) error {
	for _, c := range compressions {
		if !bytes.HasPrefix(magic, []byte(c.magic)) {
			continue
		}
		z, err := c.open(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		err = read(z)
		if cerr := z.Close(); cerr != nil { // says more than that the archive is cut short
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		return nil
	}
	return fmt.Errorf("a part of it starts with % x: neither an archive of cpio nor a known compression", magic)
}

func skipZeros(r *bufio.Reader) error {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		if b != 0 {
			return r.UnreadByte()
		}
	}
}

func (a *archive) cpio(r *bufio.Reader) error {
	for {
		var h [headerBytes]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return fmt.Errorf("the archive is cut short: %w", err)
		}
		field := func(i int) (int64, error) { return strconv.ParseInt(string(h[6+8*i:14+8*i]), 16, 64) }
		mode, err1 := field(1)
		size, err2 := field(6)
		nameSize, err3 := field(11)
		if string(h[:5]) != cpioMagic[:5] || errors.Join(err1, err2, err3) != nil || nameSize < 1 || nameSize > maxName {
			return fmt.Errorf("damaged: no entry of cpio where one should be")
		}
		name := make([]byte, nameSize+pad(headerBytes+nameSize))
		if _, err := io.ReadFull(r, name); err != nil {
			return fmt.Errorf("the archive is cut short: %w", err)
		}
		path := path.Clean(strings.TrimLeft(string(name[:nameSize-1]), "/"))
		if path == trailer {
			return nil
		}
		if err := a.entry(r, path, mode, size); err != nil {
			return fmt.Errorf("%s: the archive is cut short: %w", path, err)
		}
		if _, err := r.Discard(int(pad(size))); err != nil {
			return fmt.Errorf("%s: the archive is cut short: %w", path, err)
		}
	}
}

// entry takes or skips the content of one file.
func (a *archive) entry(r *bufio.Reader, path string, mode, size int64) error {
	const kind, regular = 0o170000, 0o100000
	if mode&kind != regular || !a.want(path) {
		_, err := io.CopyN(io.Discard, r, size)
		return err
	}
	if size > maxFile {
		return fmt.Errorf("%d bytes, more than %d", size, maxFile)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	a.files[path] = b
	return nil
}

// pad is what fills up to a multiple of four.
func pad(n int64) int64 { return -n & 3 }

// program decompresses by a program's standard input and output.
func program(argv ...string) func(context.Context, io.Reader) (io.ReadCloser, error) {
	return func(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
		p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
		p.cmd.Stdin, p.cmd.Stderr = r, &p.stderr
		var err error
		if p.ReadCloser, err = p.cmd.StdoutPipe(); err != nil {
			return nil, err
		}
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("cannot be undone here: %w", err)
		}
		return p, nil
	}
}

type process struct {
	io.ReadCloser
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// Close ends the program, and tells why it failed if it did.
func (p *process) Close() error {
	// The rest, so that a program that is not done does not die of a closed
	// pipe and seem to have failed.
	_, err := io.Copy(io.Discard, p.ReadCloser)
	werr := p.cmd.Wait()
	if werr != nil {
		return fmt.Errorf("%w: %s", werr, strings.TrimSpace(p.stderr.String()))
	}
	return err
}
