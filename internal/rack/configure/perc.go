package configure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// A RAID card is configured by a shell script that calls the card's tool. sh runs it here,
// with functions in place of the tools, which ask the box.
//
// perccli2 is for cards from PERC 12 on: its add vd begins with the level, and knows no
// direct (github.com/scality/raidmgmt, which sends it to a MegaRAID 9660).
//
// Sources: PERC CLI Reference Guide, "Virtual drive commands" (perccli64 is Broadcom's
// StorCLI, whose reference has the same words); Dell OpenManage Server Administrator CLI
// Guide, "omconfig storage controller action=createvdisk"; paper NFS+DFC, A.4.

// shellTools are the tools, as functions. ask hands a command over, an argument on each
// line after their number, and gets the exit code and the length of the answer.
const shellTools = `ask() { printf '%s\n' "$#" "$@" >&3; read -r ask_rc ask_n <&4; ask_out=$(head -c "$ask_n" <&4); printf '%s\n' "$ask_out"; return "$ask_rc"; }
perccli64() { ask perccli64 "$@"; }
perccli2() { ask perccli2 "$@"; }
omreport() { ask omreport "$@"; }
omconfig() { ask omconfig "$@"; }
`

// eid is the device ID of an enclosure, which a card chooses for itself.
func eid(shelf int) int { return 8 + 3*shelf }

// shell executes a script with the enclosure IDs in its environment (E0, E1, ...), which a
// person looks up with `perccli64 /cN/eall show`.
func (b *box) shell(ctx context.Context, text string) error {
	askR, askW, err := os.Pipe()
	if err != nil {
		return err
	}
	tellR, tellW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, askR.Close(), askW.Close())
	}
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", shellTools+text)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	for i := range b.shelves {
		cmd.Env = append(cmd.Env, fmt.Sprintf("E%d=%d", i, eid(i)))
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &b.out, &said, []*os.File{askW, tellR}
	err = cmd.Start()
	err = errors.Join(err, askW.Close(), tellR.Close())
	var refused error
	if err == nil {
		refused = b.answer(bufio.NewReader(askR), tellW)
		err = cmd.Wait()
	}
	err = errors.Join(err, askR.Close(), tellW.Close())
	if refused != nil {
		return refused
	}
	if said.Len() > 0 {
		return errors.New(strings.TrimSpace(said.String()))
	}
	return err
}

// answer serves the commands of a script until it ends. It returns the first refusal.
func (b *box) answer(ask *bufio.Reader, tell io.Writer) error {
	var first error
	for {
		n, err := strconv.Atoi(strings.TrimSpace(line(ask)))
		if err != nil {
			return first // the script has ended
		}
		argv := make([]string, n)
		for i := range argv {
			argv[i] = strings.TrimSuffix(line(ask), "\n")
		}
		text, err := b.tool(argv)
		code := 0
		if err != nil {
			text, code = "Status = Failure\nDescription = "+err.Error(), 1
			if first == nil {
				first = fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
			}
		}
		if _, err := fmt.Fprintf(tell, "%d %d\n%s", code, len(text), text); err != nil {
			return errors.Join(first, err)
		}
	}
}

func line(r *bufio.Reader) string {
	s, _ := r.ReadString('\n') // at the end: ""
	return s
}

// tool is a command of a RAID card's tool, and its answer.
func (b *box) tool(argv []string) (string, error) {
	switch strings.TrimSuffix(argv[0], "64") {
	case b.model.Tools[0]: // perccli or perccli2: neither finds a card of the other generation
		return b.perccli(argv[1:])
	case "perccli", "perccli2":
		return "", errors.New("no controller found")
	}
	return b.openManage(argv)
}

func (b *box) chip() string { _, chip, _ := strings.Cut(b.model.Name, "-"); return "PERC " + chip }

var (
	percPath  = regexp.MustCompile(`^/c(\d+)(/.*)?$`)
	percDrive = regexp.MustCompile(`^(\d+):(\d+)$`)
	percSpare = regexp.MustCompile(`^/e(\d+)/s(\d+)$`)
	percName  = regexp.MustCompile(`^[\w-]{1,15}$`)
)

func (b *box) perccli(argv []string) (string, error) {
	if len(argv) < 2 {
		return "", errors.New("syntax error")
	}
	m := percPath.FindStringSubmatch(argv[0])
	if m == nil {
		return "", fmt.Errorf("syntax error at %q", argv[0])
	}
	if number(m[1]) != b.controller {
		return "", fmt.Errorf("controller %s not found", m[1])
	}
	what := strings.Join(argv[1:], " ")
	spare := percSpare.FindStringSubmatch(m[2])
	switch {
	case m[2] == "" && what == "show":
		return fmt.Sprintf("Status = Success\nProduct Name = %s\nVirtual Drives = %d", b.chip(), len(b.volumes)), nil
	case m[2] == "/eall" && what == "show":
		return b.percEnclosures(), nil
	case m[2] == "/vall" && what == "show all":
		return b.percVolumes(), nil
	case spare != nil && what == "add hotsparedrive":
		at, err := b.percPlace(spare[1], spare[2])
		if err == nil {
			err = b.addSpares([]place{at})
		}
		return "Status = Success\nDescription = Add Hot Spare Succeeded.", err
	case m[2] == "" && strings.HasPrefix(what, "add vd "):
		return "Status = Success\nDescription = Add VD Succeeded.", b.addVD(argv[3:])
	}
	return "", fmt.Errorf("syntax error at %q", what)
}

// percPlace is the place of a drive, by the ID of its enclosure.
func (b *box) percPlace(enclosure, slot string) (place, error) {
	for i := range b.shelves {
		if eid(i) == number(enclosure) {
			return place{i, number(slot)}, nil
		}
	}
	return place{}, fmt.Errorf("enclosure %s not found", enclosure)
}

// addVD is `add vd`. Its words that are no KEY=VALUE are cache policies.
func (b *box) addVD(words []string) error {
	v := map[string]string{}
	second := b.model.Tools[0] == "perccli2"
	policies := []string{"wb", "awb", "wt", "ra", "nora", "direct", "cached"}
	if second {
		policies = policies[:5]
		if len(words) > 0 && strings.HasPrefix(words[0], "r") && !strings.Contains(words[0], "=") {
			words = append([]string{"type=raid" + strings.TrimPrefix(strings.TrimPrefix(words[0], "raid"), "r")}, words[1:]...)
		} else {
			return errors.New("syntax error: the level is the first word: r6, r10 or r60")
		}
	}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if _, twice := v[key]; twice {
			return fmt.Errorf("syntax error: %s is given twice", key)
		}
		if v[key] = value; ok {
			if !slices.Contains([]string{"type", "size", "name", "drives", "pdperarray", "pdcache", "strip"}, key) {
				return fmt.Errorf("syntax error at %q", w)
			}
		} else if !slices.Contains(policies, w) {
			return fmt.Errorf("syntax error at %q", w)
		}
	}
	level, ok := strings.CutPrefix(v["type"], "raid")
	switch {
	case !ok:
		return errors.New("syntax error: type=raid6, raid10 or raid60")
	case v["size"] != "" && v["size"] != "all":
		return errors.New("in the rack a virtual drive has all of its drives: size=all")
	case v["pdcache"] != "" && !slices.Contains([]string{"on", "off", "default"}, v["pdcache"]):
		return errors.New("syntax error: pdcache=on, off or default")
	}
	var places []place
	for d := range strings.SplitSeq(v["drives"], ",") {
		m := percDrive.FindStringSubmatch(d)
		if m == nil {
			return fmt.Errorf("syntax error: drive %q: want EID:SLOT", d)
		}
		at, err := b.percPlace(m[1], m[2])
		if err != nil {
			return err
		}
		places = append(places, at)
	}
	strip := 64
	if v["strip"] != "" {
		strip = number(v["strip"])
	}
	cache := "NR"
	if _, ahead := v["ra"]; ahead {
		cache = "R"
	}
	for word, letters := range map[string]string{"wb": "WB", "awb": "AWB", "wt": "WT"} {
		if _, given := v[word]; given {
			cache += letters
		}
	}
	return b.virtualDrive(number(level), number(v["pdperarray"]), strip, v["name"], cache+"D", places)
}

// virtualDrive makes a virtual drive of all of its drives. per is the number of drives of
// a span, strip the strip size in KiB, cache the policy as perccli shows it: RWBD.
func (b *box) virtualDrive(level, per, strip int, name, cache string, places []place) error {
	if !percName.MatchString(name) {
		return fmt.Errorf("%q is no name: at most 15 letters, digits, hyphens and underscores", name)
	}
	n := len(places)
	switch {
	case level == 10 && per != 2:
		return errors.New("in the rack RAID 10 has mirrors of two drives: pdperarray=2")
	case level == 60 && (per < 4 || per > b.model.Widest || n%per != 0 || n/per < 2 || n/per > b.model.Spans):
		return fmt.Errorf("RAID 60 of %d drives has 2 to %d spans of 4 to %d drives each, not spans of %d", n, b.model.Spans, b.model.Widest, per)
	case level != 10 && level != 60 && per != 0:
		return fmt.Errorf("RAID %d has no spans", level)
	}
	disks, err := b.take(places)
	if err != nil {
		return err
	}
	g, err := b.addGroup(group{name: name, level: level, chunk: spec.Bytes(strip) * spec.KiB, disks: disks, span: per})
	if err != nil {
		return err
	}
	if err := b.addVolume(g, name, 0, 0); err != nil {
		return err
	}
	v := b.volumes[len(b.volumes)-1]
	v.cache = cache
	v.number, v.servers = len(b.volumes)-1, b.servers // its server sees each virtual drive
	return nil
}

func (b *box) percEnclosures() string {
	out := "EID State Slots PD"
	for i, s := range b.shelves {
		out += fmt.Sprintf("\n%3d OK %7d %2d", eid(i), len(s), len(s))
	}
	return out
}

func (b *box) percVolumes() string {
	out := "DG/VD TYPE   State Access Bytes Name"
	for i, v := range b.volumes {
		out += fmt.Sprintf("\n%d/%d   RAID%d Optl  RW     %d %s", i, i, v.group.level, v.size, v.name)
	}
	return out
}

// card is what `show all J` prints of the card, as status asks it. Nothing of it changes
// later: the rack has no disks of a card.
func (b *box) card() string {
	type object = map[string]any
	second := b.model.Tools[0] == "perccli2"
	data := object{"Basics": object{"Model": b.chip()}, "Status": object{"Controller Status": "Optimal", "BBU Status": 0, "Memory Uncorrectable Errors": 0},
		"BBU_Info": []object{{"Model": "BBU", "State": "Optimal", "Temp": "30C"}}}
	if second {
		data = object{"Basics": object{"Product Name": b.chip()}, "Status": object{"Controller Status": "Optimal", "Preserved Cache Present": "No"},
			"Energy Pack Info": []object{{"Type": "Supercap", "SubType": "FBU", "Temperature(C)": 30, "Status": "Optimal"}}}
	}
	var virtual, physical []object
	for i, v := range b.volumes {
		k := object{"DG/VD": fmt.Sprintf("%d/%d", i, i), "TYPE": fmt.Sprintf("RAID%d", v.group.level), "State": "Optl", "Access": "RW", "Name": v.name}
		if second {
			policy := strings.TrimSuffix(v.cache, "D")
			k["DefaultCache"], k["CurrentCache"] = policy, policy
		} else {
			k["Cache"] = v.cache
		}
		virtual = append(virtual, k)
	}
	for i, s := range b.shelves {
		for slot, d := range s {
			k := object{"EID:Slt": fmt.Sprintf("%d:%d", eid(i), slot), "State": "UGood", "DG": "-"}
			if second {
				k["State"], k["Status"] = "UConf", "Good"
			}
			for n, g := range b.groups {
				if slices.Contains(g.disks, d) {
					k["State"], k["DG"] = "Onln", n
					if second {
						k["State"], k["Status"] = "Conf", "Online"
					}
				}
			}
			if d.spare {
				k["State"] = "GHS"
			}
			physical = append(physical, k)
		}
	}
	data["VD LIST"], data["PD LIST"] = virtual, physical
	text, err := json.Marshal(object{"Command Status": object{"Controller": b.controller, "Status": "Success", "Description": "None"}, "Response Data": data})
	if err != nil {
		panic(err) // maps of strings and numbers always have JSON
	}
	return string(text)
}

// omCache has perccli's letters for the policies of omconfig.
var omCache = map[string]string{"ra": "R", "nra": "NR", "ara": "R", "wb": "WB", "wt": "WT", "fwb": "AWB"}

var (
	omDisk = regexp.MustCompile(`^0:(\d+):(\d+)$`)
	omForm = map[string]string{
		"createvdisk":          "controller action raid size stripesize spanlength readpolicy writepolicy diskcachepolicy name pdisk",
		"assignglobalhotspare": "controller action pdisk assign",
	}
	omValues = map[string]string{"size": "max", "readpolicy": "ra|nra|ara", "writepolicy": "wb|wt|fwb", "diskcachepolicy": "enabled|disabled|unchanged", "assign": "yes"}
)

// openManage is a command of OpenManage Server Administrator.
func (b *box) openManage(argv []string) (string, error) {
	if len(argv) < 4 || argv[1] != "storage" {
		return "", errors.New("invalid command")
	}
	v := map[string]string{}
	for _, w := range argv[3:] {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return "", fmt.Errorf("%q is no parameter", w)
		}
		v[key] = value
	}
	if v["controller"] != strconv.Itoa(b.controller) {
		return "", fmt.Errorf("invalid controller value %q: read, controller=%d", v["controller"], b.controller)
	}
	if argv[0] == "omreport" {
		switch argv[2] {
		case "controller":
			return fmt.Sprintf("ID     : %d\nStatus : Ok\nName   : %s Adapter", b.controller, b.chip()), nil
		case "pdisk", "vdisk":
			return b.percVolumes(), nil
		}
		return "", fmt.Errorf("invalid report %q", argv[2])
	}
	form := strings.Fields(omForm[v["action"]])
	for key, value := range v {
		want := omValues[key]
		if !slices.Contains(form, key) || want != "" && !slices.Contains(strings.Split(want, "|"), value) {
			return "", fmt.Errorf("invalid parameter %s=%s", key, value)
		}
	}
	var places []place
	for d := range strings.SplitSeq(v["pdisk"], ",") {
		m := omDisk.FindStringSubmatch(d)
		if m == nil {
			return "", fmt.Errorf("invalid physical disk %q: want 0:ENCLOSURE:SLOT", d)
		}
		places = append(places, place{number(m[1]), number(m[2])})
	}
	if v["action"] == "assignglobalhotspare" {
		return "Command successful!", b.addSpares(places)
	}
	level, per := number(strings.TrimPrefix(v["raid"], "r")), number(v["spanlength"])
	if level == 10 && per == 0 {
		per = 2
	}
	return "Command successful!", b.virtualDrive(level, per, number(strings.TrimSuffix(v["stripesize"], "kb")), v["name"], omCache[v["readpolicy"]]+omCache[v["writepolicy"]]+"D", places)
}
