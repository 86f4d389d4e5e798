// Package fence is Mortar's fence agent, and what Mortar says to the agents of
// the distribution. Pacemaker runs it on a server as fence_mortar; it runs the real
// agents of one other server, does not wait for one that is late before it uses the
// next, and says "off" only if an independent one of them has said so.
package fence

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Command is a fence agent that does action. The parameters go to its standard
// input, without those that are for Pacemaker: a secret among its arguments could be
// read by every user of the host.
//
// Source: fence-agents, lib/fencing.py, process_input and main
func Command(name, action string, params map[string]string) (command.Cmd, error) {
	if !strings.HasPrefix(name, "fence_") || strings.Contains(name, "/") {
		return command.Cmd{}, fmt.Errorf("%q is no fence agent", name)
	}
	stdin, err := Input(action, params)
	return command.Cmd{Argv: []string{name}, Stdin: stdin}, err
}

// Input is what a fence agent reads: one parameter in a line, without
// those that are for Pacemaker.
func Input(action string, params map[string]string) ([]byte, error) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := params[name]
		switch {
		case strings.HasPrefix(name, "pcmk_"):
			continue
		case name == "action" || name == "option" || strings.ContainsAny(name+value, "\n\r"):
			return nil, fmt.Errorf("parameter %s of a fence device cannot be passed to its agent", name)
		}
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	fmt.Fprintf(&b, "action=%s\n", action)
	return []byte(b.String()), nil
}

// Params finds a fence device in the cluster's configuration: its agent and parameters.
func Params(c *linux.CIB, id string) (name string, params map[string]string, err error) {
	for _, p := range c.Primitives {
		if p.ID != id || p.Class != "stonith" {
			continue
		}
		params = map[string]string{}
		for _, a := range p.Params {
			params[a.Name] = a.Value
		}
		return p.Type, params, nil
	}
	return "", nil, fmt.Errorf("fence device %s is not in the cluster's configuration", id)
}

// secret matches the parameters of Debian's agents that may have one.
var secret = regexp.MustCompile(`community|passw|token|secret|key`)

// Said is the first error that a fence agent reports, without parameters that
// may be secret.
func Said(stderr string, code int, params map[string]string) string {
	text := strings.Join(strings.Fields(stderr), " ")
	for line := range strings.Lines(stderr) {
		if _, said, ok := strings.Cut(line, "ERROR: "); ok {
			text = strings.TrimSpace(said)
			break
		}
	}
	for name, v := range params {
		if v != "" && secret.MatchString(name) && !strings.HasSuffix(name, "_script") {
			text = strings.ReplaceAll(text, v, "…")
		}
	}
	if text == "" {
		text = fmt.Sprintf("exit code %d", code)
	}
	return text
}
