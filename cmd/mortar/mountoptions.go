package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func newMountOptionsCmd() *cobra.Command {
	var (
		client string
		fstab  bool
	)
	cmd := command("mount-options", func(ctx context.Context, c *cli.Console, args []string) error {
		d, err := cli.LoadAny(args[0])
		if err != nil {
			return err
		}
		docs, err := d.MountLines(client)
		if err != nil {
			return fail(exitBadInput, err)
		}
		return c.Show(docs, func(w io.Writer) error { return printMounts(w, docs, fstab) })
	})
	f := cmd.Flags()
	f.StringVar(&client, "client", "", "only this client of the spec")
	f.BoolVar(&fstab, "fstab", false, "print lines for /etc/fstab, reasons as comments")
	f.Bool("json", false, "print JSON")
	return cmd
}

func printMounts(w io.Writer, docs []design.MountLine, fstab bool) error {
	var b strings.Builder
	told := map[string]bool{}
	var reasons []design.MountOption
	last := "\x00"
	for _, m := range docs {
		if m.Client != last {
			if last != "\x00" {
				b.WriteByte('\n')
			}
			last = m.Client
			who := m.Client
			if who == "" {
				who = "any client"
			}
			fmt.Fprintf(&b, "# %s\n", who)
		}
		if fstab {
			fmt.Fprintln(&b, m.Fstab)
		} else {
			fmt.Fprintf(&b, "%s\n%s\n", plan.Quote([]string{"mkdir", "-p", m.Path}), plan.Quote(m.Command))
		}
		for _, o := range m.Options {
			if told[o.Option] || !fstab && o.FstabOnly {
				continue
			}
			told[o.Option] = true
			reasons = append(reasons, o)
		}
	}
	fmt.Fprint(&b, "\n# why\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, o := range reasons {
		fmt.Fprintf(tw, "# %s\t%s (%s)\n", o.Option, o.Reason, o.Source)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
