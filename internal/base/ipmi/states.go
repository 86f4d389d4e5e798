package ipmi

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// states are ipmitool's words for states and events, in lower case. Words that are good
// for one sensor and bad for another ("State Asserted", "Disabled", "Unspecified") are not
// here: no source says what they tell.
//
// Source: ipmitool, include/ipmitool/ipmi_sel.h (tables 42-2 and 42-3 of IPMI 2.0)
var states = sync.OnceValue(func() map[string]health.Level {
	out := map[string]health.Level{}
	var level health.Level
	for section := range strings.SplitSeq(strings.TrimPrefix(statesText, "["), "\n[") {
		name, words, _ := strings.Cut(section, "]\n")
		if err := level.UnmarshalText([]byte(name)); err != nil {
			panic("states.txt: " + err.Error())
		}
		for w := range strings.SplitSeq(strings.ReplaceAll(words, "\n", ""), "|") {
			out[w] = level
		}
	}
	return out
})

//go:embed states.txt
var statesText string

// missed are states that are bad news when they end.
var missed = map[string]bool{"fully redundant": true, "presence detected": true, "drive present": true, "device present": true, "present": true,
	"connected": true, "heartbeat": true, "performance met": true, "device enabled": true, "device inserted/device present": true}

// State is the level of a state or event of ipmitool. One that it does not know is
// Unknown.
func State(word string) health.Level {
	word = strings.ToLower(strings.TrimSpace(word))
	if l, known := states()[word]; known {
		return l
	}
	// Some BMCs say more in parentheses, and this one has the part behind it.
	if strings.HasPrefix(word, "firmware or software change ") {
		return health.OK
	}
	short, _, _ := strings.Cut(word, " (")
	return health.Grade(states(), short)
}

// over is the level of a state that has ended.
func over(word string) health.Level {
	switch l := State(word); {
	case l == health.Unknown:
		return l
	case missed[strings.ToLower(strings.TrimSpace(word))]:
		return health.Warning
	}
	return health.OK
}
