package raid

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// percTools are the paths of the tool in Dell's and Broadcom's packages; both print
// the same.
var percTools = []string{"/opt/MegaRAID/perccli/perccli64", "perccli64", "/opt/MegaRAID/storcli/storcli64", "storcli64"}

// percTools2 are those of PERC 12, which neither of percTools finds.
var percTools2 = []string{"/opt/MegaRAID/perccli2/perccli2", "perccli2"}

// PERC returns the commands that ask the controllers of a server of a model. Use the first
// one that is installed.
//
// Source: PERC CLI Reference Guide; J prints JSON, nolog writes no log file.
func PERC(model string) [][]string {
	var out [][]string
	if m, _ := spec.ModelOf(model); slices.Contains(m.Tools, "perccli2") {
		for _, t := range percTools2 {
			out = append(out, []string{t, "/cALL", "show", "all", "J"})
		}
		return out
	}
	for _, t := range percTools {
		out = append(out, []string{t, "/cALL", "show", "all", "J", "nolog"})
	}
	return out
}

type percReply struct {
	Controllers []struct {
		Command struct {
			Number int    `json:"Controller"`
			Status string `json:"Status"`
			Why    string `json:"Description"`
		} `json:"Command Status"`
		Data percController `json:"Response Data"`
	} `json:"Controllers"`
}

type percController struct {
	Basics struct {
		Model   string `json:"Model"`
		Product string `json:"Product Name"` // of perccli2
	} `json:"Basics"`
	Status struct {
		Controller    string `json:"Controller Status"`
		BBU           string `json:"BBU Status"` // a number, or "NA"
		Uncorrectable int    `json:"Memory Uncorrectable Errors"`
		Preserved     string `json:"Any Offline VD Cache Preserved"`
		Preserved2    string `json:"Preserved Cache Present"`
	} `json:"Status"`
	Virtual []struct {
		ID     string `json:"DG/VD"`
		Level  string `json:"TYPE"`
		State  string `json:"State"`
		Access string `json:"Access"`
		Cache  string `json:"Cache"`
		Name   string `json:"Name"`
		// perccli2 has the policy as configured, and what is in effect.
		Default string `json:"DefaultCache"`
		Current string `json:"CurrentCache"`
	} `json:"VD LIST"`
	Physical []percDisk `json:"PD LIST"`
	// Drives are the disks of a controller without RAID, by "Drive /c0/e23/s0".
	Drives  map[string]json.RawMessage `json:"Physical Device Information"`
	Battery []percBattery              `json:"BBU_Info"`
	Vault   []percBattery              `json:"Cachevault_Info"`
	Energy  []struct {
		Model string `json:"SubType"`
		State string `json:"Status"`
		Temp  int    `json:"Temperature(C)"`
	} `json:"Energy Pack Info"`
}

type percDisk struct {
	Place string `json:"EID:Slt"`
	State string `json:"State"`
	Group string `json:"DG"`
	// Status is perccli2's: whether the disk is well, beside what it is used for.
	Status string `json:"Status"`
}

type percBattery struct {
	Model string `json:"Model"`
	State string `json:"State"`
	Temp  string `json:"Temp"`
}

// ParsePERC parses the answer of a server's controllers and returns the health of
// the controller with that number.
func ParsePERC(text string, number int) (*Health, error) {
	var r percReply
	unread, err := health.JSON(text, &r)
	if err != nil {
		return nil, fmt.Errorf("no JSON of perccli: %w", err)
	}
	for i := range r.Controllers {
		c := &r.Controllers[i]
		if c.Command.Number != number {
			continue
		}
		if c.Command.Status != "Success" {
			return nil, fmt.Errorf("controller %d: %s", number, cmp.Or(c.Command.Why, c.Command.Status))
		}
		h := c.Data.health(number)
		h.Unread = append(unread, h.Unread...)
		return h, nil
	}
	return nil, fmt.Errorf("the server has no controller %d", number)
}

// percControllers has the controller's own words for its health. Controllers without RAID
// say OK.
var percControllers = map[string]health.Level{"Optimal": health.OK, "OK": health.OK, "Needs Attention": health.Warning,
	"Degraded": health.Fault, "Critical": health.Fault, "Failed": health.Fault}

// state is the meaning of a word of perccli.
type state struct {
	text  string
	level health.Level
}

// stateOf looks a word up.
func stateOf(table map[string]state, word string) state {
	if s, known := table[word]; known {
		return s
	}
	return state{fmt.Sprintf("in state %q, which is not known here", word), health.Unknown}
}

// percDisks has the states of disks. A shielded disk is being examined by the controller
// after errors.
//
// Source: legend of perccli
var percDisks = map[string]state{
	"Onln": {}, "UGood": {}, "JBOD": {}, "GHS": {}, "DHS": {}, "Conf": {}, "UConf": {},
	"Rbld": {"being rebuilt", health.Warning}, "Cpybck": {"being copied back", health.Warning}, "Sntze": {"being erased", health.Warning},
	"UGShld": {"shielded: the controller examines it", health.Warning}, "HSPShld": {"shielded: the controller examines it", health.Warning},
	"CFShld": {"shielded: the controller examines it", health.Warning}, "CBShld": {"shielded: the controller examines it", health.Warning},
	"UGUnsp": {"not supported by the controller", health.Warning}, "UBUnsp": {"bad, and not supported by the controller", health.Fault},
	"Offln": {"offline", health.Fault}, "UBad": {"bad", health.Fault}, "Failed": {"has failed", health.Fault}, "Msng": {"missing", health.Fault},
}

// percStatus has what perccli2 adds to a state. Other words than those that were seen are
// unknown.
//
// Source: github.com/scality/raidmgmt, recordings of storcli2 on a MegaRAID 9660; legend of
// storcli2 in check_mk's tests.
var percStatus = map[string]state{"": {}, "Online": {}, "Good": {}, "Offline": {"offline", health.Fault}, "Failed": {"has failed", health.Fault},
	"Missing": {"missing", health.Fault}, "Bad": {"bad", health.Fault}, "Rebuild": {"being rebuilt", health.Warning}}

// percSuffix has the ends of perccli2's states: UConfShld, GHSDgrd.
var percSuffix = []struct {
	end string
	state
}{
	{"Shld", state{"shielded: the controller examines it", health.Warning}}, {"Sntz", state{"being erased", health.Warning}},
	{"Dgrd", state{"degraded", health.Fault}}, {"Unsp", state{"not supported by the controller", health.Warning}}, {"Unusbl", state{"unusable", health.Fault}},
}

// health is the worse of a disk's state and status.
func (k *percDisk) health() state {
	s, t := stateOf(percDisks, k.State), stateOf(percStatus, k.Status)
	if s.level == health.Unknown {
		for _, x := range percSuffix {
			if strings.HasSuffix(k.State, x.end) {
				s = x.state
			}
		}
	}
	if t.level > s.level {
		return t
	}
	return s
}

// foreign is the group of a disk with a RAID configuration of another controller.
const foreign = "F"

// group matches the group of a disk: a number, or none.
var group = regexp.MustCompile(`^(?:\d+|-?)$`)

// drive matches the name of the line of a disk among the details of disks.
var drive = regexp.MustCompile(`^Drive (?:/c\d+)?(?:/e\d+)?/s\d+$`)

// percVirtual has the states of virtual disks.
var percVirtual = map[string]state{
	"Optl": {"optimal", health.OK}, "Cac": {"a cache", health.OK},
	"Pdgd": {"partially degraded: a disk is missing", health.Warning},
	"Dgrd": {"degraded: a further failure may lose data", health.Fault},
	"OfLn": {"offline", health.Fault}, "B": {"blocked", health.Fault},
	"Rec": {"recovering", health.Warning}, "HD": {"hidden", health.Warning}, "TRANS": {"being transported", health.Warning},
}

// percAccess has what a virtual disk's access means.
var percAccess = map[string]state{"RW": {}, "": {}, "RO": {"read-only", health.Fault}, "B": {"blocked", health.Fault}, "Blkd": {"blocked", health.Fault}}

func (c *percController) health(number int) *Health {
	model := cmp.Or(c.Basics.Model, c.Basics.Product)
	h := &Health{How: fmt.Sprintf("perccli, controller %d (%s)", number, model), Levels: map[string]int{}}
	h.add("controller", strconv.Itoa(number), health.Grade(percControllers, c.Status.Controller), "controller %d (%s): %s", number, model, strings.ToLower(cmp.Or(c.Status.Controller, "in no state")))
	if n := c.Status.Uncorrectable; n > 0 {
		h.add("cache", "memory", health.Warning, "the memory of controller %d has had %d errors that it could not correct", number, n).Mend = "replace the controller or its memory if the count grows"
	}
	if c.Status.Preserved == "Yes" || c.Status.Preserved2 == "Yes" {
		h.add("cache", "preserved", health.Warning, "controller %d keeps data in its cache for a virtual disk that is offline", number).Mend = "bring the disks of that virtual disk back before anything else"
	}
	battery := len(c.Virtual) == 0 || c.battery(h, number) // without RAID there is no cache of writes
	for _, v := range c.Virtual {
		s := stateOf(percVirtual, v.State)
		name := cmp.Or(v.Name, v.ID)
		h.Levels[name] = levelOf(v.Level)
		h.add("LUN", name, s.level, "virtual disk %s (%s) is %s", name, v.Level, s.text)
		if a := stateOf(percAccess, v.Access); a.level != health.OK {
			h.add("LUN", name, a.level, "the access to virtual disk %s is %s", name, a.text)
		}
		if v.Default != "" && strings.Contains(v.Default, "WB") != strings.Contains(v.Current, "WB") {
			battery = false // the controller says itself what is in effect
		}
		cachePolicy(h, name, cmp.Or(v.Cache, v.Default), battery)
	}
	all := c.disks(h)
	spares, disks := 0, len(all)
	for _, k := range all {
		s := k.health()
		if k.State == "GHS" || k.State == "DHS" {
			spares++
		}
		switch {
		case k.Group == foreign:
			s.level = max(s.level, health.Warning)
			s.text = strings.TrimPrefix(s.text+", and has a foreign configuration: it was in a group of another controller", ", and ")
		case !group.MatchString(k.Group):
			s.level = max(s.level, health.Unknown)
			s.text = strings.TrimPrefix(s.text+fmt.Sprintf(", and in group %q, which is not known here", k.Group), ", and ")
		}
		if s.level == health.OK {
			continue
		}
		verb := "is "
		if strings.HasPrefix(s.text, "has ") {
			verb = ""
		}
		i := h.add("disk", k.Place, s.level, "the disk in enclosure:slot %s %s%s", k.Place, verb, s.text)
		i.Mend = "`perccli64 /c" + strconv.Itoa(number) + "/eall/sall show rebuild` has the progress; replace a disk that has failed"
		if k.Group == foreign {
			i.Mend = fmt.Sprintf("`perccli64 /c%d/fall show` lists what is on it; only then import it, or delete its configuration", number)
		}
	}
	h.Spares, h.Disks = &spares, &disks
	return h
}

// disks are those of groups and spares, and those of a controller without RAID.
func (c *percController) disks(h *Health) []percDisk {
	all := slices.Clone(c.Physical)
	for _, name := range slices.Sorted(maps.Keys(c.Drives)) {
		if !drive.MatchString(name) {
			continue
		}
		var one struct {
			List []percDisk `json:"list"`
		}
		unread, err := health.JSON(`{"list":`+string(c.Drives[name])+`}`, &one)
		if err != nil {
			unread.Add(name)
		}
		h.Unread = append(h.Unread, unread...)
		all = append(all, one.List...)
	}
	return all
}

// percBatteries has the states of a battery or a CacheVault.
var percBatteries = map[string]health.Level{"Optimal": health.OK, "Charging": health.Warning, "Learning": health.Warning, "Discharging": health.Warning,
	"Degraded": health.Fault, "Degraded (Needs attention)": health.Fault, "Dgd": health.Fault, "Failed": health.Fault, "Missing": health.Fault,
	"Non-Operational": health.Fault, "Low": health.Fault}

// battery reports whether the cache's content survives a loss of power, and adds an
// item. BBU Status has bits: 0 is good, 8 charging, 4096 waiting for a learn cycle.
//
// Source: prometheus-community textfile collector, issue 27.
func (c *percController) battery(h *Health, number int) bool {
	all := append(c.Battery, c.Vault...)
	for _, e := range c.Energy {
		all = append(all, percBattery{e.Model, e.State, fmt.Sprintf("%dC", e.Temp)})
	}
	if len(all) == 0 {
		h.add("cache", "battery", health.Warning, "controller %d has no battery and no CacheVault: writes wait for the disks", number)
		return false
	}
	good := true
	for _, b := range all {
		level := health.Grade(percBatteries, b.State)
		status, err := strconv.Atoi(strings.TrimSpace(c.Status.BBU))
		if err == nil && status&^(8|4096) != 0 {
			level = health.Fault
		}
		good = good && level == health.OK
		h.add("cache", "battery", level, "battery %s of controller %d is %s (%s)", b.Model, number, strings.ToLower(cmp.Or(b.State, "in no state")), b.Temp).Mend = "replace it: without it the controller writes through, or loses what is in its cache with the power"
	}
	return good
}

// cachePolicy adds an item for a virtual disk's cache policy, such as RWBD: (N)R
// read-ahead, WB, AWB or WT, D or C. The policy may not be in effect: with WB and no
// good battery the controller writes through.
func cachePolicy(h *Health, name, policy string, battery bool) {
	switch {
	case strings.Contains(policy, "AWB"):
		h.add("cache", name, health.Fault, "virtual disk %s: write-back also without a battery (%s): a loss of power loses data", name, policy).Mend = "`perccli64 /cN/vN set wrcache=wb`"
	case strings.Contains(policy, "WB") && !battery:
		h.add("cache", name, health.Warning, "virtual disk %s: write-back is configured (%s), and the controller writes through as long as its battery is not well", name, policy)
	case strings.Contains(policy, "WB"):
		h.add("cache", name, health.OK, "virtual disk %s: write-back (%s)", name, policy)
	case strings.Contains(policy, "WT"):
		h.add("cache", name, health.Warning, "virtual disk %s: write-through (%s), and the design has write-back: writes are slow", name, policy).Mend = "`perccli64 /cN/vN set wrcache=wb`, once the battery is well"
	default:
		h.add("cache", name, health.Unknown, "virtual disk %s: its cache policy is %q, which is not known here", name, policy)
	}
}
