package cli

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mortarhpc/mortar/internal/host"
)

// A command that went well ends with an exit code of its own if it left clients out; an error of
// the command comes first.
func TestLeftOut(t *testing.T) {
	var out bytes.Buffer
	c := &Console{Out: &out, Left: host.Errors{}}
	if err := c.Ended(nil); err != nil {
		t.Error(err)
	}
	copied := *c // as a command does that applies as one of its steps
	copied.LeaveOut(host.Errors{"c3": errors.New("c3 is off"), "c2": errors.New("c2 is off")})
	copied.LeaveOut(host.Errors{"c2": errors.New("c2 is off")})
	if out.String() != "Left out: c2 is off\nLeft out: c3 is off\n" {
		t.Errorf("%q", out.String())
	}
	var exit *Exit
	if err := c.Ended(nil); !errors.As(err, &exit) || exit.Code != LeftOut {
		t.Errorf("%v", err)
	}
	failed := errors.New("failed")
	if err := c.Ended(failed); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}
