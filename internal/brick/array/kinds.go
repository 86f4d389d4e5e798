package array

import (
	"slices"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Codes that drills ask for.
const (
	Missing  = "lun-missing"
	Dead     = "lun-dead"
	Impaired = "lun-impaired"
	Moved    = "lun-moved"
)

// Mends of several kinds.
const (
	mendGeometry = "the array was configured otherwise: make its groups and LUNs anew with mortar array script, or correct the spec"
	mendPaths    = "look at the cables, the HBA's ports and the array's controllers, and at the mapping of the LUN to every port of the server; `multipath -ll` shows paths that do not work"
)

// Kind is what all findings of a code have in common.
type Kind health.Kind

// Kinds are all kinds of findings. Those whose subject is a LUN are findings of `mortar status`,
// too, and their text goes on after the names of the LUNs. Keep codes: other programs know them.
var Kinds = map[string]Kind{
	Missing:            {"lun", health.Fault, "is not there: LUN {number} of array {array}, {size}[, WWN {wwn}]", "see that the array is on and maps the LUN to every HBA port of this server (mortar array script), and look at the cables; `rescan-scsi-bus.sh` finds a LUN that was mapped while the server ran"},
	Dead:               {"lun", health.Fault, "has {paths} paths, and none of them works", mendPaths},
	Impaired:           {"lun", health.Warning, "has {paths} of {want} paths[: {each}]", mendPaths},
	"lun-miscabled":    {"lun", health.Warning, "has its paths in the wrong places: {each}, and the design {want} by each", mendPaths},
	Moved:              {"lun", health.Warning, "belongs to controller {owner}, and in the design to controller {want}", "see that both controllers run; then have the array give its LUNs back to their preferred controllers, or set the owner as mortar array script does"},
	"lun-model":        {"lun", health.Fault, "is {model}, and array {array} is {want}", "correct arrays.wwns, or arrays.model, in the spec"},
	"lun-number":       {"lun", health.Fault, "has LUN number {number}, and the design {want}", "map the LUN with its number (mortar array script), or correct the order of arrays.wwns"},
	"lun-size":         {"lun", health.Fault, "has {size} ({bytes} bytes), and the design {want} ({wanted} bytes)", mendGeometry},
	"lun-segment":      {"lun", health.Fault, "tells of a segment (chunk) of {segment}, and the design of {want}", mendGeometry},
	"lun-stripe":       {"lun", health.Fault, "tells of a full stripe of {stripe}, and the design of {want}: another RAID level or number of disks", mendGeometry},
	"lun-other":        {"lun", health.Fault, "is another one than on {first}: WWN {wwn} here, {want} there", "map the same LUNs with the same numbers to both servers (mortar array script)"},
	"lun-stranger":     {"lun", health.Fault, "is used by another host: reservation key {key} is registered", "see that the array presents it to this brick's servers only. {mend}"},
	"lun-unregistered": {"lun", health.Warning, "has {paths} paths of which {registered} are registered: the server cannot write over the others", "the next monitor of the service registers them; if not, see `journalctl -u multipathd`"},
	"lun-unreserved":   {"lun", health.Fault, "is reserved for {holder}, not for the server that serves it: one that was wrongly taken for dead could write to it", "the next monitor of the service, within seconds, reserves it or resets the server; if it does not: `mortar failover`"},

	"lun-extra":   {"host", health.Fault, "{device} ({model}, LUN {number}, {size}[, WWN {wwn}]) is no LUN of the design", "remove its mapping to this server, or add it to the spec"},
	"lun-twice":   {"host", health.Fault, "LUN number {number} is there {times} times (WWN {wwns}), from several arrays of one make, and the spec does not say which is which", "list each array's WWNs in arrays.wwns of the spec, in order of LUN number; {tool} prints them, array by array"},
	"lun-refused": {"host", health.Fault, "{what}", "{mend}"},
}

// passing are the codes of what can befall a brick that was right before: a path is out, a
// controller has taken over.
var passing = []string{Dead, Impaired, "lun-miscabled", Moved}

// Finding is a difference from the design. Its code and arguments make its text and its remedy.
type Finding struct {
	Host    string `json:"host"`
	LUN     string `json:"lun,omitempty"`
	Code    string `json:"code"`
	Args    with   `json:"args"`
	Text    string `json:"text"`
	Mend    string `json:"mend"`
	Passing bool   `json:"passing"`
}

// with are the arguments of a finding, by the names that the texts of its kind use.
type with = map[string]any

// Found makes a finding of a code of Kinds.
func Found(host, lun, code string, args with) Finding {
	k := Kinds[code]
	f := Finding{Host: host, LUN: lun, Code: code, Args: args, Passing: slices.Contains(passing, code)}
	f.Text, f.Mend, _ = health.Kind(k).Say(args, args)
	return f
}
