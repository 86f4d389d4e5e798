// Package release says which of two builds of this program is the newer one. It knows
// nothing of what a build can do.
package release

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"
)

// made is the time of the commit that was built, by RFC 3339. The linker sets it.
// Source: Makefile.
var made string

type Build struct {
	Version string    `json:"version"`
	Made    time.Time `json:"made,omitzero"` // the commit's time; zero: not known
}

// Version is the name of the running build: the one that the linker gave, else that of the module
// as the go command knows it, else "unknown".
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(bi)
}

// versionOf is the version that `go install MODULE@VERSION` or `go build` in a work tree records;
// with -buildvcs=false there is none.
func versionOf(bi *debug.BuildInfo) string {
	if v := bi.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "unknown"
}

// This is the running build, by the name that it was given.
func This(version string) Build {
	b := Build{Version: version}
	at := made
	if at == "" {
		if bi, ok := debug.ReadBuildInfo(); ok {
			for _, s := range bi.Settings {
				if s.Key == "vcs.time" {
					at = s.Value
				}
			}
		}
	}
	b.Made, _ = time.Parse(time.RFC3339, at)
	return b
}

// Parse reads what `mortar version --json` prints. Builds before that flag have no time.
func Parse(text string) (Build, error) {
	var b Build
	err := json.Unmarshal([]byte(text), &b)
	return b, err
}

// Newer says whether b comes after o. A build whose time is not known comes before all
// others.
func (b Build) Newer(o Build) bool { return b.Made.After(o.Made) }

func (b Build) String() string {
	if b.Made.IsZero() {
		return b.Version + " (of unknown time)"
	}
	return fmt.Sprintf("%s of %s", b.Version, b.Made.UTC().Format("2006-01-02 15:04"))
}
