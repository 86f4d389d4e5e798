package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/quota"
)

func newQuotaCmd() *cobra.Command {
	var service string
	cmd := group("quota", newQuotaShowCmd(&service), newQuotaSetCmd(&service), newQuotaProjectCmd(&service))
	cmd.PersistentFlags().StringVar(&service, "service", "", "of one service; default: the only one, or all")
	return cmd
}

func newQuotaShowCmd(service *string) *cobra.Command {
	cmd := command("show", func(ctx context.Context, c *cli.Console, args []string) error {
		return quota.Show(ctx, c, args[0], *service)
	})
	cmd.Flags().Bool("json", false, "print a list with one entry for each user, group and project")
	return cmd
}

func newQuotaSetCmd(service *string) *cobra.Command {
	var space, softSpace string
	var files, softFiles int64
	var given *pflag.FlagSet
	cmd := command("set", func(ctx context.Context, c *cli.Console, args []string) error {
		w := quota.Wanted{Kind: args[1], ID: args[2]}
		for flag, v := range map[string]struct {
			text string
			to   **int64
		}{"space": {space, &w.SpaceHard}, "soft-space": {softSpace, &w.SpaceSoft}} {
			if !given.Changed(flag) {
				continue
			}
			n, err := spaceOf(v.text)
			if err != nil {
				return cli.Refuse(fmt.Errorf("--%s: %w", flag, err))
			}
			*v.to = &n
		}
		if given.Changed("files") {
			w.FilesHard = &files
		}
		if given.Changed("soft-files") {
			w.FilesSoft = &softFiles
		}
		if files < 0 || softFiles < 0 {
			return cli.Refuse(errors.New("a limit of files is 0 or more"))
		}
		return quota.Change(ctx, c, args[0], *service, w.Kind, w.Set)
	})
	given = quotaFlags(cmd)
	given.StringVar(&space, "space", "", "hard limit of space, e.g. 2TiB; 0: none")
	given.StringVar(&softSpace, "soft-space", "", "soft limit of space")
	given.Int64Var(&files, "files", 0, "hard limit of files; 0: none")
	given.Int64Var(&softFiles, "soft-files", 0, "soft limit of files")
	return cmd
}

func newQuotaProjectCmd(service *string) *cobra.Command {
	cmd := command("project", func(ctx context.Context, c *cli.Console, args []string) error {
		return quota.Change(ctx, c, args[0], *service, "project", func(s *design.Service) (resource.Action, error) {
			return quota.Project(s, args[1], args[2])
		})
	})
	quotaFlags(cmd)
	return cmd
}

// quotaFlags adds the flags of the commands that change quotas.
func quotaFlags(cmd *cobra.Command) *pflag.FlagSet {
	cmd.Flags().Bool("dry-run", false, "only print the command")
	cmd.Flags().Bool("json", false, "print what was done as JSON")
	return cmd.Flags()
}

// spaceOf parses a size; 0 needs no unit.
func spaceOf(text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	b, err := spec.ParseBytes(text)
	return int64(b), err
}
