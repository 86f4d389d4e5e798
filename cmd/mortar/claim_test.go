package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/sshtest"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Two machines have the spec. What one of them claims, or has applied, the other one does not
// change.
func TestTwoMachines(t *testing.T) {
	server := sshtest.Start(t)
	here, there := newSite(t, server, nil), newSite(t, server, nil)
	file := filepath.Join(libDir, "lib/brick.json")
	t.Cleanup(func() { _ = os.Remove(file) })
	d, err := cli.Load(there.spec)
	if err != nil {
		t.Fatal(err)
	}
	release, err := plan.Claim(t.Context(), d.Spec, env.Connect)
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Claim(t.Context(), d.Spec, env.Connect)
	if err == nil {
		t.Error("one machine claims the brick twice")
	}
	s, err := claim.Read(file)
	if err != nil || s.Claim == nil {
		t.Fatalf("%+v %v", s, err)
	}
	who, _, _ := strings.Cut(s.Claim.By, " (")
	code, _, msg := mortar(t, "apply", "--yes", here.spec)
	if code != exitBadInput || !strings.Contains(msg, s.Claim.By) || !strings.Contains(msg, "nothing was changed") {
		t.Errorf("%d %s", code, msg)
	}
	release()
	if s, err := claim.Read(file); err != nil || s.Claim != nil {
		t.Errorf("%+v %v", s, err)
	}

	// The other machine dies.
	if release, err = plan.Claim(t.Context(), d.Spec, env.Connect); err != nil {
		t.Fatal(err)
	}
	if code, _, msg := mortar(t, "unlock", here.spec, "--holder", "mallory@adm9"); code != exitBadInput || !strings.Contains(msg, who) {
		t.Errorf("%d %s", code, msg)
	}
	if code, out, msg := mortar(t, "unlock", here.spec, "--holder", who); code != 0 || !strings.Contains(out, "nfs1: the claim of "+who) {
		t.Errorf("%d %s %s", code, out, msg)
	}
	if code, out, msg := mortar(t, "unlock", here.spec, "--holder", who); code != 0 || !strings.Contains(out, "no administrator") {
		t.Errorf("%d %s %s", code, out, msg)
	}
	release()

	// It has applied another spec.
	b, err := json.Marshal(claim.State{Applied: &claim.Applied{Generation: 7, Source: []byte("exports: [/new]\n"), By: "alice@adm1 (mortar apply)"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"plan"}, {"apply", "--yes"}} {
		code, _, msg := mortar(t, append(args, here.spec)...)
		if code != exitBadInput || !strings.Contains(msg, "generation 7 (alice@adm1 (mortar apply)") || !strings.Contains(msg, "-exports: [/new]") || !strings.Contains(msg, "--onto 7") {
			t.Errorf("%v: %d %s", args, code, msg)
		}
	}
	if code, _, msg := mortar(t, "plan", "--onto", "7", here.spec); strings.Contains(msg, "generation 7") {
		t.Errorf("%d %s", code, msg)
	}
}
