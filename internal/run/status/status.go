// Package status is mortar status: bricks looked at once, or again and again until an interrupt,
// and what package observe finds, as text or JSON.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/hardware"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Options of a look.
type Options struct {
	Watch, All, Hardware bool
	Interval, Timeout    time.Duration
	Facts, Save, Profile string
	Limit                []string
}

// Run looks at the bricks of files, all at the same time.
func (o *Options) Run(ctx context.Context, c *cli.Console, files []string) error {
	switch {
	case o.Interval <= 0 || o.Timeout <= 0:
		return cli.Fail(cli.BadInput, fmt.Errorf("--interval and --timeout must be above 0"))
	case o.Facts != "" && (o.Watch || o.Save != ""):
		return cli.Fail(cli.BadInput, fmt.Errorf("--facts is a file that does not change: leave --watch and --save-facts out"))
	case len(files) > 1 && (o.Facts != "" || o.Save != ""):
		return cli.Fail(cli.BadInput, fmt.Errorf("--facts and --save-facts are for one brick"))
	}
	if o.Facts != "" {
		d, err := cli.Load(files[0], o.Profile)
		if d, err = cli.Limited(o.Limit, d, err); err != nil {
			return err
		}
		f, err := readFacts(o.Facts)
		if err != nil {
			return cli.Fail(cli.BadInput, err)
		}
		return o.verdict(c, []*observe.Status{observe.Judge(d, f)})
	}
	var bricks []*cli.Brick
	for _, file := range files {
		b, err := c.Observe(file, o.Profile, o.Timeout, o.Limit)
		if err != nil {
			return err
		}
		defer b.Hosts.Close()
		b.Hosts.AskOutlets()
		b.Hosts.Below = true
		if o.Hardware {
			b.Hosts.AskHardware(hardware.New())
		}
		bricks = append(bricks, b)
	}
	for {
		ss := make([]*observe.Status, len(bricks))
		var wg sync.WaitGroup
		for i, b := range bricks {
			wg.Go(func() { ss[i] = b.Look(ctx) })
		}
		wg.Wait()
		if ctx.Err() != nil {
			return cli.Fail(cli.Interrupted, nil)
		}
		if o.Save != "" {
			if err := writeFacts(o.Save, bricks[0].Facts); err != nil {
				return err
			}
		}
		if !o.Watch {
			return o.verdict(c, ss)
		}
		if err := o.print(c, ss); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return cli.Fail(cli.Interrupted, nil)
		case <-time.After(o.Interval):
		}
	}
}

func (o *Options) verdict(c *cli.Console, ss []*observe.Status) error {
	if err := o.print(c, ss); err != nil {
		return err
	}
	if slices.ContainsFunc(ss, func(s *observe.Status) bool { return s.Level == observe.Fault }) {
		return cli.Fail(cli.Failed, nil)
	}
	return nil
}

func readFacts(path string) (f observe.Facts, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("%s: not written by --save-facts: %w", path, err)
	}
	return f, nil
}

func writeFacts(path string, f observe.Facts) error {
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o600)
}

// print prints the bricks in order. With --json it prints a line for each, if there are several
// bricks or repetitions.
func (o *Options) print(c *cli.Console, ss []*observe.Status) error {
	w, look, live := c.Out, observe.Look{All: o.All}, cli.IsTerminal(c.Out)
	if live {
		look.Paint, look.Width = cli.Painter(w), cli.Width(w) // 0: no wrapping
	}
	if o.Watch && live && !c.JSON {
		if _, err := io.WriteString(w, screen.Home); err != nil {
			return err
		}
	}
	for i, s := range ss {
		var err error
		if c.JSON {
			var b []byte
			if b, err = s.JSON(!o.Watch && len(ss) == 1); err == nil {
				_, err = fmt.Fprintf(w, "%s\n", b)
			}
		} else {
			if i > 0 {
				fmt.Fprintln(w)
			}
			err = observe.Render(w, s, look)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
