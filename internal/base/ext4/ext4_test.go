package ext4

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func run(t *testing.T, argv ...string) string {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if path, err := exec.LookPath("/usr/sbin/" + argv[0]); err == nil {
		c.Path, c.Err = path, nil
	}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return string(out)
}

// reader reads an image with some other bytes in it, by their offsets.
func reader(image []byte, other map[int64]byte) Read {
	return func(off int64, n int) ([]byte, error) {
		if off < 0 || off+int64(n) > int64(len(image)) {
			return nil, io.ErrUnexpectedEOF
		}
		b := slices.Clone(image[off : off+int64(n)])
		for at, x := range other {
			if at >= off && at < off+int64(n) {
				b[at-off] = x
			}
		}
		return b, nil
	}
}

// made is a file system with a contiguous file and one with more extents than fit into an
// inode; at are the blocks of the latter, as debugfs tells them.
func made(t *testing.T, features string) (path string, image []byte, at []int64) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "image")
	data := filepath.Join(dir, "data")
	sparse, err := os.Create(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(700) { // two levels: 340 extents fit into a block
		if _, err := sparse.WriteAt(bytes.Repeat([]byte{'a'}, BlockBytes), 2*i*BlockBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := sparse.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, "truncate", "--size", "300M", path) // three groups
	run(t, "mkfs.ext4", "-q", "-b", "4096", "-O", features, path)
	run(t, "debugfs", "-w", "-R", "write "+data+" spread", path)
	for _, word := range strings.Fields(run(t, "debugfs", "-R", "blocks spread", path)) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n != 0 {
			at = append(at, n*BlockBytes)
		}
	}
	if image, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, image, at
}

// A walk that has no time left ends.
func TestOwnersOfInTime(t *testing.T) {
	_, image, at := made(t, "64bit,metadata_csum")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OwnersOf(ctx, reader(image, nil), at[:1]); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	read := func(off int64, n int) ([]byte, error) {
		if off == at[0] { // the first node of the map
			cancel()
		}
		return reader(image, nil)(off, n)
	}
	if _, err := OwnersOf(ctx, read, at[:1]); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Whatever features it has, each block of a file with a deep map is found, as debugfs tells.
func TestOwnersOf(t *testing.T) {
	for _, features := range []string{"64bit,metadata_csum", "^64bit,^metadata_csum", "^flex_bg,uninit_bg,^metadata_csum", "^extent,^64bit,^metadata_csum"} {
		_, image, at := made(t, features)
		asked := slices.Sorted(slices.Values(at))
		o, err := OwnersOf(t.Context(), reader(image, nil), asked)
		if err != nil || o.Own+o.Free > 0 || o.Unread != 1 || len(o.Inodes) != 1 || o.Inodes[0].Number < firstInode {
			t.Fatalf("%s: %v, %+v", features, err, o)
		}
		// The blocks of the map were asked for, too, and have no place in the file.
		got := o.Inodes[0].Offsets
		for i, off := range got {
			if off != int64(i)*2*BlockBytes {
				t.Fatalf("%s: block %d of the file is told at %d", features, i, off)
			}
		}
		if len(got) != 700 || len(asked)-len(got) < 2 {
			t.Errorf("%s: %d blocks of data, %d in all", features, len(got), len(asked))
		}
	}
}

// Damage gives an error, a count, or nothing; it never ends the agent.
func TestDamaged(t *testing.T) {
	path, image, at := made(t, "64bit,metadata_csum")
	asked := slices.Sorted(slices.Values(at))
	rng := rand.New(rand.NewPCG(1, 2))
	var inode int64
	where := run(t, "debugfs", "-R", "imap spread", path)
	if _, err := fmt.Sscanf(where[strings.Index(where, "at block"):], "at block %d,", &inode); err != nil {
		t.Fatal(where, err)
	}
	places := []int64{0, BlockBytes, at[0], inode * BlockBytes}
	hit := 0
	for range 100 {
		other := map[int64]byte{}
		for range 20 {
			// Superblock, descriptors, the first of the map, and its inode.
			other[places[rng.IntN(len(places))]+rng.Int64N(BlockBytes)] = byte(rng.Uint32())
		}
		o, err := OwnersOf(t.Context(), reader(image, other), asked)
		if err != nil || o.Own+o.Free > 0 {
			hit++
		}
	}
	if hit == 0 {
		t.Error("nothing was damaged: the test tests nothing")
	}
}
