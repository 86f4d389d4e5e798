package sg

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		sense           string
		attention, busy bool
	}{
		{"70 00 06 00 00 00 00 0a 00 00 00 00 29 00", true, false}, // power on or reset
		{"72 06 2a 06", true, false},                               // asymmetric access state changed
		{"70 00 02 00 00 00 00 0a 00 00 00 00 04 0a", false, true}, // in transition
		{"72 02 04 0c", false, false},                              // target port unavailable
		{"70 00 05 00 00 00 00 0a 00 00 00 00 20 00", false, false},
		{"", false, false},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.sense, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		a := Answer{Status: checkCondition}
		a.Sense, a.ASC, a.ASCQ = senseOf(b)
		if a.Attention() != c.attention || a.Busy() != c.busy {
			t.Errorf("%s: attention %v, busy %v", c.sense, a.Attention(), a.Busy())
		}
	}
	if !errors.Is(Answer{HostStatus: 1}, ErrPath) || !errors.Is(Answer{Status: checkCondition, Sense: senseNotReady}, ErrPath) || errors.Is(Answer{Status: checkCondition}, ErrPath) {
		t.Error("a path that failed is not told from a LUN that answers")
	}
}
