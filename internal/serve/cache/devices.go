package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// system is what the stack needs of package kernel.
type system interface {
	linux.Tree
	Realpath(path string) (string, error)
	Poke(path, data string) error
	Save(path string, data []byte) error
	Mkdir(path string, mode uint32, uid, gid int) error
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error
	ReadBlocks(dev string, off int64, n int) ([]byte, error)
	ReadPast(ctx context.Context, dev string, off, step int64, n int) error
	WriteBlocks(dev string, off int64, data []byte) error
	Claimed(dev string) bool
	Lock(ctx context.Context, dev string) (unlock func(), err error)
	Run(ctx context.Context, c kernel.Command) (string, error)
	Hostname() (string, error)
}

// host is the devices of a server: of sysfs, the device mapper, md and bcache.
type host struct {
	sys  system
	note func(format string, a ...any) // writes to the log
}

// run runs a command, which Pacemaker, or the agent of package host, kills together with
// this process.
func (s *host) run(ctx context.Context, stdin string, argv ...string) (string, error) {
	// MDADM_NO_UDEV: mdadm makes its links itself and does not wait for udev, whose
	// queue the resource agent stops during a start. Source: mdadm(8).
	return s.sys.Run(ctx, kernel.Command{Argv: argv, Stdin: stdin, Env: []string{"MDADM_NO_UDEV=1"}, Together: true, Limit: kernel.WholeOutput})
}

// name is the host's name, which is its node name in the cluster.
func (s *host) name() string {
	n, _ := s.sys.Hostname()
	return n
}

// keep writes a file of /run.
func (s *host) keep(file string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = s.sys.Mkdir(path.Dir(file), 0, -1, -1)
	}
	if err == nil {
		err = s.sys.Save(file, b)
	}
	return err
}

func (s *host) line(p string) string { return linux.Line(s.sys, p) }

func (s *host) exists(p string) bool {
	_, err := s.sys.ReadDir(p)
	return err == nil
}

// list returns the sorted names in a directory; none if it does not exist.
func (s *host) list(p string) []string {
	names, _ := s.sys.ReadDir(p)
	return names
}

// dm finds a device of the device mapper by its name: dm-3, or "".
func (s *host) dm(name string) string {
	for _, n := range s.list("/sys/block") {
		if strings.HasPrefix(n, "dm-") && s.line("/sys/block/"+n+"/dm/name") == name {
			return n
		}
	}
	return ""
}

// sectors is a device's size in sectors of 512 bytes.
func (s *host) sectors(dev string) int64 { return s.number("/sys/class/block/" + dev + "/size") }

// linked is the name of what a link of bcache leads to, "" if there is no link.
func (s *host) linked(p string) string {
	to, err := s.sys.Realpath(p)
	if err != nil {
		return ""
	}
	return path.Base(to)
}

// over finds the bcache device that runs with dev as its backing device, or "".
func (s *host) over(dev string) string { return s.linked("/sys/class/block/" + dev + "/bcache/dev") }

// array is an md array of the running kernel.
type array struct {
	linux.MDArray
	Sync string // sync_action
	Done string // sync_completed
}

func (s *host) arrays() []array {
	found, err := linux.MDArrays(s.sys)
	if err != nil {
		return nil // harmless: mdadm refuses to assemble a running array
	}
	var out []array
	for _, f := range found {
		dir := "/sys/block/" + f.Dev + "/md/"
		if strings.Trim(f.UUID, "0") == "" {
			f.UUID = s.uuidOf(f.Members) // it does not run
		}
		if f.State != "clear" {
			out = append(out, array{f, s.line(dir + "sync_action"), s.line(dir + "sync_completed")})
		}
	}
	return out
}

// uuidOf is the UUID of an array by the superblocks of its members.
func (s *host) uuidOf(members []string) string {
	for _, m := range members {
		b, err := s.sys.ReadBlocks("/dev/"+m, md.SuperblockOffset, md.SuperblockSize)
		if err != nil {
			continue
		}
		if sb, err := md.ParseSuperblock(b); err == nil {
			return sb.UUID
		}
	}
	return ""
}

func (s *host) array(uuid string) *array {
	return lists.Find(s.arrays(), func(a *array) bool { return a.UUID == md.Hex(uuid) })
}

// inSync returns the serials of an array's members that are in sync.
func (s *parts) inSync(a *array) []string {
	by := map[string]string{}
	for serial, d := range s.ssds() {
		for _, p := range s.partitions(d) {
			by[p] = serial
		}
	}
	members, err := linux.MDMembers(s.sys, a.Dev)
	if err != nil {
		return nil
	}
	var out []string
	for _, m := range members {
		if m.Is("in_sync") && !m.Is("faulty") && by[m.Dev] != "" {
			out = append(out, by[m.Dev])
		}
	}
	slices.Sort(out)
	return out
}

// ssds finds the SSDs of the config that are present. It maps serials to kernel names
// of whole devices (nvme0n1, or dm-4 for a multipath map).
func (s *parts) ssds() map[string]string {
	found := map[string]string{}
	for serial, devs := range s.devices() {
		for _, w := range s.cfg.SSDs {
			if strings.EqualFold(w.Serial, serial) {
				found[w.Serial] = devs[0]
			}
		}
		// Include SSDs of the label, which may have to leave the cache.
		if l := s.label; l != nil && found[serial] == "" && (slices.Contains(l.SSDs, serial) || l.Dirty != nil && slices.Contains(l.Dirty.Members, serial)) {
			found[serial] = devs[0]
		}
	}
	return found
}

// devices lists whole devices by serial. A serial may have several devices, such as
// the namespaces of an NVMe drive.
func (s *host) devices() map[string][]string {
	all := map[string][]string{}
	for _, n := range s.list("/sys/block") {
		if !strings.HasPrefix(n, "nvme") && !strings.HasPrefix(n, "sd") {
			continue
		}
		serial := linux.DiskSerial(s.sys, n)
		if serial == "" || s.sectors(n) == 0 {
			continue
		}
		for _, h := range s.list("/sys/block/" + n + "/holders") {
			if strings.HasPrefix(s.line("/sys/block/"+h+"/dm/uuid"), "mpath-") {
				n = h
			}
		}
		if !slices.Contains(all[serial], n) {
			all[serial] = append(all[serial], n)
		}
	}
	return all
}

// partitions returns the partitions of a whole device, by number: the kernel's, or
// those of kpartx on a multipath map.
func (s *host) partitions(dev string) map[int]string {
	out := map[int]string{}
	for _, n := range s.list("/sys/block/" + dev) {
		if i, err := strconv.Atoi(s.line("/sys/block/" + dev + "/" + n + "/partition")); err == nil {
			out[i] = n
		}
	}
	for _, h := range s.list("/sys/block/" + dev + "/holders") {
		u, ok := strings.CutPrefix(s.line("/sys/block/"+h+"/dm/uuid"), "part")
		if n, _, cut := strings.Cut(u, "-"); ok && cut {
			if i, err := strconv.Atoi(n); err == nil {
				out[i] = h
			}
		}
	}
	return out
}

// wait polls until done returns true. It fails after most; the error names what.
func (s *host) wait(ctx context.Context, most time.Duration, what string, done func() bool) error {
	const step = 50 * time.Millisecond
	// By the clock: a look takes time as well.
	for end := s.sys.Now().Add(most); ; {
		if done() {
			return nil
		}
		if !s.sys.Now().Before(end) {
			return fmt.Errorf("%s: not within %s", what, most)
		}
		if err := s.sys.Sleep(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// register hands a device to bcache. Source: Documentation/admin-guide/bcache.rst
func (s *host) register(dev string) error {
	if err := s.sys.Poke("/sys/fs/bcache/register", "/dev/"+dev+"\n"); err != nil {
		return fmt.Errorf("bcache does not take %s: %w (see the kernel's log)", dev, err)
	}
	return nil
}

// backing reads bcache's superblock of a backing device.
func (s *host) backing(dev string) (*superblock, error) {
	b, err := s.sys.ReadBlocks("/dev/"+dev, 4096, 4096)
	if err != nil {
		return nil, err
	}
	return parseSuperblock(b)
}

// header is the device of the header volume. It is an error if there is none.
func (s *parts) header() (string, error) {
	d := s.dm(linux.DMName(s.cfg.VG, HeaderLV))
	if d == "" {
		return "", fmt.Errorf("volume %s/%s is not active: %w", s.cfg.VG, HeaderLV, fs.ErrNotExist)
	}
	return "/dev/" + d, nil
}

// readLabel reads the label from the disks into s.label, which is nil if the volume
// never had a cache.
func (s *parts) readLabel() error {
	l, err := s.labelOnDisk()
	if err != nil {
		return err
	}
	s.label = l
	return nil
}

func (s *parts) labelOnDisk() (*Label, error) {
	dev, err := s.header()
	if err != nil {
		return nil, err
	}
	var c [2][]byte
	for i, off := range labelOffsets {
		if c[i], err = s.sys.ReadBlocks(dev, off, labelSize); err != nil {
			return nil, fmt.Errorf("label of the cache: %w", err)
		}
	}
	l, err := newest(c[0], c[1])
	if errors.Is(err, errNoLabel) {
		return nil, nil
	}
	return l, err
}

// writeLabel writes the label in memory to the disks. The caller holds the service's
// lock, and has read the label since it has it: the agent, or locked.
func (s *parts) writeLabel() error {
	dev, err := s.header()
	if err != nil {
		return err
	}
	s.label.Sequence++
	b, err := s.label.encode()
	if err != nil {
		return err
	}
	return s.sys.WriteBlocks(dev, labelOffsets[s.label.Sequence%2], b)
}

// remove removes a device of the device mapper if it exists.
func (s *host) remove(ctx context.Context, name string) error {
	if s.dm(name) == "" {
		return nil
	}
	return s.untilGone(ctx, func() bool { return s.dm(name) == "" }, "dmsetup", "--noudevsync", "remove", name)
}

// untilGone repeats a command that fails as long as something has the device open.
func (s *host) untilGone(ctx context.Context, gone func() bool, argv ...string) (err error) {
	for range 20 {
		if _, err = s.run(ctx, "", argv...); err == nil || gone() {
			return nil
		}
		if s.sys.Sleep(ctx, 250*time.Millisecond) != nil {
			break
		}
	}
	return err
}

// linear makes a device of the device mapper unless it exists.
func (s *host) linear(ctx context.Context, name, table string) error {
	if s.dm(name) != "" {
		return nil
	}
	_, err := s.run(ctx, table, "dmsetup", "--noudevsync", "create", name)
	return err
}

func (s *host) devno(dev string) string {
	return s.line("/sys/class/block/" + path.Base(dev) + "/dev")
}
