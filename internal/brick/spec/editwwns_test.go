package spec

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// Only the wwns are added, wherever the array is written, and comments stay.
func TestSetWWNs(t *testing.T) {
	b, err := examples.FS.ReadFile("nss7.4-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wwns := []string{"600c0ff0000000000000000000000001", "600c0ff0000000000000000000000002"}
	const text = `wwns: ["600c0ff0000000000000000000000001", "600c0ff0000000000000000000000002"]`
	const flow = "  - {name: nss7, model: ME4084, management: [10.22.0.41, 10.22.0.42], user: monitor, password_file: secrets/array-nss7}\n"
	for _, c := range []struct{ name, was, want string }{
		{"on one line", flow, "  - {name: nss7, model: ME4084, " + text + ", management: [10.22.0.41, 10.22.0.42], user: monitor, password_file: secrets/array-nss7}\n"},
		{"the model last", "  - {name: nss7, model: ME4084} # ours\n", "  - {name: nss7, model: ME4084, " + text + "} # ours\n"},
		{"line by line", "  - name: nss7 # the big one\n    model: ME4084 # 84 disks\n    management: [10.22.0.41]\n",
			"  - name: nss7 # the big one\n    model: ME4084 # 84 disks\n    " + text + "\n    management: [10.22.0.41]\n"},
		{"model first", "  - model: ME4084\n    name: nss7\n", "  - model: ME4084\n    " + text + "\n    name: nss7\n"},
	} {
		src := strings.Replace(string(b), flow, c.was, 1)
		s, err := Parse("x.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.SetWWNs("nss7", wwns)
		if want := strings.Replace(string(b), flow, c.want, 1); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", c.name, err, got)
			continue
		}
		if s, err = Parse("x.yaml", got); err != nil {
			t.Fatal(err)
		}
		if _, err := s.SetWWNs("nss7", wwns); err == nil {
			t.Errorf("%s, once more: %v", c.name, err)
		}
	}
	// A spec that leaves arrays out gets them.
	src := strings.Replace(string(b), "arrays:\n"+flow, "", 1)
	s, err := Parse("x.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.SetWWNs(s.Arrays[0].Name, wwns)
	if err != nil || !strings.HasPrefix(string(got), strings.TrimRight(src, "\n")) || !strings.Contains(string(got), text) {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := s.SetWWNs("other", wwns); err == nil {
		t.Error("an array that is not there")
	}
}
