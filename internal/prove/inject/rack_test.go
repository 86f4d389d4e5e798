package inject

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/test/example"
)

// The rack here is a real one with its nodes off, which remembers faults for the
// nodes' start. live_test.go tests the faults that need a running node.
func TestRack(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	c, err := hw.FromSpec(d.Spec)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, v := range map[string]any{"config.json": c, "state.json": map[string]string{"phase": "up"}} {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var step func()
	status := func() *rack.RackStatus {
		st, err := rack.Status(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	in := &Rack{
		Design: d,
		Fault: func(ctx context.Context, kind string, targets ...string) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := rack.Fault(ctx, dir, kind, targets...)
			if step != nil {
				step()
			}
			return err
		},
		Hangs: func(ctx context.Context, node string) (bool, error) { return rack.Hangs(ctx, dir, node) },
	}
	conform(t, rig{Injector: in, step: &step, tries: faultsOf(d, fault.LinkDown, fault.PathOut, fault.HBAOut, fault.PathsOut, fault.ModuleOut, fault.DiskOut, fault.LocalDisk, fault.Astray),
		there: func(f fault.Fault) bool { return outOfRack(status(), f) }})
	if err := in.Throttle(t.Context(), 50, 1<<20); err != nil {
		t.Fatal(err)
	}
	for _, x := range status().Disks {
		member := slices.ContainsFunc(d.Groups[0].Members, func(m design.Disk) bool { return strings.EqualFold(m.Serial, x.Serial) })
		if member != (x.IOPS == 50) {
			t.Errorf("disk %s: %d operations a second", x.Serial, x.IOPS)
		}
	}
}

// Of a PERC, Throttle limits the LUNs, since the rack has no disks of it.
func TestThrottleLUNs(t *testing.T) {
	d := example.Design(t, "nss5.5.yaml")
	var did []string
	in := &Rack{Design: d, Fault: func(_ context.Context, kind string, targets ...string) error {
		did = append(did, kind+" "+strings.Join(targets, " "))
		return nil
	}}
	for i := range d.Arrays {
		d.Arrays[i].LUNs[0].WWN = "5000c50000000" + strconv.Itoa(101+i)
	}
	if err := in.Throttle(t.Context(), 3, 1e6); err != nil {
		t.Fatal(err)
	}
	if err := in.Throttle(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	want := []string{"throttle 5000c50000000101 18 4000000 3", "throttle 5000c50000000102 18 4000000 3", "throttle 5000c50000000101 0 0 0", "throttle 5000c50000000102 0 0 0"}
	if !slices.Equal(did, want) {
		t.Errorf("did %q", did)
	}
}

// On a brick with LUNs, a server's paths lead to LUNs; the array has the disks.
func TestRackWithArray(t *testing.T) {
	d := example.Design(t, "nss7.4-ha.yaml")
	var did []string
	in := &Rack{Design: d, Fault: func(_ context.Context, kind string, targets ...string) error {
		did = append(did, strings.Join(append([]string{kind}, targets...), " "))
		return nil
	}}
	every := func(kind string) (out []string) {
		for _, l := range d.LUNs() {
			out = append(out, kind+" nss1 "+l.Name+" 0")
		}
		return out
	}
	for _, c := range []struct {
		f       fault.Fault
		on, off []string
	}{
		{fault.Fault{Kind: fault.PathOut, On: "nss1", Args: []string{"nss7-lun0", "0"}}, []string{"path-out nss1 nss7-lun0 0"}, []string{"path-in nss1 nss7-lun0 0"}},
		{fault.Fault{Kind: fault.HBAOut, On: "nss1", Args: []string{"0"}}, every("path-out"), every("path-in")},
		{fault.Fault{Kind: fault.PathsOut, On: "nss1"}, []string{"paths-out nss1"}, []string{"paths-in nss1"}},
		{fault.Fault{Kind: fault.ControllerOut, Args: []string{"nss7", "1"}}, []string{"module-out nss7 1"}, []string{"module-in nss7 1"}},
		{fault.Fault{Kind: fault.ControllerFailover, Args: []string{"nss7", "0"}}, []string{"controller-failover nss7 0"}, []string{"controller-failback nss7 0"}},
		{fault.Fault{Kind: fault.ArrayDisk, Args: []string{"E1N01"}}, []string{"disk-out E1N01"}, []string{"disk-in E1N01"}},
		{fault.Fault{Kind: fault.ArrayPower, Args: []string{"nss7"}}, []string{"array-off nss7"}, []string{"array-on nss7"}},
		{fault.Fault{Kind: fault.LUNSlow, Args: []string{"nss7-lun0", "1500"}}, []string{"lun-slow nss7-lun0 1500"}, []string{"lun-slow nss7-lun0 0"}},
		{fault.Fault{Kind: fault.DiskSlow, Args: []string{"MA01", "2", "20000"}}, []string{"throttle MA01 2 20000"}, []string{"throttle MA01 0 0"}},
		{fault.Fault{Kind: fault.LUNMissing, On: "nss2", Args: []string{"nss7-lun3"}}, []string{"lun-out nss2 nss7-lun3"}, []string{"lun-in nss2 nss7-lun3"}},
	} {
		for _, do := range []struct {
			how  func(context.Context, fault.Fault) error
			want []string
		}{{in.Inject, c.on}, {in.Heal, c.off}} {
			did = nil
			if err := do.how(t.Context(), c.f); err != nil || !slices.Equal(did, do.want) {
				t.Errorf("%s: %v, %v; want %v", c.f, did, err, do.want)
			}
		}
	}
}

// faultsOf returns a fault of each kind, on the first part of that kind.
func faultsOf(d *design.Design, kinds ...fault.Kind) []fault.Fault {
	server, serial := d.Servers()[0], d.Disks[0].Serial
	all := []fault.Fault{
		{Kind: fault.LinkDown, On: server, Args: []string{"private"}},
		{Kind: fault.SwitchDown, Args: []string{"private"}},
		{Kind: fault.PathOut, On: server, Args: []string{serial, "0"}},
		{Kind: fault.HBAOut, On: server, Args: []string{"0"}},
		{Kind: fault.PathsOut, On: server},
		{Kind: fault.DiskOut, Args: []string{serial}},
		{Kind: fault.LocalDisk, On: server, Args: []string{"0"}},
		{Kind: fault.BMCDead, On: server},
		{Kind: fault.BMCLies, On: server},
		{Kind: fault.Astray, On: server},
		{Kind: fault.Freeze, On: server},
		{Kind: fault.Panic, On: server},
		{Kind: fault.PowerOff, On: server},
	}
	if es := d.Spec.Enclosures; len(es) > 0 {
		all = append(all, fault.Fault{Kind: fault.ModuleOut, Args: []string{es[0].Name, "0"}})
	}
	if ps := d.Spec.PDUs; len(ps) > 0 {
		all = append(all, fault.Fault{Kind: fault.PDUDead, Args: []string{ps[0].Name}}, fault.Fault{Kind: fault.FeedOff, Args: []string{ps[0].Name}})
	}
	return slices.DeleteFunc(all, func(f fault.Fault) bool { return !slices.Contains(kinds, f.Kind) })
}

// outOfRack reports whether the rack's status shows the whole effect of a fault.
func outOfRack(st *rack.RackStatus, f fault.Fault) bool {
	out := func(serial, server, hba string) bool {
		for _, d := range st.Disks {
			if strings.EqualFold(d.Serial, serial) {
				return slices.Contains(d.PathsOut, server+"/"+hba)
			}
		}
		return false
	}
	all := func(server string, hbas ...string) bool {
		for _, d := range st.Disks {
			for _, h := range hbas {
				if len(d.PathsOut) == 0 || !out(d.Serial, server, h) {
					return false
				}
			}
		}
		return true
	}
	node := st.Nodes[slices.IndexFunc(st.Nodes, func(n rack.NodeStatus) bool { return f.On == "" || n.Name == f.On })]
	switch f.Kind {
	case fault.LinkDown:
		return slices.ContainsFunc(node.Links, func(l rack.LinkStatus) bool { return l.Network == f.Args[0] && !l.Up })
	case fault.PathOut:
		return out(f.Args[0], f.On, f.Args[1])
	case fault.HBAOut:
		return all(f.On, f.Args[0])
	case fault.PathsOut:
		return all(f.On, "0", "1")
	case fault.ModuleOut:
		return slices.ContainsFunc(st.Disks, func(d rack.DiskStatus) bool {
			return strings.HasSuffix(d.Enclosure, strings.ToLower(f.Args[0])) && slices.Contains(d.PathsOut, "nfs1/"+f.Args[1]) && slices.Contains(d.PathsOut, "nfs2/"+f.Args[1])
		})
	case fault.DiskOut:
		return slices.ContainsFunc(st.Disks, func(d rack.DiskStatus) bool { return strings.EqualFold(d.Serial, f.Args[0]) && !d.Present })
	case fault.Astray:
		return slices.ContainsFunc(node.Feeds, func(f rack.FeedStatus) bool { return f.Astray })
	case fault.LocalDisk:
		return slices.ContainsFunc(node.SystemDisks, func(s rack.SystemDiskStatus) bool { return f.Args[0] == "0" && s.Disk == 0 && !s.Present })
	}
	return false
}
