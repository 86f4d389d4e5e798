package configure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// The script language of SMcli. As SMcli does, smcli checks the syntax of the whole script
// before it executes the first command, and ends at the first command that fails.
//
// Sources: Dell PowerVault Modular Disk Storage Arrays CLI Guide, "About the Script
// Commands"; for its successor and for the rules of names NetApp's SANtricity CLI reference
// (docs.netapp.com/us-en/e-series-cli): create volumegroup, create volume, create hostgroup,
// create mapping volume; paper Lustre brick, Appendix B, for volumeGroupUserLabel.

//go:embed forms.txt
var formsText string

// formsOf has the commands of a language (smcli, santricity, me4), each with its parameters.
func formsOf(language string) map[string]string {
	_, text, _ := strings.Cut(formsText, "\n["+language+"]\n")
	text, _, _ = strings.Cut(text, "\n[")
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if verb, form, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[verb] = strings.TrimSpace(form)
		}
	}
	return out
}

var smcliTypes = map[string]*regexp.Regexp{
	"label": regexp.MustCompile(`^[\w-]{1,30}$`), // letters, digits, hyphens, underscores; at most 30
	"bool":  regexp.MustCompile(`(?i)^(true|false)$`),
	"sas":   regexp.MustCompile(`^[0-9a-fA-F]{16}$`),
	"size":  regexp.MustCompile(`(?i)^\d+ ?(bytes|kb|mb|gb|tb)?$`),
	"disks": regexp.MustCompile(`^\d+,\d+(,\d+)?( \d+,\d+(,\d+)?)*$`),
}

var smcliToken = regexp.MustCompile(`//[^\n]*|\s+|"[^"\n]*"|[\w.,-]+|[=()\[\];]`)

type statement struct {
	line   int
	verb   string            // its words in lower case, "[]" for an object
	object string            // in the brackets
	values map[string]string // by parameter in lower case
	text   string            // of show
}

func (b *box) smcli(_ context.Context, text string) error {
	forms := formsOf("smcli")
	if b.model.Family == "eseries" {
		forms = formsOf("santricity")
	}
	all, err := parseSMcli(text, forms)
	if err != nil {
		return fmt.Errorf("syntax check: %w; nothing was executed", err)
	}
	for _, s := range all {
		if err := b.smcliCommand(s); err != nil {
			return fmt.Errorf("line %d, %s: %w", s.line, s.verb, err)
		}
	}
	b.print("Script execution complete.\n\nSMcli completed successfully.")
	return nil
}

func parseSMcli(text string, forms map[string]string) ([]statement, error) {
	var all []statement
	line := 1
	var tokens []string
	begin := 0
	for at := 0; at < len(text); {
		m := smcliToken.FindStringIndex(text[at:])
		if m == nil || m[0] != 0 {
			return nil, fmt.Errorf("line %d: %.20q is no word of the language", line, text[at:])
		}
		t := text[at : at+m[1]]
		at += m[1]
		switch {
		case t == ";":
			s, err := newStatement(tokens, forms)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", begin, err)
			}
			s.line = begin
			all, tokens = append(all, s), nil
		case strings.TrimSpace(t) != "" && !strings.HasPrefix(t, "//"):
			if tokens == nil {
				begin = line
			}
			tokens = append(tokens, t)
		}
		line += strings.Count(t, "\n")
	}
	if tokens != nil {
		return nil, fmt.Errorf("line %d: the command does not end with a semicolon", begin)
	}
	return all, nil
}

// newStatement checks a command by its form.
func newStatement(t []string, forms map[string]string) (statement, error) {
	s := statement{values: map[string]string{}}
	if len(t) > 1 && strings.EqualFold(t[0], "show") {
		s.verb, s.text = "show", strings.Join(t[1:], " ")
		return s, nil
	}
	var words []string
	for len(t) > 0 && (len(t) < 2 || t[1] != "=") {
		if n := slices.Index(t, "]"); t[0] == "[" && n > 0 {
			s.object = strings.Trim(strings.Join(t[1:n], " "), `"`)
			words, t = append(words, "[]"), t[n+1:]
			continue
		}
		words, t = append(words, strings.ToLower(t[0])), t[1:]
	}
	s.verb = strings.Join(words, " ")
	form, known := forms[s.verb]
	if !known {
		return s, fmt.Errorf("%q is no command that is known here", s.verb)
	}
	if err := s.parameters(t); err != nil {
		return s, err
	}
	for p := range strings.FieldsSeq(strings.ToLower(form)) {
		key, kind, _ := strings.Cut(p, ":")
		kind, must := strings.CutSuffix(kind, "!")
		v, given := s.values[key]
		switch {
		case must && !given:
			return s, fmt.Errorf("%s has no %s", s.verb, key)
		case given && !smcliValue(kind, v):
			return s, fmt.Errorf("%s=%s: want %s", key, v, kind)
		}
	}
	for key := range s.values {
		if !strings.Contains(" "+strings.ToLower(form), " "+key+":") {
			return s, fmt.Errorf("%s has no parameter %s", s.verb, key)
		}
	}
	return s, nil
}

// parameters reads KEY=VALUE, where a value is a word, a text in quotes, a list in
// parentheses, or a number with a unit.
func (s *statement) parameters(t []string) error {
	for len(t) > 0 {
		if len(t) < 3 || t[1] != "=" {
			return fmt.Errorf("%q is no parameter", t[0])
		}
		key, v := strings.ToLower(t[0]), t[2]
		if _, twice := s.values[key]; twice {
			return fmt.Errorf("%s is given twice", key)
		}
		n := 3
		switch {
		case v == "(":
			end := slices.Index(t, ")")
			if end < 0 {
				return fmt.Errorf("%s: the list does not end", key)
			}
			v, n = strings.Join(t[3:end], " "), end+1
		case len(t) > 3 && (len(t) < 5 || t[4] != "="):
			v, n = v+" "+t[3], 4
		}
		s.values[key], t = strings.Trim(v, `"`), t[n:]
	}
	return nil
}

var between = regexp.MustCompile(`^(\d+)-(\d+)$`)

func smcliValue(kind, v string) bool {
	if re := smcliTypes[kind]; re != nil && !(kind == "sas" && strings.EqualFold(v, "sas")) {
		return re.MatchString(v)
	}
	if m := between.FindStringSubmatch(kind); m != nil {
		n, err := strconv.Atoi(v)
		return err == nil && n >= number(m[1]) && n <= number(m[2])
	}
	return slices.Contains(strings.Split(kind, "|"), strings.ToLower(v))
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // of a length that fits, or 0
	return n
}

func (b *box) smcliCommand(s statement) error {
	v := s.values
	switch s.verb {
	case "show":
		return b.smcliShow(s.text)
	case "set storagearray":
		if v["userlabel"] != "" {
			b.system = v["userlabel"]
		}
		if v["cacheflushstop"] != "" && v["cacheflushstart"] != "" && number(v["cacheflushstop"]) > number(v["cacheflushstart"]) {
			return errors.New("cacheFlushStop is above cacheFlushStart")
		}
	case "create hostgroup":
		if b.hostGroups[v["userlabel"]] != nil || b.hosts[v["userlabel"]] != nil {
			return fmt.Errorf("the name %q is in use", v["userlabel"])
		}
		b.hostGroups[v["userlabel"]] = []string{}
	case "create host":
		if g := v["hostgroup"]; g != "" {
			if b.hostGroups[g] == nil {
				return fmt.Errorf("there is no host group %q", g)
			}
			b.hostGroups[g] = append(b.hostGroups[g], v["userlabel"])
		}
		return b.addHost(v["userlabel"], nil)
	case "create hostport":
		if b.hosts[v["host"]] == nil {
			return fmt.Errorf("there is no host %q", v["host"])
		}
		return b.addPort(v["host"], strings.ToLower(v["identifier"]))
	case "create virtualdisk":
		return b.createVirtualDisk(v)
	case "create volumegroup":
		_, err := b.createGroup(v["drives"], v["userlabel"], v["raidlevel"], 0)
		return err
	case "create volume":
		return b.createVirtualDisk(map[string]string{"diskgroup": v["volumegroup"], "userlabel": v["userlabel"], "capacity": v["capacity"],
			"segmentsize": v["segmentsize"], "owner": controllerOf(v["owner"])})
	case "create mapping":
		return b.setVirtualDisk(v["volume"], v)
	case "set virtualdisk []", "set volume []":
		v["owner"] = controllerOf(v["owner"])
		return b.setVirtualDisk(s.object, v)
	case "set physicaldisk []", "set drive []":
		if !smcliTypes["disks"].MatchString(s.object) {
			return fmt.Errorf("%q is no disk", s.object)
		}
		return b.addSpares(b.smcliDisks(s.object))
	}
	return nil
}

// controllerOf is the number of a controller: E-Series have a and b.
func controllerOf(name string) string {
	return strings.NewReplacer("a", "0", "b", "1").Replace(strings.ToLower(name))
}

// smcliDisks reads a list of disks: enclosure and slot. In an E-Series the enclosures of the
// controllers is tray 99, and a tray of 60 disks has drawers between tray and slot.
func (b *box) smcliDisks(list string) []place {
	var out []place
	for f := range strings.FieldsSeq(list) {
		n := strings.Split(f, ",")
		at := place{number(n[0]), number(n[len(n)-1])}
		if b.model.Family == "eseries" {
			if at.shelf++; at.shelf == 100 {
				at.shelf = 0
			}
			drawers := at.shelf < len(b.shelves) && b.bays[at.shelf] == spec.DrawerTray
			switch {
			case drawers != (len(n) == 3) || drawers && at.slot >= spec.DrawerSlots:
				at.slot = -1 // there is no such place
			case drawers:
				at.slot += (number(n[1]) - 1) * spec.DrawerSlots
			}
		}
		out = append(out, at)
	}
	return out
}

// createGroup makes a group of disks that a command lists.
func (b *box) createGroup(list, name, level string, chunk spec.Bytes) (*group, error) {
	disks, err := b.take(b.smcliDisks(list))
	if err != nil {
		return nil, err
	}
	n := number(level)
	if n == 1 {
		n = 10 // as the manual has it: RAID 1 of more than two disks is RAID 10
	}
	return b.addGroup(group{name: name, level: n, chunk: chunk, disks: disks})
}

func (b *box) createVirtualDisk(v map[string]string) error {
	chunk := 128 * spec.KiB
	if v["segmentsize"] != "" {
		chunk = spec.Bytes(number(v["segmentsize"])) * spec.KiB
	}
	size := spec.Bytes(0)
	if v["capacity"] != "" {
		var err error
		if size, err = smcliSize(v["capacity"]); err != nil {
			return err
		}
	}
	g := b.groupNamed(v["diskgroup"])
	switch {
	case (v["physicaldisks"] == "") == (v["diskgroup"] == ""):
		return errors.New("it names physicalDisks or a diskGroup")
	case v["diskgroup"] != "" && g == nil:
		return fmt.Errorf("there is no disk group %q", v["diskgroup"])
	case g != nil && g.chunk == 0: // a group of an E-Series gets its first volume
		g.chunk = chunk
	case g != nil && g.chunk != chunk:
		return fmt.Errorf("in the rack all virtual disks of a disk group have one segment size, and %s has %s", g.name, g.chunk)
	case g == nil:
		if v["raidlevel"] == "" {
			return errors.New("it names no raidLevel")
		}
		name := v["volumegroupuserlabel"]
		if name == "" {
			name = strconv.Itoa(len(b.groups))
		}
		var err error
		if g, err = b.createGroup(v["physicaldisks"], name, v["raidlevel"], chunk); err != nil {
			return err
		}
	}
	return b.addVolume(g, v["userlabel"], size, number(v["owner"]))
}

// smcliSize reads a capacity. Its units are powers of 1024.
func smcliSize(text string) (spec.Bytes, error) {
	digits := strings.TrimRight(text, " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit := map[string]spec.Bytes{"": 1, "bytes": 1, "kb": spec.KiB, "mb": spec.MiB, "gb": spec.GiB, "tb": spec.TiB}[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	return spec.Bytes(n) * unit, err
}

func (b *box) setVirtualDisk(name string, v map[string]string) error {
	vol := b.volume(name)
	if vol == nil {
		return fmt.Errorf("there is no virtual disk %q", name)
	}
	if v["owner"] != "" {
		vol.controller = number(v["owner"])
	}
	if on := v["mirrorenabled"] + v["mirrorcacheenabled"]; on != "" {
		vol.unmirrored = strings.EqualFold(on, "false")
	}
	if v["logicalunitnumber"] == "" {
		return nil
	}
	hosts := []string{v["host"]}
	if g := v["hostgroup"]; g != "" {
		hosts = b.hostGroups[g]
	}
	if len(hosts) == 0 || b.hosts[hosts[0]] == nil {
		return fmt.Errorf("there is no host or host group %q", v["host"]+v["hostgroup"])
	}
	return b.export(vol, number(v["logicalunitnumber"]), hosts)
}

// smcliShow answers the show commands of the script.
func (b *box) smcliShow(what string) error {
	if strings.HasPrefix(what, `"`) {
		b.print("%s", strings.Trim(what, `"`))
		return nil
	}
	switch strings.ToLower(what) {
	case "allvirtualdisks", "allvirtualdisks summary", "allvolumes", "allvolumes summary":
		b.print("STANDARD VOLUMES (VIRTUAL DISKS): %d\n", len(b.volumes))
		for _, v := range b.volumes {
			b.print("  %-30s %14d bytes  RAID %-2d  group %-20s owner %d  LUN %d", v.name, v.size, v.group.level, v.group.name, v.controller, v.number)
		}
	default:
		return fmt.Errorf("show %s is not known here", what)
	}
	return nil
}
