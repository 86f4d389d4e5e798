package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Faults of a server's software, which its agent injects on any hardware.

// daemons has the daemons that a drill can kill, with the unit that starts the daemon again on a
// server without a cluster. The cluster starts those of the service.
//
// Source: systemd units of nfs-utils
var daemons = map[string]string{"nfsd": "nfs-server.service", "rpc.mountd": "nfs-mountd.service", "rpc.statd": "rpc-statd.service", "nfsdcld": "nfsdcld.service",
	"pacemakerd": "pacemaker.service", "corosync": "pacemaker.service"}

// OfCluster are the daemons of the cluster software.
var OfCluster = []string{"pacemakerd", "corosync"}

func mayKill(b *Site, f Fault) error {
	if _, ok := daemons[f.Args[0]]; !ok {
		return fmt.Errorf("%s is not among the daemons that are killed", f.Args[0])
	}
	if !slices.Contains(OfCluster, f.Args[0]) && !slices.Contains(kind.Of(b.Design).Is().Daemons, f.Args[0]) {
		return fmt.Errorf("this brick has no %s", f.Args[0])
	}
	return nil
}

func killDaemon(ctx context.Context, b *Site, f Fault) error {
	a := resource.Action{Title: "kill " + f.Args[0], Cmd: []string{"pkill", "-KILL", "-x", f.Args[0]}}
	if f.Args[0] == "nfsd" {
		// pkill cannot signal kernel threads by name; writing 0 ends them.
		// Source: nfsd(7)
		a.Cmd, a.Stdin = []string{"tee", nfs.NFSDDir(b.Service.Namespace) + "/threads"}, []byte("0\n")
	}
	return b.Do(ctx, f.On, a)
}

// startDaemon starts a daemon's unit again if the brick has no cluster, or the daemon is one of
// the cluster software. Otherwise the cluster starts the daemon.
func startDaemon(ctx context.Context, b *Site, f Fault) error {
	unit := daemons[f.Args[0]]
	if !b.Design.Clustered() {
		return b.Do(ctx, f.On, resource.Action{Title: "restart " + unit, Cmd: []string{"systemctl", "restart", unit}, Seconds: 120})
	}
	if !slices.Contains(OfCluster, f.Args[0]) {
		return nil
	}
	out, err := b.Query(ctx, f.On, "systemctl", "is-active", unit)
	if err != nil || out.Code == 0 {
		return nil // the server was fenced and boots, or the daemon runs
	}
	return b.Run(ctx, f.On, "start "+unit, "systemctl", "start", unit)
}

// mayHang: nfsd is no process, and the cluster's daemons are not the service's.
func mayHang(b *Site, f Fault) error {
	if f.Args[0] == "nfsd" || slices.Contains(OfCluster, f.Args[0]) {
		return fmt.Errorf("%s is not among the daemons that are stopped by a signal", f.Args[0])
	}
	return mayKill(b, f)
}

func hangDaemon(ctx context.Context, b *Site, f Fault) error {
	return b.Run(ctx, f.On, "stop "+f.Args[0]+" by a signal", "pkill", "-STOP", "-x", f.Args[0])
}

// letDaemonGoOn lets daemons go on that were not replaced. pkill ends with 1 if there is none.
func letDaemonGoOn(ctx context.Context, b *Site, f Fault) error {
	return b.Do(ctx, f.On, resource.Action{Title: "let " + f.Args[0] + " go on", Cmd: []string{"pkill", "-CONT", "-x", f.Args[0]}, OKCodes: []int{1}})
}

func DaemonRuns(ctx context.Context, b *Site, server, daemon string) bool {
	if daemon == "nfsd" {
		return nfsdRuns(ctx, b, server, b.Service)
	}
	_, err := b.output(ctx, server, "pgrep", "-x", daemon)
	return err == nil
}

func nfsdRuns(ctx context.Context, b *Site, server string, of *design.Service) bool {
	threads, err := b.Read(ctx, server, nfs.NFSDDir(of.Namespace)+"/threads")
	return err == nil && threads != "0" && threads != ""
}

// settings are parameters of a server's kernel (sysctl) that a fault sets until the server
// boots.
var settings = map[Kind]map[string]string{
	// The kernel writes dirty data of this age to the disks, and looks for such data at this
	// interval, both in hundredths of a second; the defaults are 3000 and 500. A partner
	// that reaches the server resets it within seconds of its waking up. With these values
	// the server still writes its dirty data before the reset, as an unreachable server
	// does later.
	//
	// Source: Linux, Documentation/admin-guide/sysctl/vm.rst
	WriteSoon: {"vm.dirty_expire_centisecs": "100", "vm.dirty_writeback_centisecs": "50"},
	// KiB/s: a rebuild of the rack's small disks does not end before the drill does.
	//
	// Source: Linux, Documentation/admin-guide/md.rst
	HoldRebuild: {"dev.raid.speed_limit_max": "100", "dev.raid.speed_limit_min": "100"},
}

// Setting reports whether a fault only sets parameters of a kernel, which harms no data.
func (f Fault) Setting() bool { return settings[f.Kind] != nil }

// parameters are what the parameters of a fault are now.
func parameters(ctx context.Context, b *Site, f Fault) (map[string]string, error) {
	now := map[string]string{}
	for name := range settings[f.Kind] {
		var err error
		if now[name], err = b.Read(ctx, f.On, "/proc/sys/"+strings.ReplaceAll(name, ".", "/")); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// setParameters sets the parameters of a fault, and keeps what they were.
func setParameters(ctx context.Context, b *Site, f Fault) error {
	now, err := parameters(ctx, b, f)
	if err != nil {
		return err
	}
	for name, value := range now {
		if value == settings[f.Kind][name] {
			return fmt.Errorf("%s of %s is %s already, left by a drill that was cut short: set it to what it was, or boot the server", name, f.On, value)
		}
	}
	if b.before == nil {
		b.before = map[Kind]map[string]string{}
	}
	b.before[f.Kind] = now
	return setSysctl(ctx, b, f.On, settings[f.Kind])
}

// resetParameters undoes setParameters, unless the server has booted since.
func resetParameters(ctx context.Context, b *Site, f Fault) error {
	to, err := parameters(ctx, b, f)
	if err != nil {
		return err
	}
	maps.DeleteFunc(to, func(name, value string) bool { return value != settings[f.Kind][name] || b.before[f.Kind][name] == "" })
	for name := range to {
		to[name] = b.before[f.Kind][name]
	}
	if len(to) == 0 {
		return nil
	}
	return setSysctl(ctx, b, f.On, to)
}

func setSysctl(ctx context.Context, b *Site, server string, values map[string]string) error {
	cmd := []string{"sysctl", "--quiet", "--write"}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		cmd = append(cmd, name+"="+values[name])
	}
	return b.Run(ctx, server, "set parameters of the kernel", cmd...)
}

// jumpClock moves a server's clock. The events that it logs from then on have the new time.
func jumpClock(ctx context.Context, b *Site, f Fault) error {
	n, err := strconv.Atoi(f.Args[0])
	if err != nil {
		return err
	}
	return setClock(ctx, b, f.On, time.Duration(n)*time.Second)
}

// setClockRight sets a server's clock right.
func setClockRight(ctx context.Context, b *Site, f Fault) error { return setClock(ctx, b, f.On, 0) }

// setClock sets a server's clock to what it would be without faults, and so much ahead. Its
// time service corrects the rest.
//
// Source: date(1), --set
func setClock(ctx context.Context, b *Site, server string, ahead time.Duration) error {
	was := time.Duration(b.Watch.moved(server))
	b.Watch.shift(server, ahead)
	at := float64(time.Now().Add(ahead+time.Duration(b.Watch.based(server))).UnixMilli()) / 1e3
	err := b.Run(ctx, server, "set the clock", "date", "--set=@"+strconv.FormatFloat(at, 'f', 3, 64))
	if err != nil {
		b.Watch.shift(server, was)
	}
	return err
}

// ErrNoAddress refuses a service that clients do not reach by an address of its own.
var ErrNoAddress = errors.New("the service has no address of its own")

func hasAddress(b *Site, _ Fault) error {
	if kind.Of(b.Design).Address(b.Design.Services()[0]) == "" { // they are all of one kind
		return ErrNoAddress
	}
	return nil
}

// takeFrom takes a thing away: the address, from whatever interface has it, as systemd-networkd
// does to an address that is not in its files; or a line of /etc/hosts, as cloud-init does to
// lines that are not in its template. A lazy unmount of nfsd's files is no such thing: the
// kernel then ends nfsd, and the service moves.
func takeFrom(ctx context.Context, b *Site, f Fault) error {
	s := b.Service
	if f.Args[0] == unit.TheName {
		return b.Run(ctx, f.On, "remove the line of "+s.Address+" from "+linux.HostsFile,
			"sed", "-i", `/^`+strings.ReplaceAll(s.Address, ".", `\.`)+`[[:space:]]/d`, linux.HostsFile)
	}
	ip := []string{"ip"}
	if s.Namespace != "" {
		ip = append(ip, "-n", s.Namespace)
	}
	dev, err := interfaceOf(ctx, b, f.On, s.Address, ip...)
	if err != nil {
		return err
	}
	return b.Run(ctx, f.On, "take the service address away", append(ip, "address", "del", kind.Of(b.Design).Address(s), "dev", dev)...)
}

// interfaceOf is the interface of a server that has an address; ip is the command, or that in a
// namespace.
func interfaceOf(ctx context.Context, b *Site, server, address string, ip ...string) (string, error) {
	out, err := b.Query(ctx, server, append(slices.Clip(ip), "-o", "addr", "show", "to", address)...)
	if err != nil {
		return "", err
	}
	f := strings.Fields(out.Stdout)
	if len(f) < 2 {
		return "", fmt.Errorf("no interface of %s has the address %s", server, address)
	}
	name, _, _ := strings.Cut(f[1], "@")
	return name, nil
}

// ErrNoLustre refuses drills of parts that only a Lustre file system has.
var ErrNoLustre = errors.New("the brick has no Lustre file system")

// hasLustre refuses a brick of another kind.
func hasLustre(b *Site, _ Fault) error {
	if kind.Of(b.Design).LNet(b.Design) == "" {
		return ErrNoLustre
	}
	return nil
}

// lnetDown removes the network of the targets. The loopback network of LNet stays.
//
// Source: lnetctl(8), net del
func lnetDown(ctx context.Context, b *Site, f Fault) error {
	network := kind.Of(b.Design).LNet(b.Design)
	return b.Run(ctx, f.On, "take network "+network+" from LNet", "lnetctl", "net", "del", "--net", network)
}

// lnetUp configures LNet as `mortar apply` does. A server that was fenced configures LNet
// when it boots.
func lnetUp(ctx context.Context, b *Site, f Fault) error {
	wire, err := agent.Wire(plan.LNetOf(b.Design, f.On))
	if err != nil {
		return err
	}
	return applyResource(ctx, b, f.On, wire)
}

// A disk that hangs answers neither data nor an error. The device mapper does that to a
// multipath map on one server, on any hardware: I/O to a suspended map waits.
//
// Source: dmsetup(8), suspend --noflush --nolockfs
const (
	// hungFor bounds a disk that hangs, should the drill be killed before it heals it.
	hungFor   = 15 * time.Minute
	hungTimer = "mortar-drill-hung"
)

// mapOf is the multipath map that a server has of a disk, by its serial number, or of a LUN,
// by its name.
func mapOf(ctx context.Context, b *Site, f Fault) (string, error) {
	if slices.ContainsFunc(b.Design.LUNs(), func(l design.LUN) bool { return l.Name == f.Args[0] }) {
		return f.Args[0], nil
	}
	facts, err := gathered(ctx, b, f.On, gather.Request{Disks: true})
	if err != nil {
		return "", err
	}
	for _, d := range facts.Disks {
		if name, ok := strings.CutPrefix(d.Device, "/dev/mapper/"); ok && d.Serial == f.Args[0] {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s has no multipath map of disk %s, and only one can be made to hang", f.On, f.Args[0])
}

func hangDisk(ctx context.Context, b *Site, f Fault) error {
	name, err := mapOf(ctx, b, f)
	if err != nil {
		return err
	}
	if b.hung == nil {
		b.hung = map[string]string{}
	}
	b.hung[f.String()] = name
	_ = stopHungTimer(ctx, b, f.On) // of a drill before; there may be none
	err = b.Run(ctx, f.On, "let "+name+" go after a while", "systemd-run", "--collect", "--unit="+hungTimer, fmt.Sprintf("--on-active=%.0f", hungFor.Seconds()), "dmsetup", "resume", name)
	if err != nil {
		return err
	}
	return b.Run(ctx, f.On, "have "+name+" hang", "dmsetup", "suspend", "--noflush", "--nolockfs", name)
}

// letAnswer lets a disk that hangs answer again. The map of a server that has booted never hung.
func letAnswer(ctx context.Context, b *Site, f Fault) error {
	name, ok := b.hung[f.String()]
	if !ok {
		return nil // it was never made to hang
	}
	if err := b.Run(ctx, f.On, "let "+name+" answer", "dmsetup", "resume", "--noudevsync", name); err != nil {
		return err
	}
	_ = stopHungTimer(ctx, b, f.On) // a server that has booted has none
	return nil
}

func stopHungTimer(ctx context.Context, b *Site, server string) error {
	return b.Run(ctx, server, "the disk no longer hangs", "systemctl", "stop", hungTimer+".timer")
}

// singleServer describes a server without a cluster as a cluster of one node. A service
// runs if its volume is mounted and nfsd has threads.
func singleServer(ctx context.Context, b *Site) (*linux.CRM, error) {
	server := b.Servers()[0]
	c := &linux.CRM{Nodes: []linux.CRMNode{{Name: server, Online: true}}}
	if _, err := b.Read(ctx, server, "/proc/uptime"); err != nil {
		return c, fmt.Errorf("%s: %w", server, err)
	}
	for _, s := range b.Design.Services() {
		r := linux.CRMResource{ID: resource.ServiceID(s.Name), Role: "Started", Managed: true}
		if has, err := b.HasVolume(ctx, server, s); err == nil && has && nfsdRuns(ctx, b, server, s) {
			r.Nodes = append(r.Nodes, linux.CRMOn{Name: server})
		}
		c.Resources = append(c.Resources, r)
	}
	return c, nil
}
