package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/backup"
	"github.com/mortarhpc/mortar/internal/run/drift"
)

func newBackupCmd() *cobra.Command {
	var out string
	var asJSON bool
	var timeout time.Duration
	cmd := command("backup", func(cmd *cobra.Command, args []string) error {
		s, err := readSpec(args[0])
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
		d, c, err := openServers(args[0], timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		b := backup.Local(s, version, now)
		b.Servers(cmd.Context(), d, c.Session)
		if cmd.Context().Err() != nil {
			return fail(exitInterrupted, errors.New("interrupted; nothing was written"))
		}
		if err := writeBackup(out, b); err != nil {
			return err
		}
		if asJSON {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(b.Manifest); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(cmd.OutOrStdout(), "%s holds %d files of brick %s, passwords among them\n", out, len(b.Files), b.Brick)
		}
		if len(b.Missing) > 0 {
			return fail(exitFailed, fmt.Errorf("not everything could be read: %s", strings.Join(b.Missing, "; ")))
		}
		return nil
	})
	cmd.Flags().StringVar(&out, "out", "", "file to write; default: BRICK-DATE-TIME.tar.gz here")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list of what it holds as JSON")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long any host may take to answer")
	return cmd
}

// writeBackup writes a file atomically, readable by its owner alone.
func writeBackup(file string, b *backup.Backup) error {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o600), renameio.WithTempDir(filepath.Dir(file)))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // removes the temporary file if the rename did not happen
	if err := b.Write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

func newRestoreCmd() *cobra.Command {
	var rehearse, vouch, asJSON bool
	cmd := command("restore", func(cmd *cobra.Command, args []string) error {
		if vouch && !rehearse {
			return fail(exitBadInput, errors.New("--vouch is for --rehearse: restore itself runs nothing"))
		}
		if rehearse && len(args) > 1 {
			return fail(exitBadInput, errors.New("a rehearsal leaves nothing behind: leave DIR out"))
		}
		b, err := readBackup(args[0])
		if err != nil {
			return err
		}
		if rehearse {
			return rehearseRestore(cmd, b, vouch, asJSON)
		}
		dir := b.Brick
		if len(args) > 1 {
			dir = args[1]
		}
		file, err := b.Restore(dir)
		if err != nil {
			return fail(exitBadInput, err)
		}
		w := cmd.OutOrStdout()
		if asJSON {
			return json.NewEncoder(w).Encode(struct {
				Spec      string   `json:"spec"`
				Elsewhere []string `json:"elsewhere"`
			}{file, append([]string{}, b.Elsewhere()...)})
		}
		fmt.Fprintf(w, "%s is brick %s as of %s; look at it with mortar plan %s\n", dir, b.Brick, b.Time.Format("2006-01-02 15:04"), file)
		for _, e := range b.Elsewhere() {
			fmt.Fprintf(w, "copy %s to %s, where the spec has it\n", filepath.Join(dir, "absolute", e), e)
		}
		return nil
	})
	cmd.Flags().BoolVar(&rehearse, "rehearse", false, "compare the hosts with the backup, and leave nothing behind")
	cmd.Flags().BoolVar(&vouch, "vouch", false, "with --rehearse: run the backup's password_command, and read the files of this machine that its spec names")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func readBackup(file string) (*backup.Backup, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	defer f.Close()
	b, err := backup.Read(f)
	if err != nil {
		return nil, fail(exitBadInput, fmt.Errorf("%s: %w", file, err))
	}
	return b, nil
}

func rehearseRestore(cmd *cobra.Command, b *backup.Backup, vouch, asJSON bool) error {
	tmp, err := os.MkdirTemp("", "mortar-restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file, err := b.Restore(tmp)
	if err != nil {
		return err
	}
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	if demands := backup.Demands(d.Spec); len(demands) > 0 && !vouch {
		return fail(exitBadInput, fmt.Errorf("%s: its spec has this machine %s; nothing was run and no host was asked; look at %s/brick.yaml in it (tar -xzOf), and give --vouch if you know where the backup comes from",
			cmd.Flags().Arg(0), strings.Join(demands, ", "), b.Brick))
	}
	r, err := drift.Of(cmd.Context(), d, preparing(false, func(string, string) {}))
	if err != nil {
		return refused(cmd.Context(), d.Spec, err)
	}
	if asJSON {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(r)
	} else if len(r.Pending) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d resources are as the backup has them: it could be restored\n", r.Resources)
	}
	if err != nil {
		return err
	}
	if n := len(r.Pending); n > 0 {
		return fail(exitFailed, fmt.Errorf("%d of %d resources are not as the backup has them: %s; make a new backup, or see mortar plan", n, r.Resources, strings.Join(r.Pending, "; ")))
	}
	return nil
}
