package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// A start that a person has had to accept tells at its end whose the blocks in doubt are. The
// file system is mounted then and its log replayed, so nothing has to be built to read it, and
// clients do not wait for it.

const (
	// namingTime bounds the look, and namingRest is what a start needs after it to report.
	namingTime = time.Minute
	namingRest = 10 * time.Second
)

// NamedFile is where the start writes the Doubt that it was told to accept, with its Owners.
func NamedFile(service string) string { return runDir + "/named-" + service + ".json" }

// nameFiles finds whose the blocks are that a person has accepted. What keeps it from that
// fails no start.
func (s *service) nameFiles(ctx context.Context) {
	d := s.acceptance()
	if d == nil || !slices.ContainsFunc(d.Arrays, func(a ArrayInDoubt) bool { return len(a.Blocks) > 0 }) {
		return
	}
	s.resumeUdev()
	wait := namingTime
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, end.Sub(s.k.Now())-namingRest)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := s.log.step("files-in-doubt", func() (err error) {
		d.Owners, err = s.ownersOf(ctx, d)
		return err
	})
	if d.Unnamed = ""; err != nil {
		d.Owners, d.Unnamed = nil, err.Error()
	}
	s.log.note("blocks that a person accepted, as of %s: %v", d.At.Format(time.RFC3339), d)
	b, err := json.MarshalIndent(d, "", "  ")
	if err = errors.Join(err, s.k.Save(NamedFile(s.cfg.Service), append(b, '\n'))); err != nil {
		s.log.note("%v", err)
	}
}

// ownersOf traces blocks of arrays to the volume, and has the kind of the service look whose
// they are there.
func (s *service) ownersOf(ctx context.Context, d *Doubt) (*Owners, error) {
	if len(s.volumes) != 1 {
		return nil, errors.New("the service has more than one volume")
	}
	volume, err := s.tableOf(ctx, s.volumes[0])
	if err != nil {
		return nil, err
	}
	var header dmTable
	if s.cfg.Cache != "" {
		if header, err = s.tableOf(ctx, cache.HeaderLV); err != nil {
			return nil, err
		}
	}
	arrays, err := s.storage.devices()
	if err != nil {
		return nil, err
	}
	var blocks []int64
	outside, ofCache := 0, 0
	for _, a := range d.Arrays {
		i := slices.IndexFunc(arrays, func(x device) bool { return x.name == a.Name && x.gone == nil })
		if i < 0 {
			return nil, fmt.Errorf("array %s is not here", a.Name)
		}
		dev := s.line("/sys/block/" + strings.TrimPrefix(arrays[i].path, "/dev/") + "/dev")
		for _, b := range a.Blocks {
			if off, ok := volume.at(dev, b); ok {
				blocks = append(blocks, off)
			} else if _, ok := header.at(dev, b); ok {
				ofCache++
			} else {
				outside++
			}
		}
	}
	slices.Sort(blocks)
	o, err := s.kind.owners(ctx, blocks)
	if err == nil {
		o.Outside, o.Cache = outside, ofCache
	}
	return o, err
}

// tableOf is how a volume of the volume group is made of its devices.
func (s *service) tableOf(ctx context.Context, volume string) (dmTable, error) {
	out, err := s.k.Run(ctx, kernel.Command{Argv: []string{"dmsetup", "table", linux.DMName(s.cfg.VG, volume)}})
	if err != nil {
		return nil, err
	}
	return parseDMTable(out)
}

// dmTable is how a device of the device mapper is made of parts of others.
type dmTable []dmSegment

// dmSegment is a range of the device, in sectors, on stripes.
type dmSegment struct {
	start, length int64
	chunk         int64 // sectors of one stripe after another; 0: there is one
	on            []dmPart
}

type dmPart struct {
	dev   string // 9:127
	start int64
}

// parseDMTable parses the table of a device with linear and striped segments.
//
// Source: dmsetup(8); the kernel's Documentation/admin-guide/device-mapper/linear.rst, striped.rst
func parseDMTable(s string) (dmTable, error) {
	var out dmTable
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		seg, err := parseDMSegment(f)
		if err != nil {
			return nil, fmt.Errorf("segment %q: %w", strings.TrimSpace(line), err)
		}
		out = append(out, *seg)
	}
	if len(out) == 0 {
		return nil, errors.New("the volume has no segment")
	}
	return out, nil
}

func parseDMSegment(f []string) (*dmSegment, error) {
	if len(f) < 5 {
		return nil, errors.New("it is too short")
	}
	var bad error
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		bad = errors.Join(bad, err)
		return n
	}
	seg := &dmSegment{start: number(f[0]), length: number(f[1])}
	rest := f[3:]
	switch f[2] {
	case "linear":
	case "striped":
		if seg.chunk = number(f[4]); seg.chunk <= 0 || int64(len(f)-5) != 2*number(f[3]) {
			bad = errors.Join(bad, errors.New("its stripes do not add up"))
		}
		rest = f[5:]
	default:
		return nil, errors.New("only linear and striped ones can be traced")
	}
	for ; len(rest) > 1; rest = rest[2:] {
		seg.on = append(seg.on, dmPart{rest[0], number(rest[1])})
	}
	return seg, bad
}

// at finds the place in the device, in bytes, that is at an offset of another one.
func (t dmTable) at(dev string, offset int64) (int64, bool) {
	for _, s := range t {
		n := int64(len(s.on))
		for i, p := range s.on {
			in := offset/512 - p.start
			if p.dev != dev || in < 0 || in >= s.length/n {
				continue
			}
			if s.chunk > 0 {
				in = (in/s.chunk*n+int64(i))*s.chunk + in%s.chunk
			}
			return (s.start+in)*512 + offset%512, true
		}
	}
	return 0, false
}
