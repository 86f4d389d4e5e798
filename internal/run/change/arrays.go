package change

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Scripts are what configures RAID arrays.
type Scripts struct {
	Dir, Tool string
	Growth    int // 0: everything
}

// Print prints the script of the array that is named or the only one, or writes those of all arrays
// into a directory.
func (x Scripts) Print(c *cli.Console, file string, named []string) error {
	d, err := cli.LoadAny(file)
	if err != nil {
		return err
	}
	names := lists.Map(d.Arrays, func(a design.Array) string { return a.Name })
	switch {
	case len(named) > 0:
		names = named
	case len(names) == 0:
		return noArray(file)
	case len(names) > 1 && x.Dir == "":
		return cli.Fail(cli.BadInput, fmt.Errorf("which array? Name one of %s, or write all into a directory with --dir", strings.Join(names, ", ")))
	}
	scripts, err := x.of(d, names)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	if x.Dir == "" {
		_, err := io.WriteString(c.Out, scripts[0])
		return err
	}
	return x.write(c.Out, d, names, scripts)
}

func noArray(file string) error {
	return cli.Fail(cli.BadInput, fmt.Errorf("%s: this brick has no array: its disks are JBODs (storage.kind)", file))
}

func (x Scripts) of(d *design.Design, names []string) (scripts []string, err error) {
	for _, n := range names {
		s, err := array.Script(d, n, x.Tool, x.Growth)
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, s)
	}
	return scripts, nil
}

// write writes the script of each array to its own file and refuses to overwrite one.
func (x Scripts) write(w io.Writer, d *design.Design, names, scripts []string) error {
	if err := os.MkdirAll(x.Dir, 0o755); err != nil {
		return err
	}
	for i, n := range names {
		ext := x.Tool
		for _, a := range d.Arrays {
			if a.Name == n && ext == "" {
				ext = array.Tools(&a)[0]
			}
		}
		file := filepath.Join(x.Dir, n+"."+strings.ToLower(ext))
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			return cli.Fail(cli.BadInput, fmt.Errorf("%s is there already; remove it or choose another --dir", file))
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(scripts[i])
		if err = errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, os.Remove(file))
		}
		fmt.Fprintln(w, file)
	}
	return nil
}

// VerifyLUNs compares what the servers that are cabled to an array see with the design. With write
// it puts the WWNs that it finds into the spec.
func VerifyLUNs(ctx context.Context, c *cli.Console, file string, write bool) error {
	d, err := cli.LoadAny(file)
	if err == nil && len(d.Arrays) == 0 {
		err = noArray(file)
	}
	if err != nil {
		return err
	}
	r, err := lookAtLUNs(ctx, c, d)
	if err != nil {
		return err
	}
	if err := c.Show(r, func(w io.Writer) error { return r.Text(w, d) }); err != nil {
		return err
	}
	if len(r.Findings) > 0 {
		return cli.Fail(cli.Failed, nil)
	}
	if !write {
		return nil
	}
	for _, id := range r.Identities {
		s, err := cli.ReadSpec(file) // the previous array changed the file
		if err != nil {
			return err
		}
		text, err := s.SetWWNs(id.Array, id.WWNs)
		if err != nil {
			return cli.Fail(cli.BadInput, err)
		}
		if err := renameio.WriteFile(file, text, 0o644, renameio.WithExistingPermissions()); err != nil {
			return err
		}
		fmt.Fprintf(c.Err, "%s: array %s has its WWNs now\n", file, id.Array)
	}
	return nil
}

func lookAtLUNs(ctx context.Context, c *cli.Console, d *design.Design) (r array.Result, err error) {
	progress, done := cli.Connecting(c.Err, !c.JSON && cli.IsTerminal(c.Err))
	defer done()
	opts := c.Connect
	opts.Progress = progress
	dial, err := c.Dial(d, opts)
	if err != nil {
		return r, err
	}
	hosts, failed := host.All(ctx, lists.Distinct(lists.Flat(d.Arrays, func(a design.Array) []string { return a.Servers })), dial)
	defer host.CloseAll(hosts)
	if err = failed.Join(); err == nil {
		progress("", "looking at the LUNs")
		r, err = plan.VerifyLUNs(ctx, d, hosts)
	}
	if err != nil {
		return r, cli.Refused(ctx, d.Spec, err)
	}
	return r, nil
}
