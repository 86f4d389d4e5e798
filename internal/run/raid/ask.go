package raid

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// smcliTime bounds SMcli, a Java program that asks both controllers.
const smcliTime = 60 * time.Second

// Ask asks an array from this machine. A PERC answers only on its server; an MD3 can
// answer there if this machine has no SMcli: see PERC and SMcli. secret reads a file
// of the spec.
func Ask(ctx context.Context, a *design.Array, s *spec.Array, secret func(file string) ([]byte, error), dial Dial) Answer {
	switch a.Family {
	case "me4", "me5":
		return askME4(ctx, s, secret, dial)
	case "md3":
		return askMD3(ctx, s)
	case "eseries":
		return Answer{NotAsked: "SMcli takes its password among its arguments, where each user of the machine reads it", Mend: "look at SANtricity System Manager"}
	}
	return Answer{NotAsked: "it is asked on its server"}
}

func askME4(ctx context.Context, s *spec.Array, secret func(file string) ([]byte, error), dial Dial) Answer {
	switch {
	case len(s.Management) == 0:
		return Answer{NotAsked: "the spec has no address of its management", Mend: "write those of its controllers into arrays.management"}
	case s.PasswordFile == "":
		return Answer{NotAsked: "the spec has no user and password of its management", Mend: "give it a user of role monitor (`create user interfaces wbi roles monitor NAME`), and the spec arrays.user and arrays.password_file"}
	}
	password, err := secret(s.PasswordFile)
	if err != nil {
		return Answer{NotAsked: err.Error()}
	}
	m := &ME4{Addresses: s.Management, Certificates: s.Certificates, User: s.User, Password: strings.TrimRight(string(password), "\r\n"), Dial: dial}
	h, err := m.Ask(ctx)
	switch prints := unpinned(err); {
	case err == nil:
		return Answer{Health: h}
	case len(prints) > 0:
		return Answer{NotAsked: err.Error(), Mend: fmt.Sprintf("compare with what the controllers show at their own console or in their web pages, then write into the spec: certificates: [%s]; one that changed without a reason may be of another machine", strings.Join(prints, ", "))}
	}
	return Answer{Err: err.Error()}
}

// unpinned returns the fingerprints in the errors of several controllers, in quotes.
func unpinned(err error) []string {
	var out []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if u := (*UnpinnedError)(nil); errors.As(e, &u) {
				out = append(out, fmt.Sprintf("%q", u.Fingerprint))
			}
		}
	}
	return out
}

func askMD3(ctx context.Context, s *spec.Array) Answer {
	if len(s.Management) == 0 {
		return Answer{NotAsked: "the spec has no address of its management", Mend: "write those of its controllers into arrays.management"}
	}
	argv := SMcli(s.Management)
	if _, err := exec.LookPath(argv[0]); err != nil {
		return Answer{NotAsked: "SMcli is not installed on this machine", Mend: "install Dell's MD Storage Manager (SMcli) here or on a server of the brick"}
	}
	c := command.Cmd{Argv: argv, Timeout: smcliTime}
	out, err := c.Run(ctx)
	if err != nil {
		return Answer{Err: err.Error()}
	}
	a := FromSMcli(out.Stdout, out.Stderr, "this machine")
	if a.Health != nil {
		a.Health.Raw = map[string]string{strings.Join(argv, " "): out.Stdout}
	}
	return a
}

// FromSMcli is the answer in SMcli's output on a host.
func FromSMcli(stdout, stderr, host string) Answer {
	h := ParseSMcli(stdout)
	if h == nil {
		return Answer{Err: "SMcli on " + host + ": " + strings.Join(strings.Fields(stdout+" "+stderr), " ")}
	}
	h.How = "SMcli on " + host
	return Answer{Health: h}
}
