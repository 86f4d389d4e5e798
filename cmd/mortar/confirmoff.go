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
	cmd := clusterCmd(&cobra.Command{
		Use:   "confirm-off brick.yaml NODE",
		Short: "Tell the cluster that a server it cannot fence is off, so that its service may start",
		Long: `When a server fails and no fence device can prove that it is off, its service
starts nowhere: two servers writing to the same disks would destroy the data.
Then a person has to see to it: pull both power cords of the server, and say so
with this command. The service then starts on the other server.

It is refused if the cluster does not wait for this server, if the server
answers SSH, if it answers ping from its partner or from a client, if it answers
ARP from its partner, if anybody but its partner answers at the service address,
if the shared disks change while its partner does not have them, or if its BMC
says that it has power. What cannot be found out (a BMC without power answers nothing) is shown.
Then the server's name has to be typed, and everything is looked at once more;
without a terminal give the name with --confirm.

It is also for a server whose partner was switched on alone: the cluster then
waits for both. That wait is ended as well, and the service starts.

A server that was confirmed off and was not will damage the file system.
`,
		Example: `  mortar confirm-off brick.yaml nfs1
  mortar confirm-off brick.yaml nfs1 --dry-run`,
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, a asked) (*procedure.Plan, error) {
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
