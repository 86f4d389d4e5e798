package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
)

// droppingDesign is an example whose slow disks are dropped, or are not.
func droppingDesign(t *testing.T, drop string) *design.Design {
	t.Helper()
	src, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.Replace(string(src), "storage:\n", "storage:\n  drop_slow_disks: "+drop+"\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Each variant of disk-slow is for specs that drop slow disks, or for those that do
// not; the other one is refused with the reason.
func TestSlowDiskVariants(t *testing.T) {
	for _, c := range []struct{ drop, how, refusal string }{
		{"off", "throttled", ""},
		{"off", "dropped", "storage.drop_slow_disks is off"},
		{"on", "throttled", "use --how dropped"},
		{"on", "dropped", ""},
	} {
		d := droppingDesign(t, c.drop)
		x, v, err := Find("disk-slow", c.how)
		if err != nil {
			t.Fatal(err)
		}
		err = Possible(Env{Design: d, Injector: newPair(t)}, x, v)
		if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s, %s: %v, want %q", c.drop, c.how, err, c.refusal)
		}
		if suits := slices.ContainsFunc(Suits(mustChoose(t), d), func(o Choice) bool { return o.Name() == "disk-slow-"+c.how }); suits != (c.refusal == "") {
			t.Errorf("%s, %s: --all does it: %v", c.drop, c.how, suits)
		}
	}
	// The disk stays slow: nothing mends it before every worker goes on.
	d := droppingDesign(t, "on")
	s, err := planned(Env{Design: d})
	if err != nil {
		t.Fatal(err)
	}
	_, v, _ := Find("disk-slow", "dropped")
	steps, err := v.Steps(s)
	if err != nil || slices.ContainsFunc(steps, func(s Step) bool { return s.Mend }) || v.Expect.Where != Stays {
		t.Errorf("%+v %v", steps, err)
	}
}

// clustered is a server whose cluster's configuration has a record of a dropped disk.
type clustered struct {
	record *linux.Dropped
	late   bool // it writes its configuration to disk after the next look
	ran    []string
}

func (c *clustered) Close() {}

func (c *clustered) Call(_ context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	switch op {
	case string(agent.OpTime):
		return nil
	case string(agent.OpRead):
		text := "<cib></cib>"
		if c.record != nil {
			text = fmt.Sprintf(`<cib><configuration><nodes><node uname="nfs2"><instance_attributes><nvpair name=%q value=%q/></instance_attributes></node></nodes></configuration></cib>`, c.record.Attr(), c.record)
		}
		if c.late && len(c.ran) > 0 {
			c.record = nil
		}
		*result.(*agent.ReadResult) = agent.ReadResult{Content: []byte(text)}
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

// A disk that was dropped is given back only when the record is gone by which apply
// leaves it out, also from the file that apply reads.
func TestForgetDropped(t *testing.T) {
	for _, late := range []bool{false, true} {
		c := &clustered{late: late, record: &linux.Dropped{Group: "b-r0", Serial: "MA01", Device: "/dev/mapper/d0"}}
		e := &engine{}
		if _, err := e.hosts.Connect(t.Context(), func(_ context.Context, name string) (*host.Session, error) { return host.New(name, c), nil }, "nfs1"); err != nil {
			t.Fatal(err)
		}
		if err := e.forgetDropped(t.Context(), "nfs1", "MA02"); err != nil || c.ran != nil {
			t.Errorf("another disk: %v, ran %q", err, c.ran)
		}
		if err := e.forgetDropped(t.Context(), "nfs1", "MA01"); err == nil {
			t.Error("nobody has seen that the record is gone")
		}
		tries := 0
		for e.forgetDropped(t.Context(), "nfs1", "MA01") != nil && tries < 5 {
			tries++
		}
		if c.record != nil || c.ran[0] != "crm_attribute --node nfs2 --name mortar-dropped-b-r0 --delete --lifetime forever" {
			t.Errorf("%v, ran %q", c.record, c.ran)
		}
	}
}
