package drill

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
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
// not; the other one is refused.
func TestSlowDiskVariants(t *testing.T) {
	for _, c := range []struct {
		drop, how string
		possible  bool
	}{
		{"off", "throttled", true},
		{"off", "dropped", false},
		{"on", "throttled", false},
		{"on", "dropped", true},
	} {
		d := droppingDesign(t, c.drop)
		x, v, err := Find("disk-slow", c.how)
		if err != nil {
			t.Fatal(err)
		}
		if err = Possible(fault.Env{Design: d, Injector: newPair(t)}, x, v); (err == nil) != c.possible {
			t.Errorf("%s, %s: %v", c.drop, c.how, err)
		}
		if suits := slices.ContainsFunc(Suits(mustChoose(t), d), func(o Choice) bool { return o.Name() == "disk-slow-"+c.how }); suits != c.possible {
			t.Errorf("%s, %s: --all does it: %v", c.drop, c.how, suits)
		}
	}
	// The disk stays slow: nothing mends it before every worker goes on.
	d := droppingDesign(t, "on")
	s, err := planned(fault.Env{Design: d})
	if err != nil {
		t.Fatal(err)
	}
	_, v, _ := Find("disk-slow", "dropped")
	steps, err := v.Steps(s)
	if err != nil || slices.ContainsFunc(steps, func(s Step) bool { _, mends := actOf(s); return mends }) || v.Expect.Where != judge.Stays {
		t.Errorf("%+v %v", steps, err)
	}
}
