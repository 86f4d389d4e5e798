package ocf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// What Pacemaker keeps of a reason begins with a code that is documented, whatever wraps the
// error, and the first code counts.
func TestReasonsHaveCodes(t *testing.T) {
	for want, err := range map[Code]error{
		failed:    errors.New("x"),
		Late:      fmt.Errorf("more: %w", giveCode("nfsd", giveCode(Late, context.DeadlineExceeded))),
		Taken:     giveCode("reservations", fmt.Errorf("LUN a: %w", pr.ErrTaken)),
		InDoubt:   giveCode("arrays", errors.Join(&mdraid.InDoubt{Doubt: doubt.Doubt{Arrays: []doubt.ArrayInDoubt{{Name: "a"}}}}, errors.New("not saved"))),
		Comparing: giveCode("arrays", &mdraid.InDoubt{Doubt: doubt.Doubt{Arrays: []doubt.ArrayInDoubt{{Name: "a", Remaining: 4096}}}}),
		"mount":   errors.Join(giveCode("mount", errors.New("mount is stopped")), giveCode("nfsd", errors.New("nfsd is stopped"))),
		"target":  partCode(unit.Part{Name: "small-OST0000"}, errors.New("x")),
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
