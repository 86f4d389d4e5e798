package raid

import (
	"regexp"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// SMcli returns the command that asks an MD3. Show commands need no password; a
// password would be visible among the arguments.
//
// Source: Dell PowerVault Modular Disk Storage Arrays CLI Guide.
func SMcli(addresses []string) []string {
	argv := append([]string{"SMcli"}, addresses...)
	return append(argv, "-S", "-c", "show storageArray healthStatus;")
}

var (
	md3State   = regexp.MustCompile(`(?mi)^\s*Storage (?:array|subsystem) health status\s*=\s*(\w[\w ]*?)\.?\s*$`)
	md3Failure = regexp.MustCompile(`(?m)^(\S[^:=\n]*)\n(?:Storage array:.*(?:\n\s*(?:Component reporting problem|Disk group|Volume group): *(.+))?|Component reporting problem: *(.*))`)
)

// md3Clocks is in a notice that precedes the state.
const md3Clocks = "out of synchronization with the storage management station"

// md3Failures begins the list of failures. md3Bad are the states besides optimal and
// fixing. Source: SANtricity's and MD Storage Manager's outputs published with plugins
const md3Failures = "The following failures have been found:"

var md3Bad = map[string]bool{"needs attention": true, "failed": true, "unresponsive": true, "unreadable": true, "degraded": true}

// ParseSMcli parses the output of SMcli: the state of the whole array and the titles
// of its failures; nil if it has neither. The output does not contain the progress
// of a rebuild.
//
// Source: outputs published with monitoring plugins (check_engenio_raid, sos).
func ParseSMcli(text string) *Health {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	h := &Health{How: "SMcli"}
	state := ""
	if m := md3State.FindStringSubmatch(text); m != nil {
		state = strings.ToLower(m[1])
	}
	failed := strings.Contains(text, md3Failures)
	failures := md3Failure.FindAllStringSubmatch(text, -1)
	for _, f := range failures {
		what := strings.TrimSpace(f[1])
		if part := strings.TrimSpace(f[2] + f[3]); part != "" {
			what += " (" + part + ")"
		}
		h.add("array", "failure", health.Fault, "the array reports: %s", what).Mend = "`SMcli … -c 'show storageArray healthStatus;'` has the details; the Recovery Guru of MD Storage Manager has the steps"
	}
	if strings.Contains(text, md3Clocks) {
		h.add("array", "clocks", health.Warning, "the clocks of the array's controllers and of the machine that asks differ").Mend = "set them: `set storageArray time` by SMcli"
	}
	switch {
	case state == "optimal":
		h.add("array", "health", health.OK, "the array says that it is optimal")
	case state == "fixing":
		h.add("array", "health", health.Warning, "the array mends itself")
	case md3Bad[state]:
		h.add("array", "health", health.Fault, "the array's health is %s", state)
	case state != "":
		h.add("array", "health", health.Unknown, "the array's health is %q, which is not known here", state)
	case len(failures) == 0 && !failed:
		return nil
	}
	if failed && len(failures) == 0 {
		h.Unread.Add("failures of another form: " + text[strings.Index(text, md3Failures)+len(md3Failures):])
	}
	return h
}
