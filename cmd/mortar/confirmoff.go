package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

func newConfirmOffCmd() *cobra.Command {
	var m moveFlags
	var confirm string
	cmd := &cobra.Command{
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
` + moveExit,
		Example: `  mortar confirm-off brick.yaml nfs1
  mortar confirm-off brick.yaml nfs1 --dry-run`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			node := args[1]
			return m.runWith(cmd, args[0], func(ctx context.Context, d *design.Design, f observe.Facts, c *observe.Collector) (*failover.Plan, error) {
				if m.dryRun {
					return failover.Confirm(ctx, d, f, c, node, nil)
				}
				w := cmd.OutOrStdout()
				if m.asJSON {
					w = cmd.ErrOrStderr()
				}
				return failover.Confirm(ctx, d, f, c, node, func(p *failover.Plan) (bool, error) {
					typed, err := confirmNode(cmd.InOrStdin(), w, node, p, confirm)
					if err == nil && typed {
						fmt.Fprintln(w, "looking once more")
					}
					return typed, err
				})
			})
		},
	}
	m.add(cmd)
	cmd.Flags().StringVar(&confirm, "confirm", "", "name of the server, without a terminal to ask on")
	return cmd
}

// confirmNode has the user type the name of the server that the user knows to be off, unless
// --confirm gave it. typed reports whether the program asked.
func confirmNode(in io.Reader, w io.Writer, node string, p *failover.Plan, given string) (typed bool, err error) {
	for _, n := range p.Notes {
		fmt.Fprintln(w, n)
	}
	asked := given == "" && isTerminalReader(in)
	return asked, confirmName(in, w, node, "server",
		fmt.Sprintf("If %s still runs, starting its service on %s destroys the file system.\nHave you seen that %s is off? Type its name to say so: ", node, p.To, node),
		"once you have seen that it is off", given)
}

// confirmName has the user type a name, unless --confirm gave it. what it is the name of,
// the question, and when to say so become parts of messages.
func confirmName(in io.Reader, w io.Writer, name, what, question, when, given string) error {
	if given == "" && isTerminalReader(in) {
		fmt.Fprint(w, question)
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			return fmt.Errorf("nothing was typed and nothing was confirmed: %w", err)
		}
		given = strings.TrimSpace(line)
	} else if given == "" {
		return fmt.Errorf("nobody can be asked here: give --confirm %s %s; nothing was confirmed", name, when)
	}
	if given != name {
		return fmt.Errorf("%q is not the %s's name, %q; nothing was confirmed", given, what, name)
	}
	return nil
}
