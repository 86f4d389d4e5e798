// Package mdraid is the storage kind of md arrays: it judges and assembles them, compares
// parities after a crash, and looks after their members while the service runs. It may not
// know what is on the arrays: the rest of the service is behind Service.
package mdraid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/pace"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// MDStorage are md arrays of disks that both servers reach.
type MDStorage struct {
	Arrays []Array `json:"arrays"`
	// DirtyDegraded says what to do with an array that was being written when
	// its server died and that lacks a member too. Its parity may not match
	// its data, so the missing member's blocks may be rebuilt wrong, in
	// stripes that were acknowledged long ago. "refuse" (default) starts it
	// only if its two parities agree wherever it was being written (see
	// settle), and else leaves that to a human; "start" prefers a running
	// service.
	DirtyDegraded string `json:"dirty_degraded,omitempty"`
	// DropSlow has the watcher drop a member that answers much later than its peers.
	DropSlow bool `json:"drop_slow_disks,omitempty"`
}

// Array is one md array by UUID and its members' WWNs or serials.
type Array struct {
	Name    string   `json:"name"`
	UUID    string   `json:"uuid"`
	Members []string `json:"members"` // device paths, /dev/disk/by-id or /dev/mapper, resolved by apply on the host
	// Need is the smallest number of members that the array can work with; 0:
	// not known.
	Need int `json:"need,omitempty"`
	// Enclosures are those of the members, in the same order; empty: not known.
	Enclosures []string `json:"enclosures,omitempty"`
	// Serials are the serial numbers of Members, in their order.
	Serials []string `json:"serials,omitempty"`
	// Failed are those of disks that the spec lists as failed.
	Failed []string `json:"failed,omitempty"`
}

// failed says whether the spec lists a member as failed.
func (a Array) failed(i int) bool {
	return i < len(a.Serials) && slices.Contains(a.Failed, a.Serials[i])
}

func (c *MDStorage) Check(f *unit.Faults) {
	if len(c.Arrays) == 0 {
		f.Add("arrays is empty")
	}
	for i, a := range c.Arrays {
		checkArray(f, fmt.Sprintf("arrays[%d]", i), a)
		if n := len(a.Enclosures); n > 0 && n != len(a.Members) {
			f.Add("arrays[%d] has %d members in %d enclosures: one of each member is needed", i, len(a.Members), n)
		}
		if n := len(a.Serials); n != len(a.Members) && (n > 0 || c.DropSlow) {
			f.Add("arrays[%d].serials has %d serial numbers of %d members", i, n, len(a.Members))
		}
		for _, b := range c.Arrays[:i] {
			if a.Name == b.Name || md.Hex(a.UUID) == md.Hex(b.UUID) {
				f.Add("arrays[%d] %q has the name or UUID of another one", i, a.Name)
			}
		}
	}
	if c.DirtyDegraded != "" && c.DirtyDegraded != "refuse" && c.DirtyDegraded != "start" {
		f.Add("dirty_degraded %q: refuse or start is needed", c.DirtyDegraded)
	}
}

func checkArray(f *unit.Faults, at string, a Array) {
	f.Word(at+".name", a.Name)
	if len(md.Hex(a.UUID)) != 32 {
		f.Add("%s.uuid %q: 32 hex digits are needed", at, a.UUID)
	}
	if len(a.Members) == 0 {
		f.Add("%s.members is empty", at)
	}
	for j, m := range a.Members {
		if !strings.HasPrefix(m, "/dev/") {
			f.Add("%s.members[%d] %q: a path below /dev is needed", at, j, m)
		}
	}
}

func (c *MDStorage) Names() []string {
	return lists.Map(c.Arrays, func(a Array) string { return a.Name })
}

// mdService is what the arrays need of their service.
type Service interface {
	// Active says whether some, and whether all, of the service's volumes are there.
	Active() (some, all bool, err error)
	// Mine says why nothing may be written to the service's storage from here.
	Mine(ctx context.Context) error
	// HoldUdev lets udev queue events until the service is up.
	HoldUdev(ctx context.Context)
}

// Kind is the storage kind of md arrays.
type Kind struct {
	*disks
	Busy atomic.Bool // the members of an array are changed, beside the watcher's loop
	// anew are the members that this start has left out, until open gives them back.
	anew    []leftOut
	Reserve *reservedDisks // nil: the disks are not reserved
}

// disks are the arrays and their members, as the parts of the kind see them.
type disks struct {
	*unit.Host
	Cfg    *MDStorage
	svc    Service
	Doubts *doubt.Notes

	Stripes *stripes
	Spares  *spareMover
	Late    *lateMembers
	Slow    *slowDisks
}

// The parts, each with what it alone keeps.
type (
	// stripes compares the parities of an array that may be torn.
	stripes struct {
		*disks
		saving sync.Mutex
	}
	// spareMover keeps spares out of arrays, and adds them to groups that lack members.
	spareMover struct {
		*disks
		lacking map[string]lackingGroup // by array
		idle    map[string]time.Time    // spares that are in whole arrays, as in the config: since when
	}
	// lateMembers adds members that come after the start, or come back with their enclosure.
	lateMembers struct {
		*disks
		LateSince time.Time            // when late members were first missed
		out       map[string]time.Time // disks that no array works with, as in the config: since when
	}
)

func New(h *unit.Host, cfg *MDStorage, d *doubt.Notes, svc Service) *Kind {
	s := &disks{Host: h, Cfg: cfg, Doubts: d, svc: svc}
	s.Stripes, s.Spares, s.Late, s.Slow = &stripes{disks: s}, &spareMover{disks: s}, &lateMembers{disks: s}, &slowDisks{disks: s}
	return &Kind{disks: s}
}

func (s *Kind) Layers() []unit.Part {
	arrays := unit.Part{Name: "arrays", State: s.ArraysState, Start: s.StartArrays, Stop: s.stopArrays}
	if s.Reserve == nil {
		return []unit.Part{arrays}
	}
	return []unit.Part{s.Reserve.part(), arrays}
}

func (s *Kind) Programs() []string { return []string{"mdadm"} }

// Reflexes give groups spares and drop slow disks, one change at a time.
func (s *Kind) Reflexes(w unit.Watch) []*unit.Reflex {
	return []*unit.Reflex{
		{Name: "md: late members", Every: lateEvery, Beside: true, Sees: func(context.Context) unit.Act { return s.Late.lateDue(w) }},
		{Name: "md: spares", Every: spareEvery, Again: sparePause, Locked: true, Beside: true, Finish: true, Busy: &s.Busy,
			Sees: func(context.Context) unit.Act { return s.Spares.addDue(w) }},
		{Name: "md: spares in arrays", Every: spareEvery, Locked: true, Beside: true, Finish: true, Busy: &s.Busy,
			Sees: func(context.Context) unit.Act { return s.Spares.outDue(w) }},
		{Name: "md: records of dropped disks", Every: tidyEvery, Busy: &s.Busy, Sees: unit.Always(func(ctx context.Context) { s.Slow.tidy(ctx, w) })},
		{Name: "md: slow disks", Every: pace.PaceWindow, Beside: true, Busy: &s.Busy, Sees: func(context.Context) unit.Act { return s.Slow.dropDue(w) }},
	}
}

// Queues: md goes on without a member that has lost its paths for some seconds.
func (s *Kind) Queues() time.Duration { return 0 }

// Modules are the one of the arrays' level, by a superblock.
func (s *Kind) Modules() []string {
	sbs, _ := s.superblocksOf(context.Background(), s.Cfg.Arrays[0].Members...)
	for _, sb := range sbs {
		if sb != nil {
			if m := map[int]string{1: "raid1", 4: "raid456", 5: "raid456", 6: "raid456", 10: "raid10"}[sb.Level]; m != "" {
				return []string{m}
			}
			break
		}
	}
	return nil
}

func (s *Kind) Devices() ([]unit.Device, error) {
	all, err := s.Arrays()
	if err != nil {
		return nil, err
	}
	var out []unit.Device
	for _, want := range s.Cfg.Arrays {
		d := unit.Device{Name: want.Name, What: "array " + want.Name}
		if a, ok := all[md.Hex(want.UUID)]; ok {
			d.Path = "/dev/" + a.Dev
		} else {
			d.Gone = fmt.Errorf("array %s is not assembled", want.Name)
		}
		out = append(out, d)
	}
	return out, nil
}

func (s *Kind) Up() bool {
	all, err := s.Arrays()
	return err == nil && len(s.ours(all)) > 0
}

// Writable: md writes nothing to an array that is read-only, or waits for a first write
// (read-auto), or is not started.
// Source: Documentation/admin-guide/md.rst of the kernel, array_state
func (s *Kind) Writable() bool {
	all, err := s.Arrays()
	return err == nil && slices.ContainsFunc(s.ours(all), func(a mdArray) bool {
		return !slices.Contains([]string{"inactive", readOnly, "read-auto"}, a.State)
	})
}

// mdArray is an array as the running kernel has it.
type mdArray struct {
	linux.MDArray
	// Present tells of each slot whether md takes data from its member. It is
	// nil while none is missing.
	Present []bool
}

// readOnly is the value of array_state in which md writes no superblock and
// starts no resync.
const readOnly = "readonly"

// slowSync is the speed, in KiB/s, that a resync of an array is held to while
// the service starts; a number no other program would choose, by which it is known.
// Source: Documentation/admin-guide/md.rst, sync_speed_max.
const slowSync = "1001"

// Arrays lists the md arrays of this host by UUID.
func (s *disks) Arrays() (map[string]mdArray, error) {
	found, err := linux.MDArrays(s.K)
	if err != nil {
		return nil, err
	}
	all := map[string]mdArray{}
	for _, f := range found {
		a := mdArray{MDArray: f}
		if a.State == "clear" {
			continue
		}
		if a.Degraded > 0 {
			a.Present = s.inSync(a, nil)
		}
		if len(a.UUID) != 32 || a.UUID == strings.Repeat("0", 32) {
			// An inactive array, or a kernel without the attribute: ask a member.
			for _, d := range a.Members {
				if sb, err := s.Superblock(context.Background(), "/dev/"+d); err == nil {
					a.UUID = sb.UUID
					break
				}
			}
		}
		all[a.UUID] = a
	}
	return all, nil
}

// inSync tells of each slot of a running array whether md takes data from its
// member. With also, that must hold for the member's kernel name too.
func (s *disks) inSync(a mdArray, also func(dev string) bool) []bool {
	members, err := linux.MDMembers(s.K, a.Dev)
	if err != nil {
		return make([]bool, a.RaidDisks)
	}
	return linux.MDPresent(a.RaidDisks, members, func(m linux.MDMember) bool { return also == nil || also(m.Dev) })
}

func (s *disks) Superblock(ctx context.Context, dev string) (*md.Superblock, error) {
	sbs, errs := s.superblocksOf(ctx, dev)
	return sbs[0], errs[0]
}

// superblocksOf reads the superblocks of devices side by side.
func (s *disks) superblocksOf(ctx context.Context, devs ...string) (sbs []*md.Superblock, errs []error) {
	all := lists.Map(devs, func(d string) kernel.Question {
		return kernel.Question{Dev: d, Off: md.SuperblockOffset, N: md.SuperblockSize}
	})
	for _, a := range s.K.Ask(ctx, kernel.AskLimit, all) {
		sb, err := (*md.Superblock)(nil), a.Err
		if err == nil {
			sb, err = md.ParseSuperblock(a.Data)
		}
		sbs, errs = append(sbs, sb), append(errs, err)
	}
	return sbs, errs
}

// usable are the values of array_state in which an array takes writes.
// Source: Documentation/admin-guide/md.rst of the kernel.
func (a mdArray) usable() error {
	switch a.State {
	case "clean", "active", "active-idle", "write-pending", "read-auto":
	default:
		return fmt.Errorf("array %s is %s", a.Dev, a.State)
	}
	return a.complete()
}

// complete says whether the members of an array hold all its data.
func (a mdArray) complete() error {
	if a.Degraded > 0 && md.CanLose(md.Level(a.Level), a.Layout, a.Present) < 0 {
		return fmt.Errorf("array %s lacks %d of %d members, more than %s can lose", a.Dev, a.Degraded, a.RaidDisks, a.Level)
	}
	return nil
}

func (s *Kind) ArraysState() (unit.State, error) {
	all, err := s.Arrays()
	if err != nil {
		return unit.Broken, err
	}
	up := 0
	var first error
	for _, want := range s.Cfg.Arrays {
		a, ok := all[md.Hex(want.UUID)]
		if !ok {
			first = errors.Join(first, fmt.Errorf("array %s is not assembled", want.Name))
			continue
		}
		up++
		if err := a.usable(); err != nil {
			first = errors.Join(first, err)
		}
	}
	switch {
	case up == 0:
		return unit.Stopped, nil
	case first != nil:
		return unit.Broken, first
	}
	return unit.Running, nil
}

// assembledAtOnce is how many arrays are assembled side by side: udev and mdadm's lock of its
// map bear that many.
const assembledAtOnce = 8

// StartArrays looks at the superblocks of all arrays before it assembles one,
// so that a refusal leaves everything as it was. It assembles read-only: who
// owns the volume is not known before the arrays can be read, and until then
// nothing may be written. startVolume opens them.
func (s *Kind) StartArrays(ctx context.Context) error {
	if up, _, err := s.svc.Active(); err != nil || up {
		return errors.Join(err, s.WholeArrays()) // a start that is repeated
	}
	// Not earlier: members that come late come by udev.
	hold := sync.OnceFunc(func() { s.svc.HoldUdev(ctx) })
	// Another program has assembled what is there, from whatever members it took.
	if err := s.stopStrays(ctx, hold); err != nil {
		return err
	}
	verdicts, err := s.LookAll(ctx)
	if d := doubt.Of(err); d != nil {
		err = errors.Join(err, s.Doubts.SaveDoubt(d))
	}
	if err != nil {
		return refusal.Because("arrays", err)
	}
	hold()
	if err := errors.Join(s.Late.expectLate(verdicts), s.leaveOut(verdicts)); err != nil {
		return err
	}
	// mdadm waits for its disks: 24 arrays one after the other would take a minute.
	var side errgroup.Group
	side.SetLimit(assembledAtOnce)
	for i, want := range s.Cfg.Arrays {
		if verdicts[i].DirtyDegraded { // a parameter of the whole module lets md start it
			continue
		}
		side.Go(func() error { return s.assemble(ctx, want, verdicts[i]) })
	}
	err = side.Wait()
	for i, want := range s.Cfg.Arrays {
		if verdicts[i].DirtyDegraded && err == nil {
			err = s.assemble(ctx, want, verdicts[i])
		}
		for _, dev := range verdicts[i].Anew {
			s.anew = append(s.anew, leftOut{want.Name, dev})
		}
	}
	if err != nil {
		return err
	}
	return s.WholeArrays()
}

// LookAll judges the arrays, and compares the parities of those that may be torn.
func (s *Kind) LookAll(ctx context.Context) ([]Verdict, error) {
	verdicts, err := s.Await(ctx)
	if err != nil {
		return nil, err
	}
	doubts := s.settle(ctx, verdicts)
	var why error
	all := &doubt.Doubt{Service: s.Service, At: s.K.Now().UTC()}
	for i, want := range s.Cfg.Arrays {
		if d := doubts[i]; d != nil {
			all.Arrays, why = append(all.Arrays, *d), errors.Join(why, verdicts[i].Doubt)
		}
		for _, n := range verdicts[i].Notes {
			s.Log.Note("array %s: %s", want.Name, n)
		}
	}
	if len(all.Arrays) > 0 {
		return nil, all.Refusal(why)
	}
	return verdicts, nil
}

// settle compares the parities of all arrays that may be torn, side by side: each has its own
// disks.
func (s *Kind) settle(ctx context.Context, verdicts []Verdict) []*doubt.ArrayInDoubt {
	out := make([]*doubt.ArrayInDoubt, len(verdicts))
	if !slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Doubt != nil }) {
		return out
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	still := time.AfterFunc(stripesTime, cancel)
	defer still.Stop()
	got := &Reached{Moved: func() { still.Reset(stripesTime) }}
	_ = s.Long("comparison of parities", got.String, func() error {
		var all sync.WaitGroup
		for i, want := range s.Cfg.Arrays {
			all.Go(func() { out[i] = s.Stripes.Settle(ctx, want, &verdicts[i], got) })
		}
		all.Wait()
		return nil
	})
	for _, d := range out {
		if d != nil && d.Remaining > 0 && got.done.Load() == 0 {
			d.Remaining, d.Unknown = 0, fmt.Sprintf("its disks are too slow: %v were not enough to compare anything", stripesTime)
		}
	}
	return out
}

// stopStrays stops arrays of the service on which no volume is active.
func (s *Kind) stopStrays(ctx context.Context, hold func()) error {
	all, err := s.Arrays()
	if err != nil {
		return err
	}
	for _, a := range s.ours(all) {
		hold()
		s.Log.Note("array %s was assembled (%s) without its volume: it is stopped and judged by its superblocks", a.Dev, a.State)
		if _, err := s.K.Run(ctx, kernel.Command{Argv: []string{"mdadm", "--stop", "/dev/" + a.Dev}}); err != nil {
			return err
		}
	}
	return nil
}

// WholeArrays checks that all arrays are assembled with enough members.
func (s *Kind) WholeArrays() error {
	all, err := s.Arrays()
	if err != nil {
		return err
	}
	for _, want := range s.Cfg.Arrays {
		a, ok := all[md.Hex(want.UUID)]
		if !ok {
			return fmt.Errorf("array %s is not assembled", want.Name)
		}
		if err = a.usable(); a.State == readOnly {
			err = a.complete()
		}
		if err != nil {
			return err
		}
		if a.Degraded > 0 {
			s.Log.Found(unit.NotedDegraded, want.Name, "array %s (%s) runs without %d of its %d members", want.Name, a.Dev, a.Degraded, a.RaidDisks)
		}
	}
	return nil
}

// Open lets md write to arrays that startArrays assembled.
func (s *Kind) Open(ctx context.Context) error {
	all, err := s.Arrays()
	if err != nil {
		return err
	}
	s.holdSync(all) // before it could begin
	for _, a := range s.ours(all) {
		if a.State != readOnly {
			continue
		}
		if _, err := s.K.Run(ctx, kernel.Command{Argv: []string{"mdadm", "--readwrite", "/dev/" + a.Dev}}); err != nil {
			return err
		}
	}
	s.rebuildAnew(ctx)
	return nil
}

// leftOut is a member that a start has left out of an array.
type leftOut struct{ array, dev string }

// rebuildAnew gives members that were being rebuilt when their server died to their arrays
// as blank spares. With RAID 10, md would copy them over good mirrors: a resync reads every
// member that is not faulty, and writes the first one that answers to the others. Seen on Linux
// 6.12.118. RAID 6 computes what such a member lacks.
//
// Source: drivers/md/raid10.c, raid10_sync_request ("Schedule a read for every block") and
// sync_request_write
func (s *Kind) rebuildAnew(ctx context.Context) {
	for _, x := range s.anew {
		for _, argv := range [][]string{
			{"mdadm", "--zero-superblock", x.dev}, // or mdadm would re-add it
			{"mdadm", "--manage", "/dev/md/" + x.array, "--add", x.dev},
		} {
			if _, err := s.K.Run(ctx, kernel.Command{Argv: argv}); err != nil {
				s.Log.Note("array %s: %s stays out of it: %v", x.array, x.dev, err)
				break
			}
		}
	}
	s.anew = nil
}

// assemble assembles an array read-only.
func (s *Kind) assemble(ctx context.Context, a Array, v Verdict) error {
	if v.DirtyDegraded {
		const param = "/sys/module/md_mod/parameters/start_dirty_degraded"
		s.Log.Found(unit.NotedDirty, a.Name, "array %s is started dirty and degraded", a.Name)
		s.Doubts.Unsure = true
		if err := s.K.Poke(param, "1\n"); err != nil {
			return err
		}
		defer s.K.Poke(param, "0\n")
	}
	// With members on its command line mdadm opens no other disk, which might hang.
	// Source: mdadm, Assemble.c, inargv
	//
	// --run: the judgement of how few members are enough is made already; it
	// does not take members that are out of date, as --force would.
	argv := []string{"mdadm", "--assemble", "/dev/md/" + a.Name, "--uuid=" + md.UUID(a.UUID), "--run", "--quiet", "--readonly"}
	// MDADM_NO_UDEV: mdadm makes its link itself instead of waiting for udev,
	// which is held meanwhile. Source: mdadm(8), environment.
	_, err := s.K.Run(ctx, kernel.Command{Argv: append(argv, v.Members...), Env: []string{"MDADM_NO_UDEV=1"}})
	return err
}

// Superblocks are what was read of the members of all arrays of a service, by their
// devices in the config. A spare may have moved to another array: each device is
// read once, whichever array it is of.
type Superblocks map[string]Member

// Await judges all arrays. On a host that has just booted it waits for
// members that come late, once for all arrays. A member that md had thrown out is not waited
// for: the array would not take it back.
func (s *Kind) Await(ctx context.Context) (verdicts []Verdict, err error) {
	end := s.K.Now()
	if s.Uptime() < unit.YoungHost {
		end = end.Add(unit.MemberWait)
	}
	read := Superblocks{}
	for {
		if err = s.Reserve.beforeJudging(ctx, read); err != nil {
			return nil, err
		}
		verdicts, err = s.judgeAll(ctx, read)
		late := func(v Verdict) bool { return len(v.Awaited) > v.Silent }
		if err == nil && !slices.ContainsFunc(verdicts, late) {
			break
		}
		if !s.K.Now().Before(end) || s.K.Sleep(ctx, 250*time.Millisecond) != nil {
			break
		}
		// A disk that hangs has had its time.
		maps.DeleteFunc(read, func(_ string, m Member) bool { return !errors.Is(m.Err, kernel.ErrSilent) })
	}
	return verdicts, err
}

// judgeAll judges all arrays by what is on their members. A member that does not answer
// counts as missing.
func (s *Kind) judgeAll(ctx context.Context, read Superblocks) (verdicts []Verdict, err error) {
	names := lists.Flat(s.Cfg.Arrays, func(a Array) []string { return a.Members })
	s.ReadSuperblocks(ctx, names, read)
	verdicts = make([]Verdict, len(s.Cfg.Arrays))
	for i, a := range s.Cfg.Arrays {
		if verdicts[i], err = s.Judge(a, read); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// Judge judges an array by the superblocks of its members, and of members of the
// other arrays that say they are of this one.
func (s *Kind) Judge(a Array, read Superblocks) (Verdict, error) {
	var members []Member
	seen := map[string]bool{}
	add := func(name string, own bool) {
		m, real := s.member(name, read)
		if seen[real] || !own && (m.SB == nil || m.SB.UUID != md.Hex(a.UUID)) {
			return
		}
		seen[real] = real != ""
		members = append(members, m)
	}
	for _, name := range a.Members {
		add(name, true)
	}
	for _, other := range s.Cfg.Arrays {
		for _, name := range other.Members {
			add(name, false)
		}
	}
	return Judge(a, members, s.Cfg.DirtyDegraded)
}

// member is a device whose superblock was read; real is "" for one that is not there.
func (s *disks) member(name string, read Superblocks) (m Member, real string) {
	real, err := s.K.Realpath(name)
	if err != nil {
		real = ""
	}
	return read[name], real
}

// ReadSuperblocks reads the superblocks of devices, unless they were read before, side by side.
func (s *disks) ReadSuperblocks(ctx context.Context, names []string, read Superblocks) {
	var asked, reals []string
	for _, name := range names {
		if _, done := read[name]; done {
			continue
		}
		real, err := s.K.Realpath(name)
		if read[name] = (Member{Dev: name, Err: err}); err == nil {
			asked, reals = append(asked, name), append(reals, real)
		}
	}
	sbs, errs := s.superblocksOf(ctx, reals...)
	for i, name := range asked {
		read[name] = Member{Dev: name, SB: sbs[i], Err: errs[i]}
	}
	for _, name := range names {
		if m := read[name]; errors.Is(m.Err, fs.ErrNotExist) {
			m.Err = errors.New("not there")
			read[name] = m
		}
	}
}

// Sound: an array in doubt is compared by a start only, which has the time. So a doubt
// counts if a start on this server has found it in the array as it is now. When the partner
// has started the array since, without members that are missing here, or one is back, the
// next start has to compare it.
func (s *Kind) Sound(ctx context.Context) error {
	verdicts, err := s.judgeAll(ctx, Superblocks{})
	if err != nil {
		return err
	}
	for i, v := range verdicts {
		if v.Doubt != nil && s.Doubts.Doubted(doubt.ArrayInDoubt{UUID: s.Cfg.Arrays[i].UUID, Events: v.Newest.Events, Missing: v.Missing}, len(v.Awaited)) {
			return v.Doubt
		}
	}
	return nil
}

func (s *Kind) stopArrays(ctx context.Context) error {
	all, err := s.Arrays()
	if err != nil {
		return err
	}
	s.Late.LateNote().Forget()
	s.SparesNote().Forget()
	argv := []string{"mdadm", "--stop", "--quiet"}
	for _, want := range s.Cfg.Arrays {
		if a, ok := all[md.Hex(want.UUID)]; ok {
			argv = append(argv, "/dev/"+a.Dev)
		}
	}
	if len(argv) == 3 {
		return nil
	}
	// udev may hold an array open for a moment after its last user is gone.
	for try := 0; ; try++ {
		_, err = s.K.Run(ctx, kernel.Command{Argv: argv})
		if st, serr := s.ArraysState(); serr == nil && st == unit.Stopped {
			return nil
		}
		if try == 20 || s.K.Sleep(ctx, 250*time.Millisecond) != nil {
			if err == nil {
				err = errors.New("arrays are still assembled after mdadm --stop")
			}
			return err
		}
	}
}

// ours are the arrays of the service that are assembled.
func (s *disks) ours(all map[string]mdArray) []mdArray {
	var out []mdArray
	for _, want := range s.Cfg.Arrays {
		if a, ok := all[md.Hex(want.UUID)]; ok {
			out = append(out, a)
		}
	}
	return out
}

// holdSync slows down the resync of the arrays: after a crash it would have
// the disks to itself while the file system replays its journal.
func (s *Kind) holdSync(all map[string]mdArray) {
	if !s.HeldNote().There() {
		return
	}
	for _, a := range s.ours(all) {
		if err := s.limitSync(a, slowSync); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Log.Note("array %s: its resync is not held back: %v", a.Dev, err)
		}
	}
}

// limitSync sets both limits of an array: md heeds no ceiling that is below the floor.
//
// Source: drivers/md/md.c, md_do_sync
func (s *Kind) limitSync(a mdArray, value string) error {
	var errs []error
	for _, f := range []string{"sync_speed_min", "sync_speed_max"} {
		errs = append(errs, s.K.Poke("/sys/block/"+a.Dev+"/md/"+f, value+"\n"))
	}
	return errors.Join(errs...)
}

// Free gives resyncs their usual speed again.
func (s *Kind) Free() (ok bool) {
	ok = true
	if all, err := s.Arrays(); err == nil {
		for _, a := range s.ours(all) {
			if !strings.HasPrefix(s.Line("/sys/block/"+a.Dev+"/md/sync_speed_max"), slowSync+" ") {
				continue // nothing to sync, or another program has set it
			}
			if err := s.limitSync(a, "system"); err != nil {
				s.Log.Note("array %s: its resync stays slow: %v", a.Dev, err)
				ok = false
			}
		}
	}
	return ok
}

// Reachable says whether enough members of each array have a path that works.
func (s *Kind) Reachable() bool {
	all, err := s.Arrays()
	if err != nil {
		return true // not known
	}
	for _, want := range s.Cfg.Arrays {
		if a, ok := all[md.Hex(want.UUID)]; ok && a.Level != "" && a.RaidDisks > 0 {
			if md.CanLose(md.Level(a.Level), a.Layout, s.inSync(a, s.HasPath)) < 0 {
				return false
			}
			continue
		}
		live := 0
		for _, m := range want.Members {
			if real, err := s.K.Realpath(m); err == nil && s.HasPath(path.Base(real)) {
				live++
			}
		}
		if live < max(want.Need, 1) {
			return false
		}
	}
	return true
}
