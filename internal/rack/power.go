package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// rack is an existing rack: its directory and the state in it.
type rack struct {
	dir string
	cfg *Config
	st  *state
}

// absDir is the unique path of a rack's directory, without symbolic links, by which
// the rack's processes are found. It leaves parts that do not exist yet unchanged.
func absDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	rest := ""
	for at := abs; ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

func openRack(dir string) (*rack, error) {
	abs, err := absDir(dir)
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

// image returns the image of the rack's nodes.
func (r *rack) image() (*image, error) {
	img := cachedImage(r.st.Image)
	if img == nil {
		return nil, refuse("the node image %s is gone or damaged: mortar rack down, then up, builds it again", r.st.Image)
	}
	return img, nil
}

func (r *rack) index(node string) (int, *Node, error) {
	n, err := r.cfg.node(node)
	if err != nil {
		return 0, nil, err
	}
	for i := range r.cfg.Nodes {
		if &r.cfg.Nodes[i] == n {
			return i, n, nil
		}
	}
	panic("unreachable: the node is one of the Config's")
}

// startNode switches a node on. The caller holds the power lock. It does nothing to a
// node that is on. A node without power stays off, which is no error: its power
// button has no effect.
//
// As on a real server, a LUN that does not answer is missing. startNode notes that in
// the node's log and returns no error, so that a BMC or a fence agent does not
// believe that the server is still off.
func (r *rack) startNode(ctx context.Context, h *hardware, node string) error {
	err := r.start(ctx, h, node, postSeconds)
	if missing := (*lunError)(nil); errors.As(err, &missing) {
		return appendLine(logFile(r.dir, node), missing.Error())
	}
	return err
}

// lunError means that a server runs but lacks LUNs.
type lunError struct{ error }

// postSeconds is the duration of a server's self test before it loads a kernel. Real
// servers take a minute or more. The self test also keeps a fenced server from
// competing with the survivor for the shared processor during the takeover.
const postSeconds = 20

// start is startNode with a given duration of the self test, which Up sets to 0.
func (r *rack) start(ctx context.Context, h *hardware, node string, post int) error {
	i, n, err := r.index(node)
	if err != nil {
		return err
	}
	if running(r.dir, n.Name) != nil || !h.powered(n) {
		return nil
	}
	img, err := r.image()
	if err != nil {
		return err
	}
	if err := img.used(); err != nil {
		return err
	}
	args, err := nodeArgs(r.cfg, r.dir, i, img, r.st.Accel, h, post)
	if err != nil {
		return err
	}
	if isServer(n) {
		if err := errors.Join(r.powerShelves(ctx, h), r.startDisks(ctx, insideName(n.Name))); err != nil {
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
	run := runDir(r.dir)
	for _, f := range []string{filepath.Join(run, qmpSocket(name)), pidFile(r.dir, name)} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_, gone, err := spawn(r.dir, r.cfg.netns(), name, append([]string{"qemu-system-x86_64"}, args...)...)
	if err != nil {
		return err
	}
	return waitStarted(ctx, r.dir, name, gone, func() bool {
		q, err := dialQMP(ctx, run, qmpSocket(name))
		if err != nil {
			return false
		}
		q.close()
		return running(r.dir, name) != nil
	})
}

// plugLUNs plugs the LUNs of arrays into a server that was switched on, and lets the
// server run. It skips LUNs that do not answer, and returns them as an error.
func plugLUNs(ctx context.Context, r *rack, n *Node, h *hardware) error {
	if !isServer(n) || !r.cfg.withArray(n.Name) {
		return nil
	}
	return r.withQMP(ctx, n.Name, func(q *qmpClient) error {
		missing := plugPaths(r, n, q, h)
		if _, err := q.call("cont", nil); err != nil {
			return err
		}
		if missing != nil {
			return &lunError{fmt.Errorf("LUNs of %s: %w", n.Name, missing)}
		}
		return nil
	})
}

// plugPaths plugs all paths of a server to LUNs of arrays that are on.
func plugPaths(r *rack, n *Node, q *qmpClient, h *hardware) error {
	var errs []error
	for _, d := range r.cfg.sharedDisks() {
		for path := range d.Paths {
			if d.array != nil && running(r.dir, d.Enclosure) != nil && !h.pathGone(n.Name, d, path) {
				errs = append(errs, plugPath(q, r.cfg, n, d, path))
			}
		}
	}
	return errors.Join(errs...)
}

// plug adds the disk at the end of a path to a server, unplug removes it.
func plugPath(q *qmpClient, c *Config, n *Node, d sharedDisk, path int) error {
	p, err := pathDevice(d, path)
	if err != nil {
		return err
	}
	if d.array != nil {
		return q.plugLUN(pathBlock(d, c, n.Name, path), p)
	}
	return q.plug(p)
}

func unplugPath(q *qmpClient, d sharedDisk, path int) error {
	if err := q.unplug(d.pathID(path)); err != nil || d.array == nil {
		return err
	}
	return q.dropSession(d.sessionID(path))
}

// stopNode cuts a node's power. The node loses its unwritten data, and so do the
// caches of the disks inside.
func (r *rack) stopNode(node string) error {
	if err := errors.Join(stop(r.dir, node), stop(r.dir, insideName(node))); err != nil {
		return err
	}
	return consoleMark(r.dir, node, "power-off")
}

// plugLinks sets the node's cables to the state of the hardware.
func plugLinks(ctx context.Context, r *rack, n *Node, h *hardware) error {
	down := false
	for _, nic := range n.NICs {
		down = down || h.linkDown(n.Name, nic.Network)
	}
	if !down {
		return nil // QEMU starts with all links up
	}
	return r.withQMP(ctx, n.Name, func(q *qmpClient) error { return setLinks(q, h, n) })
}

func setLinks(q *qmpClient, h *hardware, n *Node) error {
	for i, nic := range n.NICs {
		if _, err := q.call("set_link", props{"name": nicID(i), "up": !h.linkDown(n.Name, nic.Network)}); err != nil {
			return err
		}
	}
	return nil
}

// withQMP calls fn with a connection to a node's QEMU.
func (r *rack) withQMP(ctx context.Context, node string, fn func(q *qmpClient) error) error {
	if running(r.dir, node) == nil {
		return fmt.Errorf("node %s is switched off", node)
	}
	q, err := dialQMP(ctx, runDir(r.dir), qmpSocket(node))
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	defer q.close()
	if err := fn(q); err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	return nil
}

// powerNode switches a node and its BMC on or off, by the power of the node's cords.
// The caller holds the power lock. A node whose power comes back starts: the restore
// policy of a server is "always on".
func (r *rack) powerNode(ctx context.Context, h *hardware, n *Node, cameBack bool) error {
	if !h.powered(n) {
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
	p, err := r.cfg.pdu(pdu)
	if err != nil {
		return err
	}
	if outlet < 0 || outlet > p.Outlets {
		return refuse("pdu %s has no outlet %d: it has 1 to %d", pdu, outlet, p.Outlets)
	}
	had := map[string]bool{}
	return changeHardware(ctx, r, func(h *hardware) {
		for i := range r.cfg.Nodes {
			had[r.cfg.Nodes[i].Name] = h.powered(&r.cfg.Nodes[i])
		}
		for o := 1; o <= p.Outlets; o++ {
			if outlet == 0 || outlet == o {
				set(&h.Off, outletKey(pdu, o), !on)
			}
		}
	}, func(h *hardware) error {
		var errs []error
		for i := range r.cfg.Nodes {
			n := &r.cfg.Nodes[i]
			if n.BMC != nil {
				errs = append(errs, ensureSensors(r, n, h))
			}
			if now := h.powered(n); now != had[n.Name] {
				errs = append(errs, r.powerNode(ctx, h, n, now))
			}
		}
		return errors.Join(append(errs, r.powerShelves(ctx, h))...)
	})
}

// consoleMark writes a line of ours into a node's console log.
func consoleMark(dir, node, what string) error {
	return appendLine(filepath.Join(runDir(dir), consoleFile(node)), "\n"+markPrefix+what+" 0")
}

// appendLine adds a line to a log.
func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
