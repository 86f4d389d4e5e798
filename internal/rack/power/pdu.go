package power

import (
	"bufio"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/hw"
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

func formatOID(o []int) string { return "." + asn1.ObjectIdentifier(o).String() }

// Object is one object: its type and value as net-snmp's pass protocol
// writes them.
type Object struct {
	OID         []int
	Type, Value string
}

// Objects is everything a PDU answers, in the order of a walk.
func Objects(p *hw.PDU, load int, nameOf func(outlet int) string, isOn func(outlet int) bool) []Object {
	t := []Object{
		{OID: oidNearOverload, Type: "integer", Value: strconv.Itoa(hw.PDUNearOverload)},
		{OID: oidOverload, Type: "integer", Value: strconv.Itoa(hw.PDUOverload)},
		{OID: oidLoad, Type: "gauge", Value: strconv.Itoa(load)},
	}
	for _, column := range [][]int{oidControlName, oidControlAction, oidStatusName, oidStatusState} {
		names := slices.Equal(column, oidControlName) || slices.Equal(column, oidStatusName)
		for o := 1; o <= p.Outlets; o++ {
			v := Object{OID: oid(column, o), Type: "integer", Value: strconv.Itoa(outletOff)}
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

// find returns the object o, or the first one after it.
func find(t []Object, o []int, next bool) *Object {
	for i := range t {
		if c := slices.Compare(t[i].OID, o); next && c > 0 || !next && c == 0 {
			return &t[i]
		}
	}
	return nil
}

// ServePass speaks the pass_persist protocol for a table of objects, and calls turn to
// switch an outlet. An error of turn becomes the requester's error and goes to
// standard error; ServePass goes on.
func ServePass(in io.Reader, out io.Writer, table func() ([]Object, error), turn func(outlet int, on bool) error) error {
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
			var v *Object
			if bad == nil {
				v = find(t, o, command == "getnext")
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
func setOutlet(target, value string, table func() ([]Object, error), turn func(outlet int, on bool) error) string {
	o, err := parseOID(target)
	t, tableErr := table()
	if err != nil || tableErr != nil || find(t, o, false) == nil || !slices.Equal(o[:len(o)-1], oidControlAction) {
		return "not-writable"
	}
	typ, number, _ := strings.Cut(value, " ")
	if typ != "integer" {
		return "wrong-type"
	}
	outlet := o[len(o)-1]
	n, err := strconv.Atoi(strings.Trim(number, `" `))
	switch {
	case err != nil || n < outletOn || n > outletReboot:
		return "wrong-value"
	case n == outletReboot:
		err = errors.Join(turn(outlet, false), turn(outlet, true))
	default:
		err = turn(outlet, n == outletOn)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return "inconsistent-value"
	}
	return "DONE"
}

// SNMPConfig is snmpd's configuration of a PDU; secrets are the contents of its
// files. Source: snmpd.conf(5)
func SNMPConfig(p *hw.PDU, secrets []string) string {
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
