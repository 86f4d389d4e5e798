package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

func newConfirmOffCmd() *cobra.Command {
	var given string
	cmd := clusterCmd("confirm-off", func(ctx context.Context, a asked) (*procedure.Plan, error) {
		node := a.args[0]
		if a.flags.dryRun {
			return failover.Confirm(ctx, a.d, a.facts, a.c, node, nil)
		}
		w := a.questions()
		return failover.Confirm(ctx, a.d, a.facts, a.c, node, func(p *procedure.Plan) (bool, error) {
			asked, err := confirmNode(a.cmd.InOrStdin(), w, node, p, given)
			if err == nil && asked {
				fmt.Fprintln(w, "looking once more")
			}
			return asked, err
		})
	})
	cmd.Flags().StringVar(&given, "confirm", "", "name of the server, without a terminal to ask on")
	return cmd
}

// confirmNode has the user type the name of the server that the user knows to be off, unless
// --confirm gave it. asked reports whether the program asked.
func confirmNode(in io.Reader, w io.Writer, node string, p *procedure.Plan, given string) (asked bool, err error) {
	for _, n := range p.Notes {
		fmt.Fprintln(w, n)
	}
	asked = given == "" && isTerminalReader(in)
	return asked, typed(in, w, node, given,
		fmt.Sprintf("If %s still runs, starting its service on %s destroys the file system.\nHave you seen that %s is off? Type its name to say so: ", node, p.To, node),
		"a person has to see that the server is off", "nothing was confirmed")
}
