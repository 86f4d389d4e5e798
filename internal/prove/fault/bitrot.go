package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/raid6"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// RotBytes is how many bytes the drill overwrites: a part of one chunk.
const RotBytes = 64 << 10

// spoilable finds acknowledged data on one disk that no worker overwrites any
// more. It returns the fault that corrupts that data.
func spoilable(ctx context.Context, b *Site) (none Fault, err error) {
	g := b.Group
	if err := b.Storage().Rot(); err != nil {
		return none, err
	}
	if b.AppendOnly == "" {
		return none, errors.New("no worker of the load only appends")
	}
	maps, err := b.output(ctx, b.Active, "xfs_io", "-r", "-c", "fiemap -v", b.AppendOnly)
	if err != nil {
		return none, err
	}
	table, err := b.output(ctx, b.Active, "dmsetup", "table", "/dev/"+b.Service.Storage.VG+"/"+b.Service.Storage.LV)
	if err != nil {
		return none, err
	}
	a, members, err := b.GroupMembers(ctx, g)
	if err != nil {
		return none, err
	}
	at, err := coldRow(parseFiemap(maps), table, int64(g.Chunk), g.Data)
	if err != nil {
		return none, fmt.Errorf("%s: %w", b.AppendOnly, err)
	}
	row := at / int64(g.Chunk) / int64(g.Data)
	_, _, data := raid6.Layout{Disks: g.Data + g.Parity}.Row(row)
	slot := data[0]
	offset, err := b.Read(ctx, b.Active, fmt.Sprintf("/sys/block/%s/md/rd%d/offset", a.Dev, slot))
	if err != nil {
		return none, err
	}
	begin, err := strconv.ParseInt(offset, 10, 64)
	if err != nil {
		return none, err
	}
	if slot >= len(members) {
		return none, fmt.Errorf("member %d of %s is no disk that is known", slot, g.Name)
	}
	return Fault{Kind: Corrupt, Args: []string{members[slot], strconv.FormatInt(begin*512+row*int64(g.Chunk), 10), strconv.Itoa(RotBytes)}}, nil
}

// mayRot asks the Injector whether it can corrupt a disk, as spoilDisk needs.
func mayRot(b *Site, _ Fault) error {
	return b.Env.Injector.Can(Fault{Kind: Corrupt, Args: []string{"", "0", "0"}})
}

// spoilDisk corrupts data, and drops the page cache so that the next read comes from
// the disk.
func spoilDisk(ctx context.Context, b *Site, _ Fault) error {
	f, err := spoilable(ctx, b)
	if err != nil {
		return err
	}
	b.Say("spoiling %s bytes of disk %s at offset %s", f.Args[2], f.Args[0], f.Args[1])
	b.Injected = append(b.Injected, f)
	if err := b.Env.Injector.Inject(ctx, f); err != nil {
		return err
	}
	// Source: Documentation/admin-guide/sysctl/vm.rst
	return b.Do(ctx, b.Active, resource.Action{Title: "forget clean pages", File: &resource.File{Path: "/proc/sys/vm/drop_caches", Content: []byte("1")}})
}

// extent of a file on its device, bytes.
type extent struct{ file, device, length int64 }

// parseFiemap reads what `xfs_io -c "fiemap -v"` prints, in blocks of 512 bytes.
// Source: xfs_io(8)
func parseFiemap(text string) []extent {
	var out []extent
	for line := range strings.Lines(text) {
		var n, f0, f1, d0, d1 int64
		if c, _ := fmt.Sscanf(strings.TrimSpace(line), "%d: [%d..%d]: %d..%d", &n, &f0, &f1, &d0, &d1); c == 5 {
			out = append(out, extent{f0 * 512, d0 * 512, (f1 - f0 + 1) * 512})
		}
	}
	return out
}

// coldRow finds a whole row of chunks that holds only the first bytes of a file.
// It returns the offset of the row on the array in bytes. table is the
// device-mapper table of a logical volume with a single extent.
func coldRow(extents []extent, table string, chunk int64, data int) (int64, error) {
	f := strings.Fields(table)
	if len(f) != 5 || f[2] != "linear" {
		return 0, fmt.Errorf("its volume does not lie in one piece: %q", strings.TrimSpace(table))
	}
	begin, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("table of its volume: %w", err)
	}
	width := chunk * int64(data)
	// Only the beginning of the file: writes may still go on around its end.
	const early = 2 << 20
	for _, x := range extents {
		from := begin*512 + x.device
		row := (from + width - 1) / width * width
		if row+width <= from+x.length && x.file+row-from < early {
			return row, nil
		}
	}
	return 0, fmt.Errorf("no row of %d bytes is full of its first %d bytes", width, early)
}
