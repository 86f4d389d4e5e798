package change

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// CacheStats prints what the cache of a brick does: once, or with watch a line for each interval
// until ctx ends.
func CacheStats(ctx context.Context, c *cli.Console, file string, watch bool, interval, timeout time.Duration) error {
	if interval < time.Second {
		return cli.Fail(cli.BadInput, fmt.Errorf("--interval %s: 1s at least", interval))
	}
	d, err := cli.Load(file)
	if err != nil {
		return err
	}
	p, err := cachePeer(c, d, timeout)
	if err != nil {
		return err
	}
	defer p.Close()
	var last *cache.Stats
	for n := 0; ; n++ {
		server, st, err := p.Stats(ctx, c.JSON || !watch)
		switch {
		case ctx.Err() != nil:
			return cli.Fail(cli.Interrupted, nil)
		case err != nil && !watch:
			return err
		case err != nil:
			fmt.Fprintln(c.Err, "mortar:", strings.ReplaceAll(err.Error(), "\n", "; "))
			last = nil
		case c.JSON:
			if err := cli.JSONLines(c.Out).Encode(st); err != nil {
				return err
			}
		case !watch:
			showCache(c.Out, server, st)
		default:
			if n%20 == 0 {
				fmt.Fprintln(c.Out, cacheHeads)
			}
			if last != nil && st.Volume.Reads >= last.Volume.Reads {
				fmt.Fprintln(c.Out, cacheLine(*last, st))
			}
			last = &st
		}
		if !watch {
			return nil
		}
		select {
		case <-ctx.Done():
			return cli.Fail(cli.Interrupted, nil)
		case <-time.After(interval):
		}
	}
}

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
