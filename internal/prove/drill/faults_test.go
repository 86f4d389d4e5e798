package drill

import (
	"slices"
	"strings"
	"testing"
)

func TestKinds(t *testing.T) {
	for k, how := range kinds {
		f := Fault{Kind: k, On: "nfs1", Args: []string{"a", "b", "c"}}
		if text := describe(Step{Fault: f}); text == "" || strings.ContainsAny(text, "{}") {
			t.Errorf("%s is not said in words: %q", k, text)
		}
		if how.inject == nil && (how.can != nil || how.heal != nil) {
			t.Errorf("%s: the Injector does it, so can and heal are never asked", k)
		}
	}
	if got := describe(Step{Fault: Fault{Kind: PathOut, On: "nfs1", Args: []string{"MA01", "0"}}}); got != "cutting the path of nfs1 to MA01 over HBA 0" {
		t.Error(got)
	}
	if got := describe(Step{Fault: Fault{Kind: PDUDead, Args: []string{"pdu1"}}, Mend: true}); got != "mending: pdu-dead pdu1" {
		t.Error(got)
	}
	if ks := HardwareKinds(); !slices.Contains(ks, Freeze) || slices.Contains(ks, Kill) {
		t.Error(ks)
	}
}
