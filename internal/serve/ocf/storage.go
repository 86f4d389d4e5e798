package ocf

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// mdArray is an array as the running kernel has it.
type mdArray struct {
	linux.MDArray
	// Present tells of each slot whether md takes data from its member. It is
	// nil while none is missing.
	Present []bool
}

// tree lets package linux read the host.
type tree struct{ kernel }

func (t tree) List(dir string) ([]string, error) {
	names, err := t.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// arrays lists the md arrays of this host by UUID.
func (s *service) arrays() (map[string]mdArray, error) {
	found, err := linux.MDArrays(tree{s.k})
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
				if sb, err := s.superblock("/dev/" + d); err == nil {
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
func (s *service) inSync(a mdArray, also func(dev string) bool) []bool {
	members, err := linux.MDMembers(tree{s.k}, a.Dev)
	if err != nil {
		return make([]bool, a.RaidDisks)
	}
	return linux.MDPresent(a.RaidDisks, members, func(m linux.MDMember) bool { return also == nil || also(m.Dev) })
}

func (s *service) superblock(dev string) (*superblock, error) {
	b, err := s.k.ReadBlocks(dev, superblockOffset, superblockSize)
	if err != nil {
		return nil, err
	}
	return parseSuperblock(b)
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

// readOnly is the value of array_state in which md writes no superblock and
// starts no resync.
const readOnly = "readonly"

// complete says whether the members of an array hold all its data.
func (a mdArray) complete() error {
	if a.Degraded > 0 && md.CanLose(md.Level(a.Level), a.Layout, a.Present) < 0 {
		return fmt.Errorf("array %s lacks %d of %d members, more than %s can lose", a.Dev, a.Degraded, a.RaidDisks, a.Level)
	}
	return nil
}

func (s *service) arraysState() (state, error) {
	all, err := s.arrays()
	if err != nil {
		return broken, err
	}
	up := 0
	var first error
	for _, want := range s.cfg.Arrays {
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
		return stopped, nil
	case first != nil:
		return broken, first
	}
	return running, nil
}

// youngHost is the uptime below which missing members are waited for: after a
// power cut of the whole rack, disks may come up later than servers, and an
// array started without them would have to be rebuilt, or refused.
const (
	youngHost  = 3 * time.Minute
	memberWait = 20 * time.Second
)

// startArrays looks at the superblocks of all arrays before it assembles one,
// so that a refusal leaves everything as it was. It assembles read-only: who
// owns the volume is not known before the arrays can be read, and until then
// nothing may be written. startVolume opens them.
func (s *service) startArrays(ctx context.Context) error {
	if dev, _, err := s.volume(); err != nil || dev != "" {
		return errors.Join(err, s.wholeArrays()) // a start that is repeated
	}
	// Not earlier: members that come late come by udev.
	hold := sync.OnceFunc(func() { s.holdUdev(ctx) })
	// Somebody else has assembled what is there, from whatever members he took.
	if err := s.stopStrays(ctx, hold); err != nil {
		return err
	}
	verdicts := make([]verdict, len(s.cfg.Arrays))
	for i, want := range s.cfg.Arrays {
		var err error
		if verdicts[i], err = s.look(ctx, want); err != nil {
			return &refusal{err}
		}
		for _, n := range verdicts[i].Notes {
			s.log.note("array %s: %s", want.Name, n)
		}
	}
	hold()
	for i, want := range s.cfg.Arrays {
		if err := s.assemble(ctx, want, verdicts[i]); err != nil {
			return err
		}
	}
	return s.wholeArrays()
}

// stopStrays stops arrays of the service on which no volume is active.
func (s *service) stopStrays(ctx context.Context, hold func()) error {
	all, err := s.arrays()
	if err != nil {
		return err
	}
	for _, a := range s.ours(all) {
		hold()
		s.log.note("array %s was assembled (%s) without its volume: it is stopped and judged by its superblocks", a.Dev, a.State)
		if _, err := s.k.Run(ctx, command{argv: []string{"mdadm", "--stop", "/dev/" + a.Dev}}); err != nil {
			return err
		}
	}
	return nil
}

// wholeArrays checks that all arrays are assembled with enough members.
func (s *service) wholeArrays() error {
	all, err := s.arrays()
	if err != nil {
		return err
	}
	for _, want := range s.cfg.Arrays {
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
			s.log.note("array %s (%s) runs without %d of its %d members", want.Name, a.Dev, a.Degraded, a.RaidDisks)
		}
	}
	return nil
}

// openArrays lets md write to arrays that startArrays assembled.
func (s *service) openArrays(ctx context.Context, all map[string]mdArray) error {
	s.holdSync(all) // before it could begin
	for _, a := range s.ours(all) {
		if a.State != readOnly {
			continue
		}
		if _, err := s.k.Run(ctx, command{argv: []string{"mdadm", "--readwrite", "/dev/" + a.Dev}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) assemble(ctx context.Context, a Array, v verdict) error {
	if v.DirtyDegraded {
		const param = "/sys/module/md_mod/parameters/start_dirty_degraded"
		s.log.note("array %s is started dirty and degraded, as dirty_degraded says", a.Name)
		if err := s.k.Poke(param, "1\n"); err != nil {
			return err
		}
		defer s.k.Poke(param, "0\n")
	}
	// --run: the judgement of how few members are enough is made already; it
	// does not take members that are out of date, as --force would.
	argv := []string{"mdadm", "--assemble", "/dev/md/" + a.Name, "--uuid=" + md.UUID(a.UUID), "--run", "--readonly", "--quiet"}
	// MDADM_NO_UDEV: mdadm makes its link itself instead of waiting for udev,
	// which is held meanwhile. Source: mdadm(8), environment.
	_, err := s.k.Run(ctx, command{argv: append(argv, v.Members...), env: []string{"MDADM_NO_UDEV=1"}})
	return err
}

// look reads the superblocks of all members, waiting for late ones on a host
// that has just booted, and judges.
func (s *service) look(ctx context.Context, a Array) (verdict, error) {
	end := time.Duration(0)
	if up := s.uptime(); up < youngHost {
		end = memberWait
	}
	for waited := time.Duration(0); ; waited += 250 * time.Millisecond {
		var members []member
		seen := map[string]bool{}
		for _, name := range a.Members {
			m := member{Dev: name}
			real, err := s.k.Realpath(name)
			if err == nil && seen[real] {
				continue
			}
			if err == nil {
				seen[real] = true
				m.SB, err = s.superblock(real)
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = errors.New("not there")
			}
			m.Err = err
			members = append(members, m)
		}
		v, err := judge(a, members, s.cfg.DirtyDegraded)
		if (err == nil && v.Missing == 0) || waited >= end {
			return v, err
		}
		if s.k.Sleep(ctx, 250*time.Millisecond) != nil {
			return v, err
		}
	}
}

func (s *service) stopArrays(ctx context.Context) error {
	all, err := s.arrays()
	if err != nil {
		return err
	}
	argv := []string{"mdadm", "--stop", "--quiet"}
	for _, want := range s.cfg.Arrays {
		if a, ok := all[md.Hex(want.UUID)]; ok {
			argv = append(argv, "/dev/"+a.Dev)
		}
	}
	if len(argv) == 3 {
		return nil
	}
	// udev may hold an array open for a moment after its last user is gone.
	for try := 0; ; try++ {
		_, err = s.k.Run(ctx, command{argv: argv})
		if st, serr := s.arraysState(); serr == nil && st == stopped {
			return nil
		}
		if try == 20 || s.k.Sleep(ctx, 250*time.Millisecond) != nil {
			if err == nil {
				err = errors.New("arrays are still assembled after mdadm --stop")
			}
			return err
		}
	}
}

// dmName is the device mapper's name of a logical volume.
// Source: lvm(8), dashes are doubled.
func dmName(vg, lv string) string {
	esc := func(s string) string { return strings.ReplaceAll(s, "-", "--") }
	return esc(vg) + "-" + esc(lv)
}

// volume finds the active logical volume: its device (dm-3) and major:minor.
func (s *service) volume() (dev, devno string, err error) {
	names, err := s.k.ReadDir("/sys/block")
	if err != nil {
		return "", "", err
	}
	dev, devno = s.dm(names, dmName(s.cfg.VG, s.cfg.LV))
	return dev, devno, nil
}

// mounted finds what the file system is on: the cache over the volume where
// there is one, also one that was turned off and passes everything on until
// the service stops; else the volume.
func (s *service) mounted() (dev, devno string, err error) {
	names, err := s.k.ReadDir("/sys/block")
	if err != nil {
		return "", "", err
	}
	dev, devno = s.dm(names, s.cfg.VG+".cached")
	if dev == "" && s.cfg.Cache == "" {
		dev, devno = s.dm(names, dmName(s.cfg.VG, s.cfg.LV))
	}
	return dev, devno, nil
}

// dm finds a device of the device mapper by name.
func (s *service) dm(blocks []string, want string) (dev, devno string) {
	for _, n := range blocks {
		if strings.HasPrefix(n, "dm-") && s.line("/sys/block/"+n+"/dm/name") == want {
			return n, s.line("/sys/block/" + n + "/dev")
		}
	}
	return "", ""
}

func (s *service) volumeState() (state, error) {
	dev, _, err := s.volume()
	if err != nil {
		return broken, err
	}
	if dev == "" {
		return stopped, nil
	}
	if s.line("/sys/block/"+dev+"/dm/suspended") == "1" {
		return broken, fmt.Errorf("logical volume %s/%s is suspended", s.cfg.VG, s.cfg.LV)
	}
	return running, nil
}

// owner reads who owns the volume group, from the newest metadata on its
// physical volumes.
func (s *service) owner() (*vgMeta, error) {
	all, err := s.arrays()
	if err != nil {
		return nil, err
	}
	var best *vgMeta
	var errs []error
	for _, want := range s.cfg.Arrays {
		a, ok := all[md.Hex(want.UUID)]
		if !ok {
			return nil, fmt.Errorf("array %s is not assembled", want.Name)
		}
		m, err := readVGMeta(func(off int64, n int) ([]byte, error) { return s.k.ReadBlocks("/dev/"+a.Dev, off, n) })
		if err != nil {
			errs = append(errs, fmt.Errorf("array %s: %w", want.Name, err))
			continue
		}
		if m.VG != s.cfg.VG {
			return nil, &refusal{fmt.Errorf("array %s carries volume group %s, not %s", want.Name, m.VG, s.cfg.VG)}
		}
		if best == nil || m.Seqno > best.Seqno {
			best = m
		}
	}
	if best == nil {
		return nil, errors.Join(errs...)
	}
	return best, nil
}

func (s *service) startVolume(ctx context.Context) error {
	m, err := s.owner()
	if err != nil {
		return err
	}
	dev, _, err := s.volume()
	if err != nil {
		return err
	}
	if dev != "" && m.SystemID == s.host {
		return nil
	}
	if s.cfg.SystemID != "" && m.SystemID == BuildingID(s.cfg.SystemID) {
		return &refusal{fmt.Errorf("volume group %s is under construction: mortar apply builds it on some server, or was cut short; run it again", s.cfg.VG)}
	}
	known := m.SystemID == "" || m.SystemID == s.cfg.SystemID
	for n := range s.cfg.Nodes {
		known = known || m.SystemID == n
	}
	if !known {
		return &refusal{fmt.Errorf("volume group %s is owned by %q, which is no node of this cluster (nodes: %s)", s.cfg.VG, m.SystemID, strings.Join(s.nodes(), ", "))}
	}
	if err := s.lvmConfig(); err != nil {
		return err
	}
	all, err := s.arrays()
	if err != nil {
		return err
	}
	if err := s.openArrays(ctx, all); err != nil {
		return err
	}
	if m.SystemID != s.host {
		s.log.note("volume group %s: taking ownership from %q", s.cfg.VG, m.SystemID)
		if err := s.lvm(ctx, all, m.SystemID, "vgchange", "--yes", "--quiet", "--systemid", s.host, s.cfg.VG); err != nil {
			return err
		}
	}
	if err := s.lvm(ctx, all, "", "vgchange", "--quiet", "--activate", "y", s.cfg.VG); err != nil {
		return err
	}
	switch st, err := s.volumeState(); {
	case err != nil:
		return err
	case st != running:
		return fmt.Errorf("logical volume %s/%s is not there although vgchange activated it", s.cfg.VG, s.cfg.LV)
	}
	m, err = s.owner()
	if err != nil {
		return err
	}
	if m.SystemID != s.host {
		return fmt.Errorf("volume group %s is owned by %q although this host took it", s.cfg.VG, m.SystemID)
	}
	return nil
}

// lvmDir holds the only LVM configuration the agent's LVM commands read, so
// that neither /etc/lvm nor a devices file of the host can make them scan
// every path of every disk, or fail.
func (s *service) lvmDir() string { return runDir + "/lvm-" + s.cfg.Service }

func (s *service) lvmConfig() error {
	if err := s.k.Mkdir(s.lvmDir(), 0o755, 0, 0); err != nil {
		return err
	}
	return s.k.Save(s.lvmDir()+"/lvm.conf", []byte(`# Written by ocf:mortar:service at each start; read by its LVM commands only.
devices {
	use_devicesfile = 0
	obtain_device_list_from_udev = 0
	external_device_info_source = "none"
	md_component_detection = 0
	multipath_component_detection = 0
	hints = "none"
}
global {
	system_id_source = "lvmlocal"
	event_activation = 0
	use_lvmlockd = 0
	use_lvmpolld = 0
}
activation {
	monitoring = 0
	# The kernel's device is there at once; nothing here waits for udev's links.
	udev_sync = 0
}
backup { backup = 0 archive = 0 }
`))
}

// lvm runs an LVM command that sees the service's arrays and nothing else,
// as this host and, for taking over, as the former owner.
func (s *service) lvm(ctx context.Context, all map[string]mdArray, former string, argv ...string) error {
	local := fmt.Sprintf("local { system_id = %q }", s.host)
	if former != "" {
		local = fmt.Sprintf("local { system_id = %q extra_system_ids = [ %q ] }", s.host, former)
	}
	cmd := []string{"lvm", argv[0], "--config", local}
	for _, want := range s.cfg.Arrays {
		if a, ok := all[md.Hex(want.UUID)]; ok {
			cmd = append(cmd, "--devices", "/dev/"+a.Dev)
		}
	}
	_, err := s.k.Run(ctx, command{argv: append(cmd, argv[1:]...), env: []string{"LVM_SYSTEM_DIR=" + s.lvmDir(), "LVM_SUPPRESS_FD_WARNINGS=1"}})
	return err
}

func (s *service) stopVolume(ctx context.Context) error {
	all, err := s.arrays()
	if err != nil {
		return err
	}
	if len(s.ours(all)) == 0 {
		return nil
	}
	if err := s.dropCache(ctx); err != nil {
		return err
	}
	if err := s.lvmConfig(); err != nil {
		return err
	}
	st, err := s.volumeState()
	if err != nil || st != stopped {
		for try := 0; ; try++ {
			err = s.lvm(ctx, all, "", "vgchange", "--quiet", "--activate", "n", s.cfg.VG)
			if err != nil {
				// LVM must read the disks for it, and they may be what is gone.
				// The device mapper need not, and refuses as well while the
				// volume is in use.
				_, derr := s.k.Run(ctx, command{argv: []string{"dmsetup", "remove", dmName(s.cfg.VG, s.cfg.LV)}})
				err = errors.Join(err, derr)
				if h := dmName(s.cfg.VG, cache.HeaderLV); s.there(h) {
					_, derr := s.k.Run(ctx, command{argv: []string{"dmsetup", "remove", h}})
					err = errors.Join(err, derr)
				}
			}
			st, serr := s.volumeState()
			if serr == nil && st == stopped {
				break
			}
			if try == 8 || s.k.Sleep(ctx, 250*time.Millisecond) != nil {
				return errors.Join(err, serr, fmt.Errorf("logical volume %s/%s is still active", s.cfg.VG, s.cfg.LV))
			}
		}
	}
	if s.cfg.SystemID == "" {
		return nil
	}
	m, err := s.owner()
	if err != nil || m.SystemID != s.host {
		// Nothing of ours to give back; the volume is inactive, which is what counts.
		if err != nil {
			s.log.note("volume group %s: owner not read: %v", s.cfg.VG, err)
		}
		return nil
	}
	if err := s.lvm(ctx, all, "", "vgchange", "--yes", "--quiet", "--systemid", s.cfg.SystemID, s.cfg.VG); err != nil {
		s.log.note("volume group %s stays with %s: %v", s.cfg.VG, s.host, err)
	}
	return nil
}

// ours are the arrays of the service that are assembled.
func (s *service) ours(all map[string]mdArray) []mdArray {
	var out []mdArray
	for _, want := range s.cfg.Arrays {
		if a, ok := all[md.Hex(want.UUID)]; ok {
			out = append(out, a)
		}
	}
	return out
}

func (s *service) mounts() ([]linux.Mount, error) {
	b, err := s.k.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return linux.ParseMountInfo(string(b)), nil
}

// mountedAt is the uppermost mount at a path; nil for none.
func mountedAt(all []linux.Mount, target string) *linux.Mount {
	if m, ok := linux.MountAt(all, target); ok {
		return &m
	}
	return nil
}

func (s *service) mountState() (state, error) {
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
	if !slices.Contains(m.Options, "rw") || slices.Contains(m.Super, "ro") {
		return broken, fmt.Errorf("%s is mounted read-only", s.cfg.MountPoint)
	}
	if err := s.k.Access(s.cfg.MountPoint); err != nil {
		return broken, fmt.Errorf("file system on %s: %w", s.cfg.MountPoint, err)
	}
	return running, nil
}

func (s *service) startMount(ctx context.Context) error {
	st, err := s.mountState()
	if err != nil || st == running {
		return err
	}
	dev, devno, err := s.mounted()
	if err != nil {
		return err
	}
	if dev == "" {
		return fmt.Errorf("logical volume %s/%s is not active", s.cfg.VG, s.cfg.LV)
	}
	if err := s.noCache(); err != nil {
		return err
	}
	all, err := s.mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Dev == devno {
			return &refusal{fmt.Errorf("volume %s/%s is mounted on %s already", s.cfg.VG, s.cfg.LV, m.Target)}
		}
		if m.Target == s.cfg.MountPoint {
			return &refusal{fmt.Errorf("%s (%s) is mounted on %s already", m.Source, m.Type, m.Target)}
		}
	}
	sb, err := s.k.ReadBlocks("/dev/"+dev, 0, 4096)
	if err != nil {
		return err
	}
	// Source: struct xfs_dsb, xfs_format.h: magic at 0, UUID at 32.
	if string(sb[:4]) != "XFSB" {
		return &refusal{fmt.Errorf("no XFS on volume %s/%s", s.cfg.VG, s.cfg.LV)}
	}
	if got := hex.EncodeToString(sb[32:48]); got != md.Hex(s.cfg.FSUUID) {
		return &refusal{fmt.Errorf("the file system on volume %s/%s has UUID %s, not %s", s.cfg.VG, s.cfg.LV, got, md.Hex(s.cfg.FSUUID))}
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

// volumePath is the name the volume is mounted by, which users then see. udev
// makes it too, the same, but later.
func (s *service) volumePath(dev string) string {
	name := "/dev/mapper/" + s.line("/sys/block/"+dev+"/dm/name")
	if real, err := s.k.Realpath(name); err == nil && real == "/dev/"+dev {
		return name
	}
	if err := s.k.Symlink("../"+dev, name); err != nil {
		s.log.note("%s: %v", name, err)
		return "/dev/" + dev
	}
	return name
}

// mountOptions splits options as mount(8) does: flags of mount(2) and those
// the file system reads itself. What only mount(8) or systemd reads is left
// out.
func mountOptions(opts []string) (flags uintptr, data string) {
	set := map[string]uintptr{
		"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
		"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME, "nosuid": unix.MS_NOSUID,
		"nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	}
	var rest []string
	for _, o := range opts {
		switch {
		case set[o] != 0:
			flags |= set[o]
		case o == "defaults", o == "rw", o == "auto", o == "noauto", o == "nofail", o == "_netdev", strings.HasPrefix(o, "x-"), o == "":
		default:
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}

// stopMount unmounts every mount of the volume. Whoever still uses it is told
// to end, then killed. It never unmounts lazily: the file system would stay
// alive, and write, while the partner mounts it.
func (s *service) stopMount(ctx context.Context) error {
	dev, devno, err := s.mounted()
	if err != nil {
		return err
	}
	if dev == "" {
		return nil // without the device no mount of it can be alive
	}
	start := s.now()
	for {
		all, err := s.mounts()
		if err != nil {
			return err
		}
		var ours []string
		top := mountedAt(all, s.cfg.MountPoint)
		for _, m := range all {
			// Also what was mounted by hand below the mount point.
			if m.Dev == devno || (top != nil && top.Dev == devno && below(s.cfg.MountPoint, m.Target)) {
				ours = append(ours, m.Target)
			}
		}
		if len(ours) == 0 {
			break
		}
		var last error
		progress := false
		for i := len(ours) - 1; i >= 0; i-- {
			if err := s.k.Unmount(ours[i]); err != nil {
				last = fmt.Errorf("umount %s: %w", ours[i], err)
			} else {
				progress = true
			}
		}
		if progress {
			continue
		}
		if !errors.Is(last, unix.EBUSY) {
			return last
		}
		waited := s.now().Sub(start)
		users := s.users(devno)
		if ctx.Err() != nil || waited > s.patience(ctx) {
			return fmt.Errorf("%w; used by %s", last, describe(users))
		}
		// One round of asking; from then on insist.
		sig := unix.SIGTERM
		if waited > 2*time.Second {
			sig = unix.SIGKILL
		}
		for _, u := range users {
			s.log.note("%s is busy: signal %d to process %d (%s)", s.cfg.MountPoint, sig, u.pid, u.name)
			if err := s.k.Kill(u.pid, sig); err != nil {
				s.log.note("process %d: %v", u.pid, err)
			}
		}
		if s.k.Sleep(ctx, 500*time.Millisecond) != nil {
			return fmt.Errorf("%w; used by %s", last, describe(users))
		}
	}
	// A mount in another namespace keeps the file system alive although it is
	// gone from ours; and the kernel ends one, with what nfsd knew of it, some
	// time after its last process.
	for start = s.now(); ; {
		if _, err := s.k.ReadDir("/sys/fs/xfs/" + dev); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if s.now().Sub(start) > s.patience(ctx) || s.k.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the file system of %s is still active on %s: mounted in another mount namespace?", s.cfg.MountPoint, dev)
		}
	}
}

// user is a process that uses a file system.
type user struct {
	pid  int
	name string
}

func describe(users []user) string {
	if len(users) == 0 {
		return "no process that can be found"
	}
	var out []string
	for _, u := range users {
		out = append(out, fmt.Sprintf("%d (%s)", u.pid, u.name))
	}
	return strings.Join(out, ", ")
}

// users finds the processes with a working directory, root, program, open or
// mapped file on a file system, as fuser -m does.
func (s *service) users(devno string) []user {
	all, err := s.mounts()
	if err != nil {
		return nil
	}
	var roots []string
	for _, m := range all {
		if m.Dev == devno {
			roots = append(roots, m.Target)
		}
	}
	on := func(p string) bool {
		p = strings.TrimSuffix(p, " (deleted)")
		for _, r := range roots {
			if p == r || below(r, p) {
				return true
			}
		}
		return false
	}
	var out []user
	for _, pid := range s.pids() {
		if pid == s.self || pid == 1 {
			continue
		}
		dir := "/proc/" + strconv.Itoa(pid) + "/"
		used := false
		for _, l := range []string{"cwd", "root", "exe"} {
			if t, err := s.k.Readlink(dir + l); err == nil && on(t) {
				used = true
			}
		}
		if fds, err := s.k.ReadDir(dir + "fd"); err == nil && !used {
			for _, fd := range fds {
				if t, err := s.k.Readlink(dir + "fd/" + fd); err == nil && on(t) {
					used = true
					break
				}
			}
		}
		if !used {
			maps, _ := s.k.ReadFile(dir + "maps")
			for line := range strings.SplitSeq(string(maps), "\n") {
				if f := strings.Fields(line); len(f) >= 6 && on(strings.Join(f[5:], " ")) {
					used = true
					break
				}
			}
		}
		if used {
			out = append(out, user{pid, s.line(dir + "comm")})
		}
	}
	return out
}

// pids lists all processes.
func (s *service) pids() []int {
	names, _ := s.k.ReadDir("/proc")
	var out []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	sort.Ints(out)
	return out
}

// line is the first line of a small file, "" if it cannot be read.
func (s *service) line(p string) string {
	b, err := s.k.ReadFile(path.Clean(p))
	if err != nil {
		return ""
	}
	l, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(l)
}

// number is the number at the start of a small file, 0 if there is none.
func (s *service) number(p string) int {
	f := strings.Fields(s.line(p))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(f[0])
	return n
}

func (s *service) uptime() time.Duration {
	f := strings.Fields(s.line("/proc/uptime"))
	if len(f) == 0 {
		return time.Hour
	}
	sec, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return time.Hour
	}
	return time.Duration(sec * float64(time.Second))
}
