package drill

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/raid6"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// rotBytes is how many bytes the drill overwrites: a part of one chunk.
const rotBytes = 64 << 10

// spoilable finds acknowledged data on one disk that no worker overwrites any
// more. It returns the fault that corrupts that data.
func (e *engine) spoilable(ctx context.Context) (Fault, error) {
	g := e.group
	if g.Level != 6 || len(e.service.Storage.Groups) != 1 {
		return Fault{}, errors.New("bytes are only found again on a volume of one RAID 6 group")
	}
	file, err := e.coldFile()
	if err != nil {
		return Fault{}, err
	}
	ask := func(argv ...string) (string, error) {
		out, err := e.query(ctx, e.active, argv...)
		if err == nil && out.Code != 0 {
			err = fmt.Errorf("%s: %s", argv[0], strings.TrimSpace(out.Stderr))
		}
		return out.Stdout, err
	}
	maps, err := ask("xfs_io", "-r", "-c", "fiemap -v", file)
	if err != nil {
		return Fault{}, err
	}
	table, err := ask("dmsetup", "table", "/dev/"+e.service.Storage.VG+"/"+e.service.Storage.LV)
	if err != nil {
		return Fault{}, err
	}
	dev, err := ask("readlink", "-e", "/dev/md/"+g.Name)
	if err != nil {
		return Fault{}, err
	}
	md := "/sys/block/" + path.Base(strings.TrimSpace(dev)) + "/md/"
	disks := g.Data + g.Parity
	at, err := coldRow(parseFiemap(maps), table, int64(g.Chunk), g.Data)
	if err != nil {
		return Fault{}, fmt.Errorf("%s: %w", file, err)
	}
	row := at / int64(g.Chunk) / int64(g.Data)
	_, _, data := raid6.Layout{Disks: disks}.Row(row)
	slot := data[0]
	member, err := ask("readlink", "-e", fmt.Sprintf("%srd%d/block", md, slot))
	if err != nil {
		return Fault{}, err
	}
	offset, err := e.read(ctx, e.active, fmt.Sprintf("%srd%d/offset", md, slot))
	if err != nil {
		return Fault{}, err
	}
	begin, err := strconv.ParseInt(strings.TrimSpace(offset), 10, 64)
	if err != nil {
		return Fault{}, err
	}
	serial := ""
	if members, err := e.members(ctx, g); err != nil {
		return Fault{}, err
	} else if slot < len(members) {
		serial = members[slot]
	}
	if serial == "" {
		return Fault{}, fmt.Errorf("member %s of %s is no disk that is known", path.Base(strings.TrimSpace(member)), g.Name)
	}
	return Fault{Kind: Corrupt, Args: []string{serial, strconv.FormatInt(begin*512+row*int64(g.Chunk), 10), strconv.Itoa(rotBytes)}}, nil
}

// coldFile is the path on the server of the file of a worker that only appends.
func (e *engine) coldFile() (string, error) {
	for _, r := range e.load {
		for _, w := range r.job.Writers {
			if w.Pattern != workload.Append {
				continue
			}
			_, dir, _ := strings.Cut(r.mounts[w.Name].Source, ":")
			return path.Join(dir, loadDir, r.job.RunID, w.Name+".data"), nil
		}
	}
	return "", errors.New("no worker of the load only appends")
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

// bitRot corrupts data on a disk and scrubs the brick.
func bitRot(s Scene) ([]Step, error) {
	if kind.Of(s.Design).Files(s.Service) == "" {
		return nil, errNoFiles
	}
	if err := s.storage().rot(); err != nil {
		return nil, err
	}
	return []Step{
		{Fault: Fault{Kind: BitRot, On: s.Active}, Wait: 2 * time.Second},
		{Look: true, Until: &Condition{What: "scrub finds and mends", Look: func(ctx context.Context, v *View) (bool, string) { return v.scrub(ctx) }}},
	}, nil
}

// scrub scrubs the group. It reports whether the scrub found exactly the
// corrupted data and repaired it.
func (v *View) scrub(ctx context.Context) (bool, string) {
	g, err := v.e.env.Operator.Scrub(ctx, v.e.group)
	if err != nil {
		return false, err.Error()
	}
	i := slices.IndexFunc(v.e.injected, func(f Fault) bool { return f.Kind == Corrupt })
	if i < 0 {
		return false, "nothing was spoilt"
	}
	want := v.e.injected[i].Args[0]
	var names []string
	for _, d := range g.Disks {
		names = append(names, fmt.Sprintf("disk %s in %d blocks", d.Serial, d.Blocks))
	}
	ok := len(g.Disks) == 1 && strings.EqualFold(g.Disks[0].Serial, want) && g.Mended == rotBytes/raid6.Block && g.Unknown == 0 && g.Left == 0
	return ok, fmt.Sprintf("%d bytes of disk %s were overwritten; the scrub blamed %s, mended %d blocks of 4 KiB and left %d sectors that do not match", rotBytes, want, strings.Join(names, ", "), g.Mended, g.Left)
}
