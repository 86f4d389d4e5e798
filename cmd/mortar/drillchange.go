package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// drillCommands runs the commands of a drill's change, in this process.
type drillCommands struct {
	file string
	say  func(text string)
	// changed gets the design of a spec that a command may have changed.
	changed func(*design.Design)
}

// run runs a command on the spec: name and args are those of drill.Operator.Command.
func (c *drillCommands) run(ctx context.Context, name string, args ...string) (*design.Design, error) {
	var out bytes.Buffer
	root := newRootCmd()
	root.SetIn(strings.NewReader(""))
	root.SetOut(io.MultiWriter(&out, &progressWriter{say: c.say}))
	root.SetErr(io.Discard)
	err := execute(cli.Claimed(ctx), root, append(append(strings.Fields(name), c.file), args...))
	var ee *cli.Exit
	if errors.As(err, &ee) && ee.Code == exitPending {
		err = fmt.Errorf("it would change %s", pendingOf(out.Bytes()))
	}
	d, bad := cli.Load(c.file)
	if bad != nil {
		return nil, errors.Join(err, bad)
	}
	c.changed(d)
	return d, err
}

// pendingOf names the steps of a plan in JSON.
func pendingOf(text []byte) string {
	var doc plan.Doc
	if err := json.Unmarshal(text, &doc); err != nil {
		return "something: " + err.Error()
	}
	var steps []string
	for _, h := range doc.Hosts {
		for _, x := range h.Changes {
			steps = append(steps, h.Host+": "+x.Step)
		}
	}
	return strings.Join(steps, ", ")
}

// progressWriter reads the events of --json and says those that a person waits for.
type progressWriter struct {
	say  func(text string)
	line []byte
}

func (n *progressWriter) Write(b []byte) (int, error) {
	n.line = append(n.line, b...)
	for {
		line, rest, ok := bytes.Cut(n.line, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		n.tell(line)
		n.line = rest
	}
}

func (n *progressWriter) tell(line []byte) {
	var e struct {
		Event   string  `json:"event"`
		Server  string  `json:"server"`
		Host    string  `json:"host"`
		Stage   string  `json:"stage"`
		Step    string  `json:"step"`
		Text    string  `json:"text"`
		Group   string  `json:"group"`
		Action  string  `json:"action"`
		Percent float64 `json:"percent"`
	}
	if json.Unmarshal(line, &e) != nil {
		return // a line of a plan, which has many
	}
	switch {
	case e.Event == "upgrade" && e.Text == "":
		n.say("  " + e.Server + ": " + e.Step)
	case e.Event == plan.EventStage:
		n.say("  " + e.Stage)
	case e.Event == plan.EventChanged, e.Event == plan.EventFailed:
		n.say("  " + e.Host + ": " + e.Step + " " + e.Event)
	case e.Group != "" && e.Action != "":
		n.say(fmt.Sprintf("  %s on %s: %s %.1f %%", e.Group, e.Server, e.Action, e.Percent))
	}
}
