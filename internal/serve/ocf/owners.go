package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
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
func NamedFile(service string) string { return unit.RunDir + "/named-" + service + ".json" }

// nameFiles finds whose the blocks are that a person has accepted. What keeps it from that
// fails no start.
func (s *service) nameFiles(ctx context.Context) {
	d := s.doubts.Acceptance()
	if d == nil || !slices.ContainsFunc(d.Arrays, func(a doubt.ArrayInDoubt) bool { return len(a.Blocks) > 0 }) {
		return
	}
	s.resumeUdev()
	wait := namingTime
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, end.Sub(s.K.Now())-namingRest)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := s.Log.Step("files-in-doubt", func() (err error) {
		d.Owners, err = s.ownersOf(ctx, d)
		return err
	})
	if d.Unnamed = ""; err != nil {
		d.Owners, d.Unnamed = nil, err.Error()
	}
	s.Log.Note("blocks that a person accepted, as of %s: %v", d.At.Format(time.RFC3339), d)
	b, err := json.MarshalIndent(d, "", "  ")
	if err = errors.Join(err, s.K.Save(NamedFile(s.cfg.Service), append(b, '\n'))); err != nil {
		s.Log.Note("%v", err)
	}
}

// ownersOf traces blocks of arrays to the volume, and has the kind of the service look whose
// they are there.
func (s *service) ownersOf(ctx context.Context, d *doubt.Doubt) (*doubt.Owners, error) {
	if len(s.volumes) != 1 {
		return nil, errors.New("the service has more than one volume")
	}
	volume, err := s.tableOf(ctx, s.volumes[0])
	if err != nil {
		return nil, err
	}
	var header doubt.DMTable
	if s.there(linux.DMName(s.cfg.VG, cache.HeaderLV)) {
		if header, err = s.tableOf(ctx, cache.HeaderLV); err != nil {
			return nil, err
		}
	}
	arrays, err := s.storage.Devices()
	if err != nil {
		return nil, err
	}
	var blocks []int64
	outside, ofCache := 0, 0
	for _, a := range d.Arrays {
		i := slices.IndexFunc(arrays, func(x unit.Device) bool { return x.Name == a.Name && x.Gone == nil })
		if i < 0 {
			return nil, fmt.Errorf("array %s is not here", a.Name)
		}
		dev := s.Line("/sys/block/" + strings.TrimPrefix(arrays[i].Path, "/dev/") + "/dev")
		for _, b := range a.Blocks {
			if off, ok := volume.At(dev, b); ok {
				blocks = append(blocks, off)
			} else if _, ok := header.At(dev, b); ok {
				ofCache++
			} else {
				outside++
			}
		}
	}
	slices.Sort(blocks)
	o, err := s.kind.Owners(ctx, blocks)
	if err == nil {
		o.Outside, o.Cache = outside, ofCache
	}
	return o, err
}

// tableOf is how a volume of the volume group is made of its devices.
func (s *volumeGroup) tableOf(ctx context.Context, volume string) (doubt.DMTable, error) {
	out, err := s.K.Run(ctx, kernel.Command{Argv: []string{"dmsetup", "table", linux.DMName(s.cfg.VG, volume)}})
	if err != nil {
		return nil, err
	}
	return doubt.ParseDMTable(out)
}
