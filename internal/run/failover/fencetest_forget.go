package failover

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// TouchedLevels returns the levels whose devices a plan changes: a secret, or their
// definition in the cluster. Old proofs of these levels no longer count.
func TouchedLevels(d *design.Design, pending []plan.Planned) []*design.FenceLevel {
	if !d.Clustered() {
		return nil
	}
	touches := func(f design.FenceDevice) bool {
		return slices.ContainsFunc(pending, func(s plan.Planned) bool {
			switch r := s.Resource.(type) {
			case *resource.TextFile:
				return r.Path == plan.SecretPath(f) || len(f.Secrets) > 0 && strings.HasPrefix(r.Path, plan.SecretPath(f)+".")
			case *resource.CIB:
				// A CIB patch contains each changed device as a whole.
				return slices.ContainsFunc(s.Actions, func(a resource.Action) bool {
					return bytes.Contains(a.Stdin, []byte(`<primitive id="`+f.ID+`"`))
				})
			}
			return false
		})
	}
	return lists.Only(d.Fencing(), func(l *design.FenceLevel) bool { return slices.ContainsFunc(l.Devices, touches) })
}

// ForgetProofs deletes the proofs of levels from the cluster.
func ForgetProofs(ctx context.Context, d *design.Design, h Hosts, via string, levels []*design.FenceLevel) error {
	if len(levels) == 0 {
		return nil
	}
	t := &tester{d: d, h: h}
	c, err := ReadCIB(ctx, h, via)
	if err != nil {
		return err
	}
	for _, l := range levels {
		name := observe.ProofAttr(l.Level)
		if c.Attr(l.Node, name) == "" {
			continue
		}
		if err := t.do(ctx, via, fmt.Sprintf("forget the proof of level %d of %s", l.Level, l.Node),
			"crm_attribute", "--node", l.Node, "--name", name, "--delete", "--lifetime", "forever"); err != nil {
			return err
		}
	}
	return nil
}
