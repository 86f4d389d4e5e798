package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A copy of the stack reads like what the stack mounts, and what is written to it goes
// to memory: the disks and the SSDs stay as they are. The agent looks into the file
// system of a volume through it before anybody may write there.
//
//	bcache, "dirty"   over both copies; not made if no dirty data is on the SSDs
//	VG.trial          the overlay of VG.trial.disks, or of VG/LV
//	VG.trial.ssds     the overlay of the mirror, which is read-only
//	VG.trial.disks    dm-linear, read-only: the superblock of the dirty layer, then VG/LV
//
// The clean layer is left out: it has no data that is not on the disks.

// Overlay makes a device that reads like the one called over (dm-3), and keeps in memory
// what is written to it. It is called name in the device mapper; its kernel name is
// returned.
type Overlay func(ctx context.Context, name, over string) (dev string, err error)

// CopyOf is the device mapper's name of the overlay of a volume group's volume.
func CopyOf(vg string) string { return vg + ".trial" }

func (c *Config) copiedSSDs() string { return CopyOf(c.VG) + ".ssds" }

func (c *Config) copiedDisks() string { return CopyOf(c.VG) + ".disks" }

// Copy makes a copy of the stack, which is down, on a volume that is active. It returns
// the kernel name of the device. DropCopy takes it down, also if Copy fails.
func (s *Stack) Copy(ctx context.Context, over Overlay) (string, error) {
	name := CopyOf(s.cfg.VG)
	if err := s.readLabel(); err != nil {
		return "", err
	}
	hdr, lv, err := s.base()
	if err != nil {
		return "", err
	}
	if s.label == nil || s.label.Dirty == nil {
		return over(ctx, name, lv)
	}
	switch state, err := s.dirtyState(); {
	case err != nil:
		return "", err
	case state != stateDirty:
		return over(ctx, name, lv)
	}
	if s.exists("/sys/fs/bcache/" + s.label.Dirty.Set) {
		return "", errors.New("the mirror of dirty data is in use")
	}
	if err := s.modules(ctx); err != nil {
		return "", err
	}
	mirror, err := s.mirrorReadOnly(ctx)
	if err != nil {
		return "", err
	}
	ssds, err := over(ctx, s.cfg.copiedSSDs(), mirror)
	if err != nil {
		return "", err
	}
	table := copyTable(s.devno(hdr), s.devno(lv), s.sectors(lv))
	if _, err := s.sys.Run(ctx, table, "dmsetup", "--noudevsync", "create", "--readonly", s.cfg.copiedDisks()); err != nil {
		return "", err
	}
	disks, err := over(ctx, name, s.dm(s.cfg.copiedDisks()))
	if err != nil {
		return "", err
	}
	return s.join(ctx, disks, ssds)
}

// copyTable maps the half of the header with the dirty layer's superblock, and after it
// the volume.
func copyTable(hdr, lv string, sectors int64) string {
	const h = half / 512
	return fmt.Sprintf("0 %d linear %s %d\n%d %d linear %s 0\n", h, hdr, h, h, sectors, lv)
}

// mirrorReadOnly assembles the mirror of dirty data from what is there of it. md may bring
// the members' bitmaps up to date, and writes nothing else to them.
func (s *Stack) mirrorReadOnly(ctx context.Context) (string, error) {
	l := s.label.Dirty
	if err := s.rescan(ctx); err != nil {
		return "", err
	}
	if err := s.stopArray(ctx, l.Array); err != nil {
		return "", err
	}
	devs, missing, err := s.mirrorParts(l)
	if err != nil {
		return "", err
	}
	if len(missing) > 0 {
		s.note("the mirror of dirty data is read without SSD %s", strings.Join(missing, " and "))
	}
	if err := s.assembleMirror(ctx, l, devs, "--readonly"); err != nil {
		return "", err
	}
	a := s.array(l.Array)
	if a == nil {
		return "", errNoMirror
	}
	return a.Dev, nil
}

// join has bcache make a device of the copies of the disks and of the mirror.
func (s *Stack) join(ctx context.Context, disks, ssds string) (string, error) {
	for _, dev := range []string{disks, ssds} {
		if err := s.register(dev); err != nil {
			return "", err
		}
	}
	if err := s.wait(ctx, 10*time.Second, "bcache's device of the copies", func() bool { return s.over(disks) != "" }); err != nil {
		return "", err
	}
	// What it would write to the disks, and what is read, would fill memory. Without a mode
	// dirty data is still read from the mirror.
	dev := s.over(disks)
	for _, set := range [][2]string{{"cache_mode", "none\n"}, {"writeback_running", "0\n"}} {
		if err := s.sys.Poke("/sys/block/"+dev+"/bcache/"+set[0], set[1]); err != nil {
			return "", err
		}
	}
	return dev, nil
}

// DropCopy takes down what is there of a copy.
func (s *Stack) DropCopy(ctx context.Context) error {
	name := CopyOf(s.cfg.VG)
	if b := s.dm(name); b != "" {
		if err := s.stopDevice(ctx, b); err != nil {
			return err
		}
	}
	if b := s.dm(s.cfg.copiedSSDs()); b != "" {
		if err := s.stopSet(ctx, b); err != nil {
			return err
		}
	}
	for _, n := range []string{name, s.cfg.copiedSSDs(), s.cfg.copiedDisks()} {
		if err := s.remove(ctx, n); err != nil {
			return err
		}
	}
	for _, u := range s.cfg.DirtyUUIDs {
		if a := s.array(u); a != nil && s.setOn(a.Dev) != "" {
			return fmt.Errorf("the mirror of dirty data, %s, is in use, and not by a copy", a.Dev)
		}
		if err := s.stopArray(ctx, u); err != nil {
			return err
		}
	}
	return nil
}
