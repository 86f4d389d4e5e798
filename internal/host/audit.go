package host

import (
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// By says who runs this program and which command of it, for the log of the
// hosts that it changes: "alice@ws (mortar apply)". Arguments are left out.
var By = sync.OnceValue(func() string {
	who := os.Getenv("SUDO_USER")
	if u, err := user.Current(); who == "" && err == nil {
		who = u.Username
	}
	where, err := os.Hostname()
	if err != nil {
		where = "unknown"
	}
	return who + "@" + where + " (" + commandOf(os.Args) + ")"
})

var plainWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

// commandOf is the name of a program with its subcommands: the words up to the
// first flag or file.
func commandOf(args []string) string {
	words := []string{filepath.Base(args[0])}
	for _, a := range args[1:] {
		if !plainWord.MatchString(a) || len(words) == 3 {
			break
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
