package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// cacheChange writes a change of the cache into the spec and applies it.
type cacheChange struct{ specChange }

func newCacheModeCmd() *cobra.Command {
	var f cacheChange
	cmd := command("mode", func(cmd *cobra.Command, args []string) error {
		return f.run(cmd, args[0], func(c *spec.Cache) (*spec.Cache, error) {
			c.Mode = args[1]
			return c, nil
		})
	})
	f.add(cmd)
	return cmd
}

func newCacheAddCmd() *cobra.Command {
	var f cacheChange
	var size, kind, server string
	cmd := command("add", func(cmd *cobra.Command, args []string) error {
		bytes, err := spec.ParseBytes(size)
		if err != nil {
			return fail(exitBadInput, fmt.Errorf("--size: %w; nothing was changed", err))
		}
		return f.run(cmd, args[0], func(c *spec.Cache) (*spec.Cache, error) {
			return c, c.Add(spec.DiskList{Size: bytes, Type: kind, Server: server}, args[1:]...)
		})
	})
	f.add(cmd)
	cmd.Flags().StringVar(&size, "size", "", "size of each, as sold, e.g. 1.6TB")
	cmd.Flags().StringVar(&kind, "type", "nvme", "nvme or ssd")
	cmd.Flags().StringVar(&server, "server", "", "the server they are inside of; default: every server reaches them")
	_ = cmd.MarkFlagRequired("size")
	return cmd
}

func newCacheRemoveCmd() *cobra.Command {
	var f cacheChange
	var mode string
	cmd := command("remove", func(cmd *cobra.Command, args []string) error {
		return f.run(cmd, args[0], func(c *spec.Cache) (*spec.Cache, error) {
			if err := c.Remove(args[1:]...); err != nil {
				return nil, err
			}
			if mode != "" {
				c.Mode = mode
			}
			return c, nil
		})
	})
	f.add(cmd)
	cmd.Flags().StringVar(&mode, "mode", "", "change the mode as well: write-back or write-through")
	return cmd
}

func newCacheOffCmd() *cobra.Command {
	var f cacheChange
	cmd := command("off", func(cmd *cobra.Command, args []string) error {
		return f.run(cmd, args[0], func(*spec.Cache) (*spec.Cache, error) { return nil, nil })
	})
	f.add(cmd)
	return cmd
}

func (f *cacheChange) run(cmd *cobra.Command, file string, change func(*spec.Cache) (*spec.Cache, error)) error {
	s, err := readSpec(file)
	if err != nil {
		return err
	}
	if s.Cache == nil {
		return fail(exitBadInput, fmt.Errorf("%s: the brick has no cache; write the key cache into the spec of a new brick", file))
	}
	old, err := loadDesign(file)
	if err != nil {
		return err
	}
	next, want, err := s.ChangeCache(change)
	if err != nil {
		return fail(exitBadInput, fmt.Errorf("%w; nothing was changed", err))
	}
	shown := fmt.Sprintf("%s, key cache:\n%s", file, indent(blockOf(want)))
	_, err = f.specChange.run(cmd, s, next, shown, func(ctx context.Context) { watchFlush(ctx, old, cmd.OutOrStdout()) })
	return err
}

// blockOf formats the spec's key cache as YAML.
func blockOf(c *spec.Cache) string {
	if c == nil {
		return "(removed)\n"
	}
	b, err := spec.SetCache(nil, c)
	if err != nil {
		return ""
	}
	return strings.TrimLeft(string(b), "\n")
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// replaceFile replaces a file atomically: a reader sees the old or the new one.
func replaceFile(file string, text []byte) error {
	return renameio.WriteFile(file, text, 0o644, renameio.WithExistingPermissions())
}

// watchFlush prints how much dirty data the SSDs still hold.
func watchFlush(ctx context.Context, d *design.Design, w io.Writer) {
	p, err := newCachePeer(d, 20*time.Second)
	if err != nil {
		return
	}
	defer p.Close()
	last := int64(-1)
	for ctx.Err() == nil {
		if _, st, err := p.Stats(ctx, false); err == nil && st.Dirty != last && (st.Dirty > 0 || last > 0) {
			fmt.Fprintf(w, "       dirty: %s to be written to the disks\n", spec.Bytes(st.Dirty).Decimal())
			last = st.Dirty
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

func newCachePeer(d *design.Design, timeout time.Duration) (*observe.CachePeer, error) {
	c, err := newCollector(d, timeout, d.Servers()...)
	if err != nil {
		return nil, err
	}
	p, err := observe.NewCachePeer(d, c)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	return p, nil
}

func newCacheStatsCmd() *cobra.Command {
	var watch, asJSON bool
	var interval, timeout time.Duration
	cmd := command("stats", func(cmd *cobra.Command, args []string) error {
		if interval < time.Second {
			return fail(exitBadInput, fmt.Errorf("--interval %s: 1s at least", interval))
		}
		d, err := loadDesign(args[0])
		if err != nil {
			return err
		}
		p, err := newCachePeer(d, timeout)
		if err != nil {
			return err
		}
		defer p.Close()
		out := cmd.OutOrStdout()
		var last *cache.Stats
		for n := 0; ; n++ {
			server, st, err := p.Stats(cmd.Context(), asJSON || !watch)
			switch {
			case cmd.Context().Err() != nil:
				return fail(exitInterrupted, nil)
			case err != nil && !watch:
				return err
			case err != nil:
				fmt.Fprintln(cmd.ErrOrStderr(), "mortar:", oneLine(err))
				last = nil
			case asJSON:
				if err := json.NewEncoder(out).Encode(st); err != nil {
					return err
				}
			case !watch:
				showCache(out, server, st)
			default:
				if n%20 == 0 {
					fmt.Fprintln(out, cacheHeads)
				}
				if last != nil && st.Volume.Reads >= last.Volume.Reads {
					fmt.Fprintln(out, cacheLine(*last, st))
				}
				last = &st
			}
			if !watch {
				return nil
			}
			select {
			case <-cmd.Context().Done():
				return fail(exitInterrupted, nil)
			case <-time.After(interval):
			}
		}
	})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "repeat until interrupted")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two looks with --watch")
	cmd.Flags().DurationVar(&timeout, "timeout", 20*time.Second, "how long to wait for a server")
	return cmd
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// showCache prints one observation.
func showCache(w io.Writer, server string, st cache.Stats) {
	b := func(n int64) string { return spec.Bytes(n).Decimal() }
	fmt.Fprintf(w, "cache on %s, %s\n", server, st.Mode)
	if st.Error != "" {
		fmt.Fprintf(w, "  fault      %s\n", st.Error)
	}
	fmt.Fprintf(w, "  reads      %d from SSD, %d from disks (%s), of these %d parts of streams\n", st.ReadHits, st.ReadMisses, share(st.ReadHits, st.ReadMisses), st.ReadBypassed)
	fmt.Fprintf(w, "  writes     %s to SSD, %s past them (%s)\n", b(st.WrittenSSD), b(st.WrittenDisks), share(st.WrittenSSD, st.WrittenDisks))
	if st.DirtyRoom > 0 {
		rate := ""
		if st.Dirty > 0 { // the rate of an idle bcache device means nothing
			rate = ", written to the disks at up to " + b(st.FlushRate) + "/s"
		}
		fmt.Fprintf(w, "  dirty      %s of %s%s; %s written so far\n", b(st.Dirty), b(st.DirtyRoom), rate, b(st.Flushed))
		fmt.Fprintf(w, "  mirror     in sync on %s (%d of %d)\n", strings.Join(st.Mirror.InSync, ", "), len(st.Mirror.InSync), st.Mirror.Members)
	}
	fmt.Fprintf(w, "  for reads  %s, %d %% used\n", b(st.CleanRoom), st.CleanUsed)
	for _, x := range []struct {
		name string
		io   linux.BlockIO
	}{{"volume", st.Volume}, {"disks", st.Disks}, {"SSDs", st.SSDIO}} {
		fmt.Fprintf(w, "  %-10s %d reads, %s; %d writes, %s\n", x.name, x.io.Reads, b(x.io.ReadBytes), x.io.Writes, b(x.io.WriteBytes))
	}
	for _, l := range st.SSDs {
		text := l.Device
		switch {
		case l.Device == "":
			text = "not there"
		case l.Left >= 0:
			text += fmt.Sprintf(", %d %% of its life left", l.Left)
		}
		if l.Failing {
			text += ", predicts its failure: " + l.Warning
		}
		fmt.Fprintf(w, "  SSD %-6s %s\n", l.Serial, text)
	}
}

// share returns a as a percentage of a+b.
func share(a, b int64) string {
	if a+b == 0 {
		return "none yet"
	}
	return fmt.Sprintf("%d %%", 100*a/(a+b))
}

const cacheHeads = "   reads/s  hit %    write MB/s  ssd %    dirty MB  flush MB/s   disks r/s  w/s  MB/s    ssds r/s  w/s  MB/s"

// cacheLine formats the difference between two observations.
func cacheLine(a, b cache.Stats) string {
	sec := float64(b.TimeNS-a.TimeNS) / 1e9
	if sec <= 0 {
		return ""
	}
	per := func(n int64) float64 { return float64(n) / sec }
	mb := func(n int64) float64 { return per(n) / 1e6 }
	hits, misses := b.ReadHits-a.ReadHits, b.ReadMisses-a.ReadMisses
	pct := func(x, of int64) string {
		if of <= 0 {
			return "-"
		}
		return fmt.Sprintf("%d", min(100, 100*x/of)) // the SSDs' writes include bcache's journal
	}
	wrote, ssd := b.Volume.WriteBytes-a.Volume.WriteBytes, b.WrittenSSD-a.WrittenSSD
	io := func(x, y linux.BlockIO) string {
		return fmt.Sprintf("%9.0f %4.0f %5.1f", per(y.Reads-x.Reads), per(y.Writes-x.Writes), mb(y.ReadBytes-x.ReadBytes+y.WriteBytes-x.WriteBytes))
	}
	return fmt.Sprintf("%10.0f  %5s    %10.1f  %5s    %8.1f  %10.1f   %s    %s", per(b.Volume.Reads-a.Volume.Reads), pct(hits, hits+misses),
		mb(wrote), pct(ssd, wrote), float64(b.Dirty)/1e6, mb(b.Flushed-a.Flushed), io(a.Disks, b.Disks), io(a.SSDIO, b.SSDIO))
}
