//go:build rack

package inject

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/test/racktest"
)

func TestMain(m *testing.M) {
	os.Exit(racktest.Main(m, func(rack string) error {
		return exec.Command("../../../bin/mortar", "rack", "down", "--dir", rack).Run()
	}))
}

// bootLimit bounds the boot of a server of the rack.
const bootLimit = 3 * time.Minute

// live is a rack whose servers run without a cluster, which would fence them.
type live struct {
	t      *testing.T
	d      *design.Design
	dir    string // the rack's
	mortar string // the binary
	dial   host.Dial
	paths  map[string]map[string]int // number of paths of the whole rack, by server and serial
}

// TestLive runs the suite for both injectors on a virtual rack: make test-faults.
// MORTAR_BRICK is the spec of a running rack without a brick on it. If it is
// unset, the test makes a rack.
func TestLive(t *testing.T) {
	bin, err := filepath.Abs("../../../bin/mortar")
	if err != nil {
		t.Fatal(err)
	}
	file := os.Getenv("MORTAR_BRICK")
	if file == "" {
		src, err := examples.FS.ReadFile("nfs-ha.yaml")
		if err != nil {
			t.Fatal(err)
		}
		file = filepath.Join(racktest.Dir(t), "brick.yaml")
		if err := os.WriteFile(file, src, 0o600); err != nil {
			t.Fatal(err)
		}
		run := func(args ...string) {
			cmd := exec.Command(bin, args...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Run(); err != nil {
				t.Fatal(args, err)
			}
		}
		t.Cleanup(func() { run("rack", "down", file) })
		run("rack", "up", file)
	}
	s, err := spec.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	targets, err := host.Inventory(s)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{t: t, d: d, dir: filepath.Dir(host.InventoryFile(s)), mortar: bin, dial: host.Dialer(targets, host.Options{Timeout: 10 * time.Second, Binary: bin}), paths: map[string]map[string]int{}}
	for _, name := range d.Servers() {
		if l.paths[name] = l.pathsOf(name); len(l.paths[name]) != len(d.Disks) {
			t.Fatalf("%s has paths to %d disks, the design has %d", name, len(l.paths[name]), len(d.Disks))
		}
	}
	paths := []fault.Kind{fault.LinkDown, fault.PathOut, fault.HBAOut, fault.PathsOut, fault.DiskOut}
	t.Run("hardware", func(t *testing.T) {
		conform(t, rig{Injector: &Hardware{Design: d, Dial: l.dial}, tries: faultsOf(d, paths...), there: l.there, limit: bootLimit})
	})
	t.Run("rack", func(t *testing.T) {
		in := &Rack{
			Design: d,
			// Use the binary: BMCs and PDUs that are started again call it.
			Fault: func(ctx context.Context, kind string, targets ...string) error {
				out, err := exec.CommandContext(ctx, bin, append([]string{"rack", "fault", file, kind}, targets...)...).CombinedOutput()
				if err != nil {
					return fmt.Errorf("%s %v: %w: %s", kind, targets, err, out)
				}
				return nil
			},
			Hangs: func(ctx context.Context, node string) (bool, error) { return rack.Hangs(ctx, l.dir, node) },
		}
		conform(t, rig{Injector: in, there: l.there, limit: bootLimit, tries: faultsOf(d, append(paths, fault.SwitchDown, fault.ModuleOut, fault.BMCDead, fault.BMCLies, fault.PDUDead, fault.FeedOff,
			fault.Freeze, fault.Panic, fault.PowerOff)...)})
	})
}

// there asks the hosts about a fault, or the rack if hosts cannot see the fault.
func (l *live) there(f fault.Fault) bool {
	st, err := rack.Status(l.t.Context(), l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	servers := []string{f.On}
	if f.On == "" {
		servers = l.d.Servers()
	}
	switch f.Kind {
	case fault.BMCDead:
		return slices.ContainsFunc(st.Nodes, func(n rack.NodeStatus) bool { return n.Name == f.On && n.BMC == "dead" })
	case fault.BMCLies:
		return slices.ContainsFunc(st.Nodes, func(n rack.NodeStatus) bool { return n.Name == f.On && n.BMC == "lies" })
	case fault.PDUDead:
		return slices.ContainsFunc(st.PDUs, func(p rack.PDUStatus) bool { return p.Name == f.Args[0] && !p.Alive })
	case fault.FeedOff:
		return slices.ContainsFunc(st.PDUs, func(p rack.PDUStatus) bool { return p.Name == f.Args[0] && len(p.Off) > 0 })
	case fault.Freeze, fault.Panic, fault.PowerOff:
		ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
		defer cancel()
		s, err := l.dial(ctx, f.On)
		if err == nil {
			s.Close()
		}
		return err != nil
	case fault.LinkDown, fault.SwitchDown:
		return !slices.ContainsFunc(servers, func(s string) bool { return l.linkUp(st, s, f.Args[0]) })
	}
	for _, s := range servers {
		if !maps.Equal(l.pathsOf(s), l.left(s, f)) {
			return false
		}
	}
	return true
}

func (l *live) session(name string) *host.Session {
	var s *host.Session
	var err error
	for range 12 { // the server may be booting
		ctx, cancel := context.WithTimeout(l.t.Context(), 15*time.Second)
		s, err = l.dial(ctx, name)
		cancel()
		if err == nil {
			return s
		}
	}
	l.t.Fatal(err)
	return nil
}

func (l *live) linkUp(st *rack.RackStatus, server, network string) bool {
	s := l.session(server)
	defer s.Close()
	for _, n := range st.Nodes {
		for _, k := range n.Links {
			if n.Name == server && k.Network == network {
				text, err := s.Read(l.t.Context(), "/sys/class/net/"+k.Interface+"/operstate")
				if err != nil {
					l.t.Fatal(err)
				}
				return strings.TrimSpace(text) == "up"
			}
		}
	}
	l.t.Fatalf("%s is not on network %s", server, network)
	return false
}

// pathsOf counts a server's paths to each disk of the brick.
func (l *live) pathsOf(server string) map[string]int {
	s := l.session(server)
	defer s.Close()
	facts, err := host.Ask(l.t.Context(), s, gather.Op, gather.Request{Disks: true})
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]int{}
	for _, x := range facts.Disks {
		if nameOf(l.d.ReachedBy(server), x) != "" && len(x.Paths) > 0 {
			out[strings.ToUpper(x.Serial)] = len(x.Paths)
		}
	}
	return out
}

// left is the number of a server's paths after a fault, by serial.
func (l *live) left(server string, f fault.Fault) map[string]int {
	out := maps.Clone(l.paths[server])
	for _, k := range l.d.Disks {
		serial := strings.ToUpper(k.Serial)
		switch {
		case f.Kind == fault.PathsOut, f.Kind == fault.DiskOut && strings.EqualFold(serial, f.Args[0]):
			delete(out, serial)
		case f.Kind == fault.HBAOut, f.Kind == fault.PathOut && strings.EqualFold(serial, f.Args[0]), f.Kind == fault.ModuleOut && k.Enclosure == f.Args[0]:
			out[serial]--
		}
	}
	return out
}
