package doubt

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// debugfsImage is a file system in a file, which the real tools of e2fsprogs work on.
type debugfsImage struct {
	t    *testing.T
	path string
}

func (d debugfsImage) run(argv ...string) string {
	d.t.Helper()
	out, err := (&kernel.Linux{}).Run(d.t.Context(), kernel.Command{Argv: argv})
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

func (d debugfsImage) ask(request string) string {
	d.t.Helper()
	return d.run("debugfs", "-R", request, d.path)
}

func (d debugfsImage) change(requests ...string) {
	d.t.Helper()
	script := filepath.Join(d.t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(strings.Join(requests, "\n")+"\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.run("debugfs", "-w", "-f", script, d.path)
}

// file writes a file, with an extended attribute unless value is nil.
func (d debugfsImage) file(name, from, attribute string, value []byte) {
	d.t.Helper()
	d.change("write " + from + " " + name)
	if value != nil {
		d.attribute(name, attribute, value)
	}
}

func (d debugfsImage) attribute(name, attribute string, value []byte) {
	d.t.Helper()
	v := filepath.Join(d.t.TempDir(), "value")
	if err := os.WriteFile(v, value, 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.change("ea_set -f " + v + " " + name + " " + attribute)
}

func (d debugfsImage) inode(name string) uint64 {
	d.t.Helper()
	m := regexp.MustCompile(`Inode: (\d+)`).FindStringSubmatch(d.ask("stat " + name))
	if m == nil {
		d.t.Fatalf("no inode of %s", name)
	}
	n, _ := strconv.ParseUint(m[1], 10, 64)
	return n
}

// at is the offset of a block of a file, in bytes.
func (d debugfsImage) at(name string, block int64) int64 {
	d.t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(d.ask(fmt.Sprintf("bmap %s %d", name, block))), 10, 64)
	if err != nil || n == 0 {
		d.t.Fatalf("%s has no block %d: %v", name, block, err)
	}
	return n * BlockBytes
}

func (d debugfsImage) patch(at int64, b []byte) {
	d.t.Helper()
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		d.t.Fatal(err)
	}
}

// bytes is what a block holds.
func (d debugfsImage) bytes(at int64) []byte {
	d.t.Helper()
	f, err := os.Open(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, BlockBytes)
	if _, err := f.ReadAt(b, at); err != nil {
		d.t.Fatal(err)
	}
	return b
}

// fidBytes is a FID as it is stored.
func fidBytes(seq uint64, oid, version uint32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, seq)
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, oid), version)
}

// lma is the attribute trusted.lma: flags, the object's own FID, then more.
func lma(compat uint32, own []byte, more ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, compat)
	return append(append(append(b, 0, 0, 0, 0), own...), more...)
}

// On an image that was not unmounted the real tools tell whose blocks are: the files of
// objects by what Lustre stores with them, and where in the object the blocks are.
func TestOwnersOfTarget(t *testing.T) {
	dir := t.TempDir()
	d := debugfsImage{t, filepath.Join(dir, "target")}
	d.run("truncate", "--size", "64M", d.path)
	d.run("mkfs.ext4", "-q", "-b", "4096", "-I", "512", "-O", "^metadata_csum,uninit_bg", d.path)
	data, sparse := filepath.Join(dir, "data"), filepath.Join(dir, "sparse")
	if err := os.WriteFile(data, []byte(strings.Repeat("data", 10240)), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // more extents than an inode has room for
		d.run("dd", "if="+data, "of="+sparse, "bs=4096", "count=1", "conv=notrunc", fmt.Sprintf("seek=%d", 3*i), "status=none")
	}
	file := fidBytes(0x200000401, 5, 1)
	d.file("object", data, "trusted.fid", append(file, make([]byte, 28)...))
	d.file("small-inode", data, "trusted.lma", append(lma(0x18, fidBytes(0x100000000, 7, 0), fidBytes(0x200000402, 6, 0x10000)...), make([]byte, 24)...))
	d.file("mdt", data, "trusted.lma", lma(0, fidBytes(0x200000403, 9, 0)))
	d.file("precreated", data, "trusted.lma", lma(8, fidBytes(0x240000400, 8, 0)))
	d.file("local", data, "trusted.lma", lma(0, fidBytes(0x200000001, 4, 0)))
	d.file("spread", sparse, "", nil)
	d.file("full-inode", data, "trusted.fill", make([]byte, 320))
	d.attribute("full-inode", "trusted.fid", append(fidBytes(0x200000405, 3, 0), make([]byte, 28)...))
	// e2fsck frees the inode of an orphan so, with its map and attributes in place.
	d.file("freed", data, "trusted.fid", append(file, make([]byte, 28)...))
	freed := d.at("freed", 0)
	d.change("freei freed")
	etb := regexp.MustCompile(`\(ETB0\):(\d+)`).FindStringSubmatch(d.ask("stat spread"))
	if etb == nil {
		t.Fatal("the sparse file has no block of extents")
	}
	tree, _ := strconv.ParseInt(etb[1], 10, 64)
	blocks := []int64{0, d.at("object", 3), d.at("object", 4), d.at("small-inode", 0), d.at("mdt", 9), d.at("precreated", 1), d.at("local", 2),
		d.at("spread", 6), d.at("full-inode", 5), freed, d.at("/", 0), 16000 * BlockBytes}
	slices.Sort(blocks)
	want := &Owners{Metadata: 3, Free: 1, Files: []FileInDoubt{
		{Inode: d.inode("object"), FID: "[0x200000401:0x5:0x0]", Offsets: []int64{3 * BlockBytes, 4 * BlockBytes}},
		{Inode: d.inode("small-inode"), FID: "[0x200000402:0x6:0x0]", Offsets: []int64{0}},
		{Inode: d.inode("mdt"), Offsets: []int64{9 * BlockBytes}},
		{Inode: d.inode("precreated"), Offsets: []int64{BlockBytes}},
		{Inode: d.inode("local"), Offsets: []int64{2 * BlockBytes}},
		{Inode: d.inode("spread"), Offsets: []int64{6 * BlockBytes}},
		{Inode: d.inode("full-inode"), FID: "[0x200000405:0x3:0x0]", Offsets: []int64{5 * BlockBytes}},
	}}
	// A block of the map of extents that is torn: what the inode has is not told.
	whole := d.bytes(tree * BlockBytes)
	d.patch(tree*BlockBytes, make([]byte, len(whole)))
	if o, err := Ext4Owners(t.Context(), &kernel.Linux{}, d.path, blocks); err != nil || !strings.Contains(o.Unsearched, "cannot be trusted: 1") || !strings.Contains(o.String(), "files or places may be missing") {
		t.Errorf("a torn map of extents: %v, %+v", err, o)
	}
	d.patch(tree*BlockBytes, whole)
	if o, err := Ext4Owners(t.Context(), &kernel.Linux{}, d.path, []int64{tree * BlockBytes}); err != nil || o.Unsearched == "" || len(o.Files) != 1 || o.Files[0].Inode != d.inode("spread") {
		t.Errorf("a map of extents in doubt: %v, %+v", err, o)
	}
	var table int64
	where := d.ask("imap object")
	if _, err := fmt.Sscanf(where[strings.Index(where, "at block"):], "at block %d,", &table); err != nil {
		t.Fatal(where, err)
	}
	o, err := Ext4Owners(t.Context(), &kernel.Linux{}, d.path, []int64{table * BlockBytes})
	if err != nil || !slices.ContainsFunc(o.Files, func(f FileInDoubt) bool { return f.FID == "[0x200000401:0x5:0x0]" && len(f.Offsets) == 0 }) {
		t.Errorf("inodes in doubt: %v, %+v", err, o)
	}
	// A file system that is mounted, as this one looks like, has newer blocks in its journal.
	late := filepath.Join(dir, "late")
	if err := os.WriteFile(late, []byte(strings.Repeat("late", 1024)), 0o600); err != nil {
		t.Fatal(err)
	}
	d.change("jo", fmt.Sprintf("jw -b %d %s", d.at("mdt", 9)/BlockBytes, late), "jc")
	o, err = Ext4Owners(t.Context(), &kernel.Linux{}, d.path, blocks)
	if err != nil || !reflect.DeepEqual(o, want) {
		t.Errorf("%v, owners are\n%+v, want\n%+v", err, o, want)
	}
}

// Blocks beyond the file system are no file's; a device without one gives an error.
func TestOwnersOfNoTarget(t *testing.T) {
	d := debugfsImage{t, filepath.Join(t.TempDir(), "target")}
	d.run("truncate", "--size", "16M", d.path)
	if o, err := Ext4Owners(t.Context(), &kernel.Linux{}, d.path, []int64{0}); err == nil {
		t.Errorf("a device without a file system: %+v", o)
	}
	d.run("mkfs.ext4", "-q", "-b", "4096", d.path)
	if o, err := Ext4Owners(t.Context(), &kernel.Linux{}, d.path, []int64{1 << 30}); err != nil || o.Free != 1 {
		t.Errorf("a block beyond its end: %v, %+v", err, o)
	}
}

// A crash can leave thousands of blocks in doubt: nothing of the answers is cut out.
func TestOwnersOfManyBlocks(t *testing.T) {
	dir := t.TempDir()
	d := debugfsImage{t, filepath.Join(dir, "volume")}
	data := filepath.Join(dir, "data")
	d.run("dd", "if=/dev/urandom", "of="+data, "bs=4096", "count=9000", "status=none")
	d.run("truncate", "--size", "128M", d.path)
	d.run("mkfs.ext4", "-q", "-b", "4096", d.path)
	d.change("write "+data+" before", "write "+data+" data")
	first := d.at("data", 0)
	var blocks []int64
	for i := range int64(9000) {
		blocks = append(blocks, first+i*BlockBytes)
	}
	o, err := Ext4Owners(t.Context(), &kernel.Linux{}, d.path, blocks)
	if err != nil || len(o.Files) != 1 || len(o.Files[0].Offsets) < 8000 || len(o.Files[0].Offsets)+o.Metadata+o.Free != len(blocks) {
		t.Errorf("ext4: %v, %.200v", err, o)
	}
	if o, err := mapped(t.Context(), &unit.Host{K: talkative{}}, "/srv/home", blocks); err != nil || len(o.Files) != 1 || len(o.Files[0].Offsets) != len(blocks) {
		t.Errorf("xfs_io: %v, %.200v", err, o)
	}
}

// talkative answers each question of xfs_io, and cuts its output as a command's is.
type talkative struct{ kernel.Host }

func (talkative) Run(_ context.Context, c kernel.Command) (string, error) {
	var out strings.Builder
	for _, a := range c.Argv {
		if f := strings.Fields(a); f[0] == "fsmap" {
			fmt.Fprintf(&out, "EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH\n0,253,1,%s,%s,inode_263_data,%[1]s,%[2]s,8\n", f[3], f[4])
		}
	}
	limit := cmp.Or(c.Limit, 64<<10) // as kernel.Linux does
	if s := out.String(); len(s) > limit {
		return s[:limit/2] + s[len(s)-limit/2:], nil
	}
	return out.String(), nil
}
