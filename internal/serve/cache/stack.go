package cache

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
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// Stack is the cache of one volume on this host. Below it are host, the devices of this
// server, and parts, those of the cache. change is a change under way.
type Stack struct {
	parts
	// held are the arrays, by set, whose sets are not trusted. Start registers them
	// only after their backing device runs without them, so that bcache discards
	// their content.
	held map[string]string
	// Hold takes the lock of the service's actions, and refuses if another server owns
	// the volume; nil: the caller has done so.
	Hold func(ctx context.Context, service string) (release func(), err error)
	// revived counts successive looks with failed I/O, see Revive.
	revived int
	// noted is syncOf the mirror at the last NoteSync.
	noted []string
}

// parts are the SSDs, arrays, layers and label of one volume's cache.
type parts struct {
	host
	cfg   *Config
	label *Label
}

// Locked runs f under the service's lock, on the server that owns the volume.
func (s *Stack) Locked(ctx context.Context, f func() error) error {
	if s.Hold != nil {
		release, err := s.Hold(ctx, s.cfg.Service)
		if err != nil {
			return err
		}
		defer release()
	}
	return f()
}

// locked runs a step of a change under the service's lock, with the label that is on the
// disks now. The lock is not held between the steps, which may take hours: a stop of the
// service does not wait for them. So a step refuses if another change got between.
func (s *Stack) locked(ctx context.Context, step func() error) error {
	return s.Locked(ctx, func() error {
		was := s.label
		if err := s.readLabel(); err != nil {
			return err
		}
		if !was.sameParts(s.label) {
			return errors.New("another command has changed the cache meanwhile: run mortar apply")
		}
		return step()
	})
}

// New returns the stack of a config; note receives messages about unusual events.
func New(cfg *Config, note func(format string, a ...any)) *Stack {
	return &Stack{parts: parts{host: host{kernel.New(), note}, cfg: cfg}}
}

// refused is a refusal about the volume.
func (s *parts) refused(code refusal.Code) error {
	return refusal.New(code, refusal.Args{"volume": s.cfg.VG + "/" + s.cfg.LV})
}

// late bounds the wait for missing SSDs on a server whose uptime is below moment:
// after a power cut of the whole rack, SSDs may come up later than the server. A
// takeover does not wait.
const (
	ssdWait = 10 * time.Second
	moment  = 3 * time.Minute
)

func (s *Stack) patience() time.Duration {
	if up, ok := linux.Uptime(s.line("/proc/uptime")); ok && up > moment {
		return 0
	}
	return ssdWait
}

// State reports whether the stack is up, or returns its fault. It only reads sysfs.
func (s *parts) State() (running bool, err error) {
	top, origin := s.dm(s.cfg.Mounted()), s.dm(s.cfg.origin())
	if top == "" && origin == "" {
		return false, nil
	}
	if top == "" {
		return false, fmt.Errorf("the cache of %s is half up: %s is there without %s", s.cfg.VG, s.cfg.origin(), s.cfg.Mounted())
	}
	if s.line("/sys/block/"+top+"/dm/suspended") == "1" {
		return true, fmt.Errorf("%s is suspended", s.cfg.Mounted())
	}
	clean, dirty := s.layers()
	if clean == "" || dirty == "" {
		return true, fmt.Errorf("bcache has given up %s: its devices failed (see the kernel's log)", s.cfg.VG)
	}
	return true, nil
}

// layers returns the bcache devices: that of the clean layer on the origin, and that
// of the dirty layer on the clean one; "" for a missing device.
func (s *parts) layers() (clean, dirty string) {
	if o := s.dm(s.cfg.origin()); o != "" {
		clean = s.over(o)
	}
	if b := s.dm(s.cfg.between()); b != "" {
		dirty = s.over(b)
	}
	return clean, dirty
}

// place is the key of Label.Clean on this host.
func (s *parts) place() string {
	for _, d := range s.cfg.SSDs {
		if d.Server != "" {
			return s.name()
		}
	}
	return ""
}

// Start brings the stack up on an active volume. It is idempotent. It goes without a
// missing SSD, unless dirty data would be missing too: then it returns a refusal.Refusal.
func (s *Stack) Start(ctx context.Context) error {
	if up, err := s.State(); up && err == nil {
		return nil
	}
	if err := s.readLabel(); err != nil {
		return err
	}
	if s.label == nil {
		return s.refused("never-cached")
	}
	if err := s.modules(ctx); err != nil {
		return err
	}
	if err := s.startSets(ctx); err != nil {
		return err
	}
	if err := s.setOpen(true); err != nil {
		return err
	}
	if err := s.startDevices(ctx); err != nil {
		return err
	}
	s.noteAttached()
	s.tune()
	return nil
}

// WaitVolume waits for the volume, which LVM activates at boot after the last of its
// disks has appeared.
func (s *Stack) WaitVolume(ctx context.Context) error {
	return s.wait(ctx, 4*time.Minute, fmt.Sprintf("volume %s/%s", s.cfg.VG, s.cfg.LV), func() bool {
		return s.dm(linux.DMName(s.cfg.VG, s.cfg.LV)) != "" && s.dm(linux.DMName(s.cfg.VG, HeaderLV)) != ""
	})
}

func (s *host) modules(ctx context.Context) error {
	if s.exists("/sys/fs/bcache") && s.exists("/sys/module/raid1") && s.exists("/sys/module/raid0") {
		return nil
	}
	_, err := s.run(ctx, "", "modprobe", "--all", "bcache", "raid0", "raid1", "raid10")
	return err
}

// startSets assembles the arrays of both layers and registers the sets on
// them.
func (s *Stack) startSets(ctx context.Context) error {
	clean := s.label.Clean[s.place()]
	want := s.awaited(clean)
	all := func() bool {
		there := s.ssds()
		return !slices.ContainsFunc(want, func(serial string) bool { return there[serial] == "" })
	}
	if err := s.wait(ctx, s.patience(), "SSDs", all); err != nil && ctx.Err() != nil {
		return err
	}
	if err := s.rescan(ctx); err != nil {
		return err
	}
	state, err := s.dirtyState()
	if err != nil {
		return err
	}
	trustClean, trustDirty := trusted(s.label.Open, state, clean != nil && s.witness(clean))
	if s.label.Dirty != nil {
		if err := s.startDirty(ctx, state, trustDirty); err != nil {
			return err
		}
	}
	if clean != nil {
		if !trustClean {
			s.note("reads start uncached: the cache was not stopped, and an SSD may have been away meanwhile")
		}
		if err := s.startClean(ctx, clean, trustClean); err != nil {
			// Without the clean layer no data is lost.
			s.note("reads are not cached: %v", err)
		}
	}
	return nil
}

// awaited returns the SSDs that startSets waits for: those with the newest dirty data,
// and those of the clean layer. An SSD that left the mirror took the clean layer with
// it: after a crash that is not trusted without a witness, whether the SSD comes or not.
func (s *parts) awaited(clean *Layer) []string {
	var dirty []string
	if l := s.label.Dirty; l != nil {
		dirty = l.Members
	}
	if clean == nil || s.label.Open && s.label.Dirty != nil && !subset(clean.Members, dirty) {
		return dirty
	}
	return slices.Concat(dirty, clean.Members)
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(x string) bool { return !slices.Contains(b, x) })
}

// rescan makes the kernel read partition tables again, which another server may have
// written. It changes only partitions that differ: if a partition vanishes and comes
// back, udev removes it from its running array.
func (s *parts) rescan(ctx context.Context) error {
	for _, d := range s.ssds() {
		used := false
		for _, p := range s.partitions(d) {
			used = used || len(s.list("/sys/class/block/"+p+"/holders")) > 0
		}
		if used {
			continue
		}
		argv := []string{"partx", "--update", "/dev/" + d}
		if strings.HasPrefix(d, "dm-") {
			argv = []string{"kpartx", "-u", "-p", "-part", "/dev/" + d}
		}
		if _, err := s.run(ctx, "", argv...); err != nil {
			s.note("%v", err)
		}
	}
	return nil
}

// Numbers of the partitions.
const (
	partClean = 1
	partDirty = 2
)

// partsOf returns the partitions of the SSDs that are present, and the missing serials.
func (s *parts) partsOf(serials []string, number int) (devs []string, missing []string) {
	there := s.ssds()
	for _, serial := range serials {
		if p := s.partitions(there[serial])[number]; there[serial] != "" && p != "" {
			devs = append(devs, "/dev/"+p)
		} else {
			missing = append(missing, serial)
		}
	}
	return devs, missing
}

// dirtyState is the state of the dirty layer, from bcache's superblock on the
// disks.
func (s *parts) dirtyState() (int, error) {
	hdr, err := s.header()
	if err != nil {
		return 0, err
	}
	b, err := s.sys.ReadBlocks(hdr, half+4096, 4096)
	if err != nil {
		return 0, err
	}
	sb, err := parseSuperblock(b)
	if err != nil {
		return 0, err
	}
	return sb.State, nil
}

// witness: see trusted. It must run before the assembly of the mirror, since md may
// take a failed member back.
func (s *parts) witness(clean *Layer) bool {
	l := s.label.Dirty
	if l == nil {
		return false
	}
	if a := s.array(l.Array); a != nil && a.State != "inactive" {
		return subset(clean.Members, s.inSync(a))
	}
	devs, missing := s.partsOf(l.Members, partDirty)
	if len(missing) > 0 || !subset(clean.Members, l.Members) {
		return false
	}
	var all []uint64
	for _, d := range devs {
		b, err := s.sys.ReadBlocks(d, md.SuperblockOffset, md.SuperblockSize)
		if err != nil {
			return false
		}
		sb, err := md.ParseSuperblock(b)
		if err != nil {
			return false
		}
		all = append(all, sb.Events) // a failed member has a lower count than those that went on
	}
	return slices.Min(all) == slices.Max(all)
}

// setOpen records in the label that the stack is up, or was stopped in order.
func (s *parts) setOpen(open bool) error {
	if s.label.Open == open {
		return nil
	}
	s.label.Open = open
	return s.writeLabel()
}

// startDirty assembles the mirror from the SSDs that hold the newest data. If too many
// of them are missing, it refuses, unless all data is on the disks.
func (s *Stack) startDirty(ctx context.Context, state int, trust bool) error {
	l := s.label.Dirty
	a := s.array(l.Array)
	if s.exists("/sys/fs/bcache/" + l.Set) {
		if a == nil || s.setOn(a.Dev) != l.Set {
			return fmt.Errorf("bcache has set %s, and not on the mirror of dirty data: data written to it may be lost. Boot this server", l.Set)
		}
		return nil
	}
	if a != nil && (a.State == "inactive" || a.State == "readonly") {
		if _, err := s.run(ctx, "", "mdadm", "--stop", "--quiet", "/dev/"+a.Dev); err != nil {
			return err
		}
		a = nil
	}
	if a == nil {
		devs, missing, err := s.mirrorParts(l)
		if err != nil && state == stateDirty {
			return refusal.New("ssds-missing", refusal.Args{"ssds": missing, refusal.Why: err})
		}
		if err == nil {
			if len(missing) > 0 {
				s.note("the mirror of dirty data starts without SSD %s", strings.Join(missing, " and "))
			}
			a, err = s.assemble(ctx, "dirty", l, devs)
		}
		if err != nil {
			if state != stateDirty {
				s.note("the mirror does not come up; all data is on the disks, so it goes without: %v", err)
				return nil
			}
			return err
		}
	}
	if err := s.noteSync(a); err != nil {
		return err
	}
	if !trust {
		s.hold(l, a)
		return nil
	}
	if err := s.register(a.Dev); err != nil && !s.exists("/sys/fs/bcache/"+l.Set) {
		if state == stateDirty {
			return err
		}
		s.note("%v", err)
	}
	return nil
}

// mirrorParts returns the partitions of the SSDs with the newest dirty data, and the
// serials that are missing. It is an error if too many are.
func (s *parts) mirrorParts(l *Layer) (devs, missing []string, err error) {
	devs, missing = s.partsOf(l.Members, partDirty)
	if need := max(1, len(l.Members)-copies(len(l.Members))); len(devs) < need {
		err = fmt.Errorf("the mirror of dirty data lacks SSD %s: %d of its %d members are needed", strings.Join(missing, " and "), need, len(l.Members))
	}
	return devs, missing, err
}

func (s *parts) assemble(ctx context.Context, layer string, l *Layer, devs []string) (*array, error) {
	argv := []string{"mdadm", "--assemble", "/dev/md/" + s.arrayName(layer), "--uuid=" + md.UUID(l.Array), "--run", "--quiet"}
	if _, err := s.run(ctx, "", append(argv, devs...)...); err != nil {
		return nil, err
	}
	if a := s.array(l.Array); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("the array of %s data is not there although mdadm assembled it", layer)
}

// copies is how many of the mirror's n members may be missing.
func copies(n int) int {
	if n > 1 {
		return 1
	}
	return 0
}

// noteSync records in the label which SSDs hold the newest dirty data, if that has
// changed, before writes to the remaining SSDs go on.
func (s *parts) noteSync(a *array) error {
	in := s.inSync(a)
	was := slices.Clone(s.label.Dirty.Members)
	slices.Sort(was)
	if len(in) == 0 || slices.Equal(in, was) {
		return nil
	}
	s.label.Dirty.Members = in
	s.note("dirty data is in sync on SSD %s", strings.Join(in, " and "))
	return s.writeLabel()
}

// SyncChanged reports whether other SSDs than at the last NoteSync are in sync in a mirror
// that runs. It only reads sysfs.
func (s *Stack) SyncChanged() bool {
	for _, a := range s.arrays() {
		if slices.ContainsFunc(s.cfg.DirtyUUIDs, func(u string) bool { return md.Hex(u) == a.UUID }) {
			if in := s.syncOf(&a); len(in) > 1 && !slices.Equal(in, s.noted) {
				return true
			}
		}
	}
	return false
}

// syncOf is an array's UUID and the serials of its members that are in sync.
func (s *parts) syncOf(a *array) []string { return append([]string{a.UUID}, s.inSync(a)...) }

// NoteSync records which SSDs hold the newest dirty data, and since when dirty data
// has not decreased. The caller holds the service's lock, and this server owns the
// volume.
func (s *Stack) NoteSync() error {
	if err := s.readLabel(); err != nil || s.label == nil || s.label.Dirty == nil {
		return err
	}
	if a := s.array(s.label.Dirty.Array); a != nil {
		if err := s.noteSync(a); err != nil {
			return err
		}
		s.noted = s.syncOf(a)
	}
	_, dirty := s.layers()
	if dirty == "" {
		return nil
	}
	last, ok := s.lastLook()
	now := nextLook(last, ok, s.dirtyBytes(dirty), s.sys.Now())
	if ok && now == last {
		return nil
	}
	return s.keep(s.lookFile(), now)
}

// look is the amount of dirty data at the last look, and since when it has not
// decreased.
type look struct {
	Dirty int64     `json:"dirty"`
	Since time.Time `json:"since"`
}

func nextLook(last look, ok bool, dirty int64, now time.Time) look {
	if !ok || dirty < last.Dirty || last.Dirty == 0 {
		return look{dirty, now}
	}
	return look{dirty, last.Since}
}

func (s *parts) lookFile() string { return "/run/mortar/cache-" + s.cfg.Service + ".json" }

func (s *parts) lastLook() (last look, ok bool) {
	b, err := s.sys.ReadFile(s.lookFile())
	return last, err == nil && json.Unmarshal(b, &last) == nil
}

// Watch calls NoteSync and Revive while the stack is up, on a server without a
// resource agent that does so. Hold must not wait: I/O that failed would wait with it.
func (s *Stack) Watch(ctx context.Context) error {
	last := ""
	for {
		text := ""
		if err := errors.Join(s.Revive(ctx), s.Locked(ctx, s.NoteSync)); err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != last && text != "" {
			s.note("%s", text)
		}
		last = text
		if err := s.sys.Sleep(ctx, time.Second); err != nil {
			return nil
		}
	}
}

func (s *Stack) hold(l *Layer, a *array) {
	if s.held == nil {
		s.held = map[string]string{}
	}
	s.held[l.Set] = a.Dev
}

func (s *Stack) startClean(ctx context.Context, l *Layer, trust bool) error {
	if s.exists("/sys/fs/bcache/" + l.Set) {
		return nil
	}
	a := s.array(l.Array)
	if a == nil || a.State == "inactive" {
		if a != nil {
			if _, err := s.run(ctx, "", "mdadm", "--stop", "--quiet", "/dev/"+a.Dev); err != nil {
				return err
			}
		}
		devs, missing := s.partsOf(l.Members, partClean)
		if len(missing) > 0 {
			return fmt.Errorf("SSD %s is missing", strings.Join(missing, " and "))
		}
		var err error
		if a, err = s.assemble(ctx, "clean", l, devs); err != nil {
			return err
		}
	}
	if !trust {
		s.hold(l, a)
		return nil
	}
	return s.register(a.Dev)
}

func (s *parts) arrayName(layer string) string { return s.cfg.VG + "-" + layer }

// base finds the devices below the layers: the header and the volume.
func (s *parts) base() (hdr, lv string, err error) {
	if hdr, err = s.header(); err != nil {
		return "", "", err
	}
	if lv = s.dm(linux.DMName(s.cfg.VG, s.cfg.LV)); lv == "" {
		return "", "", fmt.Errorf("volume %s/%s is not active", s.cfg.VG, s.cfg.LV)
	}
	return hdr, lv, nil
}

// startDevices brings up origin, both bcache devices and the mounted name.
func (s *Stack) startDevices(ctx context.Context) error {
	hdr, lv, err := s.base()
	if err != nil {
		return err
	}
	if err := s.linear(ctx, s.cfg.origin(), originTable(s.devno(hdr), s.devno(lv), s.sectors(lv))); err != nil {
		return err
	}
	clean, err := s.device(s.dm(s.cfg.origin()), s.label.Clean[s.place()])
	if err != nil {
		return err
	}
	if err := s.retried(ctx, clean); err != nil {
		return err
	}
	dirty, err := s.device(s.dm(s.cfg.between()), s.label.Dirty)
	if err != nil {
		return err
	}
	return s.whole(ctx, s.cfg.Mounted(), dirty)
}

// Extend has the mounted device end where the volume ends, after the volume has grown below a
// stack that is up. bcache's devices keep their size until they start again, so the new end
// goes past them until then: no SSD has data of it.
//
// Source: drivers/md/bcache/super.c, bcache_device_init, of Linux 6.12: the one call of
// set_capacity for a backing device; drivers/md/dm-ioctl.c, do_resume, which swaps the tables
func (s *Stack) Extend(ctx context.Context) error {
	return s.Locked(ctx, func() error {
		if up, err := s.State(); err != nil || !up {
			return err
		}
		_, dirty := s.layers()
		lv := s.dm(linux.DMName(s.cfg.VG, s.cfg.LV))
		cached, all := s.sectors(dirty), s.sectors(lv)
		if lv == "" || cached == 0 || all <= s.sectors(s.dm(s.cfg.Mounted())) {
			return nil
		}
		table := fmt.Sprintf("0 %d linear %s 0\n%d %d linear %s %d\n", cached, s.devno(dirty), cached, all-cached, s.devno(lv), cached)
		if _, err := s.run(ctx, table, "dmsetup", "--noudevsync", "load", s.cfg.Mounted()); err != nil {
			return err
		}
		_, err := s.run(ctx, "", "dmsetup", "--noudevsync", "--nolockfs", "resume", s.cfg.Mounted())
		return err
	})
}

// uncached is how many bytes of the volume go past the cache: all of a volume that was mounted
// before it had a cache, or what it has grown by since the stack came up.
func (s *parts) uncached(up bool) int64 {
	all := s.sectors(s.dm(linux.DMName(s.cfg.VG, s.cfg.LV)))
	if _, dirty := s.layers(); up && dirty != "" {
		return max(all-s.sectors(dirty), 0) * 512
	}
	if up || s.label == nil || s.label.Dirty != nil || len(s.label.Clean) > 0 {
		return 0
	}
	return all * 512
}

// whole makes a device of the device mapper that maps all of another one.
func (s *host) whole(ctx context.Context, name, dev string) error {
	return s.linear(ctx, name, fmt.Sprintf("0 %d linear %s 0\n", s.sectors(dev), s.devno(dev)))
}

// retried makes the device between the layers, on top of the clean one. When a set
// fails, bcache fails all I/O, even for the disks, until it has detached the set, some
// hundredths of a second later. A multipath map of one path keeps the failed I/O;
// Revive makes it retry.
func (s *parts) retried(ctx context.Context, clean string) error {
	return s.linear(ctx, s.cfg.between(), retryTable(s.sectors(clean), s.devno(clean)))
}

// Source: Documentation/admin-guide/device-mapper and drivers/md/dm-mpath.c, multipath_ctr
func retryTable(sectors int64, devno string) string {
	return fmt.Sprintf("0 %d multipath 3 queue_if_no_path queue_mode bio 0 1 1 service-time 0 1 1 %s 1\n", sectors, devno)
}

// revivals is the number of successive looks with failed I/O after which Revive gives
// up: then the disks themselves do not answer, and the waiting I/O gets an error.
const revivals = 20

// Revive makes I/O that failed between the layers retry. Call it every second or two
// while the stack is up.
func (s *Stack) Revive(ctx context.Context) error {
	clean, _ := s.layers()
	if clean == "" || s.dm(s.cfg.between()) == "" {
		return nil
	}
	out, err := s.run(ctx, "", "dmsetup", "status", s.cfg.between())
	if err != nil {
		return err
	}
	say := func(message ...string) error {
		_, err := s.run(ctx, "", append([]string{"dmsetup", "message", s.cfg.between(), "0"}, message...)...)
		return err
	}
	devno := s.devno(clean)
	if !strings.Contains(out, " "+devno+" F ") {
		if s.revived >= revivals {
			if err := say("queue_if_no_path"); err != nil {
				return err
			}
		}
		s.revived = 0
		return nil
	}
	switch s.revived++; s.revived {
	case 1:
		s.note("I/O below the mirror failed: it is tried again")
	case revivals:
		s.note("I/O below the mirror goes on to fail: it is given up")
		if err := say("fail_if_no_path"); err != nil {
			return err
		}
	}
	return say("reinstate_path", devno)
}

// originTable maps the header, and after it the volume.
// Source: Documentation/admin-guide/device-mapper/linear.rst
func originTable(hdr, lv string, sectors int64) string {
	const h = HeaderBytes / 512
	return fmt.Sprintf("0 %d linear %s 0\n%d %d linear %s 0\n", h, hdr, h, sectors, lv)
}

// device brings up the bcache device of a backing device, with the set of its layer if
// that is registered.
func (s *Stack) device(backing string, l *Layer) (string, error) {
	if s.over(backing) == "" && !s.exists("/sys/class/block/"+backing+"/bcache") {
		if err := s.register(backing); err != nil {
			return "", err
		}
	}
	if s.over(backing) == "" {
		// The device waits for its set. Make it run without: bcache then marks the
		// device, and discards the set's content if the set comes back.
		sb, err := s.backing(backing)
		if err != nil {
			return "", err
		}
		if sb.State == stateDirty {
			return "", refusal.New("ssds-refused", refusal.Args{"device": backing})
		}
		if err := s.sys.Poke("/sys/class/block/"+backing+"/bcache/running", "1\n"); err != nil {
			return "", err
		}
		if l == nil || s.held[l.Set] == "" {
			s.note("%s runs without its SSDs", backing)
		}
	}
	dev := s.over(backing)
	if dev == "" {
		return "", fmt.Errorf("bcache makes no device of %s", backing)
	}
	if l != nil && s.held[l.Set] != "" {
		// By now the device is marked as having run without its set.
		if err := s.register(s.held[l.Set]); err != nil && !s.exists("/sys/fs/bcache/"+l.Set) {
			s.note("%v", err)
		}
	}
	if l != nil && s.exists("/sys/fs/bcache/"+l.Set) && !s.attached(dev, l) {
		if err := s.sys.Poke("/sys/block/"+dev+"/bcache/attach", l.Set+"\n"); err != nil {
			// The set has no dirty data: see above.
			s.note("bcache does not attach %s: %v (see the kernel's log)", l.Set, err)
		}
	}
	return dev, nil
}

// tune sets the parameters that bcache does not store.
//
//   - congested_*_threshold_us 0: a busy SSD is still faster than the disks.
//   - readahead_cache_policy meta-only on the dirty layer: every read of file data
//     comes from the page cache's read-ahead. The clean layer keeps that data, once
//     instead of mirrored.
//   - sequential_cutoff on both: streams bypass the SSDs.
//
// Source: Documentation/admin-guide/bcache.rst
func (s *parts) tune() {
	clean, dirty := s.layers()
	set := func(p, v string) {
		if cur := s.line(p); cur == v || strings.Contains(cur, "["+v+"]") {
			return
		}
		if err := s.sys.Poke(p, v+"\n"); err != nil {
			s.note("%v", err)
		}
	}
	layers := []*Layer{s.label.Dirty, s.label.Clean[s.place()]}
	for i, dev := range []string{dirty, clean} {
		dir := "/sys/block/" + dev + "/bcache/"
		set(dir+"sequential_cutoff", strconv.FormatInt(s.cfg.Bypass, 10))
		modes, policy := takesWrites, "meta-only"
		if s.cfg.Mode == WriteThrough {
			modes = flushes // as far as a flush has come that was interrupted
		}
		if i == 1 {
			modes, policy = [][2]string{{"cache_mode", "writethrough"}}, "all"
		}
		set(dir+"readahead_cache_policy", policy)
		if l := layers[i]; l != nil && s.exists("/sys/fs/bcache/"+l.Set) {
			for _, m := range modes {
				set(dir+m[0], m[1])
			}
			set("/sys/fs/bcache/"+l.Set+"/congested_read_threshold_us", "0")
			set("/sys/fs/bcache/"+l.Set+"/congested_write_threshold_us", "0")
		}
	}
	if lv, top := s.dm(linux.DMName(s.cfg.VG, s.cfg.LV)), s.dm(s.cfg.Mounted()); lv != "" && top != "" {
		if ra := s.line("/sys/block/" + lv + "/queue/read_ahead_kb"); ra != "" {
			set("/sys/block/"+top+"/queue/read_ahead_kb", ra)
		}
	}
}

// Stop takes down all existing parts of the stack. Dirty data stays on the SSDs.
func (s *Stack) Stop(ctx context.Context) error {
	if err := s.remove(ctx, s.cfg.Mounted()); err != nil {
		return err
	}
	inOrder := s.inOrder() // now, after the last write
	for _, name := range []string{s.cfg.between(), s.cfg.origin()} {
		// The device's bcache device may be registered without running.
		if b := s.dm(name); b != "" {
			if err := s.stopDevice(ctx, b); err != nil {
				return err
			}
		}
		if name == s.cfg.between() {
			if err := s.remove(ctx, name); err != nil {
				return err
			}
		}
	}
	if inOrder {
		if err := s.setOpen(false); err != nil {
			return err
		}
	}
	for _, u := range slices.Concat(s.cfg.DirtyUUIDs, s.cfg.CleanUUIDs) {
		if err := s.stopArray(ctx, u); err != nil {
			return err
		}
	}
	return s.remove(ctx, s.cfg.origin())
}

// inOrder reports whether every layer with a set in the label is using that set.
func (s *parts) inOrder() bool {
	if s.readLabel() != nil || s.label == nil {
		return false
	}
	clean, dirty := s.layers()
	for dev, l := range map[string]*Layer{clean: s.label.Clean[s.place()], dirty: s.label.Dirty} {
		if l != nil && (dev == "" || !s.attached(dev, l)) {
			return false
		}
	}
	return clean != "" && dirty != ""
}

// stopDevice stops the bcache device on a backing device, if there is one. The kernel
// removes the directory at once, and has the device until nothing uses it any more: a
// flush of bcache's own can take hours.
// Source: drivers/md/bcache/super.c, cached_dev_flush, cached_dev_free
func (s *host) stopDevice(ctx context.Context, backing string) error {
	p := "/sys/class/block/" + backing + "/bcache"
	if s.exists(p) {
		if err := s.sys.Poke(p+"/stop", "1\n"); err != nil && s.exists(p) {
			return err
		}
	}
	return s.wait(ctx, 30*time.Second, "bcache lets go of "+backing, func() bool {
		return !s.exists(p) && !s.sys.Claimed("/dev/"+backing)
	})
}

// setOn is the set that is on a device, "" for none.
func (s *host) setOn(dev string) string { return s.linked("/sys/block/" + dev + "/bcache/set") }

// stopSet stops a set until it is gone, and bcache's directory of its device.
func (s *host) stopSet(ctx context.Context, set, dev string) error {
	p := "/sys/fs/bcache/" + set
	if err := s.sys.Poke(p+"/stop", "1\n"); err != nil && s.exists(p) {
		return err
	}
	return s.wait(ctx, 30*time.Second, "bcache stops set "+set, func() bool {
		return !s.exists(p) && (dev == "" || !s.exists("/sys/block/"+dev+"/bcache"))
	})
}

func (s *host) stopArray(ctx context.Context, uuid string) error {
	a := s.array(uuid)
	if a == nil {
		return nil
	}
	if set := s.setOn(a.Dev); set != "" {
		if err := s.stopSet(ctx, set, a.Dev); err != nil {
			return err
		}
	}
	return s.untilGone(ctx, func() bool { return s.array(uuid) == nil }, "mdadm", "--stop", "--quiet", "/dev/"+a.Dev)
}
