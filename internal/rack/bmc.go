package rack

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// ensureBMC starts the node's BMC unless it runs, is dead or has no power.
// The caller holds the power lock.
func ensureBMC(ctx context.Context, r *rack, n *hw.Node, h *hw.Hardware) error {
	if n.BMC == nil || h.DeadBMCs[n.Name] || !h.Powered(n) {
		return nil
	}
	name := power.BMCName(n.Name)
	if tool.Running(r.dir, name) != nil {
		return nil
	}
	password, err := tool.EnsureSecret(n.BMC.PasswordFile)
	if err != nil {
		return err
	}
	state := filepath.Join(tool.RunDir(r.dir), name+".state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	if err := ensureSensors(r, n, h); err != nil {
		return err
	}
	emu := filepath.Join(tool.RunDir(r.dir), name+".emu")
	if err := renameio.WriteFile(emu, []byte(power.BMCCommands(n)), 0o600); err != nil {
		return err
	}
	if err := renameio.WriteFile(tool.ConfFile(r.dir, name), []byte(power.BMCConfig(n, password)), 0o600); err != nil {
		return err
	}
	if err := r.hostAddress(ctx, n.BMC.Address, true); err != nil {
		return err
	}
	return tool.StartDaemon(ctx, r.dir, r.cfg.Netns(), name, func() bool { return r.listensUDP(n.BMC.Address, 623) },
		"ipmi_sim", "-c", tool.ConfFile(r.dir, name), "-f", emu, "-s", state, "-n")
}

func stopBMC(ctx context.Context, r *rack, n *hw.Node) error {
	if n.BMC == nil {
		return nil
	}
	if err := tool.Stop(r.dir, power.BMCName(n.Name)); err != nil {
		return err
	}
	return r.hostAddress(ctx, n.BMC.Address, false)
}

// listensUDP reports whether a process in the rack's namespace has bound the UDP
// port.
func (r *rack) listensUDP(a netip.Addr, port int) bool { return r.bound("udp", a, port) }

func (r *rack) listensTCP(a netip.AddrPort) bool { return r.bound("tcp", a.Addr(), int(a.Port())) }

func (r *rack) bound(protocol string, a netip.Addr, port int) bool {
	found := false
	err := netns.Do(r.cfg.Netns(), func() error {
		// This thread's own view; /proc/net is the main thread's.
		text, err := os.ReadFile("/proc/thread-self/net/" + protocol)
		found = strings.Contains(string(text), procNetAddress(a, port))
		return err
	})
	return err == nil && found
}

// procNetAddress formats an IPv4 address and port as in /proc/net.
func procNetAddress(a netip.Addr, port int) string {
	b := a.As4()
	return fmt.Sprintf(" %02X%02X%02X%02X:%04X ", b[3], b[2], b[1], b[0], port)
}

// Chassis is the hidden command that ipmi_sim runs for every chassis
// request: get, set or check, with a list of parameters and, for set, their
// values. It answers on out.
func Chassis(ctx context.Context, dir, node string, args []string, out io.Writer) error {
	r, err := openChild(dir)
	if err != nil {
		return err
	}
	if _, err := r.cfg.Node(node); err != nil {
		return err
	}
	op, list, err := power.ChassisRequest(args)
	if err != nil {
		return err
	}
	h, err := loadHardware(r.dir)
	if err != nil {
		return err
	}
	said, lies := h.LyingBMCs[node]
	for _, p := range list {
		switch {
		case op == "get" && p.Name == "power":
			on := 0
			if tool.Running(r.dir, node) != nil && !lies || said == power.PowerWord(true) {
				on = 1
			}
			fmt.Fprintf(out, "power:%d\n", on)
		case op == "set" && p.Name == "power" && lies:
			err = changeHardware(ctx, r, func(h *hw.Hardware) {
				if h.LyingBMCs[node] != "" {
					h.LyingBMCs[node] = power.PowerWord(p.Value != "0")
				}
			}, func(*hw.Hardware) error { return nil })
		case op == "set" && lies: // the BMC resets something else
		case op == "get":
			fmt.Fprintf(out, "%s:0\n", p.Name)
		case op == "set" && p.Name == "power":
			err = withPower(ctx, r, func(h *hw.Hardware) error {
				if p.Value == "0" {
					return r.stopNode(node)
				}
				return r.startNode(ctx, h, node)
			})
		case op == "set" && p.Name == "reset":
			err = r.resetNode(ctx, node)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resetNode presses the reset button.
func (r *rack) resetNode(ctx context.Context, node string) error {
	return withPower(ctx, r, func(*hw.Hardware) error {
		if tool.Running(r.dir, node) == nil {
			return nil
		}
		if err := consoleMark(r.dir, node, "reset"); err != nil {
			return err
		}
		return r.withQMP(ctx, node, func(q *qemu.Client) error {
			if _, err := q.Call("system_reset", nil); err != nil {
				return err
			}
			// The reset ends a freeze.
			_, err := q.Call("cont", nil)
			return err
		})
	})
}

// openChild is openRack for a hidden command that another program starts.
func openChild(dir string) (*rack, error) {
	if err := closeOnExec(); err != nil {
		return nil, err
	}
	return openRack(dir)
}

// closeOnExec prevents the machines that we start from inheriting open files of the
// program that started us (a BMC's socket, a pipe).
func closeOnExec() error {
	return unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
}
