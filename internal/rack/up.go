package rack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// BuildImage builds what the rack of a Config boots from, unless the cache has it. It
// refuses what Up refuses, and makes no rack.
func BuildImage(ctx context.Context, cfg hw.Config, dir string, fn tool.Progress) error {
	p := &tool.Steps{Fn: fn}
	cfg, _, spec, err := accept(cfg, dir)
	if err != nil {
		return err
	}
	if cfg.Distribution() {
		if _, err := nodeimage.EnsureDisk(ctx, spec, p); err != nil {
			return err
		}
	}
	_, err = nodeimage.Ensure(ctx, spec, p)
	return err
}

func pduName(pdu string) string { return "pdu-" + pdu }

// bootTime bounds a node's boot to multi-user: several times the boot of an emulated
// node on a busy two-core host.
const bootTime = 5 * time.Minute

var errBootTime = fmt.Errorf("not up after %s", bootTime)

// accept refuses a wrong Config, and a host that cannot run the rack. It changes nothing.
func accept(cfg hw.Config, dir string) (hw.Config, string, nodeimage.Spec, error) {
	if os.Geteuid() != 0 { // without root even reading the directory may fail
		return cfg, dir, nodeimage.Spec{}, tool.Refuse("a rack needs root: it makes a network namespace and virtual machines")
	}
	dir, err := tool.AbsDir(dir)
	if err != nil {
		return cfg, dir, nodeimage.Spec{}, err
	}
	if err := cfg.Check(); err != nil {
		return cfg, dir, nodeimage.Spec{}, err
	}
	spec, err := specOf(&cfg)
	if err != nil {
		return cfg, dir, spec, err
	}
	return cfg, dir, spec, checkHost(&cfg, dir, spec)
}

// Up builds the rack that cfg describes in dir and waits until all of its nodes are
// up. It may be called again at any time. A rack that is up stays as it is, except
// that Up switches on nodes that are off. After a killed Up it builds the rack from
// the start. After a reboot of the host it powers the rack on with its old disks.
//
// If ctx ends or a step fails, Up leaves nothing of a new rack, and keeps the disks of
// a rack that was up before.
//
// A *RefusedError means that nothing was changed.
func Up(ctx context.Context, cfg hw.Config, dir string, fn tool.Progress) (*Inventory, error) {
	p := &tool.Steps{Fn: fn}
	cfg, dir, spec, err := accept(cfg, dir)
	if err != nil {
		return nil, err
	}
	free, err := lockName(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	defer free()

	// An earlier rack in this directory.
	keep := false
	if old, err := loadConfig(dir); err == nil {
		st, err := loadState(dir)
		switch {
		case err != nil || st.Phase != phaseUp:
			if err := Down(ctx, dir, false); err != nil {
				return nil, fmt.Errorf("removing what is left of an unfinished rack: %w", err)
			}
		case cfg.ArraysEmpty() && old.SameButArrays(&cfg):
			cfg, keep = *old, true // the arrays keep what is on them
		case !reflect.DeepEqual(*old, cfg):
			return nil, tool.Refuse("the rack in %s was built with other hardware, or its arrays are configured otherwise: mortar rack down first (its virtual disks go with it)", dir)
		default:
			keep = true
		}
	} else if refused := (*tool.RefusedError)(nil); !errors.As(err, &refused) {
		return nil, err
	}

	for _, d := range []string{dir, tool.RunDir(dir), filepath.Join(dir, "nodes")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	unlock, err := lockRack(ctx, dir)
	if err != nil {
		return nil, err
	}
	r := &rack{dir: dir, cfg: &cfg, st: &state{Phase: phaseStarting, Netns: cfg.Netns()}}
	if keep {
		if r.st, err = loadState(dir); err == nil {
			// The nodes' own layers fit only their original root.
			_, err = r.image()
		}
		if err == nil {
			err = r.goOnStopped(ctx)
		}
		if err != nil {
			unlock()
			return nil, err
		}
	}
	err = r.up(ctx, spec, p)
	unlock()
	if err != nil {
		// Not ctx, which may have ended: Down must still work.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		var refused *tool.RefusedError
		if !keep || !errors.As(err, &refused) {
			err = errors.Join(err, Down(clean, dir, keep))
		}
		return nil, err
	}
	return LoadInventory(dir)
}

// specOf is the spec of the image for a rack's nodes.
func specOf(c *hw.Config) (nodeimage.Spec, error) {
	source, err := nodeimage.HostAptSource("/etc/apt")
	if err != nil && c.Mirror == "" {
		return nodeimage.Spec{}, err
	}
	spec := nodeimage.Spec{Suite: c.Suite, Mirror: c.Mirror, Keyring: source.Keyring, RDMA: c.RDMA}
	if spec.Mirror == "" {
		spec.Mirror = source.URI
	}
	if c.Lustre == "" {
		return spec, nil
	}
	spec.Lustre, spec.LustreDigest, err = nodeimage.PackageFiles(c.Lustre)
	return spec, err
}

// up takes all steps; each step checks itself whether it is already done.
func (r *rack) up(ctx context.Context, spec nodeimage.Spec, p *tool.Steps) error {
	if err := tool.SaveJSON(filepath.Join(r.dir, "config.json"), r.cfg); err != nil {
		return err
	}
	if err := r.st.save(r.dir); err != nil {
		return err
	}
	for i := range r.cfg.Nodes {
		if err := os.MkdirAll(filepath.Join(r.dir, "nodes", r.cfg.Nodes[i].Name), 0o700); err != nil {
			return err
		}
	}
	if err := copySelf(ctx, r.dir); err != nil {
		return err
	}

	if err := r.prepare(ctx, spec, p); err != nil {
		return err
	}
	if err := r.st.save(r.dir); err != nil {
		return err
	}

	if err := p.Step("power", "BMCs and PDUs", func() error {
		return withPower(ctx, r, func(h *hw.Hardware) error { return r.powerDevices(ctx, h) })
	}); err != nil {
		return err
	}
	boot, bctx := errgroup.WithContext(ctx)
	boot.SetLimit(1 + 4*runtime.NumCPU()) // twenty emulated machines at once on two processors are not up in time
	arrays := make(chan struct{})         // closed when all are up
	boot.Go(func() error {
		defer close(arrays)
		return r.upArrays(bctx, p)
	})
	for i := range r.cfg.Nodes {
		n := &r.cfg.Nodes[i]
		boot.Go(func() error {
			if hw.IsServer(n) && r.cfg.WithArray(n.Name) {
				<-arrays
			}
			if err := bctx.Err(); err != nil {
				return err
			}
			return p.Step("boot "+n.Name, r.st.Accel, func() error {
				off := false
				if err := withPower(bctx, r, func(h *hw.Hardware) error {
					off = !h.Powered(n)
					return r.start(bctx, h, n.Name, 0)
				}); err != nil || off {
					return err
				}
				return waitBooted(bctx, r, n)
			})
		})
	}
	if err := boot.Wait(); err != nil {
		return err
	}
	r.st.Phase = phaseUp
	return r.st.save(r.dir)
}

// prepare makes all that machines need: the image, the network and the disks.
func (r *rack) prepare(ctx context.Context, spec nodeimage.Spec, p *tool.Steps) error {
	prepare, pctx := errgroup.WithContext(ctx)
	base := make(chan string, 1) // of the system disks
	prepare.Go(func() error {
		defer close(base)
		if r.cfg.Distribution() {
			disk, err := nodeimage.EnsureDisk(pctx, spec, p)
			if err != nil {
				return err
			}
			base <- disk
		}
		if r.st.Image != "" && r.st.Accel != "" {
			return nil
		}
		img, err := nodeimage.Ensure(pctx, spec, p)
		if err != nil {
			return err
		}
		r.st.Image = img.Dir
		return p.Step("accelerator", "trying whether a kernel boots with KVM", func() error {
			r.st.Accel, err = chooseAccel(pctx, r.cfg, img)
			return err
		})
	})
	prepare.Go(func() error {
		return p.Step("network", r.cfg.Netns(), func() error { return ensureNetwork(pctx, r) })
	})
	prepare.Go(func() error {
		return p.Step("disks", strconv.Itoa(len(imageFilesOf(r.cfg, r.dir)))+" images", func() error {
			if err := ensureDisks(r); err != nil {
				return err
			}
			return ensureSeeds(pctx, r, <-base)
		})
	})
	return prepare.Wait()
}

// upArrays switches all arrays on concurrently, and waits until they export their
// LUNs.
func (r *rack) upArrays(ctx context.Context, p *tool.Steps) error {
	boot, ctx := errgroup.WithContext(ctx)
	for _, e := range r.cfg.Arrays() {
		boot.Go(func() error {
			return p.Step("boot "+e.Name, fmt.Sprintf("array of %d disks", len(e.Array.Disks)), func() error {
				if err := withPower(ctx, r, func(h *hw.Hardware) error { return startArray(ctx, r, e, h) }); err != nil {
					return err
				}
				if h, err := loadHardware(r.dir); err != nil || h.ArraysOff[e.Name] {
					return err
				}
				if err := waitArray(ctx, r, e); err != nil {
					return err
				}
				return withPower(ctx, r, func(h *hw.Hardware) error { return setALUA(ctx, r, e, h) })
			})
		})
	}
	return boot.Wait()
}

// waitBooted waits until a node is in multi-user and answers on its ssh port. It does
// not wait for ssh on a node whose management cable is pulled.
func waitBooted(ctx context.Context, r *rack, n *hw.Node) error {
	return r.waitUp(ctx, n.Name, func() bool {
		if r.sshAnswers(ctx, r.cfg.AdminAddress(n)) {
			return true
		}
		h, err := loadHardware(r.dir)
		return err == nil && h.LinkDown(n.Name, r.cfg.AdminNetwork().Name) // without its cable the node cannot answer
	})
}

// waitUp waits until a machine reports on its console that it is up, and answers
// returns true.
func (r *rack) waitUp(ctx context.Context, name string, answers func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTime, errBootTime)
	defer cancel()
	console := filepath.Join(tool.RunDir(r.dir), tool.ConsoleFile(name))
	var b bootState
	err := tool.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		b = r.boot(name)
		switch {
		case b.Stage == stageUp && answers():
			return true, nil
		case strings.HasPrefix(b.Stage, stageFailed), b.Stage == stagePanic:
			return false, fmt.Errorf("node %s: %s\n%s", name, b.Stage, tool.Tail(console, 10))
		case tool.Running(r.dir, name) == nil:
			return false, fmt.Errorf("node %s went off while it booted:\n%s\n%s", name, tool.Tail(console, 10), tool.Tail(tool.LogFile(r.dir, name), 5))
		}
		return false, nil
	})
	if errors.Is(err, errBootTime) {
		err = fmt.Errorf("node %s: %w: %s\n%s", name, err, b.Stage, tool.Tail(console, 10))
	}
	return err
}

// sshAnswers reports whether an ssh server answers at the address.
func (r *rack) sshAnswers(ctx context.Context, a netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := netns.Do(r.cfg.Netns(), func() error {
		// The socket must be made on this thread, which is in the namespace.
		// DialContext guarantees that for a single address.
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), "22"))
		if err != nil {
			return err
		}
		defer conn.Close()
		b := make([]byte, 4)
		err = conn.SetDeadline(time.Now().Add(3 * time.Second))
		if err == nil {
			_, err = io.ReadFull(conn, b)
		}
		if err == nil && string(b) != "SSH-" {
			err = fmt.Errorf("no ssh server")
		}
		return err
	})
	return err == nil
}

// lockRack keeps two processes from building or removing the same rack at once.
func lockRack(ctx context.Context, dir string) (unlock func(), err error) {
	return lockFor(ctx, filepath.Join(dir, "up.lock"), "building or taking down the rack in "+dir)
}

// copySelf copies our own binary into the rack, so that BMCs and PDUs can call it even
// after the original was replaced.
func copySelf(ctx context.Context, dir string) error {
	if tool.Exists(tool.SelfBinary(dir)) {
		return nil
	}
	part := tool.SelfBinary(dir) + ".part"
	// By our number: /proc/self is the tool's own.
	if err := tool.Run(ctx, "install", "-m", "700", fmt.Sprintf("/proc/%d/exe", os.Getpid()), part); err != nil {
		return err
	}
	return os.Rename(part, tool.SelfBinary(dir))
}

// lockFor takes a lock of a rack, for which it waits 3 s. busy names who holds it.
func lockFor(ctx context.Context, file, busy string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	unlock, err = tool.LockFile(ctx, file)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, tool.Refuse("another mortar is %s", busy)
	}
	return unlock, err
}
