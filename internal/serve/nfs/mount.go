package nfs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Mounted finds what the file system is on.
func (s *server) Mounted() (dev, devno string, err error) { return s.svc.On(s.lv) }

func (s *volume) mountState() (unit.State, error) {
	all, err := s.Mounts()
	if err != nil {
		return unit.Broken, err
	}
	_, devno, err := s.Mounted()
	if err != nil {
		return unit.Broken, err
	}
	m := unit.MountedAt(all, s.cfg.MountPoint)
	if m == nil {
		return unit.Stopped, nil
	}
	if m.Dev != devno {
		return unit.Stopped, nil // something else is mounted there: start refuses
	}
	if m.Type != "xfs" || m.Root != "/" {
		return unit.Broken, fmt.Errorf("%s of %s (%s) is mounted on %s instead of the whole volume", m.Root, m.Source, m.Type, s.cfg.MountPoint)
	}
	return s.writable(m)
}

// writable is the state of a mount that may be read-only, or whose file system may
// have shut down.
func (s *server) writable(m *linux.Mount) (unit.State, error) {
	if m.ReadOnly() {
		return unit.Broken, fmt.Errorf("%s is mounted read-only", m.Target)
	}
	if err := s.K.Access(m.Target); err != nil {
		return unit.Broken, fmt.Errorf("file system on %s: %w", m.Target, err)
	}
	return unit.Running, nil
}

func (s *volume) startMount(ctx context.Context) error {
	st, err := s.mountState()
	if err != nil || st == unit.Running {
		return err
	}
	dev, devno, err := s.Mounted()
	if err != nil {
		return err
	}
	if dev == "" {
		return fmt.Errorf("%s is not active", s.svc.Called(s.lv))
	}
	if err := s.svc.NoCache(); err != nil {
		return err
	}
	all, err := s.Mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Dev == devno {
			return refusal.New("mounted", refusal.Args{"volume": s.svc.Called(s.lv), "at": m.Target})
		}
		if m.Target == s.cfg.MountPoint {
			return refusal.New("mount-taken", refusal.Args{"device": m.Source, "type": m.Type, "at": m.Target})
		}
	}
	sb, err := s.K.ReadBlocks("/dev/"+dev, 0, 4096)
	if err != nil {
		return err
	}
	// Source: struct xfs_dsb, xfs_format.h: magic at 0, UUID at 32.
	if string(sb[:4]) != "XFSB" {
		return refusal.New(refusal.Damaged, refusal.Args{"volume": s.svc.Called(s.lv)})
	}
	if got := hex.EncodeToString(sb[32:48]); got != md.Hex(s.cfg.FSUUID) {
		return refusal.New("other-fs", refusal.Args{"volume": s.svc.Called(s.lv), "uuid": got, "want": md.Hex(s.cfg.FSUUID)})
	}
	if err := s.K.Mkdir(s.cfg.MountPoint, 0, -1, -1); err != nil {
		return err
	}
	flags, data := unit.MountOptions(s.cfg.MountOpts)
	err = s.Long("mount "+s.cfg.MountPoint, s.Moved(func() []string { return []string{dev} }), func() error {
		return s.K.Mount(s.VolumePath(dev), s.cfg.MountPoint, "xfs", flags, data)
	})
	switch {
	// EUCLEAN is the kernel's EFSCORRUPTED, EBADMSG its EFSBADCRC.
	// Source: Linux, fs/xfs/xfs_linux.h
	case errors.Is(err, unix.EUCLEAN), errors.Is(err, unix.EBADMSG):
		return refusal.New(refusal.Damaged, refusal.Args{"at": s.cfg.MountPoint, refusal.Why: err})
	case err != nil:
		return fmt.Errorf("mount %s: %w (the kernel's log may say why)", s.cfg.MountPoint, err)
	}
	_, err = s.mountState()
	return err
}

func (s *volume) stopMount(ctx context.Context) error {
	dev, devno, err := s.Mounted()
	if err != nil {
		return err
	}
	if dev == "" {
		return nil // without the device no mount of it can be alive
	}
	ours := func(all []linux.Mount) []string {
		var out []string
		top := unit.MountedAt(all, s.cfg.MountPoint)
		for _, m := range all {
			// Also what was mounted by hand below the mount point.
			if m.Dev == devno || (top != nil && top.Dev == devno && unit.Below(s.cfg.MountPoint, m.Target)) {
				out = append(out, m.Target)
			}
		}
		return out
	}
	if err := s.Unmount(ctx, s.cfg.MountPoint, ours, func() []unit.User { return s.Users(devno) }); err != nil {
		return err
	}
	return s.Ended(ctx, "xfs", dev, s.cfg.MountPoint)
}
