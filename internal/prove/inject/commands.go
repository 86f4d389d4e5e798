package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Ready makes sure that a rack is there, since without one the brick is real hardware, and that one
// is saved under a name, as known says: it builds, applies and saves the brick, or restores the
// saved rack where no rack is.
func Ready(ctx context.Context, c *cli.Console, s *spec.Spec, name string, known bool) error {
	var todo [][]string
	switch {
	case !known:
		fmt.Fprintf(c.Aside(), "no saved rack is named %s: it is made\n", name)
		todo = [][]string{{"rack", "up", s.File}, {"apply", s.File, "--yes", "--skip-fence-test"}, {"rack", "save", s.File, name}}
	case !c.Virtual(ctx, s):
		todo = [][]string{{"rack", "restore", s.File, name}}
	}
	for _, args := range todo {
		if err := c.Step(ctx, c.Aside(), args...); err != nil {
			return err
		}
	}
	return nil
}

// Brick is a brick to be drilled.
type Brick struct {
	Design  *design.Design
	Service string // the drill is about; "": the first of the spec
	Confirm string // the brick's name, if it was given
	From    string // saved rack that Env.Restore restores; "": none
	Rack    *Rack  // breaks its virtual rack, if that is up
}

// Drill connects a drill to the brick, keeps apply and a second drill out, and calls do. The
// question before real hardware breaks names the drill as what.
func (b Brick) Drill(ctx context.Context, c *cli.Console, what string, do func(context.Context, fault.Env) error) error {
	d := b.Design
	// A host answers late while a failover or a rebuild keeps its processor busy.
	excused := &host.Excused{}
	dial, err := c.Dial(d, host.Options{KeepAlive: 3 * time.Second, Missed: 12, Excused: excused})
	if err != nil {
		return err
	}
	env := fault.Env{Design: d, Service: b.Service, Dial: dial, Excused: excused, Version: c.Version, Progress: progress(c.Aside())}
	if env.Virtual = c.Virtual(ctx, d.Spec); env.Virtual {
		env.Injector = b.Rack
	} else {
		env.Injector = &Hardware{Design: d, Dial: dial}
		if err := c.ConfirmBrick(fmt.Sprintf("Drill %s breaks brick %q under load.", what, d.Name), "nothing was broken", d.Name, b.Confirm); err != nil {
			return err
		}
	}
	opDial, err := c.Dial(d, host.Options{Timeout: operatorLogin})
	if err != nil {
		return err
	}
	op := NewOperator(d, opDial)
	op.Run = (&Commands{Console: c, File: d.Spec.File, Say: env.Progress, Changed: func(d *design.Design) { b.Rack.Design = d }}).Run
	defer op.Close()
	env.Operator = op
	release, err := c.Claim(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	if b.From != "" {
		if err := b.Rack.Restore(ctx, b.From, true); err != nil {
			return err
		}
		env.Restore = op.restoring(b.From, b.Rack.Restore, env.Progress)
	}
	return do(ctx, env)
}

// progress prints lines with the time since now. Drill and commands call it from several
// goroutines.
func progress(w io.Writer) func(text string) {
	start := time.Now()
	var mu sync.Mutex
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s %s\n", cli.Stamp(start), text)
	}
}

// restoring returns the Restore of a drill on a virtual rack.
func (o *Operator) restoring(name string, restore func(ctx context.Context, name string, check bool) error, say func(string)) func(context.Context) error {
	return func(ctx context.Context) error {
		o.Close() // its sessions end with the rack
		began := time.Now()
		err := restore(ctx, name, false)
		if err == nil {
			say(fmt.Sprintf("restored %s in %s", name, report.Seconds(time.Since(began).Seconds())))
		}
		return err
	}
}

// Commands runs the commands of a drill's change.
type Commands struct {
	Console *cli.Console
	File    string // the brick's
	Say     func(text string)
	// Changed gets the design of a spec that a command may have changed.
	Changed func(*design.Design)
}

// Run is an Operator's: it runs a command on the spec.
func (c *Commands) Run(ctx context.Context, name string, args ...string) (*design.Design, error) {
	var out bytes.Buffer
	err := c.Console.Call(cli.Claimed(ctx), strings.NewReader(""), io.MultiWriter(&out, &progressWriter{say: c.Say}), io.Discard, slices.Concat(strings.Fields(name), []string{c.File}, args)...)
	var ee *cli.Exit
	switch {
	case !errors.As(err, &ee):
	case ee.Code == cli.Pending:
		err = fmt.Errorf("it would change %s", pendingOf(out.Bytes()))
	case ee.Code == cli.LeftOut:
		err = nil // a drill waits for its own clients itself
	}
	d, bad := cli.ForLoad(cli.Load(c.File))
	if bad != nil {
		return nil, errors.Join(err, bad)
	}
	c.Changed(d)
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
