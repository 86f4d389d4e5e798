package ocf

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
)

// mounted finds what the file system is on.
func (s *nfsServer) mounted() (dev, devno string, err error) { return s.svc.on(s.lv) }

func (s *nfsVolume) mountState() (state, error) {
	all, err := s.mounts()
	if err != nil {
		return broken, err
	}
	_, devno, err := s.mounted()
	if err != nil {
		return broken, err
	}
	m := mountedAt(all, s.cfg.MountPoint)
	if m == nil {
		return stopped, nil
	}
	if m.Dev != devno {
		return stopped, nil // something else is mounted there: start refuses
	}
	if m.Type != "xfs" || m.Root != "/" {
		return broken, fmt.Errorf("%s of %s (%s) is mounted on %s instead of the whole volume", m.Root, m.Source, m.Type, s.cfg.MountPoint)
	}
	return s.writable(m)
}

// writable is the state of a mount that may be read-only, or whose file system may
// have shut down.
func (s *nfsServer) writable(m *linux.Mount) (state, error) {
	if !slices.Contains(m.Options, "rw") || slices.Contains(m.Super, "ro") {
		return broken, fmt.Errorf("%s is mounted read-only", m.Target)
	}
	if err := s.k.Access(m.Target); err != nil {
		return broken, fmt.Errorf("file system on %s: %w", m.Target, err)
	}
	return running, nil
}

func (s *nfsVolume) startMount(ctx context.Context) error {
	st, err := s.mountState()
	if err != nil || st == running {
		return err
	}
	dev, devno, err := s.mounted()
	if err != nil {
		return err
	}
	if dev == "" {
		return fmt.Errorf("%s is not active", s.svc.called(s.lv))
	}
	if err := s.svc.noCache(); err != nil {
		return err
	}
	all, err := s.mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Dev == devno {
			return refuse(fmt.Errorf("%s is mounted on %s already", s.svc.called(s.lv), m.Target))
		}
		if m.Target == s.cfg.MountPoint {
			return refuse(fmt.Errorf("%s (%s) is mounted on %s already", m.Source, m.Type, m.Target))
		}
	}
	sb, err := s.k.ReadBlocks("/dev/"+dev, 0, 4096)
	if err != nil {
		return err
	}
	// Source: struct xfs_dsb, xfs_format.h: magic at 0, UUID at 32.
	if string(sb[:4]) != "XFSB" {
		return refuse(fmt.Errorf("no XFS on %s", s.svc.called(s.lv)))
	}
	if got := hex.EncodeToString(sb[32:48]); got != md.Hex(s.cfg.FSUUID) {
		return refuse(fmt.Errorf("the file system on %s has UUID %s, not %s", s.svc.called(s.lv), got, md.Hex(s.cfg.FSUUID)))
	}
	if err := s.k.Mkdir(s.cfg.MountPoint, 0, -1, -1); err != nil {
		return err
	}
	flags, data := mountOptions(s.cfg.MountOpts)
	err = s.k.Mount(s.volumePath(dev), s.cfg.MountPoint, "xfs", flags, data)
	switch {
	case errors.Is(err, unix.EUCLEAN):
		return fmt.Errorf("mount %s: the file system is damaged: see the kernel's log, then xfs_repair(8): %w", s.cfg.MountPoint, err)
	case err != nil:
		return fmt.Errorf("mount %s: %w (the kernel's log may say why)", s.cfg.MountPoint, err)
	}
	_, err = s.mountState()
	return err
}

// stopMount unmounts every mount of the volume.
func (s *nfsVolume) stopMount(ctx context.Context) error {
	dev, devno, err := s.mounted()
	if err != nil {
		return err
	}
	if dev == "" {
		return nil // without the device no mount of it can be alive
	}
	ours := func(all []linux.Mount) []string {
		var out []string
		top := mountedAt(all, s.cfg.MountPoint)
		for _, m := range all {
			// Also what was mounted by hand below the mount point.
			if m.Dev == devno || (top != nil && top.Dev == devno && below(s.cfg.MountPoint, m.Target)) {
				out = append(out, m.Target)
			}
		}
		return out
	}
	if err := s.unmount(ctx, s.cfg.MountPoint, ours, func() []user { return s.users(devno) }); err != nil {
		return err
	}
	return s.ended(ctx, "xfs", dev, s.cfg.MountPoint)
}
