package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// clustered is a server whose cluster's configuration has a record of a dropped disk.
type clustered struct {
	record *linux.Dropped
	late   bool // it writes its configuration to disk after the next look
	ran    []string
}

// A disk that was dropped is given back only when the record is gone by which apply
// leaves it out, also from the file that apply reads.
func TestForgetDropped(t *testing.T) {
	for _, late := range []bool{false, true} {
		c := &clustered{late: late, record: &linux.Dropped{Group: "b-r0", Serial: "MA01", Device: "/dev/mapper/d0"}}
		e := &Site{}
		if _, err := e.Hosts.Connect(t.Context(), func(_ context.Context, name string) (*host.Session, error) { return host.New(name, c), nil }, "nfs1"); err != nil {
			t.Fatal(err)
		}
		if err := forgetDropped(t.Context(), e, "nfs1", "MA02"); err != nil || c.ran != nil {
			t.Errorf("another disk: %v, ran %q", err, c.ran)
		}
		if err := forgetDropped(t.Context(), e, "nfs1", "MA01"); err == nil {
			t.Error("nobody has seen that the record is gone")
		}
		tries := 0
		for forgetDropped(t.Context(), e, "nfs1", "MA01") != nil && tries < 5 {
			tries++
		}
		if c.record != nil || c.ran[0] != "crm_attribute --node nfs2 --name mortar-dropped-b-r0 --delete --lifetime forever" {
			t.Errorf("%v, ran %q", c.record, c.ran)
		}
	}
}

func (c *clustered) Close() {}

func (c *clustered) Call(_ context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	switch op {
	case string(agent.OpTime):
		return nil
	case string(gather.Op):
		cib := &linux.CIB{}
		if c.record != nil {
			cib.Nodes = []linux.CIBNode{{Name: "nfs2", Attrs: []linux.CIBPair{{Name: c.record.Attr(), Value: c.record.String()}}}}
		}
		if c.late && len(c.ran) > 0 {
			c.record = nil
		}
		*result.(*gather.Host) = gather.Host{CIB: cib}
		return nil
	case "run":
		c.ran = append(c.ran, strings.Join(params.(agent.RunParams).Action.Cmd, " "))
		if !c.late {
			c.record = nil
		}
		return nil
	}
	return fmt.Errorf("unexpected %s", op)
}
