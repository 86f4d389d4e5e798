package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// Kind is "binary".
func (b *Binary) Kind() string { return "binary" }

// ID is the path.
func (b *Binary) ID() string { return b.Path }

// Diff asks the build that is there for its time, and reads the configs with this one.
func (b *Binary) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	as, err := (&Symlink{Path: b.Path, Target: b.Target}).Diff(ctx, sys)
	if err != nil || len(as) == 0 {
		return as, err
	}
	if _, err := sys.Readlink(b.Path); errors.Is(err, fs.ErrNotExist) {
		return as, nil
	}
	there, err := buildAt(ctx, sys, b.Path)
	if err != nil {
		return nil, err
	}
	newer := there.Newer(b.Build)
	var lost []string
	for _, file := range b.Configs {
		src, err := sys.ReadFile(file)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c, err := ocf.Parse(file, src)
		if err == nil {
			err = c.Able()
		} else if !newer {
			continue // apply writes it anew
		}
		if err != nil {
			return nil, &Refusal{What: fmt.Sprintf("mortar %s cannot serve what the servers' mortar, %s, serves: %v", b.Build, there, err), Mend: "use the newer one"}
		}
		keys, err := conffile.Unknown[ocf.Config](src)
		if err != nil {
			return nil, err
		}
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
		return nil, &Refusal{
			What: fmt.Sprintf("the servers' mortar is %s, newer than this one, %s", there, b.Build),
			Mend: "use the newer one; `mortar apply --allow-downgrade` replaces it, and loses " + what,
		}
	}
	as[0].Why = fmt.Sprintf("replaces the newer %s; lost is %s", there, what)
	return as, nil
}

// buildAt asks a build what it is. One that cannot say so is older than the question.
func buildAt(ctx context.Context, sys Sys, path string) (release.Build, error) {
	old := release.Build{Version: "an earlier build"}
	out, err := sys.Query(ctx, path, "version", "--json")
	if err != nil {
		return old, err
	}
	if there, err := release.Parse(out.Stdout); err == nil && out.Code == 0 {
		return there, nil
	}
	return old, nil
}

// AgentWorks is the guard of a change of an active server's build: this server's works as
// resource agent. It never changes anything.
type AgentWorks struct {
	Path    string
	Configs []string
}

// Kind is "agent-works".
func (a *AgentWorks) Kind() string { return "agent-works" }

// ID is the path.
func (a *AgentWorks) ID() string { return a.Path }

// Diff runs the agent.
func (a *AgentWorks) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	for _, file := range a.Configs {
		src, err := sys.ReadFile(file)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := ocf.Parse(file, src); err != nil {
			continue // apply writes it anew
		}
		out, err := sys.Query(ctx, a.Path, "ocf", "validate-all", "--config", file)
		if err != nil {
			return nil, err
		}
		// Packages that are missing, apply installs later.
		if out.Code != ocf.Success && out.Code != ocf.ErrInstalled {
			return nil, &Refusal{
				What: fmt.Sprintf("%s ocf validate-all --config %s: exit %d: %s", a.Path, file, out.Code, strings.TrimSpace(out.Stderr)),
				Mend: "the server that serves keeps its mortar until this one's works",
			}
		}
	}
	return nil, nil
}
