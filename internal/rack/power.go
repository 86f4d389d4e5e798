package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// rack is an existing rack: its directory and the state in it.
type rack struct {
	dir string
	cfg *hw.Config
	st  *state
}

func openRack(dir string) (*rack, error) {
	abs, err := tool.AbsDir(dir)
	if err != nil {
		return nil, err
	}
	cfg, err := loadConfig(abs)
	if err != nil {
		return nil, err
	}
	st, err := loadState(abs)
	if err != nil {
		return nil, err
	}
	return &rack{dir: abs, cfg: cfg, st: st}, nil
}

func (r *rack) image() (*nodeimage.Image, error) {
	img := nodeimage.Cached(r.st.Image)
	if img == nil {
		return nil, tool.Refuse("the node image %s is gone or damaged: mortar rack down, then up, builds it again", r.st.Image)
	}
	return img, nil
}

func (r *rack) index(node string) (int, *hw.Node, error) {
	n, err := r.cfg.Node(node)
	return slices.IndexFunc(r.cfg.Nodes, func(o hw.Node) bool { return o.Name == node }), n, err
}

// powerDevices switches PDUs and BMCs on. The caller holds the power lock.
func (r *rack) powerDevices(ctx context.Context, h *hw.Hardware) error {
	var errs []error
	for i := range r.cfg.PDUs {
		errs = append(errs, ensurePDU(ctx, r, &r.cfg.PDUs[i], h))
	}
	for i := range r.cfg.Nodes {
		errs = append(errs, ensureBMC(ctx, r, &r.cfg.Nodes[i], h))
	}
	return errors.Join(errs...)
}

// startNode switches a node on. The caller holds the power lock. It does nothing to a
// node that is on. A node without power stays off, which is no error: its power
// button has no effect.
//
// As on a real server, a LUN that does not answer is missing. startNode notes that in
// the node's log and returns no error, so that a BMC or a fence agent does not
// believe that the server is still off.
func (r *rack) startNode(ctx context.Context, h *hw.Hardware, node string) error {
	err := r.start(ctx, h, node, hw.PostSeconds)
	if missing := (*lunError)(nil); errors.As(err, &missing) {
		return tool.AppendLine(tool.LogFile(r.dir, node), missing.Error())
	}
	return err
}

// lunError means that a server runs but lacks LUNs.
type lunError struct{ error }

// start is startNode with a given duration of the self test, which Up sets to 0.
func (r *rack) start(ctx context.Context, h *hw.Hardware, node string, post int) error {
	i, n, err := r.index(node)
	if err != nil {
		return err
	}
	if tool.Running(r.dir, n.Name) != nil || !h.Powered(n) {
		return nil
	}
	img, err := r.image()
	if err != nil {
		return err
	}
	if err := img.Used(); err != nil {
		return err
	}
	args, err := qemu.NodeArgs(r.cfg, r.dir, i, img, r.st.Accel, h, post)
	if err != nil {
		return err
	}
	if hw.IsServer(n) {
		if err := errors.Join(r.powerShelves(ctx, h), r.startDisks(ctx, hw.InsideName(n.Name))); err != nil {
			return err
		}
	}
	if err := r.startMachine(ctx, n.Name, args); err != nil {
		return err
	}
	if err := plugLinks(ctx, r, n, h); err != nil {
		return err
	}
	return plugLUNs(ctx, r, n, h)
}

// startMachine switches a machine on: it starts a QEMU and waits until that listens to
// its machine protocol.
func (r *rack) startMachine(ctx context.Context, name string, args []string) error {
	// lastStage ignores console output before this mark.
	if err := consoleMark(r.dir, name, "power-on"); err != nil {
		return err
	}
	return r.launchMachine(ctx, name, args)
}

// launchMachine is startMachine for a machine that was on when it was saved.
func (r *rack) launchMachine(ctx context.Context, name string, args []string) error {
	run := tool.RunDir(r.dir)
	for _, f := range []string{filepath.Join(run, tool.QMPSocket(name)), tool.PidFile(r.dir, name)} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_, gone, err := tool.Spawn(r.dir, r.cfg.Netns(), name, append([]string{"qemu-system-x86_64"}, args...)...)
	if err != nil {
		return err
	}
	return tool.WaitStarted(ctx, r.dir, name, gone, func() bool {
		q, err := qemu.Dial(ctx, run, tool.QMPSocket(name))
		if err != nil {
			return false
		}
		q.Close()
		return tool.Running(r.dir, name) != nil
	})
}

// plugLUNs plugs the LUNs of arrays into a server that was switched on, and lets the
// server run. It skips LUNs that do not answer, and returns them as an error.
func plugLUNs(ctx context.Context, r *rack, n *hw.Node, h *hw.Hardware) error {
	if !hw.IsServer(n) || !r.cfg.WithArray(n.Name) {
		return nil
	}
	return r.withQMP(ctx, n.Name, func(q *qemu.Client) error {
		missing := plugPaths(r, n, q, h)
		if _, err := q.Call("cont", nil); err != nil {
			return err
		}
		if missing != nil {
			return &lunError{fmt.Errorf("LUNs of %s: %w", n.Name, missing)}
		}
		return nil
	})
}

// plugPaths plugs all paths of a server to LUNs of arrays that are on.
func plugPaths(r *rack, n *hw.Node, q *qemu.Client, h *hw.Hardware) error {
	var errs []error
	for _, d := range r.cfg.SharedDisks() {
		for path := range d.Paths {
			if d.Array != nil && tool.Running(r.dir, d.Enclosure) != nil && !h.PathGone(n.Name, d, path) {
				errs = append(errs, qemu.PlugPath(q, r.cfg, n, d, path))
			}
		}
	}
	return errors.Join(errs...)
}

// stopNode cuts a node's power. The node loses its unwritten data, and so do the
// caches of the disks inside.
func (r *rack) stopNode(node string) error {
	if err := errors.Join(tool.Stop(r.dir, node), tool.Stop(r.dir, hw.InsideName(node))); err != nil {
		return err
	}
	return consoleMark(r.dir, node, "power-off")
}

// plugLinks sets the node's cables to the state of the hardware.
func plugLinks(ctx context.Context, r *rack, n *hw.Node, h *hw.Hardware) error {
	down := false
	for _, nic := range n.NICs {
		down = down || h.LinkDown(n.Name, nic.Network)
	}
	if !down {
		return nil // QEMU starts with all links up
	}
	return r.withQMP(ctx, n.Name, func(q *qemu.Client) error { return qemu.SetLinks(q, h, n) })
}

// withQMP calls fn with a connection to a node's QEMU.
func (r *rack) withQMP(ctx context.Context, node string, fn func(q *qemu.Client) error) error {
	if tool.Running(r.dir, node) == nil {
		return fmt.Errorf("node %s is switched off", node)
	}
	q, err := qemu.Dial(ctx, tool.RunDir(r.dir), tool.QMPSocket(node))
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	defer q.Close()
	if err := fn(q); err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	return nil
}

// powerNode switches a node and its BMC on or off, by the power of the node's cords.
// The caller holds the power lock. A node whose power comes back starts: the restore
// policy of a server is "always on".
func (r *rack) powerNode(ctx context.Context, h *hw.Hardware, n *hw.Node, cameBack bool) error {
	if !h.Powered(n) {
		return errors.Join(r.stopNode(n.Name), stopBMC(ctx, r, n))
	}
	err := ensureBMC(ctx, r, n, h)
	if cameBack {
		err = errors.Join(err, r.startNode(ctx, h, n.Name))
	}
	return err
}

// setOutlets switches an outlet of a PDU, or all for outlet 0. The PDU's controller
// and the feed faults both use it.
func (r *rack) setOutlets(ctx context.Context, pdu string, outlet int, on bool) error {
	p, err := r.cfg.PDU(pdu)
	if err != nil {
		return err
	}
	if outlet < 0 || outlet > p.Outlets {
		return tool.Refuse("pdu %s has no outlet %d: it has 1 to %d", pdu, outlet, p.Outlets)
	}
	had := map[string]bool{}
	return changeHardware(ctx, r, func(h *hw.Hardware) {
		for i := range r.cfg.Nodes {
			had[r.cfg.Nodes[i].Name] = h.Powered(&r.cfg.Nodes[i])
		}
		for o := 1; o <= p.Outlets; o++ {
			if outlet == 0 || outlet == o {
				hw.Set(&h.Off, hw.OutletKey(pdu, o), !on)
			}
		}
	}, func(h *hw.Hardware) error {
		var errs []error
		for i := range r.cfg.Nodes {
			n := &r.cfg.Nodes[i]
			if n.BMC != nil {
				errs = append(errs, ensureSensors(r, n, h))
			}
			if now := h.Powered(n); now != had[n.Name] {
				errs = append(errs, r.powerNode(ctx, h, n, now))
			}
		}
		return errors.Join(append(errs, r.powerShelves(ctx, h))...)
	})
}

// consoleMark writes a line of ours into a node's console log.
func consoleMark(dir, node, what string) error {
	return tool.AppendLine(filepath.Join(tool.RunDir(dir), tool.ConsoleFile(node)), "\n"+nodeimage.MarkPrefix+what+" 0")
}
