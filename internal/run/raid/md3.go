package raid

import (
	"regexp"
	"strings"
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
	md3State   = regexp.MustCompile(`(?m)^Storage array health status = (\w[\w ]*)\.?\s*$`)
	md3Failure = regexp.MustCompile(`(?m)^(\S[^:=]*)\r?\n(?:Storage array|Component reporting problem):`)
)

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
		state = m[1]
	}
	failures := md3Failure.FindAllStringSubmatch(text, -1)
	for _, f := range failures {
		h.add("array", "failure", Bad, "the array reports: %s", strings.TrimSpace(f[1])).Mend = "`SMcli … -c 'show storageArray healthStatus;'` has the details; the Recovery Guru of MD Storage Manager has the steps"
	}
	switch {
	case state == "optimal":
		h.add("array", "health", Good, "the array says that it is optimal")
	case state == "fixing":
		h.add("array", "health", Watch, "the array mends itself")
	case state != "":
		h.add("array", "health", Bad, "the array's health is %s", state)
	case len(failures) == 0:
		return nil
	}
	return h
}
