package ocf

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// offlineTools work on a target of Lustre that is not mounted, by the word of
// the action. None is killed: a killed e2fsck leaves a mark in the target's MMP
// block, and the target cannot be mounted any more.
//
// Source: e2fsck(8); tunefs.lustre(8)
var offlineTools = map[string]func(dev string) []string{
	"fsck-look":   func(dev string) []string { return []string{"e2fsck", "-f", "-n", dev} },
	"fsck-repair": func(dev string) []string { return []string{"e2fsck", "-f", "-y", dev} },
	"writeconf":   func(dev string) []string { return []string{"tunefs.lustre", "--writeconf", dev} },
}

// offline brings the storage of a stopped service up on this server, has tool
// work on one of its targets, and takes the storage down again. run gives the
// tool's error, which comes first.
func (s *service) offline(ctx context.Context, target string, tool func(dev string) []string, run func(argv []string) error) (err error) {
	volume, ok := s.kind.VolumeOf(target)
	if !ok || s.cfg.VG == "" {
		return unit.Refuse(fmt.Errorf("service %s has no target %s on a volume group", s.cfg.Service, target))
	}
	if st, err := s.Check(); err != nil || st != unit.Stopped {
		return unit.Refuse(fmt.Errorf("service %s is not stopped here (%v): a target that is mounted is not touched", s.cfg.Service, err))
	}
	defer s.resumeUdev()
	parts := s.parts()
	parts = parts[:len(parts)-len(s.kind.Layers())]
	defer func() {
		for _, p := range slices.Backward(parts) {
			if perr := p.Stop(context.WithoutCancel(ctx)); perr != nil && err == nil {
				err = fmt.Errorf("%s: %w", p.Name, perr)
			}
		}
	}()
	for _, p := range parts {
		if p.Name == "volume" {
			// start would take it from the other server, which Pacemaker has fenced by then.
			if owner, err := s.owner(); err != nil || owner != "" && owner != s.cfg.SystemID && owner != s.Node {
				return unit.Refuse(fmt.Errorf("volume group %s is of %q (%v): stop the service there", s.cfg.VG, owner, err))
			}
		}
		if err := p.Start(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	dev, _, err := s.On(volume)
	if err != nil || dev == "" {
		return fmt.Errorf("%s is not active: %w", s.Called(volume), err)
	}
	if err := run(tool(s.VolumePath(dev))); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(tool(s.VolumePath(dev)), " "), err)
	}
	return nil
}
