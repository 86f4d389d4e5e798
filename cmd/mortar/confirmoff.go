package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/agent"
	"github.com/mortarhpc/mortar/internal/design"
	"github.com/mortarhpc/mortar/internal/failover"
	"github.com/mortarhpc/mortar/internal/observe"
	"github.com/mortarhpc/mortar/internal/plan"
	"github.com/mortarhpc/mortar/internal/resource"
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
answers ping or SSH, or if its BMC says that it has power. What cannot be found
out (a BMC without power answers nothing) is shown. Then the server's name has
to be typed; without a terminal give it with --confirm.

A server that was confirmed off and was not will damage the file system.
` + moveExit,
		Example: `  mortar confirm-off brick.yaml nfs1
  mortar confirm-off brick.yaml nfs1 --dry-run`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			node := args[1]
			return m.runWith(cmd, args[0], func(ctx context.Context, d *design.Design, f observe.Facts, c *observe.Collector) (*failover.Plan, error) {
				signs := signsOf(ctx, d, c, f, node)
				p, err := failover.ConfirmOff(d, f, node, signs)
				if err != nil || p.Nothing != "" || m.dryRun {
					return p, err
				}
				w := cmd.OutOrStdout()
				if m.asJSON {
					w = cmd.ErrOrStderr()
				}
				return p, confirmNode(cmd.InOrStdin(), w, node, p, confirm)
			})
		},
	}
	m.add(cmd)
	cmd.Flags().StringVar(&confirm, "confirm", "", "name of the server, if nobody can be asked")
	return cmd
}

// confirmNode has the user type the name of the server that is said to be off.
func confirmNode(in io.Reader, w io.Writer, node string, p *failover.Plan, given string) error {
	for _, n := range p.Notes {
		fmt.Fprintln(w, n)
	}
	if given == "" && isTerminalReader(in) {
		fmt.Fprintf(w, "If %s still runs, starting its service on %s destroys the file system.\nHave you seen that %s is off? Type its name to say so: ", node, p.To, node)
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			return fmt.Errorf("nothing was typed, nothing was confirmed: %w", err)
		}
		given = strings.TrimSpace(line)
	}
	switch given {
	case node:
		return nil
	case "":
		return fmt.Errorf("nobody can be asked here: give --confirm %s once you have seen that it is off; nothing was confirmed", node)
	}
	return fmt.Errorf("%q is not the server's name, %q; nothing was confirmed", given, node)
}

// lifeTime bounds each look for a sign of life.
const lifeTime = 15 * time.Second

// signsOf looks for life in a server: its agent over SSH, ping of each of its
// addresses from its partner, and the power its BMC reports.
func signsOf(ctx context.Context, d *design.Design, c *observe.Collector, f observe.Facts, node string) failover.Signs {
	var s failover.Signs
	if f.Hosts[node].Host != nil {
		s.Life = append(s.Life, "it answers over SSH")
	}
	partner := ""
	for _, v := range d.Spec.Servers {
		if v.Name != node && f.Hosts[v.Name].Host != nil {
			partner = v.Name
		}
	}
	if partner == "" {
		s.Unknown = append(s.Unknown, "no other server answers that could ask for it")
		return s
	}
	ask := func(argv ...string) (out resource.Output, err error) {
		actx, cancel := context.WithTimeout(ctx, lifeTime)
		defer cancel()
		err = c.Call(actx, partner, "query", agent.QueryParams{Argv: argv}, &out)
		return out, err
	}
	for _, v := range d.Spec.Servers {
		if v.Name != node {
			continue
		}
		silent := []string{}
		for _, a := range []string{v.Address, v.Public, v.Private} {
			if a == "" {
				continue
			}
			// Source: ping(8): 0 if an answer came, 1 if none did
			out, err := ask("ping", "-n", "-q", "-c", "2", "-W", "2", a)
			switch {
			case err == nil && out.Code == 0:
				s.Life = append(s.Life, fmt.Sprintf("it answers ping at %s", a))
			case err == nil && out.Code == 1:
				silent = append(silent, a)
			default:
				s.Unknown = append(s.Unknown, fmt.Sprintf("%s could not ping %s", partner, a))
			}
		}
		if len(silent) > 0 {
			s.Off = append(s.Off, fmt.Sprintf("%s does not answer ping from %s at %s", node, partner, strings.Join(silent, ", ")))
		}
	}
	for _, l := range d.HA.Fencing {
		for _, dev := range l.Devices {
			argv := plan.PowerStatus(dev)
			if l.Node != node || argv == nil {
				continue
			}
			out, err := ask(argv...)
			// Source: the fence agents' API: status is 0 for on, 2 for off
			switch {
			case err == nil && out.Code == 0:
				s.Life = append(s.Life, "its BMC says that its power is on")
			case err == nil && out.Code == 2:
				s.Off = append(s.Off, fmt.Sprintf("the BMC of %s says that its power is off", node))
			default:
				s.Unknown = append(s.Unknown, fmt.Sprintf("the BMC of %s does not answer %s: it cannot say whether the power is off", node, partner))
			}
		}
	}
	return s
}
