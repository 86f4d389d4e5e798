package configure

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// The CLI of an ME4, which reads a command from each line. It goes on after a command that
// fails; here the whole script is refused then, with the errors of all of its lines. Lines
// that begin with # are for the reader of a script: the script says to leave them out.
//
// Sources: Dell EMC PowerVault ME4 Series Storage System CLI Reference Guide: add
// disk-group, add spares, create volume, set volume-cache-parameters, set initiator, create
// host, create host-group, map volume, command syntax (disks, sizes, names, initiators,
// hosts); Administrator's Guide, tables 3 and 4 (numbers of disks); python-me4storage. For an
// ME5 see spec.ArrayModel.

var (
	me4Name         = regexp.MustCompile(`^[^",<\\ ]{1,32}$`)
	me4Disk         = regexp.MustCompile(`^(\d+)\.(\d+)(?:-(\d+))?$`)
	me4Size         = regexp.MustCompile(`^(\d+)(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$`)
	me4SAS          = regexp.MustCompile(`^[0-9a-fA-F]{16}$`)
	errUnrecognized = errors.New("the command was not recognized")
)

// me4 executes a script.
func (b *box) me4(_ context.Context, text string) error {
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := b.me4Line(line); err != nil {
			b.print("Error: %v", err)
			errs = append(errs, fmt.Errorf("line %d, %s: %w", n, line, err))
		}
	}
	return errors.Join(errs...)
}

func (b *box) me4Line(line string) error {
	w := strings.Fields(line)
	if len(w) < 2 {
		return errUnrecognized
	}
	verb := w[0] + " " + w[1]
	form, known := formsOf("me4")[verb]
	if !known {
		return errUnrecognized
	}
	if verb == "show volumes" {
		b.me4Volumes()
		return nil
	}
	v, name, err := me4Values(form, w[2:])
	if err != nil {
		return err
	}
	switch verb {
	case "set system":
		b.system = v["name"]
	case "add disk-group":
		return b.addDiskGroup(v, name)
	case "add spares":
		disks, err := me4Disks(name)
		if err != nil {
			return err
		}
		return b.addSpares(disks)
	case "create volume":
		return b.createVolume(v, name)
	case "set volume-cache-parameters":
		if b.volume(name) == nil {
			return fmt.Errorf("volume %s was not found", name)
		}
	case "set initiator":
		if !me4SAS.MatchString(v["id"]) || !me4Name.MatchString(v["nickname"]) {
			return errors.New("it wants an id of 16 hexadecimal digits and a nickname")
		}
		if _, used := b.initiators[v["nickname"]]; used {
			return fmt.Errorf("the nickname %s is in use", v["nickname"])
		}
		b.initiators[v["nickname"]] = strings.ToLower(v["id"])
	case "create host":
		var ports []string
		for n := range strings.SplitSeq(v["initiators"], ",") {
			if b.initiators[n] == "" {
				return fmt.Errorf("initiator %s was not found", n)
			}
			ports = append(ports, b.initiators[n])
		}
		return b.addHost(name, ports)
	case "create host-group":
		hosts := strings.Split(v["hosts"], ",")
		for _, h := range hosts {
			if b.hosts[h] == nil {
				return fmt.Errorf("host %s was not found", h)
			}
		}
		if b.hostGroups[name] != nil {
			return fmt.Errorf("the name %q is in use", name)
		}
		b.hostGroups[name] = hosts
	case "map volume":
		return b.mapVolume(v, name)
	}
	return nil
}

// me4Values reads the keywords of a command with their values, and the name at its end.
func me4Values(form string, w []string) (map[string]string, string, error) {
	keys := map[string]string{}
	named := false
	for p := range strings.FieldsSeq(form) {
		key, values, ok := strings.Cut(p, ":")
		if named = !ok; ok {
			keys[key] = values
		}
	}
	out := map[string]string{}
	for len(w) > 1 {
		values, known := keys[w[0]]
		_, twice := out[w[0]]
		switch {
		case !known || twice:
			return nil, "", fmt.Errorf("the parameter %q is not allowed", w[0])
		case values != "-" && !slices.Contains(strings.Split(values, "|"), w[1]):
			return nil, "", fmt.Errorf("%q is an invalid value for the %s parameter: it is %s", w[1], w[0], values)
		}
		out[w[0]], w = w[1], w[2:]
	}
	switch {
	case !named && len(w) == 1:
		return nil, "", fmt.Errorf("the parameter %q is not allowed", w[0])
	case named && len(w) != 1:
		return nil, "", errors.New("the name at its end is missing")
	case named && strings.Contains(form, ":") && !strings.HasPrefix(form, "disk-group:") && !me4Name.MatchString(w[0]):
		return nil, "", fmt.Errorf("%q is no name: at most 32 bytes, without \" , < and \\", w[0])
	}
	if !named {
		return out, "", nil
	}
	return out, w[0], nil
}

// me4Disks reads a list of disks: commas between disks, a hyphen for a range of slots, and
// colons between the subgroups of RAID 10.
func me4Disks(list string) ([]place, error) {
	var out []place
	for f := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ':' }) {
		m := me4Disk.FindStringSubmatch(f)
		if m == nil {
			return nil, fmt.Errorf("%q is no disk: want ENCLOSURE.SLOT", f)
		}
		last := number(m[2])
		if m[3] != "" {
			last = number(m[3])
		}
		for slot := number(m[2]); slot <= last; slot++ {
			out = append(out, place{number(m[1]), slot})
		}
	}
	return out, nil
}

func (b *box) addDiskGroup(v map[string]string, name string) error {
	level, ok := strings.CutPrefix(v["level"], "raid")
	if !ok {
		level = strings.TrimPrefix(v["level"], "r")
	}
	switch {
	case v["type"] != "linear":
		return fmt.Errorf("the rack has linear disk groups only, not of type %q", v["type"])
	case v["pool"] != "":
		return errors.New("a linear disk group is a pool of its own")
	}
	places, err := me4Disks(v["disks"])
	if err != nil {
		return err
	}
	disks, err := b.take(places)
	if err != nil {
		return err
	}
	if number(level) == 10 {
		for sub := range strings.SplitSeq(v["disks"], ":") {
			if pair, err := me4Disks(sub); err != nil || len(pair) != 2 {
				return fmt.Errorf("RAID 10 wants subgroups of two disks with a colon between them, not %s", sub)
			}
		}
	}
	chunk := 512
	if v["chunk-size"] != "" {
		chunk = number(strings.TrimSuffix(v["chunk-size"], "k"))
	}
	g := group{name: name, level: number(level), chunk: spec.Bytes(chunk) * spec.KiB, disks: disks}
	if v["assigned-to"] == "b" || v["assigned-to"] != "a" && len(b.groups)%2 == 1 { // auto: in turn
		g.controller = 1
	}
	_, err = b.addGroup(g)
	return err
}

func (b *box) createVolume(v map[string]string, name string) error {
	pool := v["pool"]
	if pool == "" {
		pool = v["vdisk"]
	}
	g, m := b.groupNamed(pool), me4Size.FindStringSubmatch(v["size"])
	switch {
	case g == nil:
		return fmt.Errorf("disk group %q was not found", pool)
	case m == nil:
		return fmt.Errorf("%q is no size", v["size"])
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return err
	}
	unit := map[string]spec.Bytes{"": spec.GB, "B": 1, "KB": 1000, "MB": 1000 * 1000, "GB": spec.GB, "TB": spec.TB,
		"KiB": spec.KiB, "MiB": spec.MiB, "GiB": spec.GiB, "TiB": spec.TiB}[m[2]]
	return b.addVolume(g, name, spec.Bytes(n)*unit, g.controller)
}

func (b *box) mapVolume(v map[string]string, name string) error {
	vol := b.volume(name)
	lun, err := strconv.Atoi(v["lun"])
	switch {
	case vol == nil:
		return fmt.Errorf("volume %s was not found", name)
	case v["ports"] != "" || v["access"] == "no-access":
		return errors.New("in the rack a volume is mapped by all ports, or not at all")
	case err != nil || lun < 0 || lun > 1023:
		return fmt.Errorf("%q is an invalid LUN: it is 0 to 1023", v["lun"])
	}
	who, all := strings.CutSuffix(v["initiator"], ".*.*")
	hosts := b.hostGroups[who]
	if !all {
		who, all = strings.CutSuffix(v["initiator"], ".*")
		hosts = []string{who}
		if b.hosts[who] == nil {
			hosts = nil
		}
	}
	if !all || len(hosts) == 0 {
		return fmt.Errorf("the initiator %q was not found: want HOST.* or GROUP.*.*", v["initiator"])
	}
	return b.export(vol, lun, hosts)
}

func (b *box) me4Volumes() {
	b.print("%-20s %-32s %18s %-5s %s", "Pool", "Name", "Size (bytes)", "Owner", "LUN")
	for _, v := range b.volumes {
		b.print("%-20s %-32s %18d %-5s %d", v.group.name, v.name, v.size, []string{"A", "B"}[v.controller], v.number)
	}
}
