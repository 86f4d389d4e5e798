package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// execute runs the program. A wrong argument ends with exitBadInput and one line that says how
// to mend it. An error without an exit code is a failure, such as a full disk behind stdout.
func execute(ctx context.Context, root *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "drill" {
		if now := formerDrill(args[1:]); now != nil {
			args = append([]string{"drill"}, now...)
			fmt.Fprintf(root.ErrOrStderr(), "mortar: write this as mortar %s; this release still takes the former spelling\n", strings.Join(args, " "))
		}
	}
	if err := unknownCommand(root, args); err != nil {
		return fail(exitBadInput, err)
	}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var ee *cli.Exit
	if err != nil && !errors.As(err, &ee) {
		code := exitFailed
		if ctx.Err() != nil {
			code = exitInterrupted
		}
		err = fail(code, err)
	}
	return err
}

// helpText has a section for each command: its name and arguments, a line, the help, examples.
// A line such as @drill stands for the section of that name.
//
//go:embed help.txt
var helpText string

// describe gives the commands below root the texts of helpText, and those that do not check their
// arguments themselves the number that the usage names. Long of a command follows its help.
func describe(root *cobra.Command) {
	texts := map[string]string{}
	for _, section := range strings.Split("\n"+helpText, "\n# ")[1:] {
		head, text, _ := strings.Cut(section, "\n")
		if name, common := strings.CutPrefix(head, "@"); common {
			texts["@"+name] = strings.TrimSpace(text)
			continue
		}
		path, arguments, _ := strings.Cut(head, ": ")
		texts[path] = arguments + "\n" + strings.TrimRight(text, "\n")
	}
	var each func(*cobra.Command)
	each = func(group *cobra.Command) {
		for _, c := range group.Commands() {
			each(c)
			text, ok := texts[c.CommandPath()]
			if !ok {
				continue // made by cobra, or by a build tag
			}
			text, c.Example, _ = strings.Cut(text, "\n\nExamples:\n")
			arguments, text, _ := strings.Cut(text, "\n")
			c.Short, text, _ = strings.Cut(text, "\n\n")
			if i := strings.LastIndex(text, "@"); i >= 0 && texts[text[i:]] != "" {
				text = text[:i] + texts[text[i:]]
			}
			c.Long = strings.TrimRight(text+"\n"+c.Long, "\n")
			c.Use = strings.TrimSpace(c.Use + " " + arguments)
			complete(c, arguments)
			if c.Args == nil && c.Runnable() {
				c.Args = argumentsOf(arguments)
			}
		}
	}
	each(root)
}

// argumentsOf accepts the number of arguments that a usage names: [X] may be left out, X... may be
// repeated, and what begins with a flag is none.
func argumentsOf(usage string) cobra.PositionalArgs {
	least, most := 0, 0
	for _, w := range strings.Fields(usage) {
		if strings.HasPrefix(w, "--") {
			break
		}
		if most++; !strings.HasPrefix(w, "[") {
			least++
		}
		if strings.HasSuffix(w, "...") {
			most = math.MaxInt
		}
	}
	return cobra.RangeArgs(least, most)
}

// plainUsage replaces the errors of cobra and pflag by those of this file, for a command and
// those below it.
func plainUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return fail(exitBadInput, flagError(c, err)) })
	for _, c := range cmd.Commands() {
		plainUsage(c)
	}
	if accepts := cmd.Args; accepts != nil && cmd.Runnable() {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := accepts(c, args)
			var ee *cli.Exit
			if err == nil || errors.As(err, &ee) {
				return err
			}
			want := strings.TrimSuffix(strings.TrimPrefix(c.UseLine(), c.CommandPath()), " [flags]")
			if want = strings.TrimSpace(want); want == "" {
				want = "no argument"
			}
			got := "nothing"
			if len(args) > 0 {
				got = fmt.Sprintf("%q", args)
			}
			return fail(exitBadInput, fmt.Errorf("%s wants %s and got %s; %s", c.CommandPath(), want, got, helpOf(c)))
		}
	}
}

func helpOf(c *cobra.Command) string { return fmt.Sprintf("see %s --help", c.CommandPath()) }

// unknownCommand refuses an unknown word where a command belongs. cobra would print the
// group's help and exit 0.
func unknownCommand(root *cobra.Command, args []string) error {
	if !root.HasSubCommands() {
		return nil
	}
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		return nil // a shell's completion; cobra adds this command at run time
	}
	root.Args = cobra.ArbitraryArgs // otherwise Find fails with several lines
	group, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if group.Name() == "help" { // help WORD
		if group, rest, err = root.Find(rest); err != nil {
			return err
		}
	}
	if !group.HasSubCommands() || group.Runnable() && group != root || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil
	}
	names := commandsOf(group)
	mend := "use " + strings.Join(names, ", ")
	if near := spec.Nearest(rest[0], names); near != "" {
		mend = fmt.Sprintf("did you mean %q?", group.CommandPath()+" "+near)
	}
	return fmt.Errorf("unknown command %q for %q; %s", rest[0], group.CommandPath(), mend)
}

func commandsOf(group *cobra.Command) (names []string) {
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// flagError describes what is wrong with a flag.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var none *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("%s has no flag -%s; %s", c.CommandPath(), name, helpOf(c))
		}
		mend := helpOf(c)
		if c.HasParent() && c.HasSubCommands() {
			mend = "use " + strings.Join(commandsOf(c), ", ")
		}
		var flags []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				flags = append(flags, f.Name)
			}
		})
		if near := spec.Nearest(name, flags); near != "" {
			mend = fmt.Sprintf("did you mean --%s?", near)
		}
		return fmt.Errorf("%s has no flag --%s; %s", c.CommandPath(), name, mend)
	case errors.As(err, &none):
		f := none.GetFlag()
		return fmt.Errorf("--%s wants %s; %s", f.Name, wantOf(f), helpOf(c))
	case errors.As(err, &bad):
		f := bad.GetFlag()
		want := wantOf(f)
		switch cause := errors.Unwrap(bad); {
		case errors.Is(cause, strconv.ErrRange):
			want += ", not so large"
		case want == "a value": // the error of our own type names what it wants
			want = strings.TrimPrefix(cause.Error(), "want ")
		}
		return fmt.Errorf("--%s %s: want %s", f.Name, bad.GetValue(), want)
	}
	return fmt.Errorf("%w; %s", err, helpOf(c))
}

// wantOf describes a flag's value.
func wantOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "uint", "uint64":
		return "a whole number from 0"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return "a time with its unit, such as 90s or 2m"
	}
	return "a value"
}

// givenFlags are the flags that the user gave a command, for a child command: without those that
// have no meaning there.
func givenFlags(cmd *cobra.Command, without ...string) (out []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		v := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			v = strings.Join(list.GetSlice(), ",")
		}
		if !slices.Contains(append(without, "out", "json", "confirm"), f.Name) {
			out = append(out, "--"+f.Name+"="+v)
		}
	})
	return out
}
