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
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
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

func (v VolumeGroup) check(f *unit.Faults) {
	if v.VG == "" {
		if v.LV != "" || v.SystemID != "" {
			f.Add("lv %q and system_id %q are of a volume group, and vg is empty", v.LV, v.SystemID)
		}
		return
	}
	f.Word("vg", v.VG)
	if v.LV != "" {
		f.Word("lv", v.LV)
	}
	if v.SystemID != "" {
		f.Word("system_id", v.SystemID)
	}
}

// volumeGroup are the service's volumes on its storage. Without a group each of them is a
// device.
type volumeGroup struct {
	*unit.Host
	cfg     *Config
	storage storageKind
	volumes []string // that the service is on, see kind.names
	// dropCache takes down the remains of a cache that was turned off.
	dropCache func(context.Context) error
	// uncached says whether the service was started before its volume got a cache.
	uncached func() bool
}

// BuildingID is the LVM system ID that a volume group has while apply builds
// it. The agent refuses it: apply may have the devices on another server.
func BuildingID(systemID string) string { return systemID + "-building" }

// Called is what messages call a volume of the service.
func (s *volumeGroup) Called(volume string) string {
	if s.cfg.VG != "" {
		return "volume " + s.cfg.VG + "/" + volume
	}
	if d, err := s.bare(volume); err == nil {
		return d.What
	}
	return volume
}

// bare is the device of a volume where there is no volume group.
func (s *volumeGroup) bare(volume string) (unit.Device, error) {
	all, err := s.storage.Devices()
	for _, d := range all {
		if d.Name == volume || volume == "" {
			return d, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("the storage has no %q", volume)
	}
	return unit.Device{}, err
}

// On finds what a volume's file system or target is on: the cache over the
// volume where there is one, also one that was turned off and passes everything
// on until the service stops; else the volume. It gives the device (dm-3) and
// its major:minor; "" if it is not there.
func (s *volumeGroup) On(volume string) (dev, devno string, err error) {
	if s.cfg.VG == "" {
		d, err := s.bare(volume)
		if err != nil || d.Gone != nil {
			return "", "", err
		}
		dev = path.Base(d.Path)
		return dev, s.Line("/sys/block/" + dev + "/dev"), nil
	}
	names, err := s.K.ReadDir("/sys/block")
	if err != nil {
		return "", "", err
	}
	dev, devno = s.DM(names, s.cfg.VG+".cached")
	if dev == "" && (s.cfg.Cache == "" || s.uncached()) {
		dev, devno = s.DM(names, linux.DMName(s.cfg.VG, volume))
	}
	return dev, devno, nil
}

// Active says whether some, and whether all, of the service's logical volumes
// are there.
func (s *volumeGroup) Active() (some, all bool, err error) {
	if s.cfg.VG == "" {
		return false, false, nil
	}
	names, err := s.K.ReadDir("/sys/block")
	if err != nil {
		return false, false, err
	}
	all = true
	for _, v := range s.volumes {
		dev, _ := s.DM(names, linux.DMName(s.cfg.VG, v))
		some, all = some || dev != "", all && dev != ""
	}
	return some, all, nil
}

func (s *volumeGroup) volumeState() (unit.State, error) {
	names, err := s.K.ReadDir("/sys/block")
	if err != nil {
		return unit.Broken, err
	}
	up := 0
	var faults error
	for _, v := range s.volumes {
		switch dev, _ := s.DM(names, linux.DMName(s.cfg.VG, v)); {
		case dev == "":
			faults = errors.Join(faults, fmt.Errorf("logical volume %s/%s is not active", s.cfg.VG, v))
		case s.suspended(dev):
			return unit.Broken, fmt.Errorf("logical volume %s/%s is suspended", s.cfg.VG, v)
		default:
			up++
		}
	}
	switch {
	case up == 0 && !s.others(names):
		return unit.Stopped, nil
	case faults != nil:
		return unit.Broken, faults
	}
	return unit.Running, nil
}

// suspended tells whether a device stays suspended: one that is being extended is
// suspended for a moment.
func (s *volumeGroup) suspended(dev string) bool {
	for range 20 {
		if s.Line("/sys/block/"+dev+"/dm/suspended") != "1" {
			return false
		}
		if s.K.Sleep(context.Background(), 100*time.Millisecond) != nil {
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
		lv, ok := strings.CutPrefix(s.Line("/sys/block/"+n+"/dm/name"), linux.DMName(s.cfg.VG, ""))
		return ok && !strings.HasPrefix(lv, "-") // the next dash is part of another group's name
	})
}

// owner reads which server owns the volume group, from the newest metadata on its
// physical volumes. It may be the system ID of no server.
func (s *volumeGroup) owner() (string, error) {
	_, m, err := s.meta()
	if err != nil {
		return "", err
	}
	return m.SystemID, nil
}

// meta is metaOf of the storage's devices as they are now.
func (s *volumeGroup) meta() (devices []unit.Device, m *vgMeta, err error) {
	if devices, err = s.storage.Devices(); err == nil {
		m, err = s.metaOf(devices)
	}
	return devices, m, err
}

// openedNote has the owner and the number of the metadata that the volume group has while
// its devices take writes here, and this server has not taken the group yet, or has given it
// back. It does not outlive a boot.
func (s *volumeGroup) openedNote() unit.Note { return s.RunNote("opened", "") }

func openedText(owner string, seqno uint64) string { return fmt.Sprintf("%s %d\n", owner, seqno) }

// unfinished says whether devices that take writes here, without a volume, are what a start
// or a stop of this server has left that did not come to its end: no other server has taken the volume
// group since. Devices that this server has not opened since it booted, of a group at rest,
// another program has assembled: stopStrays stops them.
func (s *volumeGroup) unfinished(m *vgMeta) bool {
	text, there := s.openedNote().Read()
	if !there {
		return m.SystemID == s.cfg.SystemID
	}
	return text == openedText(m.SystemID, m.Seqno)
}

// metaOf is the newest metadata of the volume group on all of the storage's devices. A
// device that cannot be read is left out if there is another.
func (s *volumeGroup) metaOf(devices []unit.Device) (*vgMeta, error) {
	for _, d := range devices {
		if d.Gone != nil {
			return nil, d.Gone
		}
	}
	var best *vgMeta
	var errs []error
	for _, d := range devices {
		m, err := readVGMeta(func(off int64, n int) ([]byte, error) { return s.K.ReadBlocks(d.Path, off, n) })
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.What, err))
			continue
		}
		if m.VG != s.cfg.VG {
			return nil, refusal.New("other-vg", refusal.Args{"device": d.What, "vg": m.VG, "want": s.cfg.VG})
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
	if m.SystemID == s.Node {
		return nil
	}
	return s.openedNote().Write(openedText(m.SystemID, m.Seqno))
}

// mayTake refuses to take the volume group from an owner that is no node of the cluster.
func (s *volumeGroup) mayTake(owner string) error {
	if s.cfg.SystemID != "" && owner == BuildingID(s.cfg.SystemID) {
		return refusal.New("building", refusal.Args{"vg": s.cfg.VG})
	}
	if _, node := s.cfg.Nodes[owner]; !node && owner != "" && owner != s.cfg.SystemID {
		return refusal.New("foreign-owner", refusal.Args{"vg": s.cfg.VG, "owner": owner, "nodes": strings.Join(s.NodeNames(), ", ")})
	}
	return nil
}

func (s *volumeGroup) startVolume(ctx context.Context) error {
	devices, m, err := s.meta()
	if err != nil {
		return err
	}
	owner := m.SystemID
	_, up, err := s.Active()
	if err != nil {
		return err
	}
	if up && owner == s.Node {
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
	if err := s.storage.Open(ctx); err != nil {
		return err
	}
	if owner != s.Node {
		s.Log.Note("volume group %s: taking ownership from %q", s.cfg.VG, owner)
		if err := s.lvm(ctx, devices, owner, "vgchange", "--yes", "--quiet", "--systemid", s.Node, s.cfg.VG); err != nil {
			return err
		}
	}
	if err := s.lvm(ctx, devices, "", "vgchange", "--quiet", "--activate", "y", s.cfg.VG); err != nil {
		return err
	}
	switch st, err := s.volumeState(); {
	case err != nil:
		return err
	case st != unit.Running:
		return fmt.Errorf("logical volume %s/%s is not there although vgchange activated it", s.cfg.VG, strings.Join(s.volumes, ", "))
	}
	if m, err = s.metaOf(devices); err != nil {
		return err
	}
	if m.SystemID != s.Node {
		return fmt.Errorf("volume group %s is owned by %q although this host took it", s.cfg.VG, m.SystemID)
	}
	return nil
}

// lvmDir holds the only LVM configuration the agent's LVM commands read, so
// that neither /etc/lvm nor a devices file of the host can make them scan
// every path of every disk, or fail.
func (s *volumeGroup) lvmDir() string { return unit.RunDir + "/lvm-" + s.cfg.Service }

func (s *volumeGroup) lvmConfig() error {
	if err := s.K.Mkdir(s.lvmDir(), 0o755, 0, 0); err != nil {
		return err
	}
	return s.K.Save(s.lvmDir()+"/lvm.conf", lvmConf)
}

// lvm runs an LVM command that sees the service's devices and nothing else,
// as this host and, for taking over, as the former owner.
func (s *volumeGroup) lvm(ctx context.Context, devices []unit.Device, former string, argv ...string) error {
	local := fmt.Sprintf("local { system_id = %q }", s.Node)
	if former != "" {
		local = fmt.Sprintf("local { system_id = %q extra_system_ids = [ %q ] }", s.Node, former)
	}
	cmd := []string{"lvm", argv[0], "--config", local}
	for _, d := range devices {
		if d.Gone == nil {
			cmd = append(cmd, "--devices", d.Path)
		}
	}
	_, err := s.K.Run(ctx, kernel.Command{Argv: append(cmd, argv[1:]...), Env: []string{"LVM_SYSTEM_DIR=" + s.lvmDir(), "LVM_SUPPRESS_FD_WARNINGS=1"}})
	return err
}

func (s *volumeGroup) stopVolume(ctx context.Context) error {
	devices, err := s.storage.Devices()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(devices, func(d unit.Device) bool { return d.Gone == nil }) {
		return nil
	}
	if err := s.dropCache(ctx); err != nil {
		return err
	}
	if err := s.lvmConfig(); err != nil {
		return err
	}
	if st, err := s.volumeState(); err != nil || st != unit.Stopped {
		if err := s.deactivate(ctx, devices); err != nil {
			return err
		}
	}
	if s.cfg.SystemID == "" {
		return nil
	}
	m, err := s.metaOf(devices)
	if err != nil || m.SystemID != s.Node {
		// Nothing of ours to give back; the volume is inactive, which is what counts.
		if err != nil {
			s.Log.Note("volume group %s: owner not read: %v", s.cfg.VG, err)
		}
		return nil
	}
	// Each change of a volume group adds one to its number.
	// Source: lvm2, lib/metadata/metadata.c, vg_write
	s.Log.NoteErr(s.openedNote().Write(openedText(s.cfg.SystemID, m.Seqno+1)), "")
	if err := s.lvm(ctx, devices, "", "vgchange", "--yes", "--quiet", "--systemid", s.cfg.SystemID, s.cfg.VG); err != nil {
		s.Log.Note("volume group %s stays with %s: %v", s.cfg.VG, s.Node, err)
	}
	return nil
}

func (s *volumeGroup) deactivate(ctx context.Context, devices []unit.Device) error {
	for try := 0; ; try++ {
		err := s.lvm(ctx, devices, "", "vgchange", "--quiet", "--activate", "n", s.cfg.VG)
		if err != nil {
			// LVM must read the disks for it, and they may be what is gone.
			// The device mapper need not, and refuses as well while the
			// volume is in use.
			for _, v := range append(slices.Clone(s.volumes), cache.HeaderLV) {
				if name := linux.DMName(s.cfg.VG, v); s.there(name) {
					_, derr := s.K.Run(ctx, kernel.Command{Argv: []string{"dmsetup", "remove", name}})
					err = errors.Join(err, derr)
				}
			}
		}
		st, serr := s.volumeState()
		if serr == nil && st == unit.Stopped {
			return nil
		}
		if try == 8 || s.K.Sleep(ctx, 250*time.Millisecond) != nil {
			return errors.Join(err, serr, fmt.Errorf("logical volume %s/%s is still active", s.cfg.VG, strings.Join(s.volumes, ", ")))
		}
	}
}
