package resource

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/release"
)

// A server's build of mortar changes to a later one, to another one of the same time, and
// from one that is too old to say what it is; not to an earlier one.
func TestBinary(t *testing.T) {
	const config = "/etc/mortar/service-home.json"
	src, err := os.ReadFile("../../converge/plan/testdata/releases/0.2.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]map[string]json.RawMessage
	if err := json.Unmarshal(src, &recorded); err != nil {
		t.Fatal(err)
	}
	good := string(recorded["nfs-ha"][config])
	with := func(more string) string { return strings.TrimSuffix(strings.TrimSpace(good), "}") + "," + more + "}" }
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, there, config string
		allow               bool
		why, refusal        string // either
		settings            string
	}{
		{name: "later", there: `{"version":"a","made":"2026-11-27T12:00:00Z"}`, config: good},
		{name: "the same commit", there: `{"version":"a","made":"2026-11-28T12:00:00Z"}`, config: good},
		{name: "from 0.2.0", there: "mortar 0.2.0", config: good},
		{name: "a new server", there: `{"version":"a"}`},
		{name: "a config that apply mends", there: `{"version":"a"}`, config: "{"},
		{name: "earlier", there: `{"version":"b","made":"2026-11-29T12:00:00Z"}`, config: good, refusal: "mortar-downgrade"},
		{name: "earlier, with settings", there: `{"version":"b","made":"2026-11-29T12:00:00Z"}`, config: with(`"tier":{"cold":1}`), refusal: "mortar-downgrade", settings: "tier"},
		{name: "allowed", there: `{"version":"b","made":"2026-11-29T12:00:00Z"}`, config: with(`"tier":{"cold":1},"scrub":1`), allow: true, why: "does not know: scrub, tier"},
		{name: "allowed, but for what is in use", there: `{"version":"b","made":"2026-11-29T12:00:00Z"}`, config: with(`"needs":["tier"]`), allow: true, refusal: "mortar-too-old"},
		{name: "allowed, but unreadable", there: `{"version":"b","made":"2026-11-29T12:00:00Z"}`, config: strings.Replace(good, `"home"`, `["home"]`, 1), allow: true, refusal: "mortar-too-old"},
	} {
		b := &Binary{Path: "/usr/local/sbin/mortar", Target: "/usr/local/lib/mortar/mortar-2", Build: release.Build{Version: "dev", Made: now}, Configs: []string{config}, AllowDowngrade: tc.allow}
		sys := &Paper{
			Files:   map[string]string{"/usr/local/lib/mortar/mortar-1": "ELF", "/usr/local/lib/mortar/mortar-2": "ELF", config: tc.config},
			Links:   map[string]string{"/usr/local/sbin/mortar": "/usr/local/lib/mortar/mortar-1"},
			Outputs: map[string]Output{"/usr/local/sbin/mortar version --json": {Stdout: tc.there}},
		}
		if tc.config == "" {
			delete(sys.Files, config)
		}
		as, err := Diff(t.Context(), sys, wire(t, b))
		switch {
		case tc.refusal != "":
			wantRefusal(t, as, err, tc.refusal, "build", b.Build.String(), "lost", tc.settings)
			if says := "loses what the newer one has learned, and these settings of the services, which this one does not know: tier"; tc.settings != "" && !strings.HasSuffix(err.Error(), says) {
				t.Errorf("%s: %v", tc.name, err)
			}
			if tc.refusal == "mortar-downgrade" && tc.settings == "" && !strings.HasSuffix(err.Error(), "loses what the newer one has learned") {
				t.Errorf("%s: %v", tc.name, err)
			}
		case err != nil || len(as) != 1 || as[0].File.Symlink != b.Target || !strings.Contains(as[0].Why, tc.why):
			t.Errorf("%s: %+v, %v", tc.name, as, err)
		}
		sys.Links["/usr/local/sbin/mortar"] = b.Target
		wantShow(t, diff(t, b, sys), "")
	}
}

// A build that fails as resource agent on one server keeps away from the other one. What
// apply mends later is no reason.
func TestAgentWorks(t *testing.T) {
	const config = "/etc/mortar/service-home.json"
	src, err := os.ReadFile("../../converge/plan/testdata/releases/next.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]map[string]json.RawMessage
	if err := json.Unmarshal(src, &recorded); err != nil {
		t.Fatal(err)
	}
	a := &AgentWorks{Path: "/usr/local/sbin/mortar", Configs: []string{config, "/etc/mortar/service-more.json"}}
	sys := &Paper{Files: map[string]string{config: string(recorded["nfs-ha"][config])}, Outputs: map[string]Output{}}
	for code, well := range map[int]bool{0: true, 5: true, 2: false, 1: false, 127: false} {
		sys.Outputs["/usr/local/sbin/mortar ocf validate-all --config "+config] = Output{Code: code, Stderr: "Segmentation fault\n"}
		if well {
			wantShow(t, diff(t, a, sys), "")
		} else {
			refused(t, a, sys, "mortar-not-valid", "exit", strconv.Itoa(code), "stderr", "Segmentation fault")
		}
	}
	sys.Files[config] = "{"
	wantShow(t, diff(t, a, sys), "")
}
