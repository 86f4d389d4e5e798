package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// Progress receives the progress of a change. During a flush, left is the number of
// bytes that are still to be written to the disks, of total.
type Progress func(what string, left, total int64)

// need has the steps that bring a cache to its config.
type need struct {
	Create    bool // make the stack for the first time
	Start     bool // start the stack
	DropDirty bool // flush the dirty layer and detach its SSDs
	DropClean bool
	// TakeWrites: the dirty layer takes dirty data again, after a flush that was
	// interrupted.
	TakeWrites bool
	Partition  []string // SSDs to partition
	MakeDirty  bool
	MakeClean  bool
	Replace    []string // SSDs that become members of the mirror
	Expel      []string // SSDs that leave the mirror
}

// MakeLayers is the first step of a volume that never had a cache.
const MakeLayers = "make both layers of bcache over the volume"

// NeverMade says whether the steps of `host-cache needs`, of any release, begin with that one.
func NeverMade(steps string) bool { return strings.HasPrefix(steps, MakeLayers) }

func (n need) none() bool { return n.String() == "" }

// String is the text of the steps, for a plan.
func (n need) String() string {
	var out []string
	add := func(yes bool, what string) {
		if yes {
			out = append(out, what)
		}
	}
	add(n.Create, MakeLayers)
	add(n.Start, "start both layers of bcache over the volume")
	add(n.DropDirty, "write all dirty data to the disks, while the service goes on")
	add(n.DropClean, "throw away what is cached of reads")
	add(n.TakeWrites, "take writes on the SSDs again")
	add(len(n.Partition) > 0, "partition SSD "+strings.Join(n.Partition, ", "))
	add(n.MakeDirty, "make the mirror for dirty data")
	add(len(n.Replace) > 0, "add SSD "+strings.Join(n.Replace, ", ")+" to the mirror")
	add(len(n.Expel) > 0, "take SSD "+strings.Join(n.Expel, ", ")+" out of the mirror")
	add(n.MakeClean, "make the array for clean data")
	return strings.Join(out, "; ")
}

// observed is the observed state that needs compares with the config.
type observed struct {
	Label *Label
	Up    bool
	There []string // SSDs present on this server
	// DirtySync are the members in sync of the running mirror, DirtyDisks the
	// number of members that it should have. CleanUp, DirtyUp: the layer has its
	// set attached. TakesWrites: the dirty layer takes dirty data.
	DirtyUp, CleanUp bool
	TakesWrites      bool
	DirtySync        []string
	DirtyDisks       int
	// DirtyBytes is the amount of data on SSDs that is not on the disks.
	DirtyBytes int64
}

// needs compares a config with the observed state. It is pure.
func needs(c *Config, host, place string, v observed) (need, error) {
	var n need
	want := c.here(host)
	slices.Sort(want)
	missing := lists.Only(want, func(s string) bool { return !slices.Contains(v.There, s) })
	if len(missing) > 0 {
		return n, refusal.New("ssd-absent", refusal.Args{"ssds": missing})
	}
	wb := c.Mode == WriteBack
	if v.Label == nil {
		return need{Create: true, Partition: want, MakeDirty: wb, MakeClean: len(want) > 0}, nil
	}
	if !v.Up {
		return need{Start: true}, nil // further steps are visible only after the start
	}
	l := v.Label
	var have []string
	for _, s := range l.SSDs {
		// Not those inside another server.
		if !slices.ContainsFunc(c.SSDs, func(d SSD) bool { return d.Serial == s && d.Server != "" && d.Server != host }) {
			have = append(have, s)
		}
	}
	slices.Sort(have)
	same := slices.Equal(have, want) && (l.Split || !wb)
	if l.Dirty != nil {
		keep := lists.Only(l.Dirty.Members, func(s string) bool { return slices.Contains(want, s) })
		if len(keep) == 0 && v.DirtyBytes > 0 {
			return n, refusal.New("only-copy", refusal.Args{"ssds": l.Dirty.Members, "bytes": v.DirtyBytes})
		}
		switch {
		case !wb:
			n.DropDirty = true
		case !v.DirtyUp:
			n.DropDirty, n.MakeDirty = true, true // the mirror died, without dirty data
		case v.DirtyDisks != 0 && v.DirtyDisks != len(want) || len(keep) == 0:
			n.DropDirty, n.MakeDirty = true, true
		default:
			n.TakeWrites = !v.TakesWrites
			for _, s := range want {
				if !slices.Contains(v.DirtySync, s) {
					n.Replace = append(n.Replace, s)
				}
			}
			for _, s := range l.Dirty.Members {
				if !slices.Contains(want, s) {
					n.Expel = append(n.Expel, s)
				}
			}
		}
	} else {
		n.MakeDirty = wb
	}
	clean := l.Clean[place]
	switch {
	case clean == nil:
		n.MakeClean = len(want) > 0
	case !same || !v.CleanUp:
		n.DropClean, n.MakeClean = true, len(want) > 0
	}
	for at := range l.Clean {
		n.DropClean = n.DropClean || outdated(at, place)
	}
	for _, s := range want {
		fresh := !slices.Contains(l.SSDs, s)
		// Partition all again if no layer is on them meanwhile.
		if fresh || !same && (l.Dirty == nil || n.DropDirty) {
			n.Partition = append(n.Partition, s)
		}
	}
	return n, nil
}

// look observes the state of the cache.
func (s *parts) look() (observed, error) {
	var v observed
	if err := s.readLabel(); err != nil {
		return v, err
	}
	v.Label = s.label
	for serial := range s.ssds() {
		v.There = append(v.There, serial)
	}
	slices.Sort(v.There)
	if s.label == nil {
		return v, nil
	}
	v.Up, _ = s.State()
	if !v.Up {
		return v, nil
	}
	clean, dirty := s.layers()
	if l := s.label.Dirty; l != nil && dirty != "" {
		v.DirtyUp, v.TakesWrites = s.attached(dirty, l), s.inMode(dirty, takesWrites)
		if a := s.array(l.Array); a != nil {
			v.DirtySync, v.DirtyDisks = s.inSync(a), a.RaidDisks
			for _, m := range a.Members { // a member that is still syncing counts too
				if st := s.line("/sys/block/" + a.Dev + "/md/dev-" + m + "/state"); !strings.Contains(st, "faulty") && !strings.Contains(st, "in_sync") {
					for serial, d := range s.ssds() {
						if s.partitions(d)[partDirty] == m {
							v.DirtySync = append(v.DirtySync, serial)
						}
					}
				}
			}
		}
		v.DirtyBytes = s.dirtyBytes(dirty)
	}
	if l := s.label.Clean[s.place()]; l != nil && clean != "" {
		v.CleanUp = s.attached(clean, l)
	}
	return v, nil
}

// attached reports whether a bcache device has the set of its layer.
func (s *host) attached(dev string, l *Layer) bool { return s.setOf(dev) == l.Set }

// Settings of a dirty layer, below its directory bcache. bcache keeps the mode on the
// disks; the others have its own values after a start.
//
// A layer that flushes takes no dirty data, and writes what it has to the disks as fast as
// they take it: at any time a stop ends that, and a start can go on with it. bcache's own
// flush, by the file detach, has no end but its own: the kernel holds the device until
// then, also one that was stopped.
//
// writeback_rate_minimum is in sectors a second: no limit, or the kernel's own value.
// writeback_delay is a pause of so many seconds after each pass. The mode comes last: with
// it the layer is in the mode.
//
// Source: Documentation/admin-guide/bcache.rst; drivers/md/bcache/writeback.c,
// __update_writeback_rate, bch_writeback_thread; super.c, bch_cached_dev_detach
var (
	takesWrites = [][2]string{{"writeback_running", "1"}, {"writeback_rate_minimum", "8"}, {"writeback_delay", "30"}, {"cache_mode", "writeback"}}
	flushes     = [][2]string{{"writeback_running", "1"}, {"writeback_rate_minimum", "1000000000"}, {"writeback_delay", "0"}, {"cache_mode", "writearound"}}
	// stalled is a layer that flushes on disks that take nothing, for a drill.
	stalled = [][2]string{{"writeback_running", "0"}, {"cache_mode", "writearound"}}
)

// inMode reports whether a device is in the mode of some settings.
func (s *host) inMode(dev string, settings [][2]string) bool {
	return strings.Contains(s.line("/sys/block/"+dev+"/bcache/cache_mode"), "["+settings[len(settings)-1][1]+"]")
}

// enter brings a device into the mode of some settings.
func (s *host) enter(dev string, settings [][2]string) error {
	for _, m := range settings {
		if err := s.sys.Poke("/sys/block/"+dev+"/bcache/"+m[0], m[1]+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// setOf is the set of a bcache device, "" for none. It does not use the file state: a
// device whose set has failed goes on and stays "clean".
func (s *host) setOf(dev string) string { return s.linked("/sys/block/" + dev + "/bcache/cache") }

func (s *host) dirtyBytes(dev string) int64 {
	return linux.ParseBcacheBytes(s.line("/sys/block/" + dev + "/bcache/dirty_data"))
}

// Needs describes what Apply would do, "" for nothing.
func (s *Stack) Needs() (string, error) {
	v, err := s.look()
	if err != nil {
		return "", err
	}
	n, err := needs(s.cfg, s.name(), s.place(), v)
	if r := (*refusal.Refusal)(nil); errors.As(err, &r) && r.Code == "ssd-absent" {
		// The check of the spec's disks reports a missing SSD.
		return "take SSD " + strings.Join(r.Args["ssds"].([]string), ", ") + " back", nil
	}
	if err != nil || n.none() {
		return "", err
	}
	return n.String(), nil
}

// Apply brings the cache to its config. A cache that is up stays in use meanwhile. If
// Apply is killed, a second Apply continues: at each point the label says which SSDs
// and arrays are valid.
func (s *Stack) Apply(ctx context.Context, say Progress) error {
	for range 5 { // a start shows further steps
		v, err := s.look()
		if err != nil {
			return err
		}
		n, err := needs(s.cfg, s.name(), s.place(), v)
		if err != nil {
			return err
		}
		if n.none() {
			s.tune()
			return nil
		}
		if err := (&change{s, say}).steps(ctx, n); err != nil {
			return err
		}
	}
	return errors.New("the cache does not come to what is wanted")
}

func (s *change) steps(ctx context.Context, n need) error {
	if err := s.modules(ctx); err != nil {
		return err
	}
	if n.Create {
		s.say(MakeLayers, 0, 0)
		return s.Prepare(ctx)
	}
	// Keep udev away until the new partitions are in use. udev opens a device
	// after a write, which makes a partition busy, and makes the kernel read a new
	// table again, for which the partitions vanish and come back.
	unlock, err := s.lock(ctx, n.Partition)
	defer unlock()
	if err != nil {
		return err
	}
	for _, x := range []struct {
		due  bool
		what string // "": it tells itself
		do   func() error
	}{
		// A stack that is down may be one that the agent is taking down: what would be
		// started here its partner starts as well.
		{n.Start, "start", func() error { return s.locked(ctx, func() error { return s.Start(ctx) }) }},
		{true, "", func() error { return s.locked(ctx, func() error { return s.stopStrays(ctx) }) }},
		{n.DropDirty, "", func() error { return s.dropDirty(ctx) }},
		{n.DropClean, "throw away what is cached of reads", func() error { return s.locked(ctx, func() error { return s.dropClean(ctx) }) }},
		{n.TakeWrites, "take writes on the SSDs again", func() error { return s.takeWrites(ctx) }},
		{len(n.Partition) > 0, "", func() error { return s.partition(ctx, n.Partition) }},
		{n.MakeDirty, "make the mirror for dirty data", func() error { return s.make(ctx, s.makeDirty) }},
		{len(n.Replace)+len(n.Expel) > 0, "", func() error { return s.replace(ctx, n) }},
		{n.MakeClean, "make the array for clean data", func() error { return s.make(ctx, s.makeClean) }},
	} {
		if !x.due {
			continue
		}
		if x.what != "" {
			s.say(x.what, 0, 0)
		}
		if err := x.do(); err != nil {
			return err
		}
	}
	s.tune()
	return nil
}

// change brings the cache to another config, under load.
type change struct {
	*Stack
	say Progress
}

// Prepare writes both superblocks of bcache and an empty label into the header, unless the
// label is there. It touches neither the volume, which may be in use, nor an SSD. The next
// Start brings up layers that pass all I/O through.
func (s *Stack) Prepare(ctx context.Context) error {
	return s.Locked(ctx, func() error {
		if err := s.readLabel(); err != nil || s.label != nil {
			return err
		}
		if state, err := s.dirtyState(); err == nil && state == stateDirty {
			return s.refused("no-label")
		}
		if err := s.modules(ctx); err != nil {
			return err
		}
		// Remove the remains of an interrupted creation.
		if err := s.Stop(ctx); err != nil {
			return err
		}
		hdr, err := s.header()
		if err != nil {
			return err
		}
		if err := s.sys.WriteBlocks(hdr, 0, make([]byte, HeaderBytes)); err != nil {
			return err
		}
		for _, at := range []int64{0, half} { // of the clean and of the dirty layer
			if err := s.linear(ctx, s.cfg.origin(), fmt.Sprintf("0 %d linear %s %d\n", (HeaderBytes-at)/512, s.devno(hdr), at/512)); err != nil {
				return err
			}
			if _, err := s.run(ctx, "", "make-bcache", "-B", "--block", "4k", "--data-offset", strconv.Itoa(half/512), "/dev/"+s.dm(s.cfg.origin())); err != nil {
				return err
			}
			if err := s.remove(ctx, s.cfg.origin()); err != nil {
				return err
			}
		}
		s.label = &Label{}
		return s.writeLabel()
	})
}

// lock keeps udev away from the SSDs that are present.
func (s *change) lock(ctx context.Context, serials []string) (unlock func(), err error) {
	var all []func()
	unlock = func() {
		for _, f := range all {
			f()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	there := s.ssds()
	for _, serial := range serials {
		if d := there[serial]; d != "" {
			f, err := s.sys.Lock(ctx, "/dev/"+d)
			if err != nil {
				return unlock, fmt.Errorf("SSD %s is kept busy: %w", serial, err)
			}
			all = append(all, f)
		}
	}
	return unlock, nil
}

// split reports whether a part of each SSD is for dirty data.
func (s *parts) split() bool { return s.cfg.Mode == WriteBack }

// partition partitions SSDs. It destroys their content.
func (s *change) partition(ctx context.Context, serials []string) error {
	for name, devs := range s.devices() {
		if len(devs) > 1 && slices.ContainsFunc(serials, func(x string) bool { return strings.EqualFold(x, name) }) {
			return refusal.New("same-serial", refusal.Args{"ssd": name, "devices": strings.Join(devs, ", ")})
		}
	}
	there := s.ssds()
	for _, serial := range serials {
		d := there[serial]
		if d == "" {
			return fmt.Errorf("SSD %s is not there", serial)
		}
		if err := s.locked(ctx, func() error { return s.unused(serial, d) }); err != nil {
			return err
		}
	}
	// Discard the content of all SSDs side by side, because each may take minutes: without the
	// lock. An SSD without support for that keeps old data below the new superblocks, which is
	// harmless.
	s.say("discard SSDs "+strings.Join(serials, " "), 0, 0)
	var discards sync.WaitGroup
	for _, serial := range serials {
		discards.Go(func() { _, _ = s.run(ctx, "", "blkdiscard", "--force", "/dev/"+there[serial]) })
	}
	discards.Wait()
	for _, serial := range serials {
		s.say("partition SSD "+serial, 0, 0)
		if err := s.locked(ctx, func() error { return s.divide(ctx, serial, there[serial]) }); err != nil {
			return err
		}
	}
	return s.locked(ctx, s.notePartitions)
}

// unused refuses an SSD whose partitions are in use.
func (s *change) unused(serial, d string) error {
	for _, p := range s.partitions(d) {
		for _, h := range s.list("/sys/class/block/" + p + "/holders") {
			return refusal.New("ssd-in-use", refusal.Args{"ssd": serial, "holder": h, "partition": p})
		}
	}
	return nil
}

// divide writes the partition table of an SSD.
func (s *change) divide(ctx context.Context, serial, d string) error {
	if err := s.unused(serial, d); err != nil {
		return err
	}
	for _, p := range s.partitions(d) {
		if err := s.sys.WriteBlocks("/dev/"+p, 0, make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	const mib = 2048 // sectors
	size := s.sectors(d)
	first := int64(mib)
	last := size/mib*mib - mib
	var b strings.Builder
	b.WriteString("label: gpt\n")
	if s.split() {
		last -= s.cfg.MirrorBytes / 512
		if last-first < 64*mib {
			return refusal.New("ssd-small", refusal.Args{"ssd": serial, "bytes": size * 512, "dirty": s.cfg.MirrorBytes})
		}
		fmt.Fprintf(&b, "%d : start=%d, size=%d, type=linux-raid, name=mortar-clean\n%d : start=%d, size=%d, type=linux-raid, name=mortar-dirty\n",
			partClean, first, last-first, partDirty, last, s.cfg.MirrorBytes/512)
	} else {
		fmt.Fprintf(&b, "%d : start=%d, size=%d, type=linux-raid, name=mortar-clean\n", partClean, first, last-first)
	}
	if _, err := s.run(ctx, b.String(), "sfdisk", "--quiet", "--wipe", "always", "--wipe-partitions", "always", "/dev/"+d); err != nil {
		return err
	}
	return s.wait(ctx, 10*time.Second, "partitions of SSD "+serial, func() bool {
		return s.partitions(d)[partClean] != "" && (!s.split() || s.partitions(d)[partDirty] != "")
	})
}

// notePartitions records which SSDs are partitioned.
func (s *change) notePartitions() error {
	s.label.SSDs = slices.DeleteFunc(s.label.SSDs, func(x string) bool {
		return !slices.ContainsFunc(s.cfg.SSDs, func(d SSD) bool { return d.Serial == x })
	})
	for _, x := range s.cfg.here(s.name()) {
		if !slices.Contains(s.label.SSDs, x) {
			s.label.SSDs = append(s.label.SSDs, x)
		}
	}
	s.label.Split = s.split()
	return s.writeLabel()
}

// bucket is bcache's unit of allocation: 512 KiB, or less on small SSDs, since bcache
// refuses a set with fewer than 513 buckets. Source: make-bcache(8)
func bucket(bytes int64) string {
	kib := int64(512)
	for kib > 16 && bytes/(kib<<10) < 2048 {
		kib /= 2
	}
	return strconv.FormatInt(kib, 10) + "k"
}

// makeLayer makes an array of partitions, and a set on it.
func (s *change) makeLayer(ctx context.Context, name, id string, devs []string, level ...string) (*Layer, error) {
	if err := s.stopStrays(ctx); err != nil {
		return nil, err
	}
	argv := append([]string{"mdadm", "--create", "/dev/md/" + s.arrayName(name), "--run", "--quiet", "--metadata=1.2",
		"--raid-devices=" + strconv.Itoa(len(devs)), "--uuid=" + md.UUID(id), "--name=" + s.arrayName(name), "--homehost=any"}, level...)
	if _, err := s.run(ctx, "", append(argv, devs...)...); err != nil {
		return nil, err
	}
	a := s.array(id)
	if a == nil {
		return nil, fmt.Errorf("array %s is not there although mdadm made it", s.arrayName(name))
	}
	// make-bcache refuses a device with any other signature, even a stale one.
	if _, err := s.run(ctx, "", "wipefs", "--all", "--force", "/dev/"+a.Dev); err != nil {
		return nil, err
	}
	set := uuid.NewString()
	if _, err := s.run(ctx, "", "make-bcache", "-C", "--wipe-bcache", "--block", "4k", "--bucket", bucket(s.sectors(a.Dev)*512), "--cset-uuid", set, "/dev/"+a.Dev); err != nil {
		return nil, err
	}
	if err := s.register(a.Dev); err != nil && !s.exists("/sys/fs/bcache/"+set) {
		return nil, err
	}
	return &Layer{Array: id, Set: set}, nil
}

// stopStrays stops the cache's arrays that belong to no layer in the label. An
// interrupted change leaves them: the label did not have them yet, or no longer.
func (s *change) stopStrays(ctx context.Context) error {
	known := func(uuid string) bool {
		if d := s.label.Dirty; d != nil && md.Hex(d.Array) == md.Hex(uuid) {
			return true
		}
		for _, l := range s.label.Clean {
			if md.Hex(l.Array) == md.Hex(uuid) {
				return true
			}
		}
		return false
	}
	for _, u := range slices.Concat(s.cfg.DirtyUUIDs, s.cfg.CleanUUIDs) {
		if !known(u) {
			if err := s.stopArray(ctx, u); err != nil {
				return err
			}
		}
	}
	return nil
}

// next counts a generation, and writes the label before the generation's arrays exist.
func (s *change) next() (int, error) {
	s.label.Generation++
	return s.label.Generation % Generations, s.writeLabel()
}

// make makes a layer on the running stack, and puts it to use.
func (s *change) make(ctx context.Context, layer func(context.Context) (dev string, l *Layer, err error)) error {
	var dev string
	var l *Layer
	if err := s.locked(ctx, func() (err error) {
		dev, l, err = layer(ctx)
		return err
	}); err != nil {
		return err
	}
	s.tune()
	return s.deepen(ctx, dev, l)
}

func (s *change) makeDirty(ctx context.Context) (string, *Layer, error) {
	// --assume-clean: bcache reads nothing that it has not written, so there is
	// nothing to copy. Two SSDs make a mirror, more make RAID 10, near 2.
	return s.makeOn(ctx, "dirty", partDirty, s.cfg.DirtyUUIDs, takesWrites, func(n int) []string {
		if n > 2 {
			return []string{"--level=10", "--layout=n2", "--assume-clean", "--bitmap=internal"}
		}
		return []string{"--level=1", "--assume-clean", "--bitmap=internal"}
	}, func(l *Layer) {
		slices.Sort(l.Members)
		s.label.Dirty = l
	})
}

func (s *change) makeClean(ctx context.Context) (string, *Layer, error) {
	return s.makeOn(ctx, "clean", partClean, s.cfg.CleanUUIDs, [][2]string{{"cache_mode", "writethrough"}}, func(n int) []string {
		if n == 1 {
			return []string{"--level=0", "--chunk=64", "--force"}
		}
		return []string{"--level=0", "--chunk=64"}
	}, func(l *Layer) {
		if s.label.Clean == nil {
			s.label.Clean = map[string]*Layer{}
		}
		s.label.Clean[s.place()] = l
	})
}

// makeOn makes a layer on the partitions of a number of all SSDs here, enters it in the
// label, and attaches it. level is mdadm's for so many members.
func (s *change) makeOn(ctx context.Context, name string, number int, uuids []string, mode [][2]string, level func(n int) []string, enter func(*Layer)) (string, *Layer, error) {
	serials := s.cfg.here(s.name())
	devs, missing := s.partsOf(serials, number)
	if len(missing) > 0 {
		return "", nil, fmt.Errorf("SSD %s has no partition for %s data", strings.Join(missing, " and "), name)
	}
	g, err := s.next()
	if err != nil {
		return "", nil, err
	}
	l, err := s.makeLayer(ctx, name, uuids[g], devs, level(len(devs))...)
	if err != nil {
		return "", nil, err
	}
	l.Members = serials
	enter(l)
	// Write the label first: it must always point to all dirty data.
	if err := s.writeLabel(); err != nil {
		return "", nil, err
	}
	dev, err := s.attach(ctx, number == partDirty, l, mode)
	return dev, l, err
}

// attach attaches a set to a layer of the running stack, and returns the layer's device.
func (s *change) attach(ctx context.Context, toDirty bool, l *Layer, mode [][2]string) (string, error) {
	dev, dirty := s.layers()
	if toDirty {
		dev = dirty
	}
	if dev == "" {
		return "", errDown
	}
	dir := "/sys/block/" + dev + "/bcache/"
	if err := s.sys.Poke(dir+"attach", l.Set+"\n"); err != nil {
		return "", fmt.Errorf("bcache does not attach %s to %s: %w", l.Set, dev, err)
	}
	if err := s.wait(ctx, 10*time.Second, "attach "+dev, func() bool { return s.attached(dev, l) }); err != nil {
		return "", err
	}
	if toDirty {
		s.noteAttached()
	}
	return dev, s.enter(dev, mode)
}

// takeWrites ends a flush that was interrupted.
func (s *change) takeWrites(ctx context.Context) error {
	return s.make(ctx, func(context.Context) (string, *Layer, error) {
		_, dirty := s.layers()
		if dirty == "" {
			return "", nil, errDown
		}
		return dirty, s.label.Dirty, s.enter(dirty, takesWrites)
	})
}

// Limits of deepen: reads per batch and in total. A tree gets a second level when it
// has more extents than a node holds: 2,700 in 64 KiB, 11,000 in the 256 KiB of large
// sets.
const (
	deepBatch = 500
	deepMost  = 40 * deepBatch
	deepTime  = 2 * time.Minute
)

// deepen makes the tree of a new set grow beyond its root, by reading scattered
// blocks of the volume through its layer. bcache frees its journal by writing out tree
// nodes, but it cannot choose the root for that: while the root is the only node,
// stable writes wait for up to 30 s. A tree never loses a level again.
//
// Source: bch_btree_set_root, btree_flush_write of Linux 6.12
func (s *change) deepen(ctx context.Context, dev string, l *Layer) error {
	deep := func() bool {
		n, err := strconv.Atoi(s.line("/sys/fs/bcache/" + l.Set + "/tree_depth"))
		return err == nil && n > 0
	}
	const block = 4096
	step := s.sectors(dev) * 512 / deepMost / block * block
	until := s.sys.Now().Add(deepTime)
	for i := int64(0); step >= 2*block && i < deepMost && s.sys.Now().Before(until); i += deepBatch {
		if deep() {
			return nil
		}
		if err := s.sys.ReadPast(ctx, "/dev/"+dev, i*step, step, deepBatch); err != nil {
			return err
		}
	}
	if !deep() {
		s.note("the tree of set %s is a single node: writes may wait for up to 30 s until more is cached", l.Set)
	}
	return nil
}

// errDown is the error of a change of a stack that is not up, or that a stop of the service
// has taken down meanwhile.
var errDown = errors.New("the cache is not up here any more: dirty data stays on its SSDs. When the service runs, run mortar apply, which goes on with the change")

// detach detaches the set of a layer that has no dirty data.
func (s *change) detach(ctx context.Context, dev string) error {
	if s.setOf(dev) == "" {
		return nil
	}
	if err := s.sys.Poke("/sys/block/"+dev+"/bcache/detach", "1\n"); err != nil && s.setOf(dev) != "" {
		return err
	}
	return s.wait(ctx, 30*time.Second, "bcache detaches the SSDs of "+dev, func() bool { return s.setOf(dev) == "" })
}

// dropDirty has all dirty data written to the disks, while the service goes on, and frees
// the SSDs of the dirty layer. The lock is held at the beginning and at the end only.
func (s *change) dropDirty(ctx context.Context) error {
	for total := int64(0); ; {
		_, dirty := s.layers()
		if dirty == "" {
			return errDown
		}
		if flushing, left := s.flushing(dirty); flushing && left > 0 {
			total = max(total, left)
			s.say("write dirty data to the disks", left, total)
			if err := s.sys.Sleep(ctx, 500*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		done := false
		if err := s.locked(ctx, func() (err error) {
			done, err = s.tryDrop(ctx)
			return err
		}); err != nil || done {
			return err
		}
	}
}

// flushing reports whether a layer has a set, takes no dirty data, and how many dirty bytes
// it has.
func (s *host) flushing(dirty string) (yes bool, left int64) {
	return s.setOf(dirty) != "" && s.inMode(dirty, flushes), s.dirtyBytes(dirty)
}

// tryDrop drops the dirty layer if it has no dirty data, or has it flush. It looks once
// more: the service may have been stopped and started since.
func (s *change) tryDrop(ctx context.Context) (done bool, err error) {
	_, dirty := s.layers()
	if dirty == "" {
		return false, errDown
	}
	if s.setOf(dirty) != "" {
		switch flushing, left := s.flushing(dirty); {
		case !flushing:
			return false, s.enter(dirty, flushes)
		case left > 0:
			return false, nil
		}
	}
	return true, s.forgetDirty(ctx, dirty)
}

// forgetDirty drops a dirty layer without dirty data. Only bcache's superblock on the
// disks tells that: a set that fails leaves its device as well.
func (s *change) forgetDirty(ctx context.Context, dirty string) error {
	l := s.label.Dirty
	if err := s.detach(ctx, dirty); err != nil {
		return err
	}
	switch state, err := s.dirtyState(); {
	case err != nil:
		return err
	case state == stateDirty:
		return refusal.New("ssd-left", refusal.Args{"ssds": l.Members})
	}
	s.label.Dirty = nil
	if err := s.writeLabel(); err != nil {
		return err
	}
	return s.destroy(ctx, l, partDirty)
}

func (s *change) dropClean(ctx context.Context) error {
	clean, _ := s.layers()
	if clean == "" {
		return errDown
	}
	if err := s.detach(ctx, clean); err != nil {
		return err
	}
	var gone []*Layer
	for at, l := range s.label.Clean {
		if at == s.place() || outdated(at, s.place()) {
			gone = append(gone, l)
			delete(s.label.Clean, at)
		}
	}
	if err := s.writeLabel(); err != nil {
		return err
	}
	for _, l := range gone {
		if err := s.destroy(ctx, l, partClean); err != nil {
			return err
		}
	}
	return nil
}

// outdated reports whether a key of Label.Clean no longer fits the SSDs: they moved
// from inside a server to where all servers reach them, or the other way round.
func outdated(at, place string) bool { return (at == "") != (place == "") }

// destroy stops a set and its array, and erases md's superblocks on the members that
// are present.
func (s *change) destroy(ctx context.Context, l *Layer, number int) error {
	if l == nil {
		return nil
	}
	if s.exists("/sys/fs/bcache/" + l.Set) {
		if err := s.stopSet(ctx, l.Set, ""); err != nil {
			return err
		}
	}
	if err := s.stopArray(ctx, l.Array); err != nil {
		return err
	}
	devs, _ := s.partsOf(l.Members, number)
	s.forget(ctx, devs)
	return nil
}

// forget erases md's superblocks on former members.
func (s *change) forget(ctx context.Context, devs []string) {
	for _, d := range devs {
		if _, err := s.run(ctx, "", "mdadm", "--zero-superblock", d); err != nil {
			s.note("%v", err)
		}
	}
}

// replace adds SSDs to the running mirror and removes others. While md copies, the lock
// is not held.
func (s *change) replace(ctx context.Context, n need) error {
	if err := s.locked(ctx, func() error { return s.addMembers(ctx, n) }); err != nil {
		return err
	}
	if err := s.synced(ctx); err != nil {
		return err
	}
	return s.locked(ctx, func() error { return s.removeMembers(ctx, n) })
}

func (s *change) addMembers(ctx context.Context, n need) error {
	a := s.array(s.label.Dirty.Array)
	if a == nil {
		return errors.New("the mirror of dirty data does not run")
	}
	// Remove failed and detached members first.
	_, _ = s.run(ctx, "", "mdadm", "--manage", "/dev/"+a.Dev, "--quiet", "--remove", "failed", "--remove", "detached")
	devs, missing := s.partsOf(n.Replace, partDirty)
	if len(missing) > 0 {
		return fmt.Errorf("SSD %s has no partition for dirty data", strings.Join(missing, " and "))
	}
	for _, d := range devs {
		// For a former member md copies only the changes since.
		if _, err := s.run(ctx, "", "mdadm", "--manage", "/dev/"+a.Dev, "--quiet", "--re-add", d); err == nil {
			continue
		}
		if _, err := s.run(ctx, "", "mdadm", "--manage", "/dev/"+a.Dev, "--quiet", "--add", d); err != nil {
			return err
		}
	}
	old, _ := s.partsOf(n.Expel, partDirty)
	if len(old) > 0 && len(old) <= len(devs) {
		// md copies while both old members are still in the mirror, so that there
		// are always two copies. Source: mdadm(8), --replace
		argv := []string{"mdadm", "--manage", "/dev/" + a.Dev, "--quiet"}
		for i, d := range old {
			argv = append(argv, "--replace", d, "--with", devs[i])
		}
		if _, err := s.run(ctx, "", argv...); err != nil {
			return err
		}
	}
	return nil
}

func (s *change) removeMembers(ctx context.Context, n need) error {
	a := s.array(s.label.Dirty.Array)
	if a == nil {
		return errDown
	}
	old, _ := s.partsOf(n.Expel, partDirty) // before noteSync takes them out of the label
	_, _ = s.run(ctx, "", "mdadm", "--manage", "/dev/"+a.Dev, "--quiet", "--remove", "failed")
	if err := s.noteSync(a); err != nil {
		return err
	}
	s.forget(ctx, old)
	return nil
}

// synced waits until the mirror has all its copies.
func (s *change) synced(ctx context.Context) error {
	for {
		a := s.array(s.label.Dirty.Array)
		if a == nil {
			return errDown
		}
		if a.Degraded == 0 && (a.Sync == "idle" || a.Sync == "") {
			return nil
		}
		done, total, _ := strings.Cut(a.Done, "/")
		d, _ := strconv.ParseInt(strings.TrimSpace(done), 10, 64)
		t, _ := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
		s.say("copy the mirror", (t-d)*512, t*512)
		if a.Sync == "idle" && a.Degraded > 0 {
			return fmt.Errorf("the mirror of dirty data stays without %d of its %d members", a.Degraded, a.RaidDisks)
		}
		if err := s.sys.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// Off writes dirty data to the disks and frees the SSDs, under load. The remaining
// devices pass all I/O through until the next start of the service.
func (s *Stack) Off(ctx context.Context, say Progress) error {
	if err := s.readLabel(); err != nil {
		return err
	}
	if s.label == nil {
		return nil
	}
	if up, err := s.State(); err != nil {
		return err
	} else if !up {
		if err := s.locked(ctx, func() error { return s.Start(ctx) }); err != nil {
			return err
		}
	}
	c := &change{s, say}
	if s.label.Dirty != nil {
		if err := c.dropDirty(ctx); err != nil {
			return err
		}
	}
	return s.locked(ctx, func() error {
		if len(s.label.Clean) > 0 {
			if err := c.dropClean(ctx); err != nil {
				return err
			}
		}
		s.label.Clean = nil
		s.label.SSDs = nil
		if err := s.writeLabel(); err != nil {
			return err
		}
		return c.stopStrays(ctx)
	})
}

// OnDisks returns nil if all data is on the disks, so that the volume may be used
// without its cache, and an error otherwise. The agent calls it before it mounts a
// volume that had a cache by a config without one.
func (s *Stack) OnDisks() error {
	if s.dm(linux.DMName(s.cfg.VG, HeaderLV)) == "" {
		return nil
	}
	if err := s.readLabel(); err != nil {
		return err
	}
	if s.label != nil && (s.label.Dirty != nil || len(s.label.Clean) > 0) {
		return s.refused("cache-left")
	}
	return nil
}
