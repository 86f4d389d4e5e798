package rack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// RestoreOptions say where a rack is restored.
type RestoreOptions struct {
	// Spec is the brick's file now and Base its directory.
	Spec []byte
	Base string
	// Anyway restores a rack of another build or spec.
	Anyway bool
}

// clockTolerance is the largest difference between two rates of the time stamp
// counter: what a clock daemon can correct (500 ppm; adjtimex(2)), and a little for the
// measurement.
const clockTolerance = 600e-6

// ListSaved lists the saved racks of a brick's name, the newest first.
func ListSaved(ctx context.Context, brick string, spec []byte) ([]SavedRack, error) {
	names, err := savedNames(brick)
	if err != nil {
		return nil, err
	}
	out := []SavedRack{}
	for _, name := range names {
		dir, err := savedPath(brick, name)
		if err != nil {
			return nil, err
		}
		s, cfg, problems := loadSaved(brick, name)
		if s == nil {
			out = append(out, SavedRack{Name: name, Brick: brick, Dir: dir, Misfits: problems})
			continue
		}
		d := s.describe(dir, cfg)
		never, other := s.misfits(ctx, dir, spec)
		d.Misfits = append(d.Misfits, slices.Concat(problems, never, other)...)
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b SavedRack) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Name, b.Name)) })
	return out, nil
}

// HasSaved reports whether a saved rack of that name exists, fitting or not.
func HasSaved(brick, name string) (bool, error) {
	dir, err := savedPath(brick, name)
	return err == nil && tool.Exists(filepath.Join(dir, savedManifest)), err
}

// Forget removes a saved rack.
func Forget(brick, name string) error {
	dir, err := savedPath(brick, name)
	if err != nil {
		return err
	}
	if !tool.Exists(dir) {
		return noSuchSaved(brick, name)
	}
	// The manifest first: the rest of a killed Forget is no saved rack.
	if err := os.Remove(filepath.Join(dir, savedManifest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

func noSuchSaved(brick, name string) error {
	names, err := savedNames(brick)
	if err != nil {
		return err
	}
	return hw.NotThere("saved rack of "+brick+" named", name, names, func(n string) string { return n })
}

// savedNames lists the saved racks of a brick's name. What a killed Save has left is none.
func savedNames(brick string) ([]string, error) {
	dir, err := savedDir(brick)
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", savedManifest))
	var out []string
	for _, f := range found {
		if n := filepath.Base(filepath.Dir(f)); savedName.MatchString(n) {
			out = append(out, n)
		}
	}
	return out, err
}

// loadSaved reads a saved rack. It returns what is wrong with its files.
func loadSaved(brick, name string) (*saved, *hw.Config, []string) {
	dir, err := savedPath(brick, name)
	if err != nil {
		return nil, nil, []string{err.Error()}
	}
	s := &saved{}
	if err := tool.LoadJSON(filepath.Join(dir, savedManifest), s); err != nil {
		return nil, nil, []string{err.Error()}
	}
	if s.Schema != savedSchema {
		return nil, nil, []string{fmt.Sprintf("%s has schema %d, and this mortar reads %d", filepath.Join(dir, savedManifest), s.Schema, savedSchema)}
	}
	var problems []string
	for f, size := range s.Files {
		switch st, err := os.Stat(filepath.Join(dir, f)); {
		case err != nil:
			problems = append(problems, "its file "+f+" is missing")
		case st.Size() != size:
			problems = append(problems, fmt.Sprintf("its file %s has %d bytes, and had %d", f, st.Size(), size))
		}
	}
	cfg, err := loadConfig(filepath.Join(dir, savedRack))
	if err != nil {
		return nil, nil, append(problems, err.Error())
	}
	slices.Sort(problems)
	return s, cfg, problems
}

// misfits returns why the saved rack can never run here as it is, and what it is made
// of otherwise than a rack that was built now.
func (s *saved) misfits(ctx context.Context, dir string, spec []byte) (never, other []string) {
	if v, err := qemuVersion(ctx); err != nil || v != s.QEMU {
		never = append(never, fmt.Sprintf("it was saved by %s, and here is %s", s.QEMU, cmp.Or(v, "none")))
	}
	st, err := loadState(filepath.Join(dir, savedRack))
	switch {
	case err != nil:
		never = append(never, err.Error())
	case nodeimage.Cached(st.Image) == nil:
		never = append(never, "its node image "+st.Image+" is gone")
	case st.Accel == "kvm" && !tool.Exists("/dev/kvm"):
		never = append(never, "its machines ran with KVM, which is not here")
	}
	if now := qemu.TSCkHz(); s.TSCkHz > 0 && math.Abs(float64(now-s.TSCkHz)) > clockTolerance*float64(s.TSCkHz) {
		never = append(never, fmt.Sprintf("its clocks count %d kHz, and this processor's counter has %d kHz", s.TSCkHz, now))
	}
	if b, err := build(); err != nil || b != s.Build {
		other = append(other, "it was saved by another build of mortar ("+s.Version+"), whose agent and resource agent the servers may have")
	}
	if len(spec) > 0 && specDigest(spec) != s.SpecSHA256 {
		other = append(other, "the brick's file was another one ("+filepath.Join(dir, savedSpec)+")")
	}
	return never, other
}

func (s *saved) describe(dir string, c *hw.Config) *SavedRack {
	out := s.SavedRack
	out.Dir, out.Bytes, out.Off, out.ClocksUnset, out.Misfits = dir, 0, []string{}, []string{}, []string{}
	for f := range s.Files {
		out.Bytes += allocated(filepath.Join(dir, f))
	}
	for _, n := range c.Nodes {
		if s.Machines[n.Name] == "" {
			out.Off = append(out.Off, n.Name)
		}
	}
	return &out
}

// CheckSaved returns why Restore would refuse a saved rack; nil if it would not.
func CheckSaved(ctx context.Context, brick, dir, name string, opt RestoreOptions) error {
	_, _, err := checkSaved(ctx, brick, dir, name, opt)
	return err
}

func checkSaved(ctx context.Context, brick, dir, name string, opt RestoreOptions) (*saved, *hw.Config, error) {
	if os.Geteuid() != 0 {
		return nil, nil, tool.Refuse("a rack needs root: it makes a network namespace and virtual machines")
	}
	dir, err := tool.AbsDir(dir)
	if err != nil {
		return nil, nil, err
	}
	from, err := savedPath(brick, name)
	if err != nil {
		return nil, nil, err
	}
	if !tool.Exists(filepath.Join(from, savedManifest)) {
		return nil, nil, noSuchSaved(brick, name)
	}
	bad := func(problems []string, mend string) error {
		shown := problems
		if more := len(problems) - 4; more > 0 {
			shown = append(slices.Clone(problems[:4]), fmt.Sprintf("%d more", more))
		}
		return tool.Refuse("saved rack %s of %s does not fit: %s: %s", name, brick, strings.Join(shown, "; "), mend)
	}
	s, cfg, problems := loadSaved(brick, name)
	if len(problems) > 0 {
		return nil, nil, bad(problems, "mortar rack forget removes it")
	}
	never, other := s.misfits(ctx, from, opt.Spec)
	if len(never) > 0 {
		return nil, nil, bad(never, "build the rack (mortar rack up) and save it again")
	}
	if len(other) > 0 && !opt.Anyway {
		return nil, nil, bad(other, "--anyway restores it all the same, else build the rack (mortar rack up) and save it again")
	}
	return s, cfg, s.canRestore(cfg, from, dir, opt)
}

// canRestore refuses what stands in the way of a saved rack in dir.
func (s *saved) canRestore(c *hw.Config, from, dir string, opt RestoreOptions) error {
	if err := checkNetns(c, dir); err != nil {
		return err
	}
	for i, f := range s.Secrets {
		to, err := opt.secret(f)
		if err != nil {
			return err
		}
		now, err := os.ReadFile(to)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		then, err2 := os.ReadFile(filepath.Join(from, savedSecrets, fmt.Sprint(i)))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if !bytes.Equal(now, then) {
			return tool.Refuse("%s is another secret than the saved rack's: remove the file if nothing else uses it", to)
		}
	}
	need := int64(reserveMiB) << 20
	var memory int64
	for _, m := range (&rack{cfg: c}).machines() {
		if s.Machines[m] != "" && tool.Running(dir, m) == nil {
			memory += int64((&rack{cfg: c}).memoryMiB(m)+overheadMiB) << 20
		}
	}
	have, err := availableMemory()
	if err != nil {
		return err
	}
	if memory > 0 && have < memory+reserveMiB<<20 {
		return tool.Refuse("too little memory: the rack needs %d MiB, and only %d MiB are available", memory>>20+reserveMiB, have>>20)
	}
	for f := range s.Files {
		if strings.HasPrefix(f, savedRack+"/") {
			need += allocated(filepath.Join(from, f))
		}
	}
	if _, free, err := freeBytes(dir); err != nil || free < need {
		return cmp.Or(err, tool.Refuse("too little disk space: the rack needs %d MiB in %s, but only %d MiB are free", need>>20, dir, free>>20))
	}
	return nil
}

// secret is the present path of a saved secret.
func (o *RestoreOptions) secret(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	if o.Base == "" || !filepath.IsLocal(name) {
		return "", tool.Refuse("the saved rack belongs to a brick's file: name that file")
	}
	return filepath.Join(o.Base, name), nil
}

// Restore takes the rack in dir down, if there is one, and puts a saved one of that
// brick's name in its place: disks, memory, keys, the state of the hardware. All
// machines go on at the same moment. Their clocks stood still; Restore sets them.
//
// A *RefusedError means that nothing was changed. After any other error no rack is left.
func Restore(ctx context.Context, brick, dir, name string, opt RestoreOptions, fn tool.Progress) (*SavedRack, error) {
	p := &tool.Steps{Fn: fn}
	dir, err := tool.AbsDir(dir)
	if err != nil {
		return nil, err
	}
	s, cfg, err := checkSaved(ctx, brick, dir, name, opt)
	if err != nil {
		return nil, err
	}
	from, err := savedPath(brick, name)
	if err != nil {
		return nil, err
	}
	if err := s.relocate(cfg, opt); err != nil {
		return nil, err
	}
	free, err := lockName(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer free()
	if err := p.Step("down", dir, func() error { return Down(ctx, dir, false) }); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(tool.RunDir(dir), 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockRack(ctx, dir)
	if err != nil {
		return nil, err
	}
	r := &rack{dir: dir, cfg: cfg}
	err = s.restore(ctx, r, from, opt, p)
	unlock()
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(err, Down(clean, dir, false))
	}
	out := s.describe(from, cfg)
	err = p.Step("clocks", "the machines stood still", func() error {
		out.ClocksUnset = r.setClocks(ctx)
		return ctx.Err()
	})
	return out, err
}

// relocate changes the paths of secrets in a Config to their present ones.
func (s *saved) relocate(c *hw.Config, opt RestoreOptions) error {
	for _, f := range c.SecretFiles() {
		rel, err := filepath.Rel(s.Base, *f)
		if s.Base == "" || err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if *f, err = opt.secret(rel); err != nil {
			return err
		}
	}
	return nil
}

func (s *saved) restore(ctx context.Context, r *rack, from string, opt RestoreOptions, p *tool.Steps) error {
	// First what Down needs to remove an unfinished rack.
	if err := tool.SaveJSON(filepath.Join(r.dir, "config.json"), r.cfg); err != nil {
		return err
	}
	if err := p.Step("disks", "images, keys, hardware", func() error { return s.unpack(ctx, r, from, opt) }); err != nil {
		return err
	}
	if err := p.Step("network", r.cfg.Netns(), func() error { return ensureNetwork(ctx, r) }); err != nil {
		return err
	}
	if err := withPower(ctx, r, func(h *hw.Hardware) error { return s.restoreMachines(ctx, r, h, from, p) }); err != nil {
		return err
	}
	r.st.Phase = phaseUp
	return r.st.save(r.dir)
}

// unpack copies the saved rack's files, with the paths that hold here.
func (s *saved) unpack(ctx context.Context, r *rack, from string, opt RestoreOptions) error {
	if err := copyRack(ctx, filepath.Join(from, savedRack), r.dir); err != nil {
		return err
	}
	if err := tool.SaveJSON(filepath.Join(r.dir, "config.json"), r.cfg); err != nil {
		return err
	}
	var err error
	if r.st, err = loadState(r.dir); err != nil {
		return err
	}
	r.st.Phase, r.st.Stopped = phaseStarting, nil
	if err := r.st.save(r.dir); err != nil {
		return err
	}
	inv, err := LoadInventory(r.dir)
	if err != nil {
		return err
	}
	for i := range inv.Hosts {
		inv.Hosts[i].IdentityFile = identityFile(r.dir)
	}
	if err := tool.SaveJSON(inventoryFile(r.dir), inv); err != nil {
		return err
	}
	for i, f := range s.Secrets {
		to, err := opt.secret(f)
		if err != nil {
			return err
		}
		if tool.Exists(to) {
			continue // the same: see canRestore
		}
		text, err := os.ReadFile(filepath.Join(from, savedSecrets, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		if err := tool.WriteNew(to, text); err != nil {
			return err
		}
	}
	return copySelf(ctx, r.dir)
}

// restoreMachines starts all machines with their memory, and lets them go on together.
// An array goes on first, since its servers log in to it before they load their memory.
// The caller holds the power lock.
func (s *saved) restoreMachines(ctx context.Context, r *rack, h *hw.Hardware, from string, p *tool.Steps) error {
	for network := range h.SwitchesDown {
		if err := r.ip(ctx, "link set "+hw.BridgeName(network)+" down"); err != nil {
			return err
		}
	}
	if err := errors.Join(r.powerDevices(ctx, h), r.powerShelves(ctx, h)); err != nil {
		return err
	}
	memory := func(m string) string { return filepath.Join(from, savedMemory, m) }
	for _, e := range r.cfg.Arrays() {
		if s.Machines[e.Name] == "" {
			continue
		}
		if err := p.Step("memory "+e.Name, fmt.Sprintf("%d MiB", hw.ArrayMemoryMiB), func() error {
			args, err := arrayLine(r, e, h)
			if err != nil {
				return err
			}
			if err := r.load(ctx, e.Name, args, memory(e.Name), nil); err != nil {
				return err
			}
			if s.Machines[e.Name] == qemu.MachineRunning {
				err = r.withQMP(ctx, e.Name, func(q *qemu.Client) error { return q.GoOn() })
			}
			// The machine is on; startArray adds its addresses and host ports.
			return errors.Join(err, startArray(ctx, r, e, h))
		}); err != nil {
			return err
		}
	}
	var on []string
	for _, n := range r.cfg.Nodes {
		if s.Machines[n.Name] != "" {
			on = append(on, n.Name)
		}
	}
	if err := together(on, func(m string) error {
		i, n, err := r.index(m)
		if err != nil {
			return err
		}
		return p.Step("memory "+m, fmt.Sprintf("%d MiB", n.MemoryMiB), func() error {
			img, err := r.image()
			if err != nil {
				return err
			}
			args, err := qemu.NodeArgs(r.cfg, r.dir, i, img, r.st.Accel, h, hw.PostSeconds)
			if err != nil {
				return err
			}
			if hw.IsServer(n) {
				if err := r.startDisks(ctx, hw.InsideName(m)); err != nil {
					return err
				}
			}
			return r.load(ctx, m, args, memory(m), func(q *qemu.Client) error { return plugPaths(r, n, q, h) })
		})
	}); err != nil {
		return err
	}
	return p.Step("go on", strings.Join(on, " "), func() error { return s.goOnInSteps(ctx, r) })
}

// settleTime is the time after which a machine's emulation has translated the code that its
// cluster needs to be on time.
const settleTime = 2 * time.Second

// goOnInSteps lets the restored machines go on, servers first: at any moment as many
// as this host has processors, which are the two servers of a pair at least. The others
// wait for them to settle: on two processors, a pair with its client and the logins of
// setClocks took so long to translate their code that Corosync lost its token. To those
// that wait no time passes.
func (s *saved) goOnInSteps(ctx context.Context, r *rack) error {
	clients, err := r.dialMachines(ctx, map[string]string{})
	defer closeAll(clients)
	if err != nil {
		return err
	}
	for _, servers := range []bool{true, false} {
		var on []string
		for i := range r.cfg.Nodes {
			if n := &r.cfg.Nodes[i]; hw.IsServer(n) == servers && s.Machines[n.Name] == qemu.MachineRunning {
				on = append(on, n.Name)
			}
		}
		for group := range slices.Chunk(on, max(2, runtime.NumCPU()&^1)) {
			if err := together(group, func(m string) error { return clients[m].GoOn() }); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(settleTime):
			}
		}
	}
	return nil
}

// load starts a machine and loads its memory. plug adds devices before; it may be nil.
func (r *rack) load(ctx context.Context, name string, args []string, memory string, plug func(q *qemu.Client) error) error {
	if !slices.Contains(args, "-S") {
		args = append(args, "-S")
	}
	if err := r.launchMachine(ctx, name, append(args, "-incoming", "defer")); err != nil {
		return err
	}
	err := r.withQMP(ctx, name, func(q *qemu.Client) error {
		q.Answer = qemu.MemoryTime
		if plug != nil {
			if err := plug(q); err != nil {
				return err
			}
		}
		return q.LoadMemory(ctx, memory)
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tool.Tail(tool.LogFile(r.dir, name), 5))
	}
	return err
}
