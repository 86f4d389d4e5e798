package plan

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// releases has the configs that each release writes for the examples: the configs of one
// service and its cache on one server, by example. Those of "next" are this build's.
//
// Recorded files, and not a binary of the release before: to build one from the history
// takes a minute, and CI may have a clone without history.
const releases = "testdata/releases"

// configs returns the configs that a plan writes on the first server that gets each, by
// path.
func configs(t *testing.T, example string) map[string]json.RawMessage {
	t.Helper()
	_, p, _ := offline(t, example)
	out := map[string]json.RawMessage{}
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			if a.File == nil || out[a.File.Path] != nil {
				continue
			}
			if base := filepath.Base(a.File.Path); strings.HasSuffix(base, ".json") && (strings.HasPrefix(base, "service-") || strings.HasPrefix(base, "cache-")) {
				out[a.File.Path] = a.File.Content
			}
		}
	}
	return out
}

// nextConfigs are the configs of every example.
func nextConfigs(t *testing.T) map[string]map[string]json.RawMessage {
	t.Helper()
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]json.RawMessage{}
	for _, f := range files {
		if c := configs(t, f); len(c) > 0 { // a brick of one server has no agent
			out[strings.TrimSuffix(f, ".yaml")] = c
		}
	}
	return out
}

// TestNextRelease records what this build writes. A release renames the file.
func TestNextRelease(t *testing.T) {
	b, err := json.MarshalIndent(nextConfigs(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "releases/next.json", string(b)+"\n")
}

// This build's agent serves by the configs that every release has written, and by those of
// a later release: it ignores what it does not know.
func TestConfigsOfReleases(t *testing.T) {
	files, err := filepath.Glob(releases + "/*.json")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for example, of := range readRelease(t, file) {
			for path, src := range of {
				if err := read(path, src); err != nil {
					t.Errorf("%s: %s: %v", file, example, err)
				}
				if err := read(path, withNews(t, src)); err != nil {
					t.Errorf("%s: %s, with keys of a later release: %v", file, example, err)
				}
			}
		}
	}
}

// The keys of this build's configs that release 0.2.0 does not have. Its agent reads
// strictly and cannot serve a brick with one of them. Those after it ignore them.
func TestStrictRelease(t *testing.T) {
	known := map[string]bool{}
	for _, of := range readRelease(t, releases+"/0.2.0.json") {
		for _, src := range of {
			keysOf(t, src, known)
		}
	}
	var fresh []string
	now := map[string]bool{}
	for _, of := range nextConfigs(t) {
		for _, src := range of {
			keysOf(t, src, now)
		}
	}
	for k := range now {
		if !known[k] {
			fresh = append(fresh, k)
		}
	}
	slices.Sort(fresh)
	if want := []string{"array", "connections", "enclosures", "serials", "start_seconds", "state_image"}; !slices.Equal(fresh, want) {
		t.Errorf("new keys %q, want %q: may an agent ignore a new key? If not, ocf.features needs a line. Then write the key here", fresh, want)
	}
}

// read reads a config as the programs of a server do.
func read(path string, src []byte) error {
	if strings.HasPrefix(filepath.Base(path), "cache-") {
		_, err := cache.Parse(path, src)
		return err
	}
	c, err := ocf.Parse(path, src)
	if err == nil {
		err = c.Able()
	}
	return err
}

// byServer are the keys whose objects have names of servers as keys.
var byServer = []string{"nodes", "rings", "reservations"}

// eachObject calls f with every object of a config whose keys are keys of the config.
func eachObject(v any, f func(map[string]any)) {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if !slices.Contains(byServer, k) {
				eachObject(e, f)
			}
		}
		f(x)
	case []any:
		for _, e := range x {
			eachObject(e, f)
		}
	}
}

// withNews adds a key to every object of a config.
func withNews(t *testing.T, src []byte) []byte {
	t.Helper()
	var all any
	if err := json.Unmarshal(src, &all); err != nil {
		t.Fatal(err)
	}
	eachObject(all, func(o map[string]any) { o["of_a_later_release"] = map[string]any{"level": 1} })
	out, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// keysOf adds the keys of a config to a set.
func keysOf(t *testing.T, src []byte, set map[string]bool) {
	t.Helper()
	var all any
	if err := json.Unmarshal(src, &all); err != nil {
		t.Fatal(err)
	}
	eachObject(all, func(o map[string]any) {
		for k := range o {
			set[k] = true
		}
	})
}

// wwid is what a plan without hosts has in the place of a LUN's WWID.
var wwid = regexp.MustCompile(`3\\u003cwwn-of-[^\\]*\\u003e`)

func readRelease(t *testing.T, file string) map[string]map[string]json.RawMessage {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	b = wwid.ReplaceAllFunc(b, func([]byte) []byte {
		n++
		return fmt.Appendf(nil, "3%032x", n)
	})
	var out map[string]map[string]json.RawMessage
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
