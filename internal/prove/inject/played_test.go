package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
)

// machine is a fake of the parts of a server that Hardware uses.
type machine struct {
	down     map[string]bool // links, by interface
	gone     map[string]bool // disks, by kernel name: sdX, vdX
	panicked bool
	chassis  string // file with the state of the power: on or off
}

// The disks of the brick, over two HBAs, and the two of the system, on PCI.
var (
	playedPaths = map[string][2]string{"sdb": {"MA01", "host3"}, "sdc": {"MA02", "host3"}, "sdd": {"MA01", "host11"}, "sde": {"MA02", "host11"}}
	playedPCI   = map[string]string{"vda": "0000:00:05.0", "vdb": "0000:00:06.0"}
	playedLinks = map[string]string{"eth0": "10.0.3.", "eth1": "10.0.1.", "eth2": "10.0.2."} // administration, public, private
)

type machines struct {
	t    *testing.T
	all  map[string]*machine
	step func()
}

func (m *machines) dial(_ context.Context, name string) (*host.Session, error) {
	if x := m.all[name]; x == nil || x.panicked || x.power() == "off" {
		return nil, errors.New("no route to host")
	}
	return hosttest.Play(m.call).Session(name), nil
}

func (x *machine) power() string {
	b, err := os.ReadFile(x.chassis)
	if err != nil {
		return "on"
	}
	return strings.TrimSpace(string(b))
}

func (m *machines) call(ctx context.Context, name, op string, params, result any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	x := m.all[name]
	switch op {
	case string(agent.OpQuery):
		return hosttest.Answer(result, resource.Output{Stdout: x.query(m.t, name[len(name)-1:], params.(agent.QueryParams).Argv)})
	case string(gather.Op):
		h := x.mirror()
		h.Disks = append(h.Disks, x.disks()...)
		return hosttest.Answer(result, h)
	case string(agent.OpRun):
		err := x.run(params.(agent.RunParams).Action)
		if m.step != nil {
			m.step()
		}
		return err
	}
	return fmt.Errorf("unexpected op %s", op)
}

func (x *machine) disks() (out []resource.DiskFact) {
	for _, serial := range []string{"MA01", "MA02"} {
		d := resource.DiskFact{Serial: serial}
		for p, at := range playedPaths {
			if at[0] == serial && !x.gone[p] {
				d.Paths = append(d.Paths, p)
			}
		}
		slices.Sort(d.Paths)
		out = append(out, d)
	}
	return out
}

// mirror is the kernel's state of the system's array.
func (x *machine) mirror() gather.Host {
	h := gather.Host{Files: map[string]string{"/sys/block/md0/md/array_state": "active\n", "/sys/block/md0/md/level": "raid1\n", "/sys/block/md0/md/raid_disks": "2\n",
		"/sys/block/md0/md/uuid": "c0ffee00-1111-2222-3333-444455556666\n", "/proc/self/mounts": "/dev/md0 / ext4 rw 0 0\n"}}
	degraded := 0
	for _, d := range []string{"vda", "vdb"} {
		if x.gone[d] {
			degraded++
		} else {
			h.Files["/sys/block/md0/md/dev-"+d+"1/state"] = "in_sync\n"
		}
	}
	h.Files["/sys/block/md0/md/degraded"] = fmt.Sprintln(degraded)
	return h
}

func (x *machine) query(t *testing.T, number string, argv []string) string {
	last := argv[len(argv)-1]
	switch argv[0] {
	case "ip":
		var links []map[string]any
		for dev, net := range playedLinks {
			links = append(links, map[string]any{"ifname": dev, "addr_info": []map[string]string{{"local": net + number}}})
		}
		b, err := json.Marshal(links)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	case "readlink":
		name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(last, "/sys/block/"), "/sys/class/block/"), "/device")
		if at, ok := playedPaths[name]; ok && !x.gone[name] {
			return "/sys/devices/pci0000:00/" + at[1] + "/target/0:0:0:0\n"
		}
		for d, pci := range playedPCI {
			switch name {
			case d:
				return "/sys/devices/pci0000:00/" + pci + "/virtio2\n"
			case d + "1":
				return "/sys/devices/pci0000:00/" + pci + "/virtio2/block/" + d + "/" + name + "\n"
			}
		}
		return ""
	case "ls":
		if last == "/sys/class/scsi_host" {
			return "host3\nhost11\n"
		}
		for _, a := range argv {
			pci, ok := strings.CutSuffix(a, "/remove")
			for _, known := range playedPCI {
				if ok && filepath.Base(pci) == known {
					return a + "\n"
				}
			}
		}
		return ""
	}
	t.Errorf("unexpected query %q", argv)
	return ""
}

func (x *machine) run(a resource.Action) error {
	if a.File == nil {
		switch {
		case slices.Equal(a.Cmd, []string{"tee", "/proc/sysrq-trigger"}) && string(a.Stdin) == "c":
			x.panicked = true
			return errors.New("connection lost")
		case len(a.Cmd) == 6 && a.Cmd[0] == "ip":
			x.down[a.Cmd[4]] = a.Cmd[5] == "down"
			return nil
		}
		return fmt.Errorf("unexpected command %q", a.Cmd)
	}
	p, base := a.File.Path, filepath.Base(a.File.Path)
	switch name := strings.TrimSuffix(strings.TrimPrefix(p, "/sys/block/"), "/device/delete"); {
	case playedPaths[name] != [2]string{}:
		if x.gone[name] {
			return os.ErrNotExist
		}
		x.gone[name] = true
	case base == "scan":
		for d, at := range playedPaths {
			if strings.Contains(p, "/"+at[1]+"/") {
				delete(x.gone, d)
			}
		}
	case base == "rescan":
		for d := range playedPCI {
			delete(x.gone, d)
		}
	case base == "remove":
		for d, pci := range playedPCI {
			if strings.Contains(p, pci) {
				x.gone[d] = true
			}
		}
	default:
		return fmt.Errorf("unexpected file %s", p)
	}
	return nil
}

// out reports whether the whole effect of a fault is present.
func (m *machines) out(f fault.Fault) bool {
	gone := func(server, serial, host string) bool {
		for p, at := range playedPaths {
			if (serial == "" || at[0] == serial) && (host == "" || at[1] == host) && !m.all[server].gone[p] {
				return false
			}
		}
		return true
	}
	hba := map[string]string{"0": "host3", "1": "host11"}
	switch f.Kind {
	case fault.Panic:
		return m.all[f.On].panicked
	case fault.PowerOff:
		return m.all[f.On].power() == "off"
	case fault.LinkDown:
		return m.all[f.On].down[map[string]string{"public": "eth1", "private": "eth2"}[f.Args[0]]]
	case fault.PathOut:
		return gone(f.On, f.Args[0], hba[f.Args[1]])
	case fault.HBAOut:
		return gone(f.On, "", hba[f.Args[0]])
	case fault.PathsOut:
		return gone(f.On, "", "")
	case fault.DiskOut:
		return gone("nfs1", f.Args[0], "") && gone("nfs2", f.Args[0], "")
	case fault.LocalDisk:
		return m.all[f.On].gone["vda"] != m.all[f.On].gone["vdb"] // a server needs one of the two
	}
	return false
}

func TestHardware(t *testing.T) {
	dir := t.TempDir()
	// The fake ipmitool writes the state of the power into the chassis file.
	if err := os.WriteFile(filepath.Join(dir, "pw"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := "#!/bin/sh\n[ \"$IPMI_PASSWORD\" = s3cret ] || exit 1\nwhile [ $# -gt 1 ]; do [ \"$1\" = -H ] && address=$2; shift; done\necho $1 > " + dir + "/$address\n"
	if err := os.WriteFile(filepath.Join(dir, "ipmitool"), []byte(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := &machines{t: t, all: map[string]*machine{}}
	d := &design.Design{Name: "b", Spec: &spec.Spec{File: filepath.Join(dir, "brick.yaml")}, Disks: []design.Disk{{Serial: "MA01"}, {Serial: "MA02"}}}
	var p design.Pair
	for n := 1; n <= 2; n++ {
		name, bmc := fmt.Sprintf("nfs%d", n), fmt.Sprintf("10.0.4.%d", n)
		m.all[name] = &machine{down: map[string]bool{}, gone: map[string]bool{}, chassis: filepath.Join(dir, bmc)}
		d.Spec.Servers = append(d.Spec.Servers, spec.Server{Name: name, Address: fmt.Sprintf("10.0.3.%d", n), Public: fmt.Sprintf("10.0.1.%d", n), Private: fmt.Sprintf("10.0.2.%d", n),
			BMC: &spec.BMC{Address: bmc, User: "admin", PasswordFile: "pw", Cipher: 17, Privilege: "operator"}})
		p.Servers = append(p.Servers, name)
	}
	d.Pairs = []design.Pair{p}
	in := &Hardware{Design: d, Dial: m.dial}
	conform(t, rig{Injector: in, there: func(f fault.Fault) bool { return m.out(f) }, tries: faultsOf(d, fault.PowerOff)})
	conform(t, rig{Injector: in, step: &m.step, there: func(f fault.Fault) bool { return m.out(f) }, tries: append(
		faultsOf(d, fault.LinkDown, fault.PathOut, fault.HBAOut, fault.PathsOut, fault.DiskOut, fault.LocalDisk),
		fault.Fault{Kind: fault.LinkDown, On: "nfs2", Args: []string{"public"}},
		fault.Fault{Kind: fault.HBAOut, On: "nfs2", Args: []string{"1"}},
	)})
}
