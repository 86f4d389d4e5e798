package clientconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Run prints how clients mount a brick, or writes the tree of a format into the directory out.
func Run(ctx context.Context, c *cli.Console, d *design.Design, client, format, out string) error {
	if text := format == "text" || format == "fstab"; text || c.JSON {
		docs, err := d.MountLines(client)
		switch {
		case err != nil:
			return cli.Fail(cli.BadInput, err)
		case out != "" || !text:
			return cli.Fail(cli.BadInput, errors.New("--out is for the trees of dir, warewulf and ansible, and --json for none of them"))
		}
		return c.Show(docs, func(w io.Writer) error { return printMounts(w, docs, format == "fstab") })
	}
	tree, err := Tree(ctx, d, client, format)
	if err == nil && out == "" {
		err = errors.New("a file tree needs a directory: give --out")
	}
	if err == nil {
		err = Write(out, tree)
	}
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	c.Printf("%s has %d files; README says what to do with them\n", out, len(tree))
	return nil
}

func printMounts(w io.Writer, docs []design.MountLine, fstab bool) error {
	var b strings.Builder
	told := map[string]bool{}
	var reasons []design.MountOption
	var clients []string
	of, alike := map[string][]design.MountLine{}, map[string][]string{}
	for _, m := range docs {
		if of[m.Client] == nil {
			clients = append(clients, m.Client)
		}
		of[m.Client] = append(of[m.Client], m)
	}
	key := func(client string) (all string) {
		for _, m := range of[client] {
			all += m.Fstab + "\n"
		}
		return all
	}
	for _, name := range clients {
		alike[key(name)] = append(alike[key(name)], name)
	}
	for i, name := range clients {
		same := alike[key(name)]
		if same[0] != name {
			continue // told with the first of them
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "# %s\n", cmp.Or(strings.Join(spec.Ranges(same), " "), "any client"))
		for _, m := range of[name] {
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
