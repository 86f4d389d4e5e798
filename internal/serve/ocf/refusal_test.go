package ocf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// says reports whether an error has words in its text, or, if they are "[code] name=value ...",
// this code and these arguments.
func says(err error, want string) bool {
	if err == nil || want[0] != '[' {
		return err != nil && strings.Contains(err.Error(), want)
	}
	code, args, _ := strings.Cut(want[1:], "]")
	if codeOf(err) != refusal.Code(code) {
		return false
	}
	r := (*refusal.Refusal)(nil)
	for _, a := range strings.Fields(args) {
		name, value, _ := strings.Cut(a, "=")
		if !errors.As(err, &r) {
			return false
		}
		is := fmt.Sprint(r.Args[name])
		if several, ok := r.Args[name].([]string); ok {
			is = health.List(several)
		}
		if is != value {
			return false
		}
	}
	return true
}

// What Pacemaker keeps of a reason begins with a code that is documented, whatever wraps the
// error, and the first code counts.
func TestReasonsHaveCodes(t *testing.T) {
	inDoubt := func(remaining int64) error {
		return (&doubt.Doubt{Arrays: []doubt.ArrayInDoubt{{Name: "a", Remaining: remaining}}}).Refusal(errors.New("x"))
	}
	for want, err := range map[refusal.Code]error{
		refusal.Failed:    errors.New("x"),
		refusal.Late:      fmt.Errorf("more: %w", refusal.Give("nfsd", refusal.Give(refusal.Late, context.DeadlineExceeded))),
		refusal.Taken:     refusal.Give("reservations", fmt.Errorf("LUN a: %w", pr.ErrTaken)),
		refusal.InDoubt:   refusal.Give("arrays", errors.Join(inDoubt(0), errors.New("not saved"))),
		refusal.Comparing: refusal.Because("arrays", refusal.Give("arrays", inDoubt(4096))),
		refusal.Stranger:  refusal.Give("reservations", refusal.Because(refusal.Stranger, pr.ErrStrange)),
		"mount":           errors.Join(refusal.Give("mount", errors.New("mount is stopped")), refusal.Give("nfsd", errors.New("nfsd is stopped"))),
		"target":          partCode(unit.Part{Name: "small-OST0000"}, errors.New("x")),
		"mounted":         partCode(unit.Part{Name: "mount"}, refusal.New("mounted", refusal.Args{"volume": "logical volume vg/data", "at": "/mnt"})),
	} {
		var b bytes.Buffer
		(&agent{stderr: &b, now: time.Now}).reason(err)
		reason := b.String()[len("ocf-exit-reason:"):]
		if got := refusal.CodeIn(reason); got != want || !refusal.Known(got) {
			t.Errorf("%q has code %q, want %q", reason, got, want)
		}
	}
}
