package ocf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// A trial reads the file system of a volume whose start is refused, without a write to
// a disk or an SSD: the arrays and the volume are read-only, and a snapshot in memory takes
// the writes of the file system, which replays its journal. With a cache it reads a copy of
// the cache's stack.

const (
	// trialTime bounds a trial, and trialRest is what a start needs after it, to take it
	// down and report.
	trialTime = time.Minute
	trialRest = 25 * time.Second
	// trialRoom is the most that a snapshot in memory may take up: as much as the largest
	// journal of XFS can change.
	trialRoom = 1 << 30
)

// trialMark is there while there may be anything of a trial.
func (s *service) trialMark() string { return runDir + "/trial-" + s.cfg.Service }

func (s *service) trialName() string { return cache.CopyOf(s.cfg.VG) }

func (s *service) trialDir() string { return runDir + "/on-trial-" + s.cfg.Service }

func (s *service) trialRoomFile() string { return s.trialDir() + ".writes" }

// readOnlyVolume activates the volume as its owner would, so that nothing is written to
// take it over. header is that of a cache.
func (s *service) readOnlyVolume(ctx context.Context) (volume, header dmTable, err error) {
	if len(s.volumes) != 1 {
		return nil, nil, errors.New("the service has more than one volume")
	}
	if err := s.lvmConfig(); err != nil {
		return nil, nil, err
	}
	devices, err := s.storage.devices()
	if err != nil {
		return nil, nil, err
	}
	owner, err := s.ownerOf(devices)
	if err != nil {
		return nil, nil, err
	}
	// LVM activates volumes of its own system only.
	as := fmt.Sprintf("local { system_id = %q } activation { read_only_volume_list = [ %q ] }", owner, s.cfg.VG)
	argv := []string{"lvchange", "--quiet", "--activate", "y"}
	for _, v := range s.trialVolumes() {
		argv = append(argv, s.cfg.VG+"/"+v)
	}
	if err := s.lvmAs(ctx, devices, as, argv...); err != nil {
		return nil, nil, err
	}
	var tables [2]dmTable
	for i, v := range s.trialVolumes() {
		out, err := s.k.Run(ctx, command{argv: []string{"dmsetup", "table", linux.DMName(s.cfg.VG, v)}})
		if err != nil {
			return nil, nil, err
		}
		if tables[i], err = parseDMTable(out); err != nil {
			return nil, nil, err
		}
	}
	return tables[0], tables[1], nil
}

// trialVolumes are the volumes that a trial reads.
func (s *service) trialVolumes() []string {
	if s.cfg.Cache != "" {
		return []string{s.volumes[0], cache.HeaderLV}
	}
	return s.volumes[:1]
}

// onTrial makes a device that reads like what is mounted of the volume, and keeps in
// memory what is written to it.
func (s *service) onTrial(ctx context.Context) (dev string, err error) {
	if s.cfg.Cache == "" {
		volume, _, err := s.dmNamed(linux.DMName(s.cfg.VG, s.volumes[0]))
		if err != nil {
			return "", err
		}
		return s.snapshot(ctx, s.trialName(), volume)
	}
	c, err := s.openCache()
	if err != nil {
		return "", err
	}
	return c.Copy(ctx, s.snapshot)
}

// snapshot makes a device that reads like another one, and keeps in memory what is
// written to it. It is a cache.Overlay.
//
// Source: the kernel's Documentation/admin-guide/device-mapper/snapshot.rst
func (s *service) snapshot(ctx context.Context, name, over string) (dev string, err error) {
	sectors, err := strconv.ParseInt(s.line("/sys/block/"+over+"/size"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("size of %s: %w", over, err)
	}
	// Others need room there, too.
	free, err := s.k.Free(runDir)
	if err != nil {
		return "", err
	}
	room, size := s.trialRoomFile(), min(trialRoom, free/3)
	if _, err := s.k.Run(ctx, command{argv: []string{"truncate", "--size", strconv.FormatInt(size, 10), room}}); err != nil {
		return "", err
	}
	loop, err := s.k.Run(ctx, command{argv: []string{"losetup", "--find", "--show", room}})
	if err != nil {
		return "", errors.Join(err, s.k.Remove(room))
	}
	loop = strings.TrimSpace(loop)
	const unit = "8" // sectors that are copied at a time
	table := fmt.Sprintf("0 %d snapshot %s %s N %s", sectors, s.line("/sys/block/"+over+"/dev"), loop, unit)
	_, err = s.k.Run(ctx, command{argv: []string{"dmsetup", "--noudevsync", "create", name, "--table", table}})
	// The loop device ends, and the file with it, when the snapshot does.
	_, derr := s.k.Run(ctx, command{argv: []string{"losetup", "--detach", loop}})
	if err = errors.Join(err, derr, s.k.Remove(room)); err != nil {
		return "", err
	}
	dev, _, err = s.dmNamed(name)
	return dev, err
}

// dropTrial takes down what is left of a trial, also of one whose agent was killed.
func (s *service) dropTrial(ctx context.Context) error {
	if _, err := s.k.ReadFile(s.trialMark()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ours := func(all []linux.Mount) []string {
		if mountedAt(all, s.trialDir()) != nil {
			return []string{s.trialDir()}
		}
		return nil
	}
	users := func() []user {
		all, err := s.mounts()
		if m := mountedAt(all, s.trialDir()); err == nil && m != nil {
			return s.users(m.Dev)
		}
		return nil
	}
	if err := s.unmount(ctx, s.trialDir(), ours, users); err != nil {
		return err
	}
	if s.cfg.Cache != "" {
		c, err := s.openCache()
		if err == nil {
			err = c.DropCopy(ctx)
		}
		if err != nil {
			return err
		}
	}
	names := []string{s.trialName()}
	for _, v := range s.trialVolumes() {
		names = append(names, linux.DMName(s.cfg.VG, v))
	}
	for _, name := range names {
		if !s.there(name) {
			continue
		}
		if _, err := s.k.Run(ctx, command{argv: []string{"dmsetup", "--noudevsync", "remove", "--retry", name}}); err != nil {
			return err
		}
	}
	layers := s.storage.layers()
	for i := len(layers) - 1; i >= 0; i-- {
		if err := layers[i].stop(ctx); err != nil {
			return err
		}
	}
	return errors.Join(s.k.Remove(s.trialRoomFile()), s.k.Remove(s.trialMark()))
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

// trialFlags are those of the mount of a trial. The journal is replayed all the same.
const trialFlags = unix.MS_RDONLY | unix.MS_NOATIME | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
