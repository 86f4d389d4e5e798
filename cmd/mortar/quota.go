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
	cmd := group("quota", newQuotaShowCmd(&service), newQuotaSetCmd(&service), newQuotaProjectCmd(&service))
	cmd.PersistentFlags().StringVar(&service, "service", "", "of one service; default: the only one, or all")
	return cmd
}

func newQuotaShowCmd(service *string) *cobra.Command {
	var asJSON bool
	cmd := command("show", func(cmd *cobra.Command, args []string) error {
		return withQuota(cmd.Context(), args[0], *service, func(ctx context.Context, on []quota.Served) error {
			return showQuotas(ctx, cmd.OutOrStdout(), on, asJSON)
		})
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a list with one entry for each user, group and project")
	return cmd
}

func newQuotaSetCmd(service *string) *cobra.Command {
	var space, softSpace string
	var files, softFiles int64
	var opts quotaOptions
	cmd := command("set", func(cmd *cobra.Command, args []string) error {
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
	})
	cmd.Flags().StringVar(&space, "space", "", "hard limit of space, e.g. 2TiB; 0: none")
	cmd.Flags().StringVar(&softSpace, "soft-space", "", "soft limit of space")
	cmd.Flags().Int64Var(&files, "files", 0, "hard limit of files; 0: none")
	cmd.Flags().Int64Var(&softFiles, "soft-files", 0, "soft limit of files")
	opts.flags(cmd)
	return cmd
}

func newQuotaProjectCmd(service *string) *cobra.Command {
	var opts quotaOptions
	cmd := command("project", func(cmd *cobra.Command, args []string) error {
		return changeQuota(cmd, args[0], *service, "project", opts, func(s *design.Service) (resource.Action, error) {
			return quota.Project(s, args[1], args[2])
		})
	})
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
