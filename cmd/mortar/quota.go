package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/quota"
)

func newQuotaCmd() *cobra.Command {
	var service string
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Show and set quotas of users, groups and projects",
	}
	cmd.PersistentFlags().StringVar(&service, "service", "", "of one service; default: the only one, or all")
	cmd.AddCommand(newQuotaShowCmd(&service), newQuotaSetCmd(&service), newQuotaProjectCmd(&service))
	return cmd
}

func newQuotaShowCmd(service *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show SPEC",
		Short: "Print the usage and limits of users, groups and projects",
		Long: `Asks the server that serves a file system, by xfs_quota. A file system counts a
kind if its mount option is in the spec: filesystem: {mount: [uquota, gquota, pquota]}.

XFS keeps quotas in the file system: they move with it, and are in no spec. A
limit counts at once, for NFS clients too: "Disk quota exceeded"; above that of a
project, "No space left on device".

Exit codes: 0 done, 1 failed.`,
		Example: `  mortar quota show brick.yaml
  mortar quota show brick.yaml --service home --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withQuota(cmd.Context(), args[0], *service, func(ctx context.Context, on []quota.Served) error {
				return showQuotas(ctx, cmd.OutOrStdout(), on, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a list with one entry for each user, group and project")
	return cmd
}

func newQuotaSetCmd(service *string) *cobra.Command {
	var space, softSpace string
	var files, softFiles int64
	var opts quotaOptions
	cmd := &cobra.Command{
		Use:   "set SPEC user|group|project ID",
		Short: "Set the limits of a user, a group or a project",
		Long: `Sets limits; those that are not given stay as they are, 0 takes one away. Above a
hard limit nothing is written; above a soft one only for a week.

Exit codes: 0 done, 1 failed, 2 refused (nothing was changed).`,
		Example: `  mortar quota set brick.yaml user anna --space 2TiB --soft-space 1800GiB
  mortar quota set brick.yaml project 42 --space 50TiB
  mortar quota set brick.yaml user anna --space 0`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := quota.Wanted{Kind: args[1], ID: args[2]}
			for flag, v := range map[string]struct {
				text string
				to   **int64
			}{"space": {space, &w.SpaceHard}, "soft-space": {softSpace, &w.SpaceSoft}} {
				if !cmd.Flags().Changed(flag) {
					continue
				}
				n, err := spaceOf(v.text)
				if err != nil {
					return refuseChange(fmt.Errorf("--%s: %w", flag, err))
				}
				*v.to = &n
			}
			if cmd.Flags().Changed("files") {
				w.FilesHard = &files
			}
			if cmd.Flags().Changed("soft-files") {
				w.FilesSoft = &softFiles
			}
			if files < 0 || softFiles < 0 {
				return refuseChange(errors.New("a limit of files is 0 or more"))
			}
			return changeQuota(cmd, args[0], *service, w.Kind, opts, w.Set)
		},
	}
	cmd.Flags().StringVar(&space, "space", "", "hard limit of space, e.g. 2TiB; 0: none")
	cmd.Flags().StringVar(&softSpace, "soft-space", "", "soft limit of space")
	cmd.Flags().Int64Var(&files, "files", 0, "hard limit of files; 0: none")
	cmd.Flags().Int64Var(&softFiles, "soft-files", 0, "soft limit of files")
	opts.flags(cmd)
	return cmd
}

func newQuotaProjectCmd(service *string) *cobra.Command {
	var opts quotaOptions
	cmd := &cobra.Command{
		Use:   "project SPEC NUMBER DIRECTORY",
		Short: "Assign a directory to a project, which counts everything in it",
		Long: `Gives a directory and all that is in it, now and later, the number of a project.
Its limits are set by mortar quota set SPEC project NUMBER. DIRECTORY is the path
on the server, below the service's mount point.

Exit codes: 0 done, 1 failed, 2 refused (nothing was changed).`,
		Example: `  mortar quota project brick.yaml 42 /srv/home/data/chem
  mortar quota set brick.yaml project 42 --space 50TiB`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeQuota(cmd, args[0], *service, "project", opts, func(s *design.Service) (resource.Action, error) {
				return quota.Project(s, args[1], args[2])
			})
		},
	}
	opts.flags(cmd)
	return cmd
}

// quotaOptions are the flags of the commands that change quotas.
type quotaOptions struct{ dryRun, asJSON bool }

func (o *quotaOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only print the command")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print what was done as JSON")
}

// quotaChange is what --json prints of a change of quotas.
type quotaChange struct {
	Service string   `json:"service"`
	Server  string   `json:"server"`
	Title   string   `json:"title"`
	Command []string `json:"command"`
	Changed bool     `json:"changed"`
	DryRun  bool     `json:"dry_run,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// spaceOf parses a size; 0 needs no unit.
func spaceOf(text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	b, err := spec.ParseBytes(text)
	return int64(b), err
}

// withQuota finds the server of each service of a brick, and calls do.
func withQuota(ctx context.Context, file, service string, do func(context.Context, []quota.Served) error) error {
	d, c, err := openServers(file, hostTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if d.Lustre != nil {
		return refuseChange(errors.New("quotas of Lustre are set by lfs setquota on a client"))
	}
	on, err := quota.On(ctx, d, service, c.Session)
	if refused := (*resource.Refusal)(nil); errors.As(err, &refused) {
		return refuseChange(err)
	}
	if err != nil {
		return err
	}
	return do(ctx, on)
}

// changeQuota runs an action on the server of the service that the flags choose.
func changeQuota(cmd *cobra.Command, file, service, kind string, opts quotaOptions, make func(*design.Service) (resource.Action, error)) error {
	return withQuota(cmd.Context(), file, service, func(ctx context.Context, on []quota.Served) error {
		if len(on) != 1 {
			return refuseChange(errors.New("there are two services: name one with --service"))
		}
		s := on[0]
		a, err := make(s.Service)
		if err == nil && !slices.Contains(s.Kinds, kind) {
			err = quota.Off(s.Service, kind)
		}
		if err != nil {
			return refuseChange(err)
		}
		out := cmd.OutOrStdout()
		if !opts.asJSON {
			fmt.Fprintf(out, "%s: %s\n  $ %s\n", s.Server, a.Title, plan.Quote(a.Cmd))
		}
		if !opts.dryRun {
			err = s.Run(ctx, a)
		}
		if opts.asJSON {
			c := quotaChange{Service: s.Name, Server: s.Server, Title: a.Title, Command: a.Cmd, Changed: !opts.dryRun && err == nil, DryRun: opts.dryRun}
			if err != nil {
				c.Error = err.Error()
			}
			if jerr := printJSON(out, c); jerr != nil {
				return jerr
			}
		}
		return err
	})
}

func showQuotas(ctx context.Context, out io.Writer, on []quota.Served, asJSON bool) error {
	all := []quota.Entry{}
	for _, s := range on {
		for _, k := range s.Kinds {
			es, err := quota.Report(ctx, s.Host, s.Service, k)
			if err != nil {
				return fail(exitFailed, fmt.Errorf("%s: %w", s.Server, err))
			}
			all = append(all, es...)
		}
		if len(s.Kinds) == 0 && !asJSON {
			fmt.Fprintln(out, quota.Off(s.Service, "user"))
		}
	}
	if asJSON {
		return jsonLines(out).Encode(all)
	}
	return quota.Table(out, all)
}
