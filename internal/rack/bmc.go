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
)

// bmcConfig is ipmi_sim's configuration of a node's BMC: one LAN channel,
// one administrator, and our own binary as the chassis. The chassis' command
// line is relative to the run directory, so that nothing in it needs quoting.
//
// Source: ipmi_lan(5) and ipmi_sim of OpenIPMI.
func bmcConfig(n *Node, password string) string {
	return fmt.Sprintf(`name "bmc-%[1]s"
set_working_mc 0x20
  startlan 1
    addr %[2]s 623
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid %[5]s
  endlan
  chassis_control "./mortar rack _chassis .. %[1]s"
  startnow false
  user 1 false "" "" user 10 none md2 md5 straight
  user 2 true "%[3]s" "%[4]s" admin 10 none md2 md5 straight
`, n.Name, n.BMC.Address, n.BMC.User, password, bmcGUID(n.BMC.Address))
}

// bmcGUID is an identifier for a BMC: unique in the rack as its address is.
func bmcGUID(a netip.Addr) string {
	b := a.As16()
	return fmt.Sprintf("%x", b[:])
}

// bmcCommands sets up a node's simulated controller with its sensors.
func bmcCommands(n *Node) string {
	var b strings.Builder
	b.WriteString("mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nsel_enable 0x20 1000 0x0a\n")
	for i, s := range sensorsOf(n) {
		b.WriteString(s.commands(n.Name, i+1))
	}
	b.WriteString("mc_enable 0x20\n")
	return b.String()
}

// ensureBMC starts the node's BMC unless it runs, is dead or has no power.
// The caller holds the power lock.
func ensureBMC(ctx context.Context, r *rack, n *Node, h *hardware) error {
	if n.BMC == nil || h.DeadBMCs[n.Name] || !h.powered(n) {
		return nil
	}
	name := bmcName(n.Name)
	if running(r.dir, name) != nil {
		return nil
	}
	password, err := ensureSecret(n.BMC.PasswordFile)
	if err != nil {
		return err
	}
	state := filepath.Join(runDir(r.dir), name+".state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	if err := ensureSensors(r, n, h); err != nil {
		return err
	}
	emu := filepath.Join(runDir(r.dir), name+".emu")
	if err := renameio.WriteFile(emu, []byte(bmcCommands(n)), 0o600); err != nil {
		return err
	}
	if err := renameio.WriteFile(confFile(r.dir, name), []byte(bmcConfig(n, password)), 0o600); err != nil {
		return err
	}
	if err := r.hostAddress(ctx, n.BMC.Address, true); err != nil {
		return err
	}
	return startDaemon(ctx, r.dir, r.cfg.netns(), name, func() bool { return r.listensUDP(n.BMC.Address, 623) },
		"ipmi_sim", "-c", confFile(r.dir, name), "-f", emu, "-s", state, "-n")
}

func stopBMC(ctx context.Context, r *rack, n *Node) error {
	if n.BMC == nil {
		return nil
	}
	if err := stop(r.dir, bmcName(n.Name)); err != nil {
		return err
	}
	return r.hostAddress(ctx, n.BMC.Address, false)
}

// listensUDP reports whether a process in the rack's namespace has bound the UDP
// port.
func (r *rack) listensUDP(a netip.Addr, port int) bool { return r.bound("udp", a, port) }

// listensTCP is the same for TCP.
func (r *rack) listensTCP(a netip.AddrPort) bool { return r.bound("tcp", a.Addr(), int(a.Port())) }

func (r *rack) bound(protocol string, a netip.Addr, port int) bool {
	found := false
	err := netns.Do(r.cfg.netns(), func() error {
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
	if _, err := r.cfg.node(node); err != nil {
		return err
	}
	op, list, err := chassisRequest(args)
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
		case op == "get" && p.name == "power":
			on := 0
			if running(r.dir, node) != nil && !lies || said == powerWord(true) {
				on = 1
			}
			fmt.Fprintf(out, "power:%d\n", on)
		case op == "set" && p.name == "power" && lies:
			err = changeHardware(ctx, r, func(h *hardware) {
				if h.LyingBMCs[node] != "" {
					h.LyingBMCs[node] = powerWord(p.value != "0")
				}
			}, func(*hardware) error { return nil })
		case op == "set" && lies: // the BMC resets something else
		case op == "get":
			fmt.Fprintf(out, "%s:0\n", p.name)
		case op == "set" && p.name == "power":
			err = withPower(ctx, r, func(h *hardware) error {
				if p.value == "0" {
					return r.stopNode(node)
				}
				return r.startNode(ctx, h, node)
			})
		case op == "set" && p.name == "reset":
			err = r.resetNode(ctx, node)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func powerWord(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

type chassisParam struct{ name, value string }

// chassisRequest reads the words that ipmi_sim adds to the command: an
// optional number of the controller, the operation, and the parameters.
func chassisRequest(args []string) (op string, list []chassisParam, err error) {
	for len(args) > 0 && op == "" {
		switch args[0] {
		case "get", "set", "check":
			op = args[0]
		}
		args = args[1:]
	}
	if op == "" {
		return "", nil, fmt.Errorf("chassis: neither get nor set nor check")
	}
	for len(args) > 0 {
		p := chassisParam{name: args[0]}
		args = args[1:]
		// check and set name a value after each parameter.
		if op != "get" {
			if len(args) == 0 {
				return "", nil, fmt.Errorf("chassis: %s %s without a value", op, p.name)
			}
			p.value, args = args[0], args[1:]
		}
		list = append(list, p)
	}
	return op, list, nil
}

// resetNode presses the reset button.
func (r *rack) resetNode(ctx context.Context, node string) error {
	return withPower(ctx, r, func(*hardware) error {
		if running(r.dir, node) == nil {
			return nil
		}
		if err := consoleMark(r.dir, node, "reset"); err != nil {
			return err
		}
		return r.withQMP(ctx, node, func(q *qmpClient) error {
			if _, err := q.call("system_reset", nil); err != nil {
				return err
			}
			// The reset ends a freeze.
			_, err := q.call("cont", nil)
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
