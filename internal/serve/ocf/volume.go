package ocf

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// VolumeGroup joins arrays or LUNs. LUNs can do without: then each of them
// carries one file system or target.
type VolumeGroup struct {
	VG string `json:"vg,omitempty"`
	// LV is the logical volume with the service's file system. Targets of
	// Lustre name their own.
	LV string `json:"lv,omitempty"`
	// SystemID is the LVM system ID the volume group has while no server serves
	// it (design.Storage.SystemID). A clean stop gives the group back to it;
	// empty: the group stays with the node that served it last.
	SystemID string `json:"system_id,omitempty"`
}

func (v VolumeGroup) check(f *faults) {
	if v.VG == "" {
		if v.LV != "" || v.SystemID != "" {
			f.add("lv %q and system_id %q are of a volume group, and vg is empty", v.LV, v.SystemID)
		}
		return
	}
	f.word("vg", v.VG)
	if v.LV != "" {
		f.word("lv", v.LV)
	}
	if v.SystemID != "" {
		f.word("system_id", v.SystemID)
	}
}

// volumeGroup are the service's volumes on its storage. Without a group each of them is a
// device.
type volumeGroup struct {
	*Host
	cfg     *Config
	storage storageKind
	volumes []string // that the service is on, see kind.names
	// dropCache takes down the remains of a cache that was turned off.
	dropCache func(context.Context) error
}

// BuildingID is the LVM system ID that a volume group has while apply builds
// it. The agent refuses it: apply may have the devices on another server.
func BuildingID(systemID string) string { return systemID + "-building" }

// called is what messages call a volume of the service.
func (s *volumeGroup) called(volume string) string {
	if s.cfg.VG != "" {
		return "volume " + s.cfg.VG + "/" + volume
	}
	if d, err := s.bare(volume); err == nil {
		return d.what
	}
	return volume
}

// bare is the device of a volume where there is no volume group.
func (s *volumeGroup) bare(volume string) (device, error) {
	all, err := s.storage.devices()
	for _, d := range all {
		if d.name == volume || volume == "" {
			return d, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("the storage has no %q", volume)
	}
	return device{}, err
}

// on finds what a volume's file system or target is on: the cache over the
// volume where there is one, also one that was turned off and passes everything
// on until the service stops; else the volume. It gives the device (dm-3) and
// its major:minor; "" if it is not there.
func (s *volumeGroup) on(volume string) (dev, devno string, err error) {
	if s.cfg.VG == "" {
		d, err := s.bare(volume)
		if err != nil || d.gone != nil {
			return "", "", err
		}
		dev = path.Base(d.path)
		return dev, s.line("/sys/block/" + dev + "/dev"), nil
	}
	names, err := s.k.ReadDir("/sys/block")
	if err != nil {
		return "", "", err
	}
	dev, devno = s.dm(names, s.cfg.VG+".cached")
	if dev == "" && s.cfg.Cache == "" {
		dev, devno = s.dm(names, linux.DMName(s.cfg.VG, volume))
	}
	return dev, devno, nil
}

// active says whether some, and whether all, of the service's logical volumes
// are there.
func (s *volumeGroup) active() (some, all bool, err error) {
	if s.cfg.VG == "" {
		return false, false, nil
	}
	names, err := s.k.ReadDir("/sys/block")
	if err != nil {
		return false, false, err
	}
	all = true
	for _, v := range s.volumes {
		dev, _ := s.dm(names, linux.DMName(s.cfg.VG, v))
		some, all = some || dev != "", all && dev != ""
	}
	return some, all, nil
}

func (s *volumeGroup) volumeState() (state, error) {
	names, err := s.k.ReadDir("/sys/block")
	if err != nil {
		return broken, err
	}
	up := 0
	var faults error
	for _, v := range s.volumes {
		switch dev, _ := s.dm(names, linux.DMName(s.cfg.VG, v)); {
		case dev == "":
			faults = errors.Join(faults, fmt.Errorf("logical volume %s/%s is not active", s.cfg.VG, v))
		case s.suspended(dev):
			return broken, fmt.Errorf("logical volume %s/%s is suspended", s.cfg.VG, v)
		default:
			up++
		}
	}
	switch {
	case up == 0 && !s.others(names):
		return stopped, nil
	case faults != nil:
		return broken, faults
	}
	return running, nil
}

// suspended tells whether a device stays suspended: one that is being extended is
// suspended for a moment.
func (s *volumeGroup) suspended(dev string) bool {
	for range 20 {
		if s.line("/sys/block/"+dev+"/dm/suspended") != "1" {
			return false
		}
		if s.k.Sleep(context.Background(), 100*time.Millisecond) != nil {
			break
		}
	}
	return true
}

// others says whether any logical volume of the volume group is active.
func (s *volumeGroup) others(blocks []string) bool {
	return slices.ContainsFunc(blocks, func(n string) bool {
		if !strings.HasPrefix(n, "dm-") {
			return false
		}
		lv, ok := strings.CutPrefix(s.line("/sys/block/"+n+"/dm/name"), linux.DMName(s.cfg.VG, ""))
		return ok && !strings.HasPrefix(lv, "-") // the next dash is part of another group's name
	})
}

// owner reads which server owns the volume group, from the newest metadata on its
// physical volumes. It may be the system ID of no server.
func (s *volumeGroup) owner() (string, error) {
	devices, err := s.storage.devices()
	if err != nil {
		return "", err
	}
	return s.ownerOf(devices)
}

// openedNote has the owner and the number of the metadata that the volume group has while
// its devices take writes here, and this server has not taken the group yet, or has given it
// back. It does not outlive a boot.
func (s *volumeGroup) openedNote() runNote { return s.runNote("opened", "") }

func openedText(owner string, seqno uint64) string { return fmt.Sprintf("%s %d\n", owner, seqno) }

// unfinished says whether devices that take writes here, without a volume, are what a start
// or a stop of this server has left that did not come to its end: no other server has taken the volume
// group since. Devices that this server has not opened since it booted, of a group at rest,
// another program has assembled: stopStrays stops them.
func (s *volumeGroup) unfinished(m *vgMeta) bool {
	text, there := s.openedNote().read()
	if !there {
		return m.SystemID == s.cfg.SystemID
	}
	return text == openedText(m.SystemID, m.Seqno)
}

// ownerOf is the system ID of the volume group on all of the storage's devices.
func (s *volumeGroup) ownerOf(devices []device) (string, error) {
	m, err := s.metaOf(devices)
	if err != nil {
		return "", err
	}
	return m.SystemID, nil
}

// metaOf is the newest metadata of the volume group on all of the storage's devices. A
// device that cannot be read is left out if there is another.
func (s *volumeGroup) metaOf(devices []device) (*vgMeta, error) {
	for _, d := range devices {
		if d.gone != nil {
			return nil, d.gone
		}
	}
	var best *vgMeta
	var errs []error
	for _, d := range devices {
		m, err := readVGMeta(func(off int64, n int) ([]byte, error) { return s.k.ReadBlocks(d.path, off, n) })
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.what, err))
			continue
		}
		if m.VG != s.cfg.VG {
			return nil, refuse(fmt.Errorf("%s carries volume group %s, not %s", d.what, m.VG, s.cfg.VG))
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

// opening notes whose the volume group is when its devices are let take writes.
func (s *volumeGroup) opening(m *vgMeta) error {
	if m.SystemID == s.host {
		return nil
	}
	return s.openedNote().write(openedText(m.SystemID, m.Seqno))
}

// mayTake refuses to take the volume group from an owner that is no node of the cluster.
func (s *volumeGroup) mayTake(owner string) error {
	if s.cfg.SystemID != "" && owner == BuildingID(s.cfg.SystemID) {
		return refuse(fmt.Errorf("volume group %s is under construction: mortar apply builds it on some server, or was cut short; run it again", s.cfg.VG))
	}
	if _, node := s.cfg.Nodes[owner]; !node && owner != "" && owner != s.cfg.SystemID {
		return refuse(fmt.Errorf("volume group %s is owned by %q, which is no node of this cluster (nodes: %s)", s.cfg.VG, owner, strings.Join(s.nodes(), ", ")))
	}
	return nil
}

func (s *volumeGroup) startVolume(ctx context.Context) error {
	devices, err := s.storage.devices()
	if err != nil {
		return err
	}
	m, err := s.metaOf(devices)
	if err != nil {
		return err
	}
	owner := m.SystemID
	_, up, err := s.active()
	if err != nil {
		return err
	}
	if up && owner == s.host {
		return nil
	}
	if err := s.mayTake(owner); err != nil {
		return err
	}
	if err := s.lvmConfig(); err != nil {
		return err
	}
	if err := s.opening(m); err != nil {
		return err
	}
	if err := s.storage.open(ctx); err != nil {
		return err
	}
	if owner != s.host {
		s.log.note("volume group %s: taking ownership from %q", s.cfg.VG, owner)
		if err := s.lvm(ctx, devices, owner, "vgchange", "--yes", "--quiet", "--systemid", s.host, s.cfg.VG); err != nil {
			return err
		}
	}
	if err := s.lvm(ctx, devices, "", "vgchange", "--quiet", "--activate", "y", s.cfg.VG); err != nil {
		return err
	}
	switch st, err := s.volumeState(); {
	case err != nil:
		return err
	case st != running:
		return fmt.Errorf("logical volume %s/%s is not there although vgchange activated it", s.cfg.VG, strings.Join(s.volumes, ", "))
	}
	if owner, err = s.ownerOf(devices); err != nil {
		return err
	}
	if owner != s.host {
		return fmt.Errorf("volume group %s is owned by %q although this host took it", s.cfg.VG, owner)
	}
	return nil
}

// lvmDir holds the only LVM configuration the agent's LVM commands read, so
// that neither /etc/lvm nor a devices file of the host can make them scan
// every path of every disk, or fail.
func (s *volumeGroup) lvmDir() string { return runDir + "/lvm-" + s.cfg.Service }

func (s *volumeGroup) lvmConfig() error {
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

// lvm runs an LVM command that sees the service's devices and nothing else,
// as this host and, for taking over, as the former owner.
func (s *volumeGroup) lvm(ctx context.Context, devices []device, former string, argv ...string) error {
	local := fmt.Sprintf("local { system_id = %q }", s.host)
	if former != "" {
		local = fmt.Sprintf("local { system_id = %q extra_system_ids = [ %q ] }", s.host, former)
	}
	cmd := []string{"lvm", argv[0], "--config", local}
	for _, d := range devices {
		if d.gone == nil {
			cmd = append(cmd, "--devices", d.path)
		}
	}
	_, err := s.k.Run(ctx, kernel.Command{Argv: append(cmd, argv[1:]...), Env: []string{"LVM_SYSTEM_DIR=" + s.lvmDir(), "LVM_SUPPRESS_FD_WARNINGS=1"}})
	return err
}

func (s *volumeGroup) stopVolume(ctx context.Context) error {
	devices, err := s.storage.devices()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(devices, func(d device) bool { return d.gone == nil }) {
		return nil
	}
	if err := s.dropCache(ctx); err != nil {
		return err
	}
	if err := s.lvmConfig(); err != nil {
		return err
	}
	if st, err := s.volumeState(); err != nil || st != stopped {
		if err := s.deactivate(ctx, devices); err != nil {
			return err
		}
	}
	if s.cfg.SystemID == "" {
		return nil
	}
	m, err := s.metaOf(devices)
	if err != nil || m.SystemID != s.host {
		// Nothing of ours to give back; the volume is inactive, which is what counts.
		if err != nil {
			s.log.note("volume group %s: owner not read: %v", s.cfg.VG, err)
		}
		return nil
	}
	// Each change of a volume group adds one to its number.
	// Source: lvm2, lib/metadata/metadata.c, vg_write
	if err := s.openedNote().write(openedText(s.cfg.SystemID, m.Seqno+1)); err != nil {
		s.log.note("%v", err)
	}
	if err := s.lvm(ctx, devices, "", "vgchange", "--yes", "--quiet", "--systemid", s.cfg.SystemID, s.cfg.VG); err != nil {
		s.log.note("volume group %s stays with %s: %v", s.cfg.VG, s.host, err)
	}
	return nil
}

func (s *volumeGroup) deactivate(ctx context.Context, devices []device) error {
	for try := 0; ; try++ {
		err := s.lvm(ctx, devices, "", "vgchange", "--quiet", "--activate", "n", s.cfg.VG)
		if err != nil {
			// LVM must read the disks for it, and they may be what is gone.
			// The device mapper need not, and refuses as well while the
			// volume is in use.
			for _, v := range append(slices.Clone(s.volumes), cache.HeaderLV) {
				if name := linux.DMName(s.cfg.VG, v); s.there(name) {
					_, derr := s.k.Run(ctx, kernel.Command{Argv: []string{"dmsetup", "remove", name}})
					err = errors.Join(err, derr)
				}
			}
		}
		st, serr := s.volumeState()
		if serr == nil && st == stopped {
			return nil
		}
		if try == 8 || s.k.Sleep(ctx, 250*time.Millisecond) != nil {
			return errors.Join(err, serr, fmt.Errorf("logical volume %s/%s is still active", s.cfg.VG, strings.Join(s.volumes, ", ")))
		}
	}
}
