package rack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
)

// The part of APC's PowerNet-MIB that a switched rack PDU of this kind
// answers and that fence_apc_snmp uses: names, control and status of the
// outlets.
//
// Source: PowerNet-MIB, rPDUOutletControlTable and rPDUOutletStatusTable.
var (
	oidAPC           = []int{1, 3, 6, 1, 4, 1, 318}
	oidControlName   = oid(oidAPC, 1, 1, 12, 3, 3, 1, 1, 2)
	oidControlAction = oid(oidAPC, 1, 1, 12, 3, 3, 1, 1, 4)
	oidStatusName    = oid(oidAPC, 1, 1, 12, 3, 5, 1, 1, 2)
	oidStatusState   = oid(oidAPC, 1, 1, 12, 3, 5, 1, 1, 4)

	// Thresholds of the one phase in amperes, and its load in tenths of an ampere.
	// Source: PowerNet-MIB, rPDULoadPhaseConfigTable and rPDULoadStatusTable.
	oidNearOverload = oid(oidAPC, 1, 1, 12, 2, 2, 1, 1, 3, 1)
	oidOverload     = oid(oidAPC, 1, 1, 12, 2, 2, 1, 1, 4, 1)
	oidLoad         = oid(oidAPC, 1, 1, 12, 2, 3, 1, 1, 2, 1)
)

// A PDU of 16 A warns from 12 A on. A node takes 2 A over all of its cords that have
// power.
const (
	pduOverload, pduNearOverload = 16, 12
	nodeLoad                     = 20 // tenths of an ampere
)

// loadOf is what nodes and other things take from a PDU, in tenths of an ampere.
func (h *hardware) loadOf(c *Config, pdu string) int {
	load := h.Loads[pdu]
	for _, n := range c.Nodes {
		here, live := 0, 0
		for _, f := range n.Feeds {
			if !h.Off[outletKey(f.PDU, f.Outlet)] {
				live++
				if f.PDU == pdu {
					here++
				}
			}
		}
		if live > 0 {
			load += nodeLoad * here / live
		}
	}
	return load
}

// sysObjectID of an APC rack PDU (masterSwitchrPDU).
const pduObjectID = ".1.3.6.1.4.1.318.1.3.4.5"

// Values of rPDUOutletControlOutletCommand and of the outlet's state.
const (
	outletOn     = 1 // immediateOn, outletStatusOn
	outletOff    = 2 // immediateOff, outletStatusOff
	outletReboot = 3 // immediateReboot
)

func oid(prefix []int, more ...int) []int { return append(slices.Clone(prefix), more...) }

func parseOID(s string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(strings.TrimPrefix(s, "."), ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("object identifier %q", s)
		}
		out = append(out, n)
	}
	return out, nil
}

func formatOID(o []int) string {
	var b strings.Builder
	for _, n := range o {
		b.WriteByte('.')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// snmpValue is one object: its type and value as net-snmp's pass protocol
// writes them.
type snmpValue struct {
	OID         []int
	Type, Value string
}

// pduTable is everything a PDU answers, in the order of a walk.
func pduTable(p *PDU, load int, nameOf func(outlet int) string, isOn func(outlet int) bool) []snmpValue {
	t := []snmpValue{
		{OID: oidNearOverload, Type: "integer", Value: strconv.Itoa(pduNearOverload)},
		{OID: oidOverload, Type: "integer", Value: strconv.Itoa(pduOverload)},
		{OID: oidLoad, Type: "gauge", Value: strconv.Itoa(load)},
	}
	for _, column := range [][]int{oidControlName, oidControlAction, oidStatusName, oidStatusState} {
		names := slices.Equal(column, oidControlName) || slices.Equal(column, oidStatusName)
		for o := 1; o <= p.Outlets; o++ {
			v := snmpValue{OID: oid(column, o), Type: "integer", Value: strconv.Itoa(outletOff)}
			switch {
			case names:
				v.Type, v.Value = "string", nameOf(o)
			case isOn(o):
				v.Value = strconv.Itoa(outletOn)
			}
			t = append(t, v)
		}
	}
	return t
}

func snmpGet(t []snmpValue, o []int) *snmpValue {
	for i := range t {
		if slices.Equal(t[i].OID, o) {
			return &t[i]
		}
	}
	return nil
}

// snmpNext is the first object after o.
func snmpNext(t []snmpValue, o []int) *snmpValue {
	for i := range t {
		if slices.Compare(t[i].OID, o) > 0 {
			return &t[i]
		}
	}
	return nil
}

// outletName is the label of an outlet: the node on it.
func (c *Config) outletName(pdu string, outlet int) string {
	for _, n := range c.Nodes {
		for _, f := range n.Feeds {
			if f.PDU == pdu && f.Outlet == outlet {
				return n.Name
			}
		}
	}
	return "Outlet " + strconv.Itoa(outlet)
}

// ServePDU is the hidden command that snmpd runs to answer for a PDU: it speaks the
// pass_persist protocol on in and out, and ends when snmpd does.
//
// Source: snmpd.conf(5), "MIB-Specific Extension Commands".
func ServePDU(ctx context.Context, dir, name string, in io.Reader, out io.Writer) error {
	r, err := openChild(dir)
	if err != nil {
		return err
	}
	p, err := r.cfg.pdu(name)
	if err != nil {
		return err
	}
	table := func() ([]snmpValue, error) {
		h, err := loadHardware(r.dir)
		if err != nil {
			return nil, err
		}
		return pduTable(p, h.loadOf(r.cfg, name), func(o int) string { return r.cfg.outletName(name, o) },
			func(o int) bool { return !h.Off[outletKey(name, o)] }), nil
	}
	return servePass(in, out, table, func(outlet int, on bool) error {
		return r.setOutlets(ctx, name, outlet, on)
	})
}

// servePass speaks the pass_persist protocol for a table of objects, and calls turn to
// switch an outlet. An error of turn becomes the requester's error and goes to
// standard error; servePass goes on.
func servePass(in io.Reader, out io.Writer, table func() ([]snmpValue, error), turn func(outlet int, on bool) error) error {
	sc := bufio.NewScanner(in)
	line := func() string {
		sc.Scan()
		return strings.TrimSpace(sc.Text())
	}
	answer := func(s string) error {
		_, err := io.WriteString(out, s+"\n")
		return err
	}
	for sc.Scan() {
		var err error
		switch command := strings.TrimSpace(sc.Text()); command {
		case "PING":
			err = answer("PONG")
		case "get", "getnext":
			o, bad := parseOID(line())
			t, tableErr := table()
			if tableErr != nil {
				return tableErr
			}
			var v *snmpValue
			if bad == nil && command == "get" {
				v = snmpGet(t, o)
			} else if bad == nil {
				v = snmpNext(t, o)
			}
			if v == nil {
				err = answer("NONE")
			} else {
				err = answer(formatOID(v.OID) + "\n" + v.Type + "\n" + v.Value)
			}
		case "set":
			target, value := line(), line()
			err = answer(setOutlet(target, value, table, turn))
		case "":
			return nil
		default:
			err = answer("NONE")
		}
		if err != nil {
			return err
		}
	}
	return sc.Err()
}

// setOutlet carries out one set request and returns the protocol's answer.
func setOutlet(target, value string, table func() ([]snmpValue, error), turn func(outlet int, on bool) error) string {
	o, err := parseOID(target)
	t, tableErr := table()
	if err != nil || tableErr != nil || snmpGet(t, o) == nil || !slices.Equal(o[:len(o)-1], oidControlAction) {
		return "not-writable"
	}
	typ, number, _ := strings.Cut(value, " ")
	if typ != "integer" {
		return "wrong-type"
	}
	outlet := o[len(o)-1]
	switch n, err := strconv.Atoi(strings.Trim(number, `" `)); {
	case err != nil:
		return "wrong-value"
	case n == outletOn:
		err = turn(outlet, true)
		return done(err)
	case n == outletOff:
		return done(turn(outlet, false))
	case n == outletReboot:
		return done(errors.Join(turn(outlet, false), turn(outlet, true)))
	default:
		return "wrong-value"
	}
}

func done(err error) string {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return "inconsistent-value"
	}
	return "DONE"
}

// pduSNMPConfig is snmpd's configuration of a PDU; secrets are the contents of its
// files. Source: snmpd.conf(5)
func pduSNMPConfig(p *PDU, secrets []string) string {
	access := "rwcommunity " + secrets[0]
	if n := p.SNMP; n != nil {
		access = fmt.Sprintf("createUser %s %s \"%s\" %s \"%s\"\nrwuser %s priv", n.User, n.Auth, secrets[0], n.Privacy, secrets[1], n.User)
	}
	return fmt.Sprintf(`agentaddress udp:%s:161
%s
sysobjectid %s
sysdescr APC Web/SNMP Management Card (virtual)
sysname %s
dontLogTCPWrappersConnects yes
pass_persist .%s ./mortar rack _pdu .. %s
`, p.Address, access, pduObjectID, p.Name, strings.TrimPrefix(formatOID(oidAPC), "."), p.Name)
}

// ensurePDU starts a PDU's controller unless it runs or is dead. The caller
// holds the power lock.
func ensurePDU(ctx context.Context, r *rack, p *PDU, h *hardware) error {
	name := pduName(p.Name)
	if h.DeadPDUs[p.Name] || running(r.dir, name) != nil {
		return nil
	}
	var secrets []string
	for _, file := range p.secrets() {
		s, err := ensureSecret(file)
		if err != nil {
			return err
		}
		secrets = append(secrets, s)
	}
	// snmpd keeps users there, with the pass phrases of their creation.
	state := filepath.Join(runDir(r.dir), name+".state")
	if err := os.RemoveAll(state); err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	if err := renameio.WriteFile(confFile(r.dir, name), []byte(pduSNMPConfig(p, secrets)), 0o600); err != nil {
		return err
	}
	if err := r.hostAddress(ctx, p.Address, true); err != nil {
		return err
	}
	// -I: only the modules for identity, users and pass_persist.
	return startDaemon(ctx, r.dir, r.cfg.netns(), name, func() bool { return r.listensUDP(p.Address, 161) }, "snmpd", "-f", "-Lo", "-C", "-c", confFile(r.dir, name),
		"-I", "system_mib,sysORTable,pass,pass_persist,override,snmpEngine,usmConf,vacm_conf,vacm_context")
}

func stopPDU(ctx context.Context, r *rack, p *PDU) error {
	if err := stop(r.dir, pduName(p.Name)); err != nil {
		return err
	}
	return r.hostAddress(ctx, p.Address, false)
}
