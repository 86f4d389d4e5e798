package main

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
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
	return &cobra.Command{
		Use:   "init FLAVOUR|SYSTEM",
		Short: "Print a commented spec, ready to edit: mortar init nfs-ha > brick.yaml",
		Long: `Print a commented spec, ready to edit. That of a flavour describes a small brick
that the virtual rack can be; on real hardware edit what is marked EDIT.

Flavours:
  nfs-ha     two servers, shared disks, one service that moves between them
  nfs-ha-xl  the same with two services, each server active for one
  nfs        one server

Systems (docs/systems.md):
  ` + strings.Join(systems(), "\n  "),
		Example:   "  mortar init nfs-ha > brick.yaml\n  mortar init nss4-ha-288 > nss.yaml",
		ValidArgs: append(slices.Clone(initFlavours), systems()...),
		Args:      cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			_, err = cmd.OutOrStdout().Write(withID(text, rand.Text()))
			return err
		},
	}
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
