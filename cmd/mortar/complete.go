package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// complete has a shell complete the arguments that a usage names, and flags that take such words.
func complete(c *cobra.Command, usage string) {
	if words := strings.Fields(usage); len(words) > 0 && len(c.ValidArgs) == 0 {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return candidates(c, strings.Trim(words[min(len(args), len(words)-1)], "[]."), args)
		}
	}
	for flag, word := range map[string]string{"how": "HOW", "drill": "DRILL", "service": "SERVICE", "client": "CLIENT", "profile": "tuned|stock", "only": "CHOICE", "skip": "CHOICE"} {
		if f := c.Flag(flag); f != nil && strings.HasPrefix(f.Value.Type(), "string") {
			_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				list, how := candidates(c, word, args)
				for i := range list { // behind the names that a list has already
					list[i] = typed[:strings.LastIndexByte(typed, ',')+1] + list[i]
				}
				return list, how
			}) // a flag of several commands is registered by the first
		}
	}
}

func candidates(c *cobra.Command, word string, args []string) ([]string, cobra.ShellCompDirective) {
	switch word {
	case "KIND", "TARGET":
		if word = rack.FaultWord(args[1:]); word == "KIND" {
			return rack.FaultWords(), cobra.ShellCompDirectiveNoFileComp
		}
	case "NODE":
		if c.Parent().Name() == "rack" {
			word = "HOST" // a client, too
		}
	}
	list, known := cli.Names(strings.Join(args[:min(len(args), 1)], ""), word)
	switch f := c.Flag("drill"); {
	case word == "SPEC":
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	case word == "DRILL":
		list, known = drill.Words(), true
	case word == "CHOICE":
		list, known = drill.ChoiceWords(), true
	case word == "HOW" && f != nil:
		list, known = drill.Hows(f.Value.String()), true
	case word == "HOW" && len(args) > 1:
		list, known = drill.Hows(args[1]), true
	case word == strings.ToLower(word) && strings.Contains(word, "|"):
		list, known = strings.Split(word, "|"), true
	}
	if !known {
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
