// Package lustre is the service kind of Lustre targets. It may not know what their volumes are
// made of, nor who owns them: the rest of the service is behind Service.
package lustre

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/ext4"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// LustreService are targets of one Lustre file system.
type LustreService struct {
	FSName  string   `json:"fsname"`
	Targets []Target `json:"targets"` // in the order of mounting: MGS, MDTs, OSTs
	// Servers are the NIDs of the file system's servers. The service of the MGS has
	// them: see silence.
	Servers []string `json:"servers,omitempty"`
}

// Target is one MGS, MDT or OST on ldiskfs.
type Target struct {
	Kind  string `json:"kind"` // mgs, mdt or ost
	Index int    `json:"index"`
	// Volume is the logical volume that the target is on, or the LUN if there
	// is no volume group.
	Volume     string   `json:"volume"`
	MountPoint string   `json:"mount_point"`
	MountOpts  []string `json:"mount_opts,omitempty"`
}

// targetKinds are in the order in which a file system's targets start.
// Source: Lustre Operations Manual, 13.2
var targetKinds = []string{"mgs", "mdt", "ost"}

func (c *LustreService) Check(f *unit.Faults) {
	if !unit.Plain(c.FSName, "") || len(c.FSName) > 8 {
		f.Add("fsname %q: 1 to 8 letters and digits are needed", c.FSName)
	}
	if len(c.Targets) == 0 {
		f.Add("targets is empty")
	}
	for _, nid := range c.Servers {
		if !unit.Plain(nid, ".:@") || !strings.Contains(nid, "@") {
			f.Add("servers: %q is no NID, such as 10.20.0.13@tcp", nid)
		}
	}
	if len(c.Servers) > 0 && !c.hasMGS() {
		f.Add("servers belong to the service that has the MGS")
	}
	last := 0
	for i, t := range c.Targets {
		at := fmt.Sprintf("targets[%d].", i)
		if k := slices.Index(targetKinds, t.Kind); k < last {
			f.Add("%skind %q: %s are possible, in this order", at, t.Kind, strings.Join(targetKinds, ", "))
		} else {
			last = k
		}
		if t.Index < 0 || t.Index > 0xfffe || t.Kind == "mgs" && t.Index != 0 {
			f.Add("%sindex %d: 0 to 65534 is possible, and 0 for the MGS", at, t.Index)
		}
		f.Word(at+"volume", t.Volume)
		f.Abs(at+"mount_point", t.MountPoint)
		for _, o := range t.MountOpts {
			if !unit.Plain(o, "_=.:@-") || slices.Contains([]string{"ro", "abort_recov", "abort_recovery"}, o) {
				f.Add("%smount_opts: %q is not one option, or takes the service or clients' data away", at, o)
			}
		}
		for _, b := range c.Targets[:i] {
			if t.label(c.FSName) == b.label(c.FSName) || t.Volume == b.Volume || t.MountPoint == b.MountPoint {
				f.Add("targets[%d] has the name, volume or mount point of another one", i)
			}
		}
	}
}

func (c *LustreService) Names() []string {
	return lists.Map(c.Targets, func(t Target) string { return t.Volume })
}

// label is the target's name, and its file system's label once it has registered.
func (t Target) label(fsname string) string {
	if t.Kind == "mgs" {
		return "MGS"
	}
	return fmt.Sprintf("%s-%s%04x", fsname, strings.ToUpper(t.Kind), t.Index)
}

// lustreService is what targets need of their service.
type Service interface {
	// On is what a volume's target is on, called what messages call the volume.
	On(volume string) (dev, devno string, err error)
	Called(volume string) string
	// Alone says whether reservations keep every other server from writing to the devices that
	// are in use.
	Alone(ctx context.Context) bool
}

// Kind is the service kind of targets of Lustre. They have no address: a
// client knows both servers of a target. What keeps a target from being mounted
// by two servers is its volume group's owner or its reservation, and ldiskfs'
// multiple mount protection (MMP).
type Kind struct {
	*unit.Host
	cfg    *LustreService
	svc    Service
	silent silentServers
}

func New(h *unit.Host, cfg *LustreService, svc Service) *Kind {
	return &Kind{Host: h, cfg: cfg, svc: svc}
}

func (s *Kind) Layers() []unit.Part {
	var all []unit.Part
	for i, t := range s.cfg.Targets {
		all = append(all, unit.Part{Name: t.label(s.cfg.FSName),
			State: func() (unit.State, error) { return s.targetState(t) },
			Start: func(ctx context.Context) error { return s.startTargets(ctx, s.cfg.Targets[i:]) },
			Stop:  func(ctx context.Context) error { return s.stopTarget(ctx, t) }})
	}
	return all
}

// isTarget says whether a mount is a server's of Lustre. Which of the two names
// it has depends on the release.
func isTarget(m linux.Mount) bool { return m.Type == "lustre" || m.Type == "lustre_tgt" }

// isOn says whether a target's mount is of a device. Its own device number is
// one that the kernel makes up, and the name of its source is the one that
// mount.lustre has found, so the source's device is compared.
func (s *Kind) isOn(m linux.Mount, devno string) bool {
	real, err := s.K.Realpath(m.Source)
	return err == nil && devno != "" && s.Line("/sys/block/"+path.Base(real)+"/dev") == devno
}

func (s *Kind) targetState(t Target) (unit.State, error) {
	all, err := s.Mounts()
	if err != nil {
		return unit.Broken, err
	}
	_, devno, err := s.svc.On(t.Volume)
	if err != nil {
		return unit.Broken, err
	}
	m := unit.MountedAt(all, t.MountPoint)
	switch {
	case m == nil || !isTarget(*m):
		return unit.Stopped, nil // something else may be mounted there: start refuses
	case !s.isOn(*m, devno):
		return unit.Broken, fmt.Errorf("%s is mounted on %s instead of %s", m.Source, t.MountPoint, s.svc.Called(t.Volume))
	}
	if err := s.healthy(); err != nil {
		return unit.Broken, err
	}
	return unit.Running, nil
}

// healthy reads what Lustre says of this server. A target that has met a bug
// stays mounted, and its clients hang.
// Source: Lustre Operations Manual, health_check; /proc is of releases before 2.12
func (s *Kind) healthy() error {
	if err := errors.Join(s.onNetwork(), s.writable()); err != nil {
		return err
	}
	b, err := s.K.ReadFile("/sys/fs/lustre/health_check")
	if errors.Is(err, fs.ErrNotExist) {
		b, err = s.K.ReadFile("/proc/fs/lustre/health_check")
	}
	if err != nil {
		return fmt.Errorf("health of Lustre: %w", err)
	}
	return judgeHealth(string(b))
}

// writable returns an error if ldiskfs has set a target read-only. Lustre calls such a target
// healthy until it writes to it: see CheckIO. A kernel that does not show the options gives no
// error.
func (s *Kind) writable() error {
	for _, t := range s.cfg.Targets {
		dev, _, err := s.svc.On(t.Volume)
		if err != nil || dev == "" {
			continue
		}
		b, _ := s.K.ReadFile("/proc/fs/ldiskfs/" + dev + "/options")
		if linux.ReadOnly(strings.Fields(string(b))) {
			return fmt.Errorf("the file system of %s (%s) is read-only: the kernel's log says why (`mortar events`)", t.label(s.cfg.FSName), dev)
		}
	}
	return nil
}

// interfaces lists LNet's interfaces, a line for each that begins with its NID.
// Source: Lustre 2.17.57, lnet/lnet/lnet_debugfs.c, proc_lnet_nis
const interfaces = "/sys/kernel/debug/lnet/nis"

// onNetwork returns an error if LNet has no interface but the loopback: then no client
// reaches this server's targets, although they are mounted and healthy. A kernel that
// does not show the list gives no error.
func (s *Kind) onNetwork() error {
	if nid, err := s.nid(); err == nil && nid == "" {
		return errors.New("LNet of this server has no network: no client reaches it (lnetctl net show)")
	}
	return nil
}

// nid is the first NID of this server, "" if LNet has no interface but the loopback.
func (s *Kind) nid() (string, error) {
	b, err := s.K.ReadFile(interfaces)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 0 && strings.Contains(f[0], "@") && !strings.HasSuffix(f[0], "@lo") {
			return f[0], nil
		}
	}
	return "", nil
}

// mgsFirst has a target ask this server's MGS first: nil if it has none. The target
// knows both servers of the MGS, in one order, and a server without MGS gives no answer:
// on the second server an MDT waited 16 s for the first (2.17.57). The mount appends the
// target's own list.
// Source: lustre-release, lustre/obdclass/obd_mount.c, lustre_start_mgc, lmd_parse_mgs
func (s *Kind) mgsFirst(t Target) []string {
	_, none := s.K.ReadDir("/sys/fs/lustre/mgs/MGS")
	nid, _ := s.nid()
	if t.Kind == "mgs" || nid == "" || none != nil && !s.cfg.hasMGS() {
		return nil
	}
	return []string{"mgsnode=" + nid}
}

func judgeHealth(said string) error {
	if said = strings.TrimSpace(said); said != "healthy" {
		return fmt.Errorf("this server's Lustre is not healthy: %s", strings.ReplaceAll(said, "\n", "; "))
	}
	return nil
}

// readHealth reads it in a process: while checkIO has Lustre write, the reader
// waits for the disks, and a process that hangs in the kernel can be given up.
func (s *Kind) readHealth(ctx context.Context) (string, error) {
	return s.K.Run(ctx, kernel.Command{Argv: []string{"cat", "/sys/fs/lustre/health_check"}})
}

// startTargets mounts the first of some targets, and the others beside it if all have
// registered with the MGS before. After a crash each mount watches for 22 s whether MMP of
// another server writes to the target (2.17.57), unless reservations say that none can; beside
// each other they wait once. A target that has not registered needs the MGS first.
func (s *Kind) startTargets(ctx context.Context, targets []Target) error {
	var mounts [][]string
	together := true
	for _, t := range targets {
		argv, registered, err := s.prepare(t)
		if err != nil {
			return err
		}
		if argv != nil {
			mounts = append(mounts, argv)
		}
		together = together && registered
	}
	if len(mounts) == 0 {
		return nil
	}
	if err := s.onNetwork(); err != nil {
		return err
	}
	if !together {
		mounts = mounts[:1]
	}
	errs := make([]error, len(mounts))
	alone := s.svc.Alone(ctx)
	var all sync.WaitGroup
	for i, argv := range mounts {
		all.Go(func() {
			if alone {
				s.Log.NoteErr(s.clearMMP(argv[len(argv)-2]), "the mount watches for another server")
			}
			if _, err := s.K.Run(ctx, kernel.Command{Argv: argv}); err != nil {
				errs[i] = fmt.Errorf("%w (the kernel's log may say why)", err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	st, err := s.targetState(targets[0])
	if err == nil && st != unit.Running {
		err = fmt.Errorf("%s is not mounted although mount succeeded", targets[0].label(s.cfg.FSName))
	}
	return err
}

// clearMMP writes a target's MMP block as an unmount leaves it. It does not change a block that
// e2fsck has marked, nor one of a file system that is in use on this server: MMP of that one, if
// it is late, finds a block that it has not written, and sets the file system read-only.
// Source: fs/ext4/mmp.c, kmmpd
func (s *Kind) clearMMP(dev string) error {
	off, block, err := ext4.UnmountedMMP(func(off int64, n int) ([]byte, error) { return s.K.ReadBlocks(dev, off, n) })
	if err != nil || block == nil {
		return err
	}
	if s.K.Claimed(dev) {
		return fmt.Errorf("%s is in use on this server", dev)
	}
	s.Log.Note("%s: its disks are reserved for this server: MMP need not watch for another one", dev)
	return s.K.WriteBlocks(dev, off, block)
}

// prepare judges a target and gives the command that mounts it; nil if it is
// mounted. registered: the MGS knows the target.
func (s *Kind) prepare(t Target) (argv []string, registered bool, err error) {
	st, err := s.targetState(t)
	if err != nil || st == unit.Running {
		return nil, true, err
	}
	dev, devno, err := s.svc.On(t.Volume)
	if err != nil {
		return nil, false, err
	}
	if dev == "" {
		return nil, false, fmt.Errorf("%s is not active", s.svc.Called(t.Volume))
	}
	all, err := s.Mounts()
	if err != nil {
		return nil, false, err
	}
	for _, m := range all {
		if m.Dev == devno || isTarget(m) && s.isOn(m, devno) {
			return nil, false, refusal.New("mounted", refusal.Args{"volume": s.svc.Called(t.Volume), "at": m.Target})
		}
		if m.Target == t.MountPoint {
			return nil, false, refusal.New("mount-taken", refusal.Args{"device": m.Source, "type": m.Type, "at": m.Target})
		}
	}
	b, err := s.K.ReadBlocks("/dev/"+dev, 0, 4096)
	if err != nil {
		return nil, false, err
	}
	if registered, err = t.Judge(s.cfg.FSName, s.svc.Called(t.Volume), b); err != nil {
		return nil, false, err
	}
	if err := s.K.Mkdir(t.MountPoint, 0, -1, -1); err != nil {
		return nil, false, err
	}
	argv = []string{"mount", "-t", "lustre"}
	if opts := slices.Concat(t.MountOpts, s.mgsFirst(t)); len(opts) > 0 {
		argv = append(argv, "-o", strings.Join(opts, ","))
	}
	return append(argv, s.VolumePath(dev), t.MountPoint), registered, nil
}

// Judge reads the superblock of a target, the first 4 KiB of its device. It
// says why it is not the one wanted, and whether the MGS knows the target.
//
// Source: struct ext4_super_block in fs/ext4/ext4.h of the kernel; the labels in
// lustre/utils/libmount_utils_ldiskfs.c: behind fsname ':' for a target that
// never registered, '=' for one to be written anew, '+' without local logs.
func (t Target) Judge(fsname, called string, b []byte) (registered bool, err error) {
	const at, magic, incompat, mmp, name = 1024, 0x38, 0x60, 0x100, 0x78
	le := binary.LittleEndian
	sb := b[at:]
	if le.Uint16(sb[magic:]) != 0xef53 {
		return false, refusal.New("no-ldiskfs", refusal.Args{"volume": called})
	}
	got := string(bytes.TrimRight(sb[name:name+16], "\x00"))
	want := t.label(fsname)
	registered = got == want
	if i := strings.IndexAny(got, ":=+"); i >= 0 && t.Kind != "mgs" {
		got = got[:i] + "-" + got[i+1:]
	}
	if got != want {
		return false, refusal.New("other-target", refusal.Args{"volume": called, "label": cmp.Or(got, "without a name"), "want": want})
	}
	if le.Uint32(sb[incompat:])&mmp == 0 {
		return false, refusal.New("no-mmp", refusal.Args{"volume": called, "target": want})
	}
	return registered, nil
}

// stopTarget unmounts as an administrator does, without -f: the target's clients
// wait for the other server, and are not evicted.
func (s *Kind) stopTarget(ctx context.Context, t Target) error {
	dev, devno, err := s.svc.On(t.Volume)
	if err != nil {
		return err
	}
	ours := func(all []linux.Mount) []string {
		var out []string
		for _, m := range all {
			if isTarget(m) && (m.Target == t.MountPoint || s.isOn(m, devno)) {
				out = append(out, m.Target)
			}
		}
		return out
	}
	if err := s.Unmount(ctx, t.MountPoint, ours, func() []unit.User { return nil }); err != nil || dev == "" {
		return err
	}
	return s.Ended(ctx, "ldiskfs", dev, t.MountPoint)
}

func (s *Kind) Serving() bool {
	all, err := s.Mounts()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(s.cfg.Targets, func(t Target) bool {
		m := unit.MountedAt(all, t.MountPoint)
		return m != nil && isTarget(*m)
	})
}

// CheckIO reads each target's superblock from its device, and has Lustre write
// to each target. Without the write, Lustre called a target healthy whose disk failed,
// whose journal was aborted and which ldiskfs set read-only; with it, the next look said
// NOT HEALTHY (Lustre 2.17.57, Linux 6.12.107). It is off otherwise, so that no other look
// waits for a disk.
func (s *Kind) CheckIO(ctx context.Context) error {
	var all []kernel.Question
	for _, t := range s.cfg.Targets {
		dev, _, err := s.svc.On(t.Volume)
		if err != nil {
			return fmt.Errorf("reading %s: %w", t.label(s.cfg.FSName), err)
		}
		all = append(all, kernel.Question{Dev: "/dev/" + dev, N: 4096})
	}
	for i, a := range s.K.Ask(ctx, unit.IoWait, all) {
		if a.Err != nil {
			return fmt.Errorf("reading %s: %w", s.cfg.Targets[i].label(s.cfg.FSName), a.Err)
		}
	}
	const write = "/sys/fs/lustre/enable_health_write"
	if err := s.K.Poke(write, "1\n"); err != nil {
		return fmt.Errorf("health of Lustre: %w", err)
	}
	said, err := s.readHealth(ctx)
	if err == nil {
		err = judgeHealth(said)
	}
	return errors.Join(err, s.K.Poke(write, "0\n"))
}

// watchWait is less than the time between two looks of the watcher.
const watchWait = time.Second

// Reflexes report targets that hang their clients without waiting for a monitor, and have the
// MGS forget servers that crashed.
func (s *Kind) Reflexes(w unit.Watch) []*unit.Reflex {
	return []*unit.Reflex{
		{Name: "lustre: silent servers", Every: pingEvery, Beside: true, Sees: func(context.Context) unit.Act {
			if len(s.cfg.Servers) == 0 || !s.Serving() {
				s.silent = silentServers{} // an answer of long ago says nothing when the MGS is back
				return nil
			}
			return func(ctx context.Context) { s.silent.round(ctx, s.K, s.cfg.Servers, w.Log) }
		}},
		{Name: "lustre: health", Locked: true, Sees: func(ctx context.Context) unit.Act {
			if !s.Serving() || s.wellHere(ctx) {
				return nil
			}
			return func(ctx context.Context) {
				if err := s.healthy(); err != nil && s.Serving() {
					w.Fail(ctx, err.Error())
				}
			}
		}},
	}
}

// wellHere says whether Lustre of this server is well, or gives no answer in time. That is for
// the monitor to judge: disks may be merely busy.
func (s *Kind) wellHere(ctx context.Context) bool {
	soon, cancel := context.WithTimeout(ctx, watchWait)
	defer cancel()
	said, err := s.readHealth(soon)
	return s.onNetwork() == nil && s.writable() == nil && (err != nil || judgeHealth(said) == nil)
}

// Able tells of LNet's network, which may come back while nothing is mounted.
func (s *Kind) Able() error { return s.onNetwork() }

func (s *Kind) Modules() []string {
	want := []string{"lnet", "lustre", "osd_ldiskfs"}
	for _, t := range s.cfg.Targets {
		if m := map[string]string{"mgs": "mgs", "mdt": "mdt", "ost": "ofd"}[t.Kind]; !slices.Contains(want, m) {
			want = append(want, m)
		}
	}
	return want
}

func (s *Kind) VolumeOf(name string) (string, bool) {
	t, has := lists.First(s.cfg.Targets, func(t Target) bool { return t.label(s.cfg.FSName) == name })
	return t.Volume, has
}

// Repairs finds none: a target that is not mounted is the file system itself.
func (s *Kind) Repairs() []unit.Repair { return nil }

func (s *Kind) Programs() []string { return []string{"mount.lustre"} }

// A target has no address to ask for, nothing to tell and nothing to mend: MMP refuses
// one that another server has, clients find their server, and Lustre keeps what
// the next one needs on the target.
func (s *Kind) Probe(context.Context) error                                        { return nil }
func (s *Kind) Started(context.Context)                                            {}
func (s *Kind) Stopping(context.Context)                                           {}
func (s *Kind) Keep(context.Context) error                                         { return nil }
func (s *Kind) Silence(context.Context, func(string, ...any))                      {}
func (s *Kind) Warm(context.Context)                                               {}
func (s *Kind) Try(context.Context) error                                          { return nil }
func (s *Kind) Change(context.Context) error                                       { return nil }
func (s *Kind) Mend(_ context.Context, st unit.State, f error) (unit.State, error) { return st, f }

// Owners reads the target's device beside its mount.
func (s *Kind) Owners(ctx context.Context, blocks []int64) (*doubt.Owners, error) {
	dev, _, err := s.svc.On(s.cfg.Targets[0].Volume)
	if err != nil {
		return nil, err
	}
	return doubt.Ext4Owners(ctx, s.K, "/dev/"+dev, blocks)
}
