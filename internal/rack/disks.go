package rack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
	"github.com/mortarhpc/mortar/internal/rack/vdisk"
)

// diskTime bounds an order to a process, which takes seconds at most.
const diskTime = time.Minute

// imagesOf returns the image files that a process serves, by the name of the disk.
func (r *rack) imagesOf(process string) map[string]string {
	out := map[string]string{}
	for _, d := range r.cfg.SharedDisks() {
		if d.Array == nil && process == hw.Shelves {
			out[d.BlockID()] = hw.DiskImage(r.dir, d.Name)
		}
	}
	for i, d := range r.cfg.SSDs {
		if d.Shelf() == process {
			out[hw.SSDID(i)] = hw.DiskImage(r.dir, d.Name)
		}
	}
	for i := range r.cfg.Nodes {
		n := &r.cfg.Nodes[i]
		if !hw.IsServer(n) || hw.InsideName(n.Name) != process {
			continue
		}
		for _, d := range hw.SystemDisksOf(r.dir, n) {
			out[d.BlockID()] = d.Image
		}
	}
	return out
}

// diskProcesses are the names of all processes that may serve disks.
func diskProcesses(c *hw.Config) []string {
	out := []string{hw.Shelves}
	for _, n := range c.Nodes {
		out = append(out, hw.InsideName(n.Name))
	}
	return out
}

// order gives an order to a process that serves disks: see obey.
func (r *rack) order(ctx context.Context, process, order string) error {
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	conn, err := qemu.DialSocket(ctx, tool.RunDir(r.dir), disksSocket(process))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	fmt.Fprintln(conn, order)
	said, err := io.ReadAll(conn)
	if err == nil && string(said) != obeyed {
		err = fmt.Errorf("%s: %s: %q", process, order, said)
	}
	return err
}

const obeyed = "done"

// disksSocket is the socket of a process that serves disks, in the run directory.
func disksSocket(process string) string { return process + ".sock" }

// powerShelves switches the shared disks on or off. Off they lose their unwritten data.
func (r *rack) powerShelves(ctx context.Context, h *hw.Hardware) error {
	if !h.ShelvesPowered(r.cfg) {
		return tool.Stop(r.dir, hw.Shelves)
	}
	return r.startDisks(ctx, hw.Shelves)
}

// startDisks switches a process's disks on unless they are on.
func (r *rack) startDisks(ctx context.Context, name string) error {
	if tool.Running(r.dir, name) != nil || len(r.imagesOf(name)) == 0 {
		return nil
	}
	socket := filepath.Join(tool.RunDir(r.dir), disksSocket(name))
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return tool.StartDaemon(ctx, r.dir, r.cfg.Netns(), name, func() bool {
		conn, err := qemu.DialSocket(ctx, tool.RunDir(r.dir), disksSocket(name))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, tool.SelfBinary(r.dir), "rack", "_disks", r.dir, name, tool.PidFile(r.dir, name))
}

// ServeDisks is the hidden command that serves disks of the rack in dir over iSCSI until it is
// killed.
func ServeDisks(ctx context.Context, dir, process string) error {
	r, err := openChild(dir)
	if err != nil {
		return err
	}
	drives, targets := map[string]*vdisk.Drive{}, map[string]port{}
	for name, image := range r.imagesOf(process) {
		d, err := vdisk.Open(image)
		if err != nil {
			return err
		}
		drives[name] = &vdisk.Drive{Disk: d}
		targets[hw.DiskTarget(name)] = port{drives[name], 0}
	}
	for _, d := range r.cfg.SharedDisks() {
		for path := range d.Paths {
			targets[hw.DriveName(d, path)] = port{drives[d.BlockID()], path}
		}
	}
	if err := setDrives(r.dir, drives); err != nil {
		return err
	}
	set := func() {
		if err := setDrives(r.dir, drives); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGUSR1) // see changeHardware; SIGHUP ends a command
	go func() {
		for range again {
			set()
		}
	}()
	portal, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(hw.Portal(r.cfg, process)))
	if err != nil {
		return err
	}
	// A relative path, since a socket's path must be shorter than 108 bytes; spawn
	// starts this process in the run directory. A process that finds the socket finds the portal, too.
	orders, err := net.Listen("unix", disksSocket(process))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { portal.Close() })()
	go func() {
		_ = tool.ServeConns(orders, func(conn net.Conn) error { return obey(conn, drives) })
	}()
	err = vdisk.ServeISCSI(portal, func(name string) (*vdisk.Drive, int) {
		set() // another disk may be in the slot
		return targets[name].Drive, targets[name].path
	})
	return errors.Join(ctx.Err(), err)
}

type port struct {
	*vdisk.Drive
	path int
}

// obey carries an order out: flush empties the caches of all disks into their images, and zero
// with the name of a disk takes all its data.
func obey(conn net.Conn, drives map[string]*vdisk.Drive) error {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return nil // only looks whether the process is there
	}
	word, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch d := drives[name]; {
	case word == "flush":
		for _, d := range drives {
			err = errors.Join(err, d.Flush())
		}
	case word == "zero" && d != nil:
		err = d.Zero(0, d.Size())
	default:
		err = fmt.Errorf("order %q", line)
	}
	if err != nil {
		_, err = fmt.Fprint(conn, err)
		return err
	}
	_, err = fmt.Fprint(conn, obeyed)
	return err
}

// setDrives tells the drives what they are and how fast, and those that are out of their slots
// that they are without power.
func setDrives(dir string, drives map[string]*vdisk.Drive) error {
	r, err := openRack(dir)
	if err != nil {
		return err
	}
	h, err := loadHardware(r.dir)
	if err != nil {
		return err
	}
	set := func(id string, d hw.Disk, ssd bool) {
		v := drives[id]
		if v == nil {
			return
		}
		v.Set(vdisk.Make{Serial: d.Serial, Vendor: d.Vendor, Product: d.Product, WWN: d.Number(), SSD: ssd}, vdisk.Speed(h.Speed(d)))
		if h.DisksOut[d.Name] {
			v.Forget()
		}
	}
	for _, d := range r.cfg.SharedDisks() {
		set(d.BlockID(), d.Disk, d.SSD)
	}
	for i, d := range r.cfg.SSDs {
		set(hw.SSDID(i), d, true)
	}
	return nil
}
