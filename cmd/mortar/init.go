package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// initFlavours lists the examples that the help of init describes, the main one first.
var initFlavours = []string{"nfs-ha", "nfs-ha-xl", "nfs"}

// exampleNames lists every example by name.
func exampleNames() []string {
	names, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for i, f := range names {
		names[i] = strings.TrimSuffix(f, ".yaml")
	}
	return names
}

// systems lists the other examples: the systems of the papers, and two of today.
func systems() []string {
	return slices.DeleteFunc(exampleNames(), func(name string) bool { return slices.Contains(initFlavours, name) })
}

func newInitCmd() *cobra.Command {
	cmd := command("init", func(ctx context.Context, c *cli.Console, args []string) error {
		if !slices.Contains(exampleNames(), args[0]) {
			mend := fmt.Sprintf("use %s, or a system: %s", strings.Join(initFlavours, " or "), strings.Join(systems(), ", "))
			if near := spec.Nearest(args[0], append(systems(), initFlavours...)); near != "" {
				mend = fmt.Sprintf("did you mean %s?", near)
			}
			return fail(exitBadInput, fmt.Errorf("there is no template for flavour %q; %s", args[0], mend))
		}
		text, err := fs.ReadFile(examples.FS, args[0]+".yaml")
		if err != nil {
			return err
		}
		_, err = c.Out.Write(withID(text, rand.Text()))
		return err
	})
	cmd.Long, cmd.ValidArgs = "  "+strings.Join(systems(), "\n  "), append(slices.Clone(initFlavours), systems()...)
	return cmd
}

var nameLine = regexp.MustCompile(`(?m)^name: .*\n`)

// withID writes a random ID below the name of the brick.
func withID(text []byte, random string) []byte {
	at := nameLine.FindIndex(text)
	if at == nil {
		return text
	}
	line := "\n# Random, and this brick's for good: its arrays and file systems are known by it.\nid: \"" + strings.ToLower(random[:16]) + "\"\n"
	return slices.Concat(text[:at[1]], []byte(line), text[at[1]:])
}
