// Command mortar turns commodity servers and disks into HPC storage and proves that it holds.
// This package has flags, help, exit codes and output. Everything else lives in internal/.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/release"
	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/serve/fence"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Exit codes.
const (
	exitFailed      = cli.Failed
	exitBadInput    = cli.BadInput
	exitPending     = cli.Pending
	exitInterrupted = cli.Interrupted
)

// fail returns an error that ends the program with code. A nil err prints nothing.
func fail(code int, err error) error { return cli.Fail(code, err) }

// env is what all commands share.
var env = &cli.Env{Version: release.Version(version), Connect: host.Options{KeepAlive: 5 * time.Second, Missed: 6}, Virtual: virtualRack}

func init() { env.Call = runCommand } // not above, because its commands use env

// consoleOf is the console of a run of a command.
func consoleOf(cmd *cobra.Command) *cli.Console {
	given := func(flag string) bool {
		on, err := cmd.Flags().GetBool(flag)
		return err == nil && on
	}
	return &cli.Console{Env: env, In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
		JSON: given("json"), Yes: given("yes"), DryRun: given("dry-run"), Start: time.Now(), Left: host.Errors{}}
}

// profileFlag adds --profile to a command.
func profileFlag(cmd *cobra.Command, profile *string) {
	cmd.Flags().StringVar(profile, "profile", "", "tuned or stock, in place of the spec's profile")
}

// Everything that a command prints goes through these, JSON too: they show what a terminal would
// obey as an escape.
var stdout, stderr = screen.To(os.Stdout), screen.To(os.Stderr)

func main() { os.Exit(run()) }

func run() int {
	switch filepath.Base(os.Args[0]) { // names in /usr/lib/ocf/resource.d/mortar
	case "service":
		return ocfMain(os.Args[1:], ocf.Main)
	case "watch":
		return ocfMain(os.Args[1:], ocf.WatchMain)
	}
	if len(os.Args) > 1 && os.Args[1] == fence.Word {
		return ocfMain(os.Args[2:], func(ctx context.Context, args []string, _ func(string) string, out, errs io.Writer) int {
			return fence.Main(ctx, args, os.Stdin, out, errs)
		})
	}
	ctx, stop := cli.Interruptible(context.Background())
	defer stop()
	var ee *cli.Exit
	if errors.As(runCommand(ctx, os.Stdin, stdout, stderr, os.Args[1:]...), &ee) {
		return ee.Code
	}
	return 0
}

// runCommand runs a command in this process, and prints its error, a *cli.Exit. Commands that
// consist of others use it too, as cli.Env.Call.
func runCommand(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) error {
	root := newRootCmd()
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := execute(ctx, root, args)
	if err == nil {
		return nil
	}
	var ee *cli.Exit
	if !errors.As(err, &ee) {
		ee = &cli.Exit{Code: exitFailed, Err: err} // execute returns only cli.Exits
	}
	ee.Print(errs, cli.WantsJSON(args))
	return ee
}

// extraCommands are the commands of a build tag. Source: man.go.
var extraCommands []*cobra.Command

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "mortar",
		Short:         "Turn commodity servers and disks into HPC storage, and prove that it holds",
		Version:       env.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("mortar {{.Version}}\n")
	root.AddCommand(commands()...)
	root.AddCommand(extraCommands...)
	root.InitDefaultCompletionCmd() // counts as a command of a group
	root.InitDefaultHelpCmd()
	describe(root)
	plainUsage(root)
	return root
}

// virtualRack reports whether the spec's hardware is a virtual rack that is up.
func virtualRack(ctx context.Context, s *spec.Spec) bool {
	_, err := rack.Status(ctx, rackOf(s))
	return err == nil
}

// rackOf returns the directory of a spec's virtual rack, if it has one.
func rackOf(s *spec.Spec) string { return filepath.Dir(host.InventoryFile(s)) }

// The linker sets version. Source: Makefile. A plain go build leaves it empty.
var version string

func newVersionCmd() *cobra.Command {
	c := command("version", func(ctx context.Context, c *cli.Console, _ []string) error {
		return c.Line(release.This(c.Version), func(w io.Writer) error {
			_, err := fmt.Fprintln(w, "mortar", c.Version)
			return err
		})
	})
	c.Flags().Bool("json", false, "print the version and the time of its commit as JSON")
	return c
}
