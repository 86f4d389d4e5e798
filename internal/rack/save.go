package rack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// A saved rack is a directory below savedDir with everything of a rack at one moment:
//
//	saved.json      what it is made of, and the size of each file; written last
//	rack/           the rack's directory: disks, nodes, keys, the state of the hardware
//	memory/NAME     memory and devices of each machine that was on (QEMU's migration stream)
//	secrets/N       secrets of the fence devices and keys of the brick, by number
//	spec.yaml       the brick's file

// saved is the content of saved.json: what SavedRack says, and what a restore needs.
type saved struct {
	SavedRack
	Schema int `json:"schema"`
	// Build is the digest of the mortar binary that saved the rack.
	Build string `json:"build"`
	// SpecSHA256 is the digest of the brick's file.
	SpecSHA256 string `json:"spec_sha256,omitempty"`
	// QEMU is the first line of its version: a machine's memory fits no other one.
	QEMU string `json:"qemu"`
	// TSCkHz is the rate of the processor's time stamp counter, which an emulated
	// machine learned at its boot; 0 with KVM.
	TSCkHz int `json:"tsc_khz,omitempty"`
	// Machines are the run states of the machines that were on.
	Machines map[string]string `json:"machines"`
	// Secrets are the paths of the secrets relative to the directory of the brick's
	// file, or absolute ones, by their number.
	Secrets []string `json:"secrets"`
	// Base is the directory of the brick's file when the rack was saved.
	Base string `json:"base"`
	// Files are the sizes of all files in bytes, by path.
	Files map[string]int64 `json:"files"`
}

const (
	savedSchema   = 1
	savedManifest = "saved.json"
	savedRack     = "rack"
	savedMemory   = "memory"
	savedSecrets  = "secrets"
	savedSpec     = "spec.yaml"
	// unfinished begins the name of a directory that Save fills. No saved rack has such
	// a name: see savedName.
	unfinished = ".saving-"
)

var savedName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// SaveOptions say what belongs to a rack beside its own directory.
type SaveOptions struct {
	// Spec is the brick's file and Base its directory.
	Spec []byte
	Base string
	// Keys are files with keys of the brick. Their directory is below Base.
	Keys []string
	// Version names this build.
	Version string
}

// SavedRack describes a saved rack.
type SavedRack struct {
	Name    string    `json:"name"`
	Brick   string    `json:"brick"`
	Dir     string    `json:"dir"`
	Time    time.Time `json:"time"`
	Version string    `json:"version"` // of the mortar that saved it
	Bytes   int64     `json:"bytes"`   // that its files take
	// StoppedSeconds is how long the machines stood still.
	StoppedSeconds float64 `json:"stopped_seconds"`
	// Off are the nodes that were off, ClocksUnset those whose clock could not be set
	// after the machines went on.
	Off         []string `json:"off"`
	ClocksUnset []string `json:"clocks_unset"`
	// Misfits are the reasons for which the rack cannot be restored here now.
	Misfits []string `json:"misfits"`
}

// savedDir holds the saved racks of a brick's name, which is unique on the machine.
func savedDir(brick string) (string, error) {
	cache, err := nodeimage.CacheDir()
	return filepath.Join(filepath.Dir(cache), "racks", brick), err
}

func savedPath(brick, name string) (string, error) {
	if !savedName.MatchString(name) {
		return "", tool.Refuse("a saved rack named %q: want letters, digits, dots, hyphens and underscores, at most 64", name)
	}
	dir, err := savedDir(brick)
	return filepath.Join(dir, name), err
}

// Save stops all machines of the rack in dir at the same moment, saves them with their
// disks under a name, and lets them go on. An earlier saved rack of that name is
// replaced when the new one is complete.
//
// QEMU flushes the disks of a machine that it stops, and Save flushes the caches of all
// disks. So the images hold all data, and the caches are empty.
func Save(ctx context.Context, dir, name string, opt SaveOptions, fn tool.Progress) (*SavedRack, error) {
	p := &tool.Steps{Fn: fn}
	r, err := openRack(dir)
	if err != nil {
		return nil, err
	}
	final, err := savedPath(r.cfg.Name, name)
	if err != nil {
		return nil, err
	}
	unlock, err := lockRack(ctx, r.dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if r.st.Phase != phaseUp {
		return nil, tool.Refuse("the rack in %s is not complete: mortar rack up first", r.dir)
	}
	if _, err := r.image(); err != nil {
		return nil, err
	}
	s := &saved{SavedRack: SavedRack{Name: name, Brick: r.cfg.Name, Version: opt.Version}, Schema: savedSchema, SpecSHA256: specDigest(opt.Spec),
		Base: opt.Base, Machines: map[string]string{}, Files: map[string]int64{}}
	if s.Build, err = build(); err != nil {
		return nil, err
	}
	if s.QEMU, err = qemuVersion(ctx); err != nil {
		return nil, err
	}
	if r.st.Accel != "kvm" {
		s.TSCkHz = qemu.TSCkHz()
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o700); err != nil {
		return nil, err
	}
	if err := tool.RemoveAll(filepath.Join(filepath.Dir(final), unfinished+"*")); err != nil { // of a killed Save
		return nil, err
	}
	work, err := os.MkdirTemp(filepath.Dir(final), unfinished)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	var unset []string
	err = withPower(ctx, r, func(h *hw.Hardware) error {
		if err := r.canSave(h, work); err != nil {
			return err
		}
		if err := s.secrets(r.cfg, opt, work); err != nil {
			return err
		}
		if len(opt.Spec) > 0 {
			if err := os.WriteFile(filepath.Join(work, savedSpec), opt.Spec, 0o600); err != nil {
				return err
			}
		}
		began := time.Now()
		err := s.save(ctx, r, work, p)
		s.StoppedSeconds = time.Since(began).Seconds()
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := p.Step("clocks", "the machines stood still", func() error {
		unset = r.setClocks(ctx)
		return ctx.Err()
	}); err != nil {
		return nil, err
	}
	s.Time = time.Now().UTC().Truncate(time.Second)
	if err := s.measure(work); err != nil {
		return nil, err
	}
	if err := tool.SaveJSON(filepath.Join(work, savedManifest), s); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(final); err != nil {
		return nil, err
	}
	if err := os.Rename(work, final); err != nil {
		return nil, err
	}
	out := s.describe(final, r.cfg)
	out.ClocksUnset = unset
	return out, nil
}

// canSave refuses a rack that QEMU cannot save, and one for which the disk has no room.
func (r *rack) canSave(h *hw.Hardware, work string) error {
	var need int64
	for _, m := range r.machines() {
		if tool.Running(r.dir, m) == nil {
			continue
		}
		need += int64(r.memoryMiB(m)) << 20
		n, err := r.cfg.Node(m)
		if err != nil || !hw.IsServer(n) {
			continue
		}
		for _, d := range r.cfg.SSDs {
			if d.In(n) && !h.DisksOut[d.Name] {
				return tool.Refuse("server %s is on and has NVMe drives, and QEMU cannot save those: switch the servers off first (systemctl poweroff on the server, or mortar rack fault SPEC poweroff %[1]s)", m)
			}
		}
	}
	for file := range imageFilesOf(r.cfg, r.dir) {
		need += allocated(file)
	}
	_, free, err := freeBytes(work)
	if err == nil && free < need+reserveMiB<<20 {
		err = tool.Refuse("too little disk space: the saved rack may need %d MiB in %s, but only %d MiB are free", need>>20+reserveMiB, work, free>>20)
	}
	return err
}

// machines are the names of all virtual machines, arrays first.
func (r *rack) machines() []string {
	out := lists.Map(r.cfg.Arrays(), func(e *hw.Enclosure) string { return e.Name })
	for i := range r.cfg.Nodes {
		out = append(out, r.cfg.Nodes[i].Name)
	}
	return out
}

func (r *rack) memoryMiB(machine string) int {
	if n, err := r.cfg.Node(machine); err == nil {
		return n.MemoryMiB
	}
	return hw.ArrayMemoryMiB
}

// save does Save's work between the stop and the start of the machines.
func (s *saved) save(ctx context.Context, r *rack, work string, p *tool.Steps) (err error) {
	clients, err := r.dialMachines(ctx, s.Machines)
	defer closeAll(clients)
	if err != nil {
		return err
	}
	var all, arrays, nodes []string
	for _, m := range r.machines() {
		if s.Machines[m] == "" {
			continue
		}
		all = append(all, m)
		if slices.ContainsFunc(r.cfg.Arrays(), func(e *hw.Enclosure) bool { return e.Name == m }) {
			arrays = append(arrays, m)
		} else {
			nodes = append(nodes, m)
		}
	}
	// A save that is killed leaves the machines stopped: the next Up lets them go on.
	for _, m := range all {
		if s.Machines[m] == qemu.MachineRunning {
			r.st.Stopped = append(r.st.Stopped, m)
		}
	}
	if err := r.st.save(r.dir); err != nil {
		return err
	}
	goOn := func(machines []string) error {
		return together(machines, func(m string) error {
			if s.Machines[m] != qemu.MachineRunning {
				return nil
			}
			return clients[m].GoOn()
		})
	}
	defer func() {
		// Also those that went on already.
		err = errors.Join(err, goOn(all))
		r.st.Stopped = nil
		err = errors.Join(err, r.st.save(r.dir))
	}()
	if err := p.Step("stop", strings.Join(all, " "), func() error {
		if err := together(all, func(m string) error {
			_, err := clients[m].Call("stop", nil)
			return err
		}); err != nil {
			return err
		}
		return r.flushDisks(ctx)
	}); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(work, savedMemory), 0o700); err != nil {
		return err
	}
	memory := func(machines []string) error {
		return together(machines, func(m string) error {
			return p.Step("memory "+m, fmt.Sprintf("%d MiB", r.memoryMiB(m)), func() error {
				return clients[m].SaveMemory(ctx, filepath.Join(work, savedMemory, m))
			})
		})
	}
	// The servers' sessions do not bear an array that is silent for long: it goes on
	// as soon as it is saved. No server reads or writes its LUNs meanwhile.
	if err := memory(arrays); err != nil {
		return err
	}
	if err := p.Step("disks", "images, keys, hardware", func() error { return copyRack(ctx, r.dir, filepath.Join(work, savedRack)) }); err != nil {
		return err
	}
	if err := goOn(arrays); err != nil {
		return err
	}
	return memory(nodes)
}

// dialMachines connects to all machines that are on, and notes their run states.
func (r *rack) dialMachines(ctx context.Context, states map[string]string) (map[string]*qemu.Client, error) {
	clients := map[string]*qemu.Client{}
	for _, m := range r.machines() {
		if tool.Running(r.dir, m) == nil {
			continue
		}
		q, err := qemu.Dial(ctx, tool.RunDir(r.dir), tool.QMPSocket(m))
		if err != nil {
			return clients, fmt.Errorf("machine %s: %w", m, err)
		}
		q.Answer = qemu.MemoryTime
		clients[m] = q
		if states[m], err = q.Status(); err != nil {
			return clients, fmt.Errorf("machine %s: %w", m, err)
		}
	}
	return clients, nil
}

// together calls fn for all machines at the same time.
func together(machines []string, fn func(machine string) error) error {
	var g errgroup.Group
	for _, m := range machines {
		g.Go(func() error {
			if err := fn(m); err != nil {
				return fmt.Errorf("machine %s: %w", m, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// goOnStopped lets machines go on that a killed Save has left stopped, all together: a
// server that waits for another one fences its partner.
func (r *rack) goOnStopped(ctx context.Context) error {
	if len(r.st.Stopped) == 0 {
		return nil
	}
	clients, err := r.dialMachines(ctx, map[string]string{})
	defer closeAll(clients)
	if err != nil {
		return err
	}
	if err := together(r.st.Stopped, func(m string) error {
		if clients[m] == nil {
			return nil // it has been switched off
		}
		return clients[m].GoOn()
	}); err != nil {
		return err
	}
	r.st.Stopped = nil
	return r.st.save(r.dir)
}

func closeAll(clients map[string]*qemu.Client) {
	for _, q := range clients {
		q.Close()
	}
}

// flushDisks empties the caches of all disks into their images.
func (r *rack) flushDisks(ctx context.Context) error {
	for _, process := range diskProcesses(r.cfg) {
		if tool.Running(r.dir, process) == nil {
			continue
		}
		if err := r.order(ctx, process, "flush"); err != nil {
			return fmt.Errorf("flush of the disks' caches: %w", err)
		}
	}
	return nil
}

// rackParts are the files and directories of a rack that its saved copy has. Of the run
// directory these are the consoles, by which the stage of a boot is known, and the
// states of the BMCs.
func rackParts(dir string) ([]string, error) {
	var out []string
	for _, pattern := range []string{"config.json", "hardware.json", "state.json", "inventory.json", "ssh", "disks", "nodes",
		"run/*.console", "run/bmc-*.state", "run/bmc-*.sensors"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// copyRack copies the parts of a rack. Holes in the images stay holes, and where the
// file system can, the copies share the images' blocks.
func copyRack(ctx context.Context, from, to string) error {
	for _, d := range []string{to, tool.RunDir(to)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	parts, err := rackParts(from)
	if err != nil {
		return err
	}
	for _, part := range parts {
		rel, err := filepath.Rel(from, part)
		if err != nil {
			return err
		}
		if err := tool.Run(ctx, "cp", "-a", "--reflink=auto", "--sparse=auto", "--", part, filepath.Dir(filepath.Join(to, rel))+"/"); err != nil {
			return err
		}
	}
	return nil
}

// secrets copies the secrets and keys that belong to the rack.
func (s *saved) secrets(c *hw.Config, opt SaveOptions, work string) error {
	if err := os.Mkdir(filepath.Join(work, savedSecrets), 0o700); err != nil {
		return err
	}
	files := slices.Clone(opt.Keys)
	for _, f := range c.SecretFiles() {
		files = append(files, *f)
	}
	slices.Sort(files)
	for i, f := range slices.Compact(files) {
		text, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // that of a device that was never on
		}
		if err != nil {
			return err
		}
		if rel, err := filepath.Rel(opt.Base, f); opt.Base != "" && err == nil && filepath.IsLocal(rel) {
			f = rel
		}
		s.Secrets = append(s.Secrets, f)
		if err := os.WriteFile(filepath.Join(work, savedSecrets, fmt.Sprint(len(s.Secrets)-1)), text, 0o600); err != nil {
			return fmt.Errorf("secret %d: %w", i, err)
		}
	}
	return nil
}

// measure notes the sizes of all files.
func (s *saved) measure(work string) error {
	return filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(work, path)
		s.Files[rel] = info.Size()
		return err
	})
}

func build() (string, error) {
	text, err := os.ReadFile("/proc/self/exe")
	return hw.Hashed(string(text)), err
}

func specDigest(spec []byte) string {
	if len(spec) == 0 {
		return ""
	}
	return hw.Hashed(string(spec))
}

func qemuVersion(ctx context.Context) (string, error) {
	out, err := tool.Output(ctx, nil, "qemu-system-x86_64", "--version")
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return strings.TrimSpace(string(line)), err
}
