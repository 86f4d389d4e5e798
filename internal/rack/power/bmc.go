package power

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// BMCConfig is ipmi_sim's configuration of a node's BMC: one LAN channel,
// one user with the rights of the spec, and our own binary as the chassis. The chassis' command
// line is relative to the run directory, so that nothing in it needs quoting.
//
// Source: ipmi_lan(5) and ipmi_sim of OpenIPMI.
func BMCConfig(n *hw.Node, password string) string {
	privilege := "admin" // also of a rack that an older Mortar made
	if n.BMC.Privilege == "operator" {
		privilege = "operator"
	}
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
  user 2 true "%[3]s" "%[4]s" %[6]s 10 none md2 md5 straight
`, n.Name, n.BMC.Address, n.BMC.User, password, bmcGUID(n.BMC.Address), privilege)
}

// bmcGUID is an identifier for a BMC: unique in the rack as its address is.
func bmcGUID(a netip.Addr) string {
	b := a.As16()
	return fmt.Sprintf("%x", b[:])
}

// BMCCommands sets up a node's simulated controller with its sensors.
func BMCCommands(n *hw.Node) string {
	var b strings.Builder
	b.WriteString("mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nsel_enable 0x20 1000 0x0a\n")
	for i, s := range SensorsOf(n) {
		b.WriteString(s.commands(n.Name, i+1))
	}
	b.WriteString("mc_enable 0x20\n")
	return b.String()
}

func PowerWord(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

type chassisParam struct{ Name, Value string }

// ChassisRequest reads the words that ipmi_sim adds to the command: an
// optional number of the controller, the operation, and the parameters.
func ChassisRequest(args []string) (op string, list []chassisParam, err error) {
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
		p := chassisParam{Name: args[0]}
		args = args[1:]
		// check and set name a value after each parameter.
		if op != "get" {
			if len(args) == 0 {
				return "", nil, fmt.Errorf("chassis: %s %s without a value", op, p.Name)
			}
			p.Value, args = args[0], args[1:]
		}
		list = append(list, p)
	}
	return op, list, nil
}
