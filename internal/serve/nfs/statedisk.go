package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// The state of nfs-utils is in a file system of its own, in a file on the volume. All
// blocks of that file are written when it is made, so clients that have the volume full
// cannot take its room: rpc.statd can note a client that locks, or reclaims a lock, at
// any time.

// stateBytes is the size of the state's file system: room for the notes of 3,000 clients, twice,
// at 4 KiB each. A brick with more has wideStateBytes, room for 14,000 (measured: mkfs leaves
// 6,447 and 28,116 free blocks).
const (
	stateBytes     = 32 << 20
	wideStateBytes = 128 << 20
	// FewClients are those for whom stateBytes are enough, with the lists of locks and connections.
	FewClients = 2000
)

// stateSize is the size of the state's file system: a smaller one is made larger at the next
// start, a larger one stays.
func (c *NFSService) stateSize() int64 {
	if c.NFS.Clients > FewClients {
		return wideStateBytes
	}
	return stateBytes
}

// Blocks are never given back: mke2fs must not discard them, and the loop device has no
// discard. Groups of 2048 blocks have copies of the superblock in the blocks 2048 and
// 6144; one group of the usual size would have none.
//
// Source: mke2fs(8)
var MakeStateFS = []string{"mkfs.ext4", "-q", "-F", "-b", "4096", "-g", "2048", "-m", "0", "-i", "4096", "-J", "size=4", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"}

// RepairStateFS are the ways to repair it, in this order. e2fsck finds the copies of the
// superblock by itself only in groups of the usual size. It replays the journal with
// either of them.
//
// Source: e2fsck(8)
var RepairStateFS = [][]string{{"e2fsck", "-f", "-y"}, {"e2fsck", "-f", "-y", "-b", "2048", "-B", "4096"}}

const (
	stateFlags = unix.MS_NOATIME | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
	stateFS    = "ext4"
)

// StateMount is the mount of the state's own file system; nil if it is not mounted.
func (s *server) StateMount() (*linux.Mount, error) {
	if s.cfg.StateImage == "" {
		return nil, nil
	}
	all, err := s.Mounts()
	if err != nil {
		return nil, err
	}
	return unit.MountedAt(all, s.cfg.StateDir), nil
}

// stateAt is the device number of StateDir's file system, and StateDir's path in it.
func (s *server) stateAt() (devno, root string, err error) {
	if m, err := s.StateMount(); err != nil || m != nil {
		if err != nil {
			return "", "", err
		}
		return m.Dev, m.Root, nil
	}
	_, devno, err = s.Mounted()
	return devno, s.stateRoot(), err
}

// stateDiskState finds no fault with a service that runs without: it was started
// before there was one, or when there was no room to make one.
func (s *volume) stateDiskState() (unit.State, error) {
	m, err := s.StateMount()
	switch {
	case err != nil:
		return unit.Broken, err
	case m == nil:
		return s.bindState()
	case m.Type != stateFS || m.Root != "/":
		return unit.Broken, fmt.Errorf("%s of %s (%s) is mounted on %s instead of %s", m.Root, m.Source, m.Type, s.cfg.StateDir, s.cfg.StateImage)
	}
	return s.writable(m)
}

func (s *volume) startStateDisk(ctx context.Context) error {
	if m, err := s.StateMount(); err != nil || m != nil {
		return err
	}
	size, err := s.K.Size(s.cfg.StateImage)
	if errors.Is(err, fs.ErrNotExist) {
		size = s.cfg.stateSize()
		if err := s.makeStateDisk(ctx); err != nil {
			// Serving without is better than not serving.
			s.Log.Note("the state of NFS has no file system of its own: %v", err)
			return nil
		}
	} else if err != nil {
		return err
	}
	if err := s.K.Mkdir(s.cfg.StateDir, 0o755, 0, 0); err != nil {
		return err
	}
	if err := s.mountStateDisk(ctx); err != nil || size >= s.cfg.stateSize() {
		return err
	}
	// A larger one with the same files takes its place, before a daemon uses it.
	if err := s.makeStateDisk(ctx); err != nil {
		s.Log.Note("the state of NFS keeps its size: %v", err)
	}
	if m, err := s.StateMount(); err != nil || m != nil {
		return err
	}
	return s.mountStateDisk(ctx)
}

// mountStateDisk mounts the state's file system, and repairs it if need be.
func (s *volume) mountStateDisk(ctx context.Context) error {
	mount := func() error { return s.K.MountImage(s.cfg.StateImage, s.cfg.StateDir, stateFS, stateFlags, "") }
	var errs []error
	if s.svc.MayBeTorn() {
		// The kernel mounts a file system although blocks of its files' maps are torn.
		s.Log.Note("blocks of the volume may be torn: checking %s", s.cfg.StateImage)
	} else {
		err := mount()
		if err == nil {
			return nil
		}
		s.Log.Note("mount %s: %v: repairing it", s.cfg.StateImage, err)
	}
	for _, repair := range RepairStateFS {
		// Its exit code is 1 if it has mended something, and then it says what.
		out, err := s.K.Run(ctx, kernel.Command{Argv: append(slices.Clone(repair), s.cfg.StateImage)})
		if err != nil {
			s.Log.Note("%v: %s", err, out)
			errs = append(errs, err)
		}
		if err = mount(); err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("mount: %w", err))
	}
	return fmt.Errorf("the state of NFS, %s: %w", s.cfg.StateImage, errors.Join(errs...))
}

// makeStateDisk makes the file with its file system and what StateDir holds, and unmounts the
// smaller one that it replaces. A crash leaves StateDir as it is, or a file that is whole.
func (s *volume) makeStateDisk(ctx context.Context) error {
	if err := s.K.Remove(s.reserveFile()); err != nil { // nothing to keep room for
		return err
	}
	half := s.cfg.StateImage + ".new"
	err := s.fillStateDisk(ctx, half)
	if err == nil {
		err = s.stopStateDisk(ctx)
	}
	if err == nil {
		err = s.K.Rename(half, s.cfg.StateImage)
	}
	if err != nil {
		return errors.Join(err, s.K.Remove(half))
	}
	return s.K.SyncDir(s.cfg.StateImage)
}

func (s *volume) fillStateDisk(ctx context.Context, image string) error {
	if err := s.K.Fill(image, s.cfg.stateSize()); err != nil {
		return err
	}
	if _, err := s.K.Run(ctx, kernel.Command{Argv: append(slices.Clone(MakeStateFS), image)}); err != nil {
		return err
	}
	if names, err := s.K.ReadDir(s.cfg.StateDir); errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
		return nil
	}
	at := s.fillDir()
	if err := s.K.Mkdir(at, 0o700, 0, 0); err != nil {
		return err
	}
	if err := s.K.MountImage(image, at, stateFS, stateFlags, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", image, at, err)
	}
	_, err := s.K.Run(ctx, kernel.Command{Argv: []string{"cp", "--archive", s.cfg.StateDir + "/.", at}})
	// It also writes to the disks what was copied.
	return errors.Join(err, s.K.Unmount(at))
}

// fillDir is where the state's next file system is mounted while it is filled.
func (s *volume) fillDir() string { return unit.RunDir + "/state-" + s.Service }

// stopStateDisk also unmounts what a start left in fillDir that was killed: its file keeps the
// volume busy.
func (s *volume) stopStateDisk(ctx context.Context) error {
	return errors.Join(s.unmountState(ctx, s.fillDir()), s.unmountState(ctx, s.cfg.StateDir))
}

func (s *volume) unmountState(ctx context.Context, at string) error {
	all, err := s.Mounts()
	if err != nil {
		return err
	}
	m := unit.MountedAt(all, at)
	if m == nil {
		return nil
	}
	ours := func(all []linux.Mount) (out []string) {
		for _, x := range all {
			if x.Dev == m.Dev {
				out = append(out, x.Target)
			}
		}
		return out
	}
	return s.Unmount(ctx, at, ours, func() []unit.User { return s.Users(m.Dev) })
}
