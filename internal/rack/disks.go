package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
	"github.com/mortarhpc/mortar/internal/rack/vdisk"
)

// diskTime bounds the work of qemuIO, which takes seconds at most.
const diskTime = time.Minute

// imagesOf returns the image files that a process serves, by the export's name.
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

// qemuIO runs commands of qemu-io(1) on each of some disks that a process serves: on the
// disk with its cache. qemu-io then closes the disk, which flushes it.
func (r *rack) qemuIO(ctx context.Context, process string, disks []string, commands ...string) error {
	// A relative path, as in ServeDisks.
	argv := []string{"env", "--chdir=" + tool.RunDir(r.dir), "qemu-io"}
	for _, d := range disks {
		argv = append(argv, "-c", "open -o driver=nbd,export="+d+",server.type=unix,server.path="+qemu.NBDSocket(process))
		for _, c := range commands {
			argv = append(argv, "-c", c)
		}
		argv = append(argv, "-c", "close")
	}
	ctx, cancel := context.WithTimeout(ctx, diskTime)
	defer cancel()
	return tool.Run(ctx, argv...)
}

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
	socket := filepath.Join(tool.RunDir(r.dir), qemu.NBDSocket(name))
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return tool.StartDaemon(ctx, r.dir, r.cfg.Netns(), name, func() bool {
		conn, err := qemu.DialSocket(ctx, tool.RunDir(r.dir), qemu.NBDSocket(name))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, tool.SelfBinary(r.dir), "rack", "_disks", r.dir, name, tool.PidFile(r.dir, name))
}

// ServeDisks is the hidden command that serves disks of the rack in dir until it is killed.
// Servers reach those inside them, and SSDs, by NBD, and shared disks by iSCSI, for their
// reservations. The rack itself reaches all by NBD.
func ServeDisks(ctx context.Context, dir, process string) error {
	r, err := openChild(dir)
	if err != nil {
		return err
	}
	disks := map[string]*vdisk.Disk{}
	for name, image := range r.imagesOf(process) {
		if disks[name], err = vdisk.Open(image); err != nil {
			return err
		}
	}
	if process == hw.Shelves {
		if err := serveDrives(ctx, r, disks); err != nil {
			return err
		}
	}
	// A relative path, since a socket's path must be shorter than 108 bytes; spawn
	// starts this process in the run directory.
	l, err := net.Listen("unix", qemu.NBDSocket(process))
	if err != nil {
		return err
	}
	return vdisk.Serve(ctx, l, disks)
}

// serveDrives serves the shared disks as SCSI devices, over all of their paths.
func serveDrives(ctx context.Context, r *rack, disks map[string]*vdisk.Disk) error {
	drives := map[string]*vdisk.Drive{}
	type port struct {
		*vdisk.Drive
		path int
	}
	ports := map[string]port{}
	for _, d := range r.cfg.SharedDisks() {
		if d.Array != nil || !d.Session() {
			continue
		}
		v := &vdisk.Drive{Disk: disks[d.BlockID()]}
		drives[d.BlockID()] = v
		for path := range d.Paths {
			ports[hw.DriveName(d, path)] = port{v, path}
		}
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(hw.DrivePortal))
	if err = errors.Join(err, setDrives(r.dir, drives)); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGUSR1) // see changeHardware; SIGHUP ends a command
	set := func() {
		if err := setDrives(r.dir, drives); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	go func() {
		for range again {
			set()
		}
	}()
	go func() {
		err := vdisk.ServeISCSI(l, func(name string) (*vdisk.Drive, int) {
			set() // another disk may be in the slot
			return ports[name].Drive, ports[name].path
		})
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return nil
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
	for _, d := range r.cfg.SharedDisks() {
		v := drives[d.BlockID()]
		if v == nil {
			continue
		}
		v.Set(vdisk.Make{Serial: d.Serial, Vendor: d.Vendor, Product: d.Product, WWN: d.Number(), SSD: d.SSD}, vdisk.Speed(h.Speed(d.Disk)))
		if h.DisksOut[d.Name] {
			v.Forget()
		}
	}
	return nil
}
