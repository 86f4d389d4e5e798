// Package array writes the configuration scripts of RAID arrays and
// controllers from a design, and compares the LUNs that hosts see with it.
// It runs no command and reaches no host: what was seen is handed to it.
package array

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Tools are the tools a script can be for, by family of the array; the first
// is the default.
func Tools(family string) []string {
	return map[string][]string{"md3": {"SMcli"}, "me4": {"me4"}, "perc": {"perccli", "omconfig"}}[family]
}

// Script is the configuration of one array, for one of its tools ("": the
// default). With growth it has only what that growth of the brick adds to an array
// that is in use; 0: everything, for an array that has nothing on it.
func Script(d *design.Design, name, tool string, growth int) (string, error) {
	i := slices.IndexFunc(d.Arrays, func(a design.Array) bool { return a.Name == name })
	if i < 0 {
		var names []string
		for _, a := range d.Arrays {
			names = append(names, a.Name)
		}
		if len(names) == 0 {
			return "", errors.New("this brick has no array: its disks are JBODs (storage.kind)")
		}
		return "", fmt.Errorf("there is no array %q; the arrays are: %s", name, strings.Join(names, ", "))
	}
	a := &d.Arrays[i]
	tools := Tools(a.Family)
	if tool == "" {
		tool = tools[0]
	}
	if !slices.Contains(tools, tool) {
		return "", fmt.Errorf("array %s (%s) is configured with %s, not with %s", a.Name, a.Model, strings.Join(tools, " or "), tool)
	}
	w := &writer{d: d, a: a, growth: growth}
	if growth > 0 {
		w.a = added(a, growth)
		if len(w.a.LUNs) == 0 {
			return "", fmt.Errorf("growth %d adds nothing to array %s", growth, name)
		}
	}
	switch tool {
	case "SMcli":
		return w.smcli()
	case "me4":
		return w.me4()
	case "omconfig":
		return w.omconfig(), nil
	}
	return w.perccli(), nil
}

// added is an array with nothing but what a growth adds.
func added(a *design.Array, growth int) *design.Array {
	out := *a
	out.LUNs = slices.DeleteFunc(slices.Clone(a.LUNs), func(l design.LUN) bool { return l.Growth != growth })
	out.Spares = slices.DeleteFunc(slices.Clone(a.Spares), func(k design.Disk) bool { return k.Growth != growth })
	return &out
}

type writer struct {
	d      *design.Design
	a      *design.Array
	growth int // 0: all of the array
	b      strings.Builder
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// location is the enclosure's place in the array's chain, and the slot; both
// from 0.
func (w *writer) location(k design.Disk) (enclosure, slot int) {
	return slices.Index(w.a.Enclosures, k.Enclosure), k.Bay - 1
}

func (w *writer) group(name string) design.Group {
	i := slices.IndexFunc(w.d.Groups, func(g design.Group) bool { return g.Name == name })
	return w.d.Groups[i]
}

// members lists the disks of a LUN, span by span, in RAID order.
func (w *writer) members(l design.LUN) []design.Disk {
	var out []design.Disk
	for _, g := range l.Groups {
		out = append(out, w.group(g).Members...)
	}
	return out
}

// ports are the SAS addresses of a server, without which an array does not
// know it.
func (w *writer) ports(server string) ([]string, error) {
	s := w.d.Spec
	for i, v := range s.Servers {
		if v.Name != server {
			continue
		}
		if len(v.SASPorts) == 0 {
			line, col := s.Pos(fmt.Sprintf("servers[%d]", i))
			return nil, spec.Errors{{File: s.File, Line: line, Col: col,
				Msg:  fmt.Sprintf("array %s knows servers by the SAS addresses of their HBA ports, and %s has none", w.a.Name, server),
				Mend: "add sas_ports: [\"…\"], as /sys/class/sas_phy/*/sas_address on that server has them"}}
		}
		return v.SASPorts, nil
	}
	return nil, fmt.Errorf("there is no server %s", server)
}

// label makes a name that arrays take: letters, digits, - and _, at most 30.
func label(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '.' || r > 126 {
			return '_'
		}
		return r
	}, name)
	return clean[:min(len(clean), 30)]
}

// percName is a virtual disk's name as a PERC takes it: at most 15 characters,
// of which the last tell the disks apart.
func percName(l design.LUN) string {
	return strings.TrimLeft(l.Name[max(0, len(l.Name)-15):], "-_")
}

func (w *writer) head(comment, how string) {
	for _, t := range []string{
		fmt.Sprintf("Array %s (%s) of brick %s, written by mortar array script.", w.a.Name, w.a.Model, w.d.Name),
		w.state(),
		how,
	} {
		w.line("%s %s", comment, t)
	}
}

// state says which state of the array the script is for.
func (w *writer) state() string {
	if w.growth > 0 {
		return fmt.Sprintf("Growth %d, for an array that is in use: it adds groups and LUNs, and changes none that exist.", w.growth)
	}
	return "For an array that has nothing on it: groups that exist are not removed."
}

func (w *writer) addresses() string {
	if len(w.a.Management) == 0 {
		return "ADDRESS"
	}
	return strings.Join(w.a.Management, " ")
}

// smcli is for MD3200 and MD3220.
//
// Source: Dell PowerVault Modular Disk Storage Arrays CLI Guide; seed Lustre
// brick, 6.2 and Appendix B.
func (w *writer) smcli() (string, error) {
	a := w.a
	// A segment larger than a cache block takes several blocks; a small block
	// spends more of the cache on metadata.
	block := 32
	if len(a.LUNs) > 0 && a.LUNs[0].Chunk < 128*spec.KiB {
		block = 4
	}
	hosts := label(strings.Join(a.Servers, "_"))
	w.head("//", "Run it from a management node: SMcli "+w.addresses()+" -f "+a.Name+".smcli")
	if w.growth == 0 {
		if err := w.smcliHosts(hosts, block); err != nil {
			return "", err
		}
	}
	seen := map[string]bool{}
	for _, l := range a.LUNs {
		g := w.group(l.Groups[0])
		level := l.Level
		shape := fmt.Sprintf("RAID %d %d+%d", l.Level, g.Data, g.Parity)
		if level == 10 {
			level = 1 // the array calls mirrors of more than two disks so, too
		}
		capacity := ""
		if !l.Rest {
			capacity = fmt.Sprintf(" capacity=%d Bytes", int64(l.Size))
		}
		w.line("")
		w.line(`show "Virtual disk %s: %s on %s, %s.";`, l.Name, shape, l.Groups[0], l.Size.Binary())
		if !seen[l.Groups[0]] {
			seen[l.Groups[0]] = true
			var disks []string
			for _, k := range g.Members {
				e, slot := w.location(k)
				disks = append(disks, fmt.Sprintf("%d,%d", e, slot))
			}
			w.line(`create virtualDisk physicalDisks=(%s) raidLevel=%d userLabel="%s" volumeGroupUserLabel="%s"%s owner=%d segmentSize=%d dssPreAllocate=true securityType=none;`,
				strings.Join(disks, " "), level, l.Name, l.Groups[0], capacity, l.Controller, l.Chunk/spec.KiB)
		} else {
			w.line(`create virtualDisk diskGroup="%s" userLabel="%s"%s owner=%d segmentSize=%d;`, l.Groups[0], l.Name, capacity, l.Controller, l.Chunk/spec.KiB)
		}
		for _, v := range []string{
			"cacheFlushModifier=10",
			"cacheWithoutBatteryEnabled=false",
			// With it both controllers have what is written and not on disk yet: one may die.
			fmt.Sprintf("mirrorEnabled=%t", !a.Unmirrored),
			"readCacheEnabled=true",
			"writeCacheEnabled=true",
			"mediaScanEnabled=true",
			"consistencyCheckEnabled=true",
			"cacheReadPrefetch=true",
			"modificationPriority=lowest",
			"preReadRedundancyCheck=false",
		} {
			w.line(`set virtualDisk ["%s"] %s;`, l.Name, v)
		}
		w.line("// To the group: either server may take it over.")
		w.line(`set virtualDisk ["%s"] logicalUnitNumber=%d hostGroup="%s";`, l.Name, l.Number, hosts)
	}
	if len(a.Spares) > 0 {
		w.line("")
		w.line("// Spares of all groups.")
		for _, k := range a.Spares {
			e, slot := w.location(k)
			w.line("set physicalDisk [%d,%d] hotSpare=TRUE;", e, slot)
		}
	}
	w.line("")
	w.line(`show "Done. The WWNs for arrays.wwns in the spec:";`)
	w.line("show allVirtualDisks summary;")
	return w.b.String(), nil
}

// smcliHosts sets up the array itself and the servers.
func (w *writer) smcliHosts(hosts string, block int) error {
	a := w.a
	w.line(`show "Setting up array %s.";`, a.Name)
	w.line(`set storageArray userLabel="%s";`, a.Name)
	w.line("// Each disk is read through once in so many days, so that sectors gone bad are found before a rebuild needs them.")
	w.line("set storageArray mediaScanRate=15;")
	w.line("// KiB: large for streams, small for metadata.")
	w.line("set storageArray cacheBlockSize=%d;", block)
	w.line("set storageArray cacheFlushStart=80;")
	w.line("set storageArray cacheFlushStop=80;")
	w.line("")
	w.line("// Servers. Host type 1 is Linux, as the paper has it. Compare with 'show storageArray hostTypeTable;': by the type")
	w.line("// 'Linux (DM-MP) (Kernel 3.10 or later)', where the firmware has it, the array tells of its paths by ALUA.")
	w.line(`create hostGroup userLabel="%s";`, hosts)
	for _, server := range a.Servers {
		ports, err := w.ports(server)
		if err != nil {
			return err
		}
		s := label(server)
		w.line(`create host userLabel="%s" hostType=1 hostGroup="%s";`, s, hosts)
		for i, p := range ports {
			w.line(`create hostPort host="%s" userLabel="%sP%d" identifier="%s" interfaceType=SAS;`, s, s, i, p)
		}
	}
	return nil
}

// me4 is for ME4084, whose CLI is spoken over SSH.
//
// Names of groups and volumes have no keyword, the group of a linear volume is
// its vdisk, and mirrors are listed pair by pair.
//
// Source: Dell EMC PowerVault ME4 Series Storage System CLI Reference Guide;
// forms compared with those of python-me4storage, which sets up ME4084s.
func (w *writer) me4() (string, error) {
	a := w.a
	address := "ADDRESS"
	if len(a.Management) > 0 {
		address = a.Management[0]
	}
	w.head("#", "Run it over SSH: grep -v '^#' "+a.Name+".me4 | ssh manage@"+address)
	w.line("set cli-parameters pager off")
	if w.growth == 0 {
		w.line("set system name %s", a.Name)
		w.line("# Disks in groups and those waiting are read through, so that sectors gone bad are found before a rebuild needs them.")
		w.line("set advanced-settings background-scrub enabled background-disk-scrub enabled")
	}
	w.line("# Linear groups: all of a group's disks are one volume's.")
	ctrl := []string{"a", "b"}
	seen := map[string]bool{}
	for _, l := range a.LUNs {
		if seen[l.Groups[0]] {
			continue
		}
		seen[l.Groups[0]] = true
		var disks strings.Builder
		for i, k := range w.members(l) {
			switch {
			case i == 0:
			case l.Level == 10 && i%2 == 0: // the next mirror
				disks.WriteByte(':')
			default:
				disks.WriteByte(',')
			}
			e, slot := w.location(k)
			fmt.Fprintf(&disks, "%d.%d", e, slot)
		}
		w.line("add disk-group type linear disks %s level raid%d chunk-size %dk assigned-to %s %s", disks.String(), l.Level, l.Chunk/spec.KiB, ctrl[l.Controller], l.Groups[0])
	}
	if len(a.Spares) > 0 {
		var disks []string
		for _, k := range a.Spares {
			e, slot := w.location(k)
			disks = append(disks, fmt.Sprintf("%d.%d", e, slot))
		}
		w.line("# Global: for any group.")
		w.line("add spares %s", strings.Join(disks, ","))
	}
	w.line("# A thousandth less than the disks have, for the array's own data: show disk-groups prints what is left.")
	for _, l := range a.LUNs {
		w.line("create volume vdisk %s size %dGiB %s", l.Groups[0], l.Size/spec.GiB, l.Name)
		w.line("set volume-cache-parameters write-policy write-back optimization standard read-ahead-size adaptive %s", l.Name)
	}
	hosts := label(strings.Join(a.Servers, "_"))
	if w.growth == 0 {
		if err := w.me4Hosts(hosts); err != nil {
			return "", err
		}
	}
	w.line("# To both servers, by every port: either may take the volumes over.")
	for _, l := range a.LUNs {
		w.line("map volume access read-write lun %d initiator %s.*.* %s", l.Number, hosts, l.Name)
	}
	w.line("# The WWNs for arrays.wwns in the spec:")
	w.line("show volumes details")
	return w.b.String(), nil
}

// me4Hosts makes the servers known to the array.
func (w *writer) me4Hosts(hosts string) error {
	w.line("# Servers.")
	var names []string
	for _, server := range w.a.Servers {
		ports, err := w.ports(server)
		if err != nil {
			return err
		}
		s := label(server)
		names = append(names, s)
		var nick []string
		for i, p := range ports {
			n := fmt.Sprintf("%sP%d", s, i)
			w.line("set initiator id %s nickname %s", p, n)
			nick = append(nick, n)
		}
		w.line("create host initiators %s %s", strings.Join(nick, ","), s)
	}
	w.line("create host-group hosts %s %s", strings.Join(names, ","), hosts)
	return nil
}

// onlyOn ends a script before it changes anything if the controller is of another
// model; show is the command that tells.
func (w *writer) onlyOn(show string, args ...any) {
	_, model, _ := strings.Cut(w.a.Model, "-")
	w.line("%s | grep -q %s || { echo 'controller %d is no %s, for which this script is: nothing was changed' >&2; exit 1; }", fmt.Sprintf(show, args...), model, w.a.Controller, w.a.Model)
}

// omconfig is what the papers typed for a PERC.
//
// The disks are listed span by span: the controller makes a span of each
// spanlength disks in the order given.
//
// Source: OpenManage Server Administrator CLI Guide; seed NFS+DFC, A.4.
func (w *writer) omconfig() string {
	a := w.a
	w.line("#!/bin/sh -e")
	w.head("#", "Run it on "+a.Servers[0]+". OpenManage Server Administrator is at its end: --tool perccli writes the same for its successor.")
	w.onlyOn("omreport storage controller controller=%d", a.Controller)
	w.line("# Connector 0, enclosures 0 to %d in the order of the chain: compare with", len(a.Enclosures)-1)
	w.line("omreport storage pdisk controller=%d", a.Controller)
	for _, l := range a.LUNs {
		var disks []string
		for _, k := range w.members(l) {
			e, slot := w.location(k)
			disks = append(disks, fmt.Sprintf("0:%d:%d", e, slot))
		}
		span := ""
		if l.Level == 60 {
			g := w.group(l.Groups[0])
			span = fmt.Sprintf(" spanlength=%d", g.Data+g.Parity)
		}
		w.line("# %s: %d bytes", l.Name, int64(l.Size))
		w.line("omconfig storage controller controller=%d action=createvdisk raid=r%d size=max stripesize=%dkb%s readpolicy=ara writepolicy=wb diskcachepolicy=disabled name=%s pdisk=%s",
			a.Controller, l.Level, l.Chunk/spec.KiB, span, percName(l), strings.Join(disks, ","))
	}
	for _, k := range a.Spares {
		e, slot := w.location(k)
		w.line("omconfig storage pdisk controller=%d pdisk=0:%d:%d action=assignglobalhotspare assign=yes", a.Controller, e, slot)
	}
	w.line("# Initializing takes hours; the size is to be compared with the above.")
	w.line("omreport storage vdisk controller=%d", a.Controller)
	return w.b.String()
}

// perccli is for a PERC of today. Enclosure device IDs are the controller's
// own choice, so the script asks for them.
//
// Source: PERC CLI Reference Guide (perccli64 is StorCLI).
func (w *writer) perccli() string {
	a := w.a
	w.line("#!/bin/sh -eu")
	w.head("#", "Run it on "+a.Servers[0]+".")
	w.onlyOn("perccli64 /c%d show", a.Controller)
	w.line("# The controller chose a device ID (EID) for each enclosure. Look them up with")
	w.line("#     perccli64 /c%d/eall show", a.Controller)
	w.line("# and give them: E0=… E1=… sh %s.perccli", a.Name)
	for i, e := range a.Enclosures {
		w.line(`: "${E%d:?EID of enclosure %s}"`, i, e)
	}
	for _, l := range a.LUNs {
		var disks []string
		for _, k := range w.members(l) {
			e, slot := w.location(k)
			disks = append(disks, fmt.Sprintf("$E%d:%d", e, slot))
		}
		span := ""
		if l.Level != 6 {
			g := w.group(l.Groups[0])
			n := g.Data + g.Parity
			if l.Level == 10 {
				n = 2
			}
			span = fmt.Sprintf(" pdperarray=%d", n)
		}
		w.line("# %s: %d bytes. Writes are kept in the battery-backed cache (wb), those in the disks' own cache would be lost.", l.Name, int64(l.Size))
		w.line(`perccli64 /c%d add vd type=raid%d size=all name=%s drives="%s"%s pdcache=off strip=%d wb ra direct`,
			a.Controller, l.Level, percName(l), strings.Join(disks, ","), span, l.Chunk/spec.KiB)
	}
	for _, k := range a.Spares {
		e, slot := w.location(k)
		w.line(`perccli64 "/c%d/e$E%d/s%d" add hotsparedrive`, a.Controller, e, slot)
	}
	w.line("# Size, and the WWNs (SCSI NAA Id) for arrays.wwns in the spec:")
	w.line("perccli64 /c%d/vall show all", a.Controller)
	return w.b.String()
}
