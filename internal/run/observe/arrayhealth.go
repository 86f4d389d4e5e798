package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/raid"
)

// AskArrays makes Collect also ask the brick's RAID arrays, with f from this machine
// and with their tools on servers.
func (c *Collector) AskArrays(f func(context.Context, *design.Array) raid.Answer) { c.arrays = f }

// startArrays begins to ask the arrays, and adds the tools that servers run to the
// requests. The function that it returns waits for the answers.
func (c *Collector) startArrays(ctx context.Context, reqs map[string]gather.Request) func() map[string]raid.Answer {
	if c.arrays == nil || len(c.d.Arrays) == 0 {
		return func() map[string]raid.Answer { return nil }
	}
	var names []string
	for i := range c.d.Arrays {
		a := &c.d.Arrays[i]
		names = append(names, a.Name)
		for _, s := range a.Servers {
			if r, ok := reqs[s]; ok {
				for _, argv := range toolsFor(a) {
					if !slices.ContainsFunc(r.Run, func(x []string) bool { return slices.Equal(x, argv) }) {
						r.Run = append(slices.Clone(r.Run), argv)
					}
				}
				reqs[s] = r
			}
		}
	}
	answers := make(chan map[string]raid.Answer, 1)
	go func() {
		cctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
		defer cancel()
		got, late := host.All(cctx, names, func(ctx context.Context, name string) (raid.Answer, error) {
			i := slices.Index(names, name)
			return c.arrays(ctx, &c.d.Arrays[i]), nil
		})
		for name, err := range late {
			got[name] = raid.Answer{Err: err.Error()}
		}
		answers <- got
	}()
	return func() map[string]raid.Answer { return <-answers }
}

// toolsFor returns the commands that ask an array on its servers.
func toolsFor(a *design.Array) [][]string {
	switch a.Family {
	case "perc":
		return raid.PERC(a.Model)
	case "md3":
		return [][]string{raid.SMcli(a.Management)}
	}
	return nil
}

// arrayHealth checks the reports of the pair's arrays; nil if they were
// not asked, or there are none.
func (v *view) arrayHealth() *Part {
	if v.facts.Arrays == nil {
		return nil
	}
	p := &Part{Name: "array"}
	well, all := 0, 0
	for i := range v.d.Arrays {
		a := &v.d.Arrays[i]
		if !slices.ContainsFunc(a.Servers, func(s string) bool { return slices.Contains(v.pair.Servers, s) }) {
			continue
		}
		all++
		c := v.oneArray(a)
		if c.settle(); c.Level == OK {
			well++
		}
		p.Parts = append(p.Parts, c)
	}
	if all == 0 {
		return nil
	}
	p.Text = fmt.Sprintf("%d of %d well, as they say themselves", well, all)
	return p
}

func (v *view) oneArray(a *design.Array) *Part {
	c := &Part{Name: a.Name}
	answer := v.answerOf(a)
	switch {
	case answer.Health == nil && answer.NotAsked != "":
		return c.is("array-unasked", with{"array": a.Name, "why": oneLine(answer.NotAsked), "mend": answer.Mend})
	case answer.Health == nil:
		return c.is("array-silent", with{"array": a.Name, "error": oneLine(answer.Err)})
	}
	h := answer.Health
	c.Text = "asked: " + h.How
	for _, i := range h.Items {
		k := c.add(i.Kind+" "+i.Name, "%s", i.Text)
		if i.Percent != nil {
			k.Text += fmt.Sprintf(" (%.0f %% done)", *i.Percent)
			k.Progress = &Progress{Action: "rebuild", Percent: *i.Percent}
		}
		if i.Level != OK {
			k.is("array-part", with{"array": a.Name, "part": k.Name, "finding": k.Text, "mend": i.Mend}).Level = i.Level
		}
	}
	if h.Spares != nil {
		k := c.add("spares", "%d of %d spares wait", *h.Spares, len(a.Spares))
		if *h.Spares < len(a.Spares) {
			k.is("array-spares", with{"array": a.Name, "spares": *h.Spares, "want": len(a.Spares)})
		}
	}
	v.raidLevels(c, a, h)
	c.unread("the report of array "+a.Name, h.Unread)
	return c
}

// raidLevels compares the RAID levels that an array reports with the design.
func (v *view) raidLevels(c *Part, a *design.Array, h *raid.Health) {
	for _, l := range a.LUNs {
		for _, name := range append(slices.Clone(l.Groups), l.Name) {
			if got, told := h.Levels[name]; told && got != l.Level {
				c.find(l.Name, "array-level", with{"array": a.Name, "group": name, "level": got, "want": l.Level})
			}
		}
	}
}

// answerOf returns an array's answer to the administrator's machine, or, if that
// did not ask, to its tool on a server.
func (v *view) answerOf(a *design.Array) raid.Answer {
	answer := v.facts.Arrays[a.Name]
	var silent []string
	for _, s := range v.answering() {
		if answer.Health != nil || !slices.Contains(a.Servers, s.name) {
			continue
		}
		for _, argv := range toolsFor(a) {
			r, asked := s.host.Run[strings.Join(argv, " ")]
			switch {
			case !asked || r.Cause == resource.NotInstalled:
				continue // not installed
			case r.Err != "":
				return raid.Answer{Err: s.name + ": " + r.Err}
			case a.Family == "md3":
				return raid.FromSMcli(r.Stdout, r.Stderr, s.name)
			}
			h, err := raid.ParsePERC(r.Stdout, a.Controller)
			if err != nil {
				return raid.Answer{Err: s.name + ": " + err.Error()}
			}
			h.How += " on " + s.name
			return raid.Answer{Health: h}
		}
		silent = append(silent, s.name)
	}
	if a.Family == "perc" && answer.Health == nil {
		answer.NotAsked, answer.Mend = "no server that answers has it", ""
		if len(silent) > 0 {
			answer = raid.Answer{NotAsked: "neither perccli nor storcli is installed on " + health.List(silent), Mend: "install Dell's perccli there: cache policy, battery and disks are known to no other program"}
		}
	}
	return answer
}
