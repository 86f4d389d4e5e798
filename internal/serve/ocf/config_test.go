package ocf

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// An agent starts what a newer release has configured, unless the config names a feature
// that it does not have.
func TestNeeds(t *testing.T) {
	c := testConfig()
	c.Needs = slices.Clone(features)
	if err := c.Able(); err != nil {
		t.Error(err)
	}
	for name, say := range map[string]string{"tiering": `needs "tiering"`, "journal": "docs/operations.md"} {
		c.Needs = append(slices.Clone(features), name)
		if err := c.Able(); err == nil || !strings.Contains(err.Error(), say) {
			t.Error(err)
		}
	}
}

// No action but a start fails because of what is in the config, once the server has read a
// good one. Each of these configs made every action fail before, and a failed stop has the
// server fenced.
func TestFaultyConfig(t *testing.T) {
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil { // of this process's namespace
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/run", unix.MNT_DETACH) })
	c := testConfig()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[host] = "10.0.0.7"
	good, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	with := func(more string) string { return strings.TrimSuffix(string(good), "}") + "," + more + "}" }
	file := filepath.Join(t.TempDir(), "service-home.json")
	env := map[string]string{"OCF_RESKEY_config": file, "OCF_RESKEY_CRM_meta_timeout": "20000", "OCF_RESKEY_CRM_meta_interval": "10000"}
	for k, v := range env {
		t.Setenv(k, v)
	}
	put := func(src string) {
		t.Helper()
		_ = os.Remove(file)
		if src == "" {
			return
		}
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	do := func(action string) (int, string) {
		var out, errs bytes.Buffer
		code := Main(t.Context(), []string{action}, os.Getenv, &out, &errs)
		return code, errs.String()
	}
	check := func(what string, want map[string]int) {
		t.Helper()
		for action, code := range want {
			if got, text := do(action); got != code {
				t.Errorf("%s: %s: exit %d, want %d: %s", what, action, got, code, text)
			}
		}
	}
	faulty := map[string]string{"missing": "", "cut short": string(good[:len(good)/2]), "of zeros": string(make([]byte, 100)), "unusable": strings.Replace(string(good), c.Arrays[0].UUID, "xyz", 1)}
	for what, src := range faulty {
		put(src)
		check(what+", nothing was started here", map[string]int{"stop": Success})
	}
	if err := errors.Join(os.MkdirAll(unit.RunDir, 0o755), os.WriteFile(lockFile("home"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for what, src := range faulty {
		put(src)
		for _, action := range []string{"start", "stop", "monitor"} {
			if code, text := do(action); code != ErrArgs && code != ErrInstalled {
				t.Errorf("%s, and no copy: %s: exit %d, %s", what, action, code, text)
			}
		}
	}
	put(string(good))
	check("good", map[string]int{"monitor": NotRunning})
	for what, src := range faulty {
		put(src)
		check(what, map[string]int{"stop": Success, "monitor": NotRunning})
		if code, text := do("start"); code != ErrArgs && code != ErrInstalled {
			t.Errorf("%s: start: exit %d, %s", what, code, text)
		}
	}
	put(with(`"of_a_later_release":1`))
	check("a key of a later release", map[string]int{"stop": Success, "monitor": NotRunning})
	if code, text := do("start"); code == ErrArgs || strings.Contains(text, "later") {
		t.Errorf("a key of a later release: start: exit %d, %s", code, text)
	}
	put(with(`"needs":["tiering"]`))
	check("a feature of a later release", map[string]int{"stop": Success, "monitor": NotRunning, "start": ErrArgs})
}
