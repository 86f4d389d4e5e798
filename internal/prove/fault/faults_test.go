package fault

import (
	"strings"
	"testing"
)

func TestKinds(t *testing.T) {
	for k, how := range Kinds {
		f := Fault{Kind: k, On: "nfs1", Args: []string{"a", "b", "c"}}
		if text := f.Words(); text == "" || strings.ContainsAny(text, "{}") {
			t.Errorf("%s is not said in words: %q", k, text)
		}
		if (how.inject == nil) != (how.Rack != nil) || how.inject == nil && (how.can != nil || how.heal != nil) {
			t.Errorf("%s: either Mortar does it, or the Injector", k)
		}
	}
	if got := (Fault{Kind: PathOut, On: "nfs1", Args: []string{"MA01", "0"}}).Words(); got != "cutting the path of nfs1 to MA01 over HBA 0" {
		t.Error(got)
	}
}
