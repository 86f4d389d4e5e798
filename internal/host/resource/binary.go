package resource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/conffile"
	"github.com/mortarhpc/mortar/internal/base/release"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Binary makes the link by which a server's resource agents are started lead to this
// build of mortar. It refuses to replace a newer build, and a build that serves what this
// one cannot.
type Binary struct {
	Path, Target string
	// Build is what Target is.
	Build release.Build
	// Configs are those of the services' agents; a new server has none yet.
	Configs []string
	// AllowDowngrade replaces a newer build, too.
	AllowDowngrade bool
}

func (b *Binary) Identity() (kind, id string) { return "binary", b.Path }

// Diff asks the build that is there for its time, and reads the configs with this one.
func (b *Binary) Diff(sys Look) ([]Action, error) {
	as, err := (&Symlink{Path: b.Path, Target: b.Target}).Diff(sys)
	if err != nil || len(as) == 0 || sys.Leads(b.Path) == "" {
		return as, err
	}
	there := buildAt(sys, b.Path)
	newer := there.Newer(b.Build)
	var lost []string
	for _, file := range b.Configs {
		src, found := sys.File(file)
		if !found {
			continue
		}
		c, err := ocf.Parse(file, []byte(src))
		if err == nil {
			err = c.Able()
		} else if !newer {
			continue // apply writes it anew
		}
		if err != nil {
			return nil, Refuse("mortar-too-old", With{"build": b.Build, "servers": there, "error": err})
		}
		keys, err := conffile.Unknown[ocf.Config]([]byte(src))
		sys.Check(err)
		lost = append(lost, keys...)
	}
	if !newer {
		return as, nil
	}
	slices.Sort(lost)
	what := "what the newer one has learned"
	if lost = slices.Compact(lost); len(lost) > 0 {
		what += ", and these settings of the services, which this one does not know: " + strings.Join(lost, ", ")
	}
	if !b.AllowDowngrade {
		return nil, Refuse("mortar-downgrade", With{"build": b.Build, "servers": there, "lost": lost})
	}
	as[0].Why = fmt.Sprintf("replaces the newer %s; lost is %s", there, what)
	return as, nil
}

// buildAt asks a build what it is. One that cannot say so is older than the question.
func buildAt(sys Look, path string) release.Build {
	old := release.Build{Version: "an earlier build"}
	out, err := sys.Query(sys.Ctx, path, "version", "--json")
	sys.Check(err)
	if there, err := release.Parse(out.Stdout); err == nil && out.Code == 0 {
		return there
	}
	return old
}

// AgentWorks is the guard of a change of an active server's build: this server's works as
// resource agent. It never changes anything.
type AgentWorks struct {
	Path    string
	Configs []string
}

func (a *AgentWorks) Identity() (kind, id string) { return "agent-works", a.Path }

// Diff runs the agent.
func (a *AgentWorks) Diff(sys Look) ([]Action, error) {
	for _, file := range a.Configs {
		src, there := sys.File(file)
		if _, err := ocf.Parse(file, []byte(src)); !there || err != nil {
			continue // apply writes it anew
		}
		out, err := sys.Query(sys.Ctx, a.Path, "ocf", "validate-all", "--config", file)
		sys.Check(err)
		// Packages that are missing, apply installs later.
		if out.Code != ocf.Success && out.Code != ocf.ErrInstalled {
			return nil, Refuse("mortar-not-valid", With{"program": a.Path, "config": file, "exit": out.Code, "stderr": strings.TrimSpace(out.Stderr)})
		}
	}
	return nil, nil
}
