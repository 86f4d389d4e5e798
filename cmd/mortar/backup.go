package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/backup"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/drift"
)

func newBackupCmd() *cobra.Command {
	var out string
	var timeout time.Duration
	cmd := command("backup", func(ctx context.Context, c *cli.Console, args []string) error {
		s, err := cli.ReadSpec(args[0])
		if err != nil {
			return err
		}
		now := time.Now()
		if out == "" {
			out = fmt.Sprintf("%s-%s.tar.gz", s.Name, now.Format("20060102-150405"))
		}
		if _, err := os.Lstat(out); err == nil {
			return fail(exitBadInput, fmt.Errorf("%s is there already; name another file with --out", out))
		}
		d, hosts, err := c.OpenServers(args[0], timeout)
		if err != nil {
			return err
		}
		defer hosts.Close()
		b := backup.Local(s, version, now)
		b.Servers(ctx, d, hosts.Session)
		if ctx.Err() != nil {
			return fail(exitInterrupted, errors.New("interrupted; nothing was written"))
		}
		if err := b.Save(out); err != nil {
			return err
		}
		if err := c.Line(b.Manifest, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s holds %d files of brick %s, passwords among them\n", out, len(b.Files), b.Brick)
			return err
		}); err != nil {
			return err
		}
		if len(b.Missing) > 0 {
			return fail(exitFailed, fmt.Errorf("not everything could be read: %s", strings.Join(b.Missing, "; ")))
		}
		return nil
	})
	cmd.Flags().StringVar(&out, "out", "", "file to write; default: BRICK-DATE-TIME.tar.gz here")
	cmd.Flags().Bool("json", false, "print the list of what it holds as JSON")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
}

func newRestoreCmd() *cobra.Command {
	var rehearse, vouch bool
	cmd := command("restore", func(ctx context.Context, c *cli.Console, args []string) error {
		if vouch && !rehearse {
			return fail(exitBadInput, errors.New("--vouch is for --rehearse: restore itself runs nothing"))
		}
		if rehearse && len(args) > 1 {
			return fail(exitBadInput, errors.New("a rehearsal leaves nothing behind: leave DIR out"))
		}
		b, err := backup.Load(args[0])
		if err != nil {
			return fail(exitBadInput, err)
		}
		if rehearse {
			return rehearseRestore(ctx, c, args[0], b, vouch)
		}
		dir := b.Brick
		if len(args) > 1 {
			dir = args[1]
		}
		file, err := b.Restore(dir)
		if err != nil {
			return fail(exitBadInput, err)
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
	})
	cmd.Flags().BoolVar(&rehearse, "rehearse", false, "compare the hosts with the backup, and leave nothing behind")
	cmd.Flags().BoolVar(&vouch, "vouch", false, "with --rehearse: run the backup's password_command, and read the files of this machine that its spec names")
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func rehearseRestore(ctx context.Context, c *cli.Console, from string, b *backup.Backup, vouch bool) error {
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
	if demands := backup.Demands(d.Spec); len(demands) > 0 && !vouch {
		return fail(exitBadInput, fmt.Errorf("%s: its spec has this machine %s; nothing was run and no host was asked; look at %s/brick.yaml in it (tar -xzOf), and give --vouch if you know where the backup comes from",
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
		return fail(exitFailed, fmt.Errorf("%d of %d resources are not as the backup has them: %s; make a new backup, or see mortar plan", n, r.Resources, strings.Join(r.Pending, "; ")))
	}
	return nil
}
