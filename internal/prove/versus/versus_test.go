package versus

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func example(t *testing.T) string {
	t.Helper()
	src, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "brick.yaml")
	if err := os.WriteFile(file, src, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// run takes down each rack even after an error. A failed measurement counts if
// it left a result.
func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fails  string // the command that fails
		result bool   // the measurement leaves a result
		want   string // the first words of each command
		ok     bool   // the runs are compared
	}{
		"all well":                      {"", true, "rack up, apply, drill, rack down, rack up, apply, drill, rack down", true},
		"no rack":                       {"rack up", false, "rack up, rack down", false},
		"not built":                     {"apply", false, "rack up, apply, rack down", false},
		"fails, with a result":          {"drill", true, "rack up, apply, drill, rack down, rack up, apply, drill, rack down", true},
		"fails, without a result":       {"drill", false, "rack up, apply, drill, rack down", false},
		"a rack that does not go down":  {"rack down", false, "rack up, apply, drill, rack down", false},
		"interrupted while it measures": {"interrupt", true, "rack up, apply, drill, rack down", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var did []string
			x := Comparison{Spec: example(t), Dir: t.TempDir(), Flags: []string{"--repeat=2"}}
			console := &cli.Console{Out: io.Discard, Env: &cli.Env{}}
			console.Call = func(ctx context.Context, _ io.Reader, _, _ io.Writer, args ...string) error {
				what := args[0]
				if what == "rack" {
					what += " " + args[1]
				}
				did = append(did, what)
				if (what == "rack down") != (ctx.Done() == nil) {
					t.Errorf("%s: it can be stopped: %v", what, ctx.Done() != nil)
				}
				if what == "drill" && args[len(args)-1] != "--repeat=2" {
					t.Errorf("%q lacks the flags", args)
				}
				if what == "drill" && c.result {
					if err := (&report.Run{Dir: args[3]}).Save(); err != nil {
						t.Fatal(err)
					}
				}
				if what == "drill" && c.fails == "interrupt" {
					interrupt()
					return broken
				}
				if what == c.fails {
					return broken
				}
				return nil
			}
			shown := false
			err := x.run(ctx, console, []string{"drill"}, func(_, _ string, failed error) error {
				shown = true
				return failed
			})
			if got := strings.Join(did, ", "); got != c.want {
				t.Errorf("did %s, want %s", got, c.want)
			}
			var exit *cli.Exit
			if shown != c.ok || (err != nil) != (c.fails != "") || err != nil && !errors.Is(err, broken) && !errors.As(err, &exit) {
				t.Errorf("%v %v", shown, err)
			}
		})
	}
}

// run builds nothing if one profile of the brick cannot be built.
func TestRefused(t *testing.T) {
	x := Comparison{Spec: filepath.Join(t.TempDir(), "none.yaml"), Dir: t.TempDir()}
	none := &cli.Console{Env: &cli.Env{}} // any command panics
	if err := x.run(t.Context(), none, []string{"bench"}, nil); err == nil {
		t.Error("no spec, no error")
	}
}

func TestWithProfile(t *testing.T) {
	src, err := os.ReadFile(example(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range slices.Backward(profiles) {
		src = withProfile(src, p)
		s, err := spec.Parse("x", src)
		if err != nil || s.Profile != p {
			t.Errorf("%s: %v", p, err)
		}
	}
	if n := strings.Count(string(src), "\nprofile:"); n != 1 {
		t.Errorf("%d lines", n)
	}
}
