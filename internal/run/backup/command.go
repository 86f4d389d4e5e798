package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/drift"
	"github.com/mortarhpc/mortar/internal/run/events"
	"github.com/mortarhpc/mortar/internal/run/hardware"
)

// Command writes an archive of a brick: mortar backup and mortar report-bug.
type Command struct {
	Out     string // "": a file here, by brick and time
	Since   string // of report-bug; see events.PointInTime
	Timeout time.Duration
}

// Backup writes a backup of the brick of a file.
func (x Command) Backup(ctx context.Context, c *cli.Console, file string) error {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return err
	}
	now := time.Now()
	if err := x.begin(s.Name, now); err != nil {
		return err
	}
	d, hosts, err := c.OpenServers(file, x.Timeout)
	if err != nil {
		return err
	}
	defer hosts.Close()
	b := Local(s, c.Version, now)
	b.Servers(ctx, d, hosts.Session)
	return x.end(ctx, c, b, "passwords among them")
}

// ReportBug writes the archive of a bug report.
func (x Command) ReportBug(ctx context.Context, c *cli.Console, file string) error {
	now := time.Now()
	from, err := events.PointInTime(x.Since, now)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	b, err := c.Observe(file, "", x.Timeout, nil)
	if err != nil {
		return err
	}
	defer b.Hosts.Close()
	s := b.Design.Spec
	if err := x.begin(s.Name+"-bug", now); err != nil {
		return err
	}
	fmt.Fprintln(c.Err, "asking the hosts for their state and hardware, up to a minute")
	b.Hosts.AskHardware(hardware.New())
	b.Hosts.AskOutlets()
	e := evidence{Hosts: append(b.Design.Servers(), s.ClientNames()...), Since: from}
	if e.Status, err = b.Look(ctx).JSON(true); err != nil {
		return err
	}
	if e.Facts, err = json.MarshalIndent(b.Facts, "", " "); err != nil {
		return err
	}
	fmt.Fprintln(c.Err, "reading the journals")
	history := events.Read(ctx, []events.Brick{{Design: b.Design, Hosts: b.Hosts.Session}}, events.Window{Since: from, All: true}, x.Timeout, func([]string) {})
	var lines bytes.Buffer
	if err := history.JSON(cli.JSONLines(&lines)); err != nil {
		return err
	}
	e.Events = lines.Bytes()
	r, err := bugReport(ctx, s, e, b.Hosts.Session, plan.Secrets(s, false), c.Version, now)
	if err != nil && ctx.Err() == nil {
		return cli.Fail(cli.BadInput, err)
	}
	return x.end(ctx, c, r, "without secrets; names, addresses and serial numbers are in it")
}

// begin names the file of an archive, which must not exist.
func (x *Command) begin(name string, now time.Time) error {
	x.Out = cmp.Or(x.Out, fmt.Sprintf("%s-%s.tar.gz", name, now.Format("20060102-150405")))
	if _, err := os.Lstat(x.Out); err == nil {
		return cli.Fail(cli.BadInput, fmt.Errorf("%s is there already; name another file with --out", x.Out))
	}
	return nil
}

// end writes an archive, unless it was interrupted, and says what it holds and lacks.
func (x Command) end(ctx context.Context, c *cli.Console, b *Backup, note string) error {
	if ctx.Err() != nil {
		return cli.Fail(cli.Interrupted, errors.New("interrupted; nothing was written"))
	}
	if err := b.Save(x.Out); err != nil {
		return err
	}
	if err := c.Line(b.Manifest, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s holds %d files of brick %s, %s\n", x.Out, len(b.Files), b.Brick, note)
		return err
	}); err != nil {
		return err
	}
	if len(b.Missing) > 0 {
		return cli.Fail(cli.Failed, fmt.Errorf("not everything could be read: %s", strings.Join(b.Missing, "; ")))
	}
	return nil
}

// Restore writes the files of a backup into dir; "": one with the brick's name.
func Restore(c *cli.Console, from, dir string) error {
	b, err := Load(from)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	dir = cmp.Or(dir, b.Brick)
	file, err := b.Restore(dir)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	return c.Line(struct {
		Spec      string   `json:"spec"`
		Elsewhere []string `json:"elsewhere"`
	}{file, append([]string{}, b.Elsewhere()...)}, func(w io.Writer) error {
		fmt.Fprintf(w, "%s is brick %s as of %s; look at it with mortar plan %s\n", dir, b.Brick, b.Time.Format("2006-01-02 15:04"), file)
		for _, e := range b.Elsewhere() {
			fmt.Fprintf(w, "copy %s to %s, where the spec has it\n", filepath.Join(dir, "absolute", e), e)
		}
		return nil
	})
}

// Rehearse compares the hosts with a backup, and leaves nothing behind. It does what Demands lists
// only if a person vouches for the backup.
func Rehearse(ctx context.Context, c *cli.Console, from string, vouch bool) error {
	b, err := Load(from)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	tmp, err := os.MkdirTemp("", "mortar-restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file, err := b.Restore(tmp)
	if err != nil {
		return err
	}
	d, err := cli.Load(file)
	if err != nil {
		return err
	}
	if demands := Demands(d.Spec); len(demands) > 0 && !vouch {
		return cli.Fail(cli.BadInput, fmt.Errorf("%s: its spec has this machine %s; nothing was run and no host was asked; look at %s/brick.yaml in it (tar -xzOf), and give --vouch if you know where the backup comes from",
			from, strings.Join(demands, ", "), b.Brick))
	}
	r, err := drift.Of(ctx, d, c.Preparing())
	if err != nil {
		return cli.Refused(ctx, d.Spec, err)
	}
	if err := c.Line(r, func(w io.Writer) error {
		if len(r.Pending) == 0 {
			fmt.Fprintf(w, "%d resources are as the backup has them: it could be restored\n", r.Resources)
		}
		return nil
	}); err != nil {
		return err
	}
	if n := len(r.Pending); n > 0 {
		return cli.Fail(cli.Failed, fmt.Errorf("%d of %d resources are not as the backup has them: %s; make a new backup, or see mortar plan", n, r.Resources, strings.Join(r.Pending, "; ")))
	}
	return nil
}
