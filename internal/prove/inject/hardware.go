package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// sysrqGrace is how long a server gets to answer a SysRq crash. A server without
// an answer counts as crashed.
const sysrqGrace = 5 * time.Second

// Hardware breaks real servers with the kernel's SysRq, their devices in /sys and
// the BMC.
type Hardware struct {
	Design *design.Design
	Dial   host.Dial

	// hbas are each server's SCSI hosts at the first fault since the last Heal, so
	// that a host without paths keeps its number.
	hbas map[string][]int
}

// hardwareFault is how Hardware injects a fault.
type hardwareFault struct {
	can          func(h *Hardware, f fault.Fault) error // nil: always
	inject, heal func(h *Hardware, ctx context.Context, f fault.Fault) error
}

// hardwareFaults has the faults that a command can inject.
var hardwareFaults = map[fault.Kind]hardwareFault{
	fault.Panic:      {inject: sysrq("c", "panic the kernel"), heal: (*Hardware).powerOn},
	fault.PowerOff:   {can: (*Hardware).hasIPMI, inject: func(h *Hardware, ctx context.Context, f fault.Fault) error { return h.ipmi(ctx, f.On, "off") }, heal: (*Hardware).powerOn},
	fault.ClientDown: {inject: sysrq("b", "reset the host"), heal: (*Hardware).boots},
	fault.LinkDown:   {can: (*Hardware).hasLink, inject: (*Hardware).linkDown, heal: (*Hardware).linkUp},
	fault.PathOut:    {inject: (*Hardware).deletePaths, heal: (*Hardware).scan},
	fault.HBAOut:     {inject: (*Hardware).deletePaths, heal: (*Hardware).scan},
	fault.PathsOut:   {inject: (*Hardware).deletePaths, heal: (*Hardware).scan},
	fault.DiskOut:    {inject: everywhere((*Hardware).deletePaths), heal: everywhere((*Hardware).scan)},
	fault.LocalDisk:  {inject: (*Hardware).deleteSystemDisk, heal: (*Hardware).rescan},
}

// Can refuses faults that no command can inject on real hardware.
func (h *Hardware) Can(f fault.Fault) error {
	how, ok := hardwareFaults[f.Kind]
	switch {
	case !ok && fault.Kinds[f.Kind].ByHand != "":
		return errors.New(fault.Kinds[f.Kind].ByHand)
	case !ok:
		return fmt.Errorf("no command injects fault %q on real hardware: a person must do it by hand", f.Kind)
	case how.can != nil:
		return how.can(h, f)
	}
	return nil
}

// Inject injects the fault.
func (h *Hardware) Inject(ctx context.Context, f fault.Fault) error {
	if err := h.Can(f); err != nil {
		return err
	}
	return hardwareFaults[f.Kind].inject(h, ctx, f)
}

// Heal restores links and paths, and switches on a server that is off. It does
// not change the power of a running server.
func (h *Hardware) Heal(ctx context.Context, f fault.Fault) error {
	how, ok := hardwareFaults[f.Kind]
	if !ok {
		return h.Can(f)
	}
	h.hbas = nil // a boot may change their numbers
	return how.heal(h, ctx, f)
}

// everywhere calls do for every server.
func everywhere(do func(*Hardware, context.Context, fault.Fault) error) func(*Hardware, context.Context, fault.Fault) error {
	return func(h *Hardware, ctx context.Context, f fault.Fault) error {
		for _, n := range h.Design.Servers() {
			f.On = n
			if err := do(h, ctx, f); err != nil {
				return err
			}
		}
		return nil
	}
}

func (h *Hardware) hasIPMI(fault.Fault) error {
	if _, err := exec.LookPath("ipmitool"); err != nil {
		return errors.New("ipmitool is not installed on this machine (apt-get install ipmitool)")
	}
	return nil
}

func (h *Hardware) hasLink(f fault.Fault) error {
	_, err := h.linkAddress(f)
	return err
}

// boots does nothing: a host that was reset boots by itself, and the drill waits for it.
func (*Hardware) boots(ctx context.Context, _ fault.Fault) error { return ctx.Err() }

// sysrq sends a key that ends the kernel at once, so the missing answer means success: c
// panics, b reboots without a sync or an unmount.
// Source: Documentation/admin-guide/sysrq.rst
func sysrq(key, title string) func(*Hardware, context.Context, fault.Fault) error {
	return func(h *Hardware, ctx context.Context, f fault.Fault) error {
		s, err := h.Dial(ctx, f.On)
		if err != nil {
			return err
		}
		defer s.Close()
		cctx, cancel := context.WithTimeout(ctx, sysrqGrace)
		defer cancel()
		a := resource.Action{Title: title, Cmd: []string{"tee", "/proc/sysrq-trigger"}, Stdin: []byte(key)}
		if _, err := s.Run(cctx, a); err == nil {
			return errors.New("the kernel survived SysRq " + key)
		}
		return ctx.Err()
	}
}

// linkAddress is the spec's address of the interface of a link.
func (h *Hardware) linkAddress(f fault.Fault) (string, error) {
	for _, s := range h.Design.Spec.Servers {
		if s.Name != f.On {
			continue
		}
		a := map[string]string{"public": s.Public, "private": s.Private}[f.Args[0]]
		switch {
		case a == "":
			return "", fmt.Errorf("%s has no %s address in the spec", f.On, f.Args[0])
		case !slices.Contains(h.Design.Spec.IPs(f.On), s.Address):
			return "", fmt.Errorf("SSH goes to %s by the name %s: Mortar does not know by which link; write the IP address as address of the server", f.On, s.Address)
		case a == s.Address:
			return "", fmt.Errorf("the %s link of %s is the one SSH goes over: once it is down no command could mend it", f.Args[0], f.On)
		}
		return a, nil
	}
	return "", fmt.Errorf("%s is no server of the brick", f.On)
}

// on runs f over a session with a host.
func (h *Hardware) on(ctx context.Context, name string, f func(*host.Session) error) error {
	s, err := h.Dial(ctx, name)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

func (h *Hardware) linkDown(ctx context.Context, f fault.Fault) error {
	return h.on(ctx, f.On, func(s *host.Session) error { return h.link(ctx, s, f, "down") })
}

func (h *Hardware) linkUp(ctx context.Context, f fault.Fault) error {
	return h.unlessGone(ctx, f.On, func(s *host.Session) error { return h.link(ctx, s, f, "up") })
}

// link sets the interface with the link's address down or up.
// Source: ip-link(8)
func (h *Hardware) link(ctx context.Context, s *host.Session, f fault.Fault, state string) error {
	address, err := h.linkAddress(f)
	if err != nil {
		return err
	}
	out, err := s.Query(ctx, "ip", "-json", "address", "show")
	if err != nil {
		return err
	}
	links, err := linux.ParseLinks(out.Stdout)
	if err != nil {
		return fmt.Errorf("%s: %w", f.On, err)
	}
	l, ok := linux.LinkWith(links, address)
	if !ok {
		return fmt.Errorf("%s: no interface has address %s", f.On, address)
	}
	a := resource.Action{Title: "set " + l.Name + " " + state, Cmd: []string{"ip", "link", "set", "dev", l.Name, state}}
	_, err = s.Run(ctx, a)
	return err
}

// deletePaths deletes the SCSI devices of paths on a server, as a transport that
// loses them does. A scan of the SCSI hosts brings them back.
//
// Source: Documentation/ABI/testing/sysfs-bus-scsi-devices and scsi_host
func (h *Hardware) deletePaths(ctx context.Context, f fault.Fault) error {
	server := f.On
	return h.on(ctx, server, func(s *host.Session) error {
		facts, err := host.Ask(ctx, s, gather.Op, gather.Request{Disks: true})
		if err != nil {
			return err
		}
		where := map[string]string{} // sdX → its place in /sys
		for _, d := range facts.Disks {
			for _, p := range d.Paths {
				out, err := s.Query(ctx, "readlink", "-e", "/sys/block/"+filepath.Base(p)+"/device")
				if err != nil {
					return err
				}
				where[filepath.Base(p)] = strings.TrimSpace(out.Stdout)
			}
		}
		if h.hbas == nil {
			h.hbas = map[string][]int{}
		}
		if h.hbas[server] == nil {
			h.hbas[server] = hbasOf(h.Design.ReachedBy(server), facts.Disks, where)
		}
		doomed := pathsOf(h.Design.ReachedBy(server), facts.Disks, where, h.hbas[server], f)
		if len(doomed) == 0 {
			return fmt.Errorf("%s has no path that %q would take", server, f)
		}
		for _, p := range doomed {
			a := resource.Action{Title: "delete " + p, File: &resource.File{Path: "/sys/block/" + p + "/device/delete", Content: []byte("1")}}
			if _, err := s.Run(ctx, a); err != nil {
				return err
			}
		}
		return nil
	})
}

var scsiHostRE = regexp.MustCompile(`/host(\d+)/`)

// scsiHost is the number of the SCSI host in a device's path in /sys; -1: none.
func scsiHost(place string) int {
	m := scsiHostRE.FindStringSubmatch(place)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(m[1]) // the expression matches digits only
	return n
}

// nameOf is the name, for faults, of a disk that a server sees: see
// design.Reached. It is "" if the disk does not belong to the brick.
func nameOf(of []design.Reached, x resource.DiskFact) string {
	r, _ := lists.First(of, func(r design.Reached) bool {
		return strings.EqualFold(r.Name, x.Serial) || r.WWN != "" && strings.EqualFold(r.WWN, x.WWN)
	})
	return r.Name
}

// hbasOf returns the SCSI hosts with disks of the brick, in the kernel's order.
func hbasOf(of []design.Reached, disks []resource.DiskFact, where map[string]string) []int {
	var hosts []int
	for _, x := range disks {
		for _, p := range x.Paths {
			if n := scsiHost(where[filepath.Base(p)]); nameOf(of, x) != "" && n >= 0 && !slices.Contains(hosts, n) {
				hosts = append(hosts, n)
			}
		}
	}
	slices.Sort(hosts)
	return hosts
}

// pathsOf returns the paths that a fault removes; hosts are the HBAs by number.
func pathsOf(of []design.Reached, disks []resource.DiskFact, where map[string]string, hosts []int, f fault.Fault) []string {
	var out []string
	for _, x := range disks {
		name := nameOf(of, x)
		if name == "" {
			continue
		}
		if (f.Kind == fault.PathOut || f.Kind == fault.DiskOut) && !strings.EqualFold(name, f.Args[0]) {
			continue
		}
		for _, p := range x.Paths {
			p = filepath.Base(p)
			if f.Kind == fault.PathOut || f.Kind == fault.HBAOut {
				if i := slices.Index(hosts, scsiHost(where[p])); i < 0 || strconv.Itoa(i) != f.Args[len(f.Args)-1] {
					continue
				}
			}
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// deleteSystemDisk removes a disk of the server's system mirror: a SCSI disk as
// deletePaths does, an NVMe or virtio drive by removing its PCI function. A
// rescan brings the disk back.
//
// Source: Documentation/ABI/testing/sysfs-bus-pci
func (h *Hardware) deleteSystemDisk(ctx context.Context, f fault.Fault) error {
	server := f.On
	return h.on(ctx, server, func(s *host.Session) error {
		r := gather.ArrayRequest()
		r.Files = append(r.Files, "/proc/self/mounts", "/proc/swaps")
		seen, err := host.Ask(ctx, s, gather.Op, r)
		if err != nil {
			return err
		}
		var mirrors []observe.SystemArray
		var places []string // of the members in /sys
		query := func(argv ...string) (string, error) {
			out, err := s.Query(ctx, argv...)
			return out.Stdout, err
		}
		for _, a := range observe.SystemArrays(h.Design, &seen) {
			if a.Level == "raid1" {
				mirrors = append(mirrors, a)
			}
			if a.Degraded > 0 {
				return fmt.Errorf("%s: %s is degraded: it would lose its last disk", server, a.Dev)
			}
			for _, m := range a.Members {
				p, err := query("readlink", "-e", "/sys/class/block/"+m)
				if err != nil {
					return err
				}
				places = append(places, strings.TrimSpace(p))
			}
		}
		if len(mirrors) == 0 {
			return fmt.Errorf("the system of %s is on no md RAID 1", server)
		}
		disk, err := expendable(places, seen.Files["/proc/self/mounts"]+seen.Files["/proc/swaps"])
		if err != nil {
			return fmt.Errorf("%s: %w", server, err)
		}
		device, err := query("readlink", "-e", "/sys/block/"+disk+"/device")
		if err != nil {
			return err
		}
		switches := []string{}
		for at := strings.TrimSpace(device); len(at) > len("/sys/devices"); at = filepath.Dir(at) {
			for _, name := range []string{"delete", "remove"} {
				switches = append(switches, at+"/"+name)
			}
		}
		// Use the nearest switch that exists; ls lists only existing ones on stdout.
		there, err := query(append([]string{"ls", "-U", "-d"}, switches...)...)
		if err != nil {
			return err
		}
		off, _, _ := strings.Cut(there, "\n")
		if off == "" {
			return fmt.Errorf("%s: no command removes disk %s: pull the disk by hand", server, disk)
		}
		a := resource.Action{Title: "take " + disk + " off", File: &resource.File{Path: off, Content: []byte("1")}}
		_, err = s.Run(ctx, a)
		return err
	})
}

// expendable returns the first disk of the members, given by their paths in /sys,
// that only arrays use; inUse are the mounts and swaps of the host.
func expendable(places []string, inUse string) (string, error) {
	var why []string
	for _, p := range places {
		// …/block/sda or …/block/sda/sda2
		_, rest, ok := strings.Cut(p, "/block/")
		disk, _, _ := strings.Cut(rest, "/")
		if !ok || disk == "" {
			continue // the member is an array itself
		}
		used := ""
		for line := range strings.Lines(inUse) {
			dev, _, _ := strings.Cut(line, " ")
			if name, ok := strings.CutPrefix(strings.Fields(dev + " -")[0], "/dev/"); ok && resource.PartOf(name, disk) {
				used = name
			}
		}
		if used == "" {
			return disk, nil
		}
		why = append(why, used+" is mounted, or swap")
	}
	return "", fmt.Errorf("no disk of its system mirror can be done without: %s", strings.Join(why, ", "))
}

// scan makes every SCSI host of a server look for devices.
func (h *Hardware) scan(ctx context.Context, f fault.Fault) error {
	server := f.On
	return h.unlessGone(ctx, server, func(s *host.Session) error {
		out, err := s.Query(ctx, "ls", "/sys/class/scsi_host")
		if err != nil {
			return err
		}
		for _, n := range strings.Fields(out.Stdout) {
			a := resource.Action{Title: "scan " + n, File: &resource.File{Path: "/sys/class/scsi_host/" + n + "/scan", Content: []byte("- - -")}}
			if _, err := s.Run(ctx, a); err != nil {
				return err
			}
		}
		return nil
	})
}

// rescan makes every SCSI host and the PCI bus look for devices.
func (h *Hardware) rescan(ctx context.Context, f fault.Fault) error {
	if err := h.scan(ctx, f); err != nil {
		return err
	}
	return h.unlessGone(ctx, f.On, func(s *host.Session) error {
		a := resource.Action{Title: "look for devices on the PCI bus", File: &resource.File{Path: "/sys/bus/pci/rescan", Content: []byte("1")}}
		_, err := s.Run(ctx, a)
		return err
	})
}

// unlessGone is on, but ignores a server that does not answer: the cluster fences
// that server, and its boot mends the fault.
func (h *Hardware) unlessGone(ctx context.Context, server string, f func(*host.Session) error) error {
	cctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := h.Dial(cctx, server)
	if err != nil {
		return ctx.Err() // the drill waits until the server joins the cluster again
	}
	defer s.Close()
	return f(s)
}

// powerOn does nothing for a server without a BMC: only the fence devices can
// switch its power, and they have done so.
func (h *Hardware) powerOn(ctx context.Context, f fault.Fault) error {
	if b, err := h.bmc(f.On); err != nil || b == nil {
		return err
	}
	return h.ipmi(ctx, f.On, "on")
}

func (h *Hardware) bmc(target string) (*spec.BMC, error) {
	if s, has := lists.First(h.Design.Spec.Servers, func(s spec.Server) bool { return s.Name == target }); has {
		return s.BMC, nil
	}
	return nil, fmt.Errorf("%s is no server of the brick", target)
}

// ipmi switches a server's power. Source: ipmitool(1)
func (h *Hardware) ipmi(ctx context.Context, target, power string) error {
	b, err := h.bmc(target)
	if err != nil {
		return err
	}
	if b == nil {
		return fmt.Errorf("%s has no BMC in the spec", target)
	}
	password, err := plan.Secrets(h.Design.Spec, false)(b.PasswordFile)
	if err != nil {
		return err
	}
	a := resource.Action{Title: "switch " + target + " " + power + " by its BMC", Cmd: []string{
		"ipmitool", "-I", "lanplus", "-C", fmt.Sprint(b.Cipher), "-L", b.Privilege, "-H", b.Address, "-U", b.User, "-E", "chassis", "power", power}}
	return host.Gate{}.Do(ctx, target, a, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, a.Cmd[0], a.Cmd[1:]...)
		cmd.Env = append(os.Environ(), "IPMI_PASSWORD="+strings.TrimRight(string(password), "\r\n"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("BMC of %s: power %s: %w: %s", target, power, err, bytes.TrimSpace(out))
		}
		return nil
	})
}
