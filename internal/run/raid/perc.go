package raid

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// percTools are the paths of the tool in Dell's and Broadcom's packages; both print
// the same.
var percTools = []string{"/opt/MegaRAID/perccli/perccli64", "perccli64", "/opt/MegaRAID/storcli/storcli64", "storcli64"}

// PERC returns the commands that ask the controllers of a server. Use the first one
// that is installed.
//
// Source: PERC CLI Reference Guide; J prints JSON, nolog writes no log file.
func PERC() [][]string {
	var out [][]string
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
		Model string `json:"Model"`
	} `json:"Basics"`
	Status struct {
		Controller string          `json:"Controller Status"`
		BBU        json.RawMessage `json:"BBU Status"` // a number, or "NA"
	} `json:"Status"`
	Virtual []struct {
		ID    string `json:"DG/VD"`
		Level string `json:"TYPE"`
		State string `json:"State"`
		Cache string `json:"Cache"`
		Name  string `json:"Name"`
	} `json:"VD LIST"`
	Physical []struct {
		Place string `json:"EID:Slt"`
		State string `json:"State"`
	} `json:"PD LIST"`
	Battery []percBattery `json:"BBU_Info"`
	Vault   []percBattery `json:"Cachevault_Info"`
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
	if err := json.Unmarshal([]byte(text), &r); err != nil {
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
		return c.Data.health(number), nil
	}
	return nil, fmt.Errorf("the server has no controller %d", number)
}

// percDisk has the states of disks with their meaning and level.
var percDisk = map[string]struct {
	text  string
	level Level
}{
	"Onln": {"", Good}, "UGood": {"", Good}, "JBOD": {"", Good}, "GHS": {"", Good}, "DHS": {"", Good}, "UGShld": {"", Good},
	"Rbld": {"is being rebuilt", Watch}, "Cpybck": {"is being copied back", Watch},
	"Offln": {"is offline", Bad}, "UBad": {"is bad", Bad}, "Failed": {"has failed", Bad}, "Msng": {"is missing", Bad},
}

// percVirtual has the states of virtual disks with their meaning and level.
var percVirtual = map[string]struct {
	text  string
	level Level
}{
	"Optl": {"optimal", Good},
	"Pdgd": {"partially degraded: a disk is missing", Watch},
	"Dgrd": {"degraded: a further failure may lose data", Bad},
	"OfLn": {"offline", Bad},
	"Rec":  {"recovering", Watch},
}

func (c *percController) health(number int) *Health {
	h := &Health{How: fmt.Sprintf("perccli, controller %d (%s)", number, c.Basics.Model), Levels: map[string]int{}}
	level := Good
	if c.Status.Controller != "Optimal" {
		level = Bad
	}
	h.add("controller", strconv.Itoa(number), level, "controller %d (%s) is %s", number, c.Basics.Model, strings.ToLower(c.Status.Controller))
	battery := c.battery(h, number)
	for _, v := range c.Virtual {
		s, known := percVirtual[v.State]
		if !known {
			s.text, s.level = "in state "+v.State, Watch
		}
		name := cmp.Or(v.Name, v.ID)
		h.Levels[name] = levelOf(v.Level)
		h.add("LUN", name, s.level, "virtual disk %s (%s) is %s", name, v.Level, s.text)
		cachePolicy(h, name, v.Cache, battery)
	}
	spares, disks := 0, len(c.Physical)
	for _, k := range c.Physical {
		s, known := percDisk[k.State]
		if !known {
			s.text, s.level = "is in state "+k.State, Watch
		}
		if k.State == "GHS" || k.State == "DHS" {
			spares++
		}
		if s.level != Good {
			h.add("disk", k.Place, s.level, "the disk in enclosure:slot %s %s", k.Place, s.text).Mend = "`perccli64 /c" + strconv.Itoa(number) + "/eall/sall show rebuild` has the progress; replace a disk that has failed"
		}
	}
	h.Spares, h.Disks = &spares, &disks
	return h
}

// battery reports whether the cache's content survives a loss of power, and adds an
// item. BBU Status has bits: 0 is good, 8 charging, 4096 waiting for a learn cycle.
//
// Source: prometheus-community textfile collector, issue 27.
func (c *percController) battery(h *Health, number int) bool {
	all := append(c.Battery, c.Vault...)
	if len(all) == 0 {
		h.add("cache", "battery", Watch, "controller %d has no battery and no CacheVault: writes wait for the disks", number)
		return false
	}
	good := true
	for _, b := range all {
		level := Good
		if b.State != "Optimal" {
			level, good = Bad, false
		}
		status, err := strconv.Atoi(string(c.Status.BBU))
		if level == Good && err == nil && status&^(8|4096) != 0 {
			level, good = Bad, false
		}
		h.add("cache", "battery", level, "battery %s of controller %d is %s (%s)", b.Model, number, strings.ToLower(b.State), b.Temp).Mend = "replace it: without it the controller writes through, or loses what is in its cache with the power"
	}
	return good
}

// cachePolicy adds an item for a virtual disk's cache policy, such as RWBD: (N)R
// read-ahead, WB, AWB or WT, D or C. The policy may not be in effect: with WB and no
// good battery the controller writes through.
func cachePolicy(h *Health, name, policy string, battery bool) {
	switch {
	case strings.Contains(policy, "AWB"):
		h.add("cache", name, Bad, "virtual disk %s: write-back also without a battery (%s): a loss of power loses data", name, policy).Mend = "`perccli64 /cN/vN set wrcache=wb`"
	case strings.Contains(policy, "WB") && !battery:
		h.add("cache", name, Watch, "virtual disk %s: write-back is configured (%s), and the controller writes through as long as its battery is not well", name, policy)
	case strings.Contains(policy, "WB"):
		h.add("cache", name, Good, "virtual disk %s: write-back (%s)", name, policy)
	case strings.Contains(policy, "WT"):
		h.add("cache", name, Watch, "virtual disk %s: write-through (%s), and the design has write-back: writes are slow", name, policy).Mend = "`perccli64 /cN/vN set wrcache=wb`, once the battery is well"
	}
}
