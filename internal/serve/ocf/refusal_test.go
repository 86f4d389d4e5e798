package ocf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// What Pacemaker keeps of a reason begins with a code that is documented, whatever wraps the
// error, and the first code counts.
func TestReasonsHaveCodes(t *testing.T) {
	for want, err := range map[Code]error{
		failed:    errors.New("x"),
		Late:      fmt.Errorf("more: %w", giveCode("nfsd", giveCode(Late, context.DeadlineExceeded))),
		Taken:     giveCode("reservations", fmt.Errorf("LUN a: %w", errTaken)),
		InDoubt:   giveCode("arrays", errors.Join(&inDoubt{Doubt: Doubt{Arrays: []ArrayInDoubt{{Name: "a"}}}}, errors.New("not saved"))),
		Comparing: giveCode("arrays", &inDoubt{Doubt: Doubt{Arrays: []ArrayInDoubt{{Name: "a", Remaining: 4096}}}}),
		"mount":   errors.Join(giveCode("mount", errors.New("mount is stopped")), giveCode("nfsd", errors.New("nfsd is stopped"))),
		"target":  (&part{name: "small-OST0000"}).giveCode(errors.New("x")),
	} {
		var b bytes.Buffer
		(&agent{stderr: &b, now: time.Now}).reason(err)
		reason := b.String()[len("ocf-exit-reason:"):]
		if got := RefusalOf(reason); got != want || Codes[got] == [2]string{} {
			t.Errorf("%q has code %q, want %q", reason, got, want)
		}
	}
	if giveCode(Late, nil) != nil || RefusalOf("a reason [late] of another agent") != "" {
		t.Error("a code where none is")
	}
}
