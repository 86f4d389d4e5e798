package claim

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

func TestChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new/brick.json")
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	refused := func(err error, by string) {
		t.Helper()
		var r *resource.Refusal
		if !errors.As(err, &r) || !r.Has("brick-claimed", "by", by) {
			t.Errorf("%v", err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	alice, bob := text(Claim{By: "alice@adm1 (mortar apply)", Since: time.Unix(0, 0)}), text(Claim{By: "bob@adm2 (mortar grow)"})
	spec := text(Applied{Generation: 1, Source: []byte("name: b1\n"), By: "alice@adm1 (mortar apply)"})
	if err := Change(file, "a", "record", spec); err == nil {
		t.Error("a spec was recorded without a claim")
	}
	must(Change(file, "a", "take", alice))
	refused(Change(file, "b", "take", bob), "alice@adm1 (mortar apply)")
	refused(Change(file, "b", "give", nil), "alice@adm1 (mortar apply)")
	refused(Change(file, "b", "record", spec), "alice@adm1 (mortar apply)")
	must(Change(file, "a", "take", alice)) // of a command that was killed
	must(Change(file, "a", "record", spec))
	if s, err := Read(file); err != nil || s.Claim.Holder != "a" || s.Applied.Generation != 1 || s.MayAct("a") != nil {
		t.Errorf("%+v %v", s, err)
	}
	must(Change(file, "a", "give", nil))
	must(Change(file, "a", "give", nil))
	must(Change(file, "b", "take", bob))
	if s, err := Read(file); err != nil || s.Claim.Holder != "b" || string(s.Applied.Source) != "name: b1\n" || s.Applied.Done {
		t.Errorf("%+v %v", s, err)
	}
	must(Change(file, "b", "give", nil))
	if s, err := Read(file); err != nil || s.MayAct("anybody") != nil {
		t.Errorf("%+v %v", s, err)
	}
	if err := Change(file, "b", "take", []byte(`{"by":"x"} {}`)); err == nil {
		t.Error("two claims at once pass")
	}
	if err := Change(file, "b", "steal", nil); err == nil {
		t.Error("an unknown request passes")
	}
}
