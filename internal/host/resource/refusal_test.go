package resource

import (
	"encoding/json"
	"strings"
	"testing"
)

// An argument that is empty is in the texts as it is, and not among the arguments that programs
// get.
func TestRefuseWithEmptyArguments(t *testing.T) {
	r := Refuse("vg-owned", With{"vg": "vg-a", "owner": "", "rest": "at-rest"})
	if !strings.Contains(r.What, `belongs to "":`) || !strings.Contains(r.Mend, `vgchange --systemid at-rest --config 'local { system_id = "" }' vg-a`) {
		t.Error(r)
	}
	r = Refuse("host-no-room", With{"host": "nfs1", "read_only": []string(nil), "full": []string{"/"}, "found": []string{"/ is full"}, "mend": []string{"make room"}})
	if got, err := json.Marshal(r.Identity); err != nil || string(got) != `{"code":"host-no-room","subject":"nfs1","args":{"found":["/ is full"],"full":["/"],"host":"nfs1","mend":["make room"]}}` {
		t.Errorf("%s, %v", got, err)
	}
}
