package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// The JSON of an error has code, subject and arguments of a refusal: of a command, of an agent,
// and of hosts that a plan has asked. An agent of an earlier release gives none.
func TestRefusalAsJSON(t *testing.T) {
	is := func(code, subject string, args resource.With) health.Identity {
		return health.Identity{Code: code, Subject: subject, Args: args}
	}
	refusal := resource.Refuse("disk-too-small", resource.With{"disk": resource.Named{ID: "MA01", Words: "disk MA01 (enclosure A, bay 1)"}, "bytes": 5, "want": 6})
	want := is("disk-too-small", "MA01", resource.With{"disk": "MA01", "bytes": 5.0, "want": 6.0})
	old := *agent.ToError(refusal)
	old.Refused = health.Identity{}
	s := &spec.Spec{File: "brick.yaml"}
	for name, c := range map[string]struct {
		err         error
		whole, part health.Identity
	}{
		"command":   {fmt.Errorf("disk: %w", refusal), want, health.Identity{}},
		"agent":     {&plan.Failure{Host: "nfs1", Err: agent.ToError(refusal)}, want, health.Identity{}},
		"old agent": {&plan.Failure{Host: "nfs1", Err: &old}, health.Identity{}, health.Identity{}},
		"plan":      {plan.Located(s, plan.Refusals{{Host: "nfs1", Step: "disks", Refusal: *refusal}}), health.Identity{}, want},
	} {
		var b bytes.Buffer
		(&Exit{BadInput, c.err}).Print(&b, true)
		var line struct {
			health.Identity
			Problems []struct{ health.Identity }
		}
		if err := json.Unmarshal(b.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		var part health.Identity
		if len(line.Problems) == 1 {
			part = line.Problems[0].Identity
		}
		if diff := cmp.Diff([]health.Identity{c.whole, c.part}, []health.Identity{line.Identity, part}); diff != "" {
			t.Errorf("%s: %s\n%s", name, diff, &b)
		}
	}
}
