package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/netprobe"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/metrics"
	"github.com/mortarhpc/mortar/internal/run/scrub"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// agentMux registers the operations of every package that runs something on hosts.
func agentMux(holder string) agent.Mux {
	return agent.Merge(agent.Core(holder), workload.Handlers(), netprobe.Handlers(), gather.Handlers(), failover.Handlers())
}

func newAgentCmd() *cobra.Command {
	var watchOnly bool
	var holder string
	cmd := hidden("agent", func(ctx context.Context, c *cli.Console, _ []string) error {
		// The administrator's end may close while an action runs. The agent finishes the
		// action and must survive the write of its answer to a closed pipe.
		signal.Ignore(syscall.SIGPIPE)
		mux := agentMux(holder)
		if watchOnly {
			mux = agent.Merge(agent.WatchCore(), gather.WatchHandlers())
		}
		return agent.ServeLogin(ctx, mux)
	})
	cmd.Flags().StringVar(&holder, "holder", "", "who may change the brick while a command of this holder claims it")
	cmd.Flags().BoolVar(&watchOnly, "watch-only", false, "answer only what status, watch and events ask (docs/security.md)")
	return cmd
}

// agentMain is a resource agent: ocf.Main or ocf.WatchMain.
type agentMain func(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int

// ocfMain runs the binary as a resource agent, ocf:mortar:service or ocf:mortar:watch.
// Pacemaker calls it by that name, with an action as argument and OCF_* variables in the
// environment.
func ocfMain(args []string, main agentMain) int {
	// Pacemaker sends SIGTERM to an action that is late. Report it while there is time.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return main(ctx, args, os.Getenv, os.Stdout, os.Stderr)
}

// newOCFCmd runs the agent by hand on a server.
func newOCFCmd() *cobra.Command {
	var config string
	cmd := hidden("ocf", func(ctx context.Context, _ *cli.Console, args []string) error {
		getenv := os.Getenv
		if config != "" {
			getenv = func(k string) string {
				if k == "OCF_RESKEY_config" {
					return config
				}
				return os.Getenv(k)
			}
		}
		if code := ocf.Main(ctx, args, getenv, stdout, stderr); code != ocf.Success {
			return fail(code, nil)
		}
		return nil
	})
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.Flags().StringVar(&config, "config", "", "the service's JSON file, e.g. /etc/mortar/service-home.json")
	return cmd
}

// newHostCacheCmd is the part of the cache that runs on a server. systemd runs it at boot;
// apply and the agent run it too.
func newHostCacheCmd() *cobra.Command {
	c := &cobra.Command{Use: "host-cache", Hidden: true}
	add := func(name string, run func(ctx context.Context, w io.Writer, s *cache.Stack, args []string) error) *cobra.Command {
		sub := command(name, func(ctx context.Context, c *cli.Console, args []string) error {
			cfg, err := cache.LoadOrParse(args[0])
			if err != nil {
				return fail(exitBadInput, err)
			}
			s := cache.New(cfg, func(format string, a ...any) { fmt.Fprintf(c.Err, format+"\n", a...) })
			s.Hold = ocf.Hold
			return run(ctx, c.Out, s, args[1:])
		})
		c.AddCommand(sub)
		return sub
	}
	wait, smart := false, true
	start := add("start", func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		if wait {
			if err := s.WaitVolume(ctx); err != nil {
				return err
			}
		}
		return s.Locked(ctx, func() error { return s.Start(ctx) })
	})
	start.Flags().BoolVar(&wait, "wait", false, "wait for the volume, as at boot")
	add("on", func(_ context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		_, err := fmt.Fprintln(w, yesNo(s.OnDisks() != nil))
		return err
	})
	add("stop", func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		return s.Locked(ctx, func() error { return s.Stop(ctx) })
	})
	add("prepare", func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error { return s.Prepare(ctx) })
	add("extend", func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error { return s.Extend(ctx) })
	add("apply", func(ctx context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		return s.Apply(ctx, progressLines(w))
	})
	add("off", func(ctx context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		return s.Off(ctx, progressLines(w))
	})
	add("needs", func(_ context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		n, err := s.Needs()
		if err == nil && n != "" {
			fmt.Fprintln(w, n)
		}
		return err
	})
	add("watch", func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		s.Hold = ocf.TryHold
		return s.Watch(ctx)
	})
	add("stall", func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		return s.Stall(ctx)
	})
	stats := add("stats", func(ctx context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		st := s.Read(ctx, smart)
		st.TimeNS = time.Now().UnixNano()
		return cli.JSONLines(w).Encode(st)
	})
	stats.Flags().BoolVar(&smart, "smart", true, "ask each SSD for its health")
	add("fill", func(ctx context.Context, w io.Writer, s *cache.Stack, args []string) error {
		percent, err := s.Fill(ctx, args[0])
		if err == nil {
			fmt.Fprintf(w, "%d %% of the mirror is dirty\n", percent)
		}
		return err
	})
	add("drain", func(_ context.Context, _ io.Writer, s *cache.Stack, args []string) error { return s.Drain(args[0]) })
	return c
}

// progressLines writes progress as JSON lines.
func progressLines(w io.Writer) cache.Progress {
	last := ""
	return func(what string, left, total int64) {
		line := struct {
			What  string `json:"what"`
			Left  int64  `json:"left,omitempty"`
			Total int64  `json:"total,omitempty"`
		}{what, left, total}
		b, _ := json.Marshal(line)
		if string(b) != last {
			last = string(b)
			fmt.Fprintln(w, last)
		}
	}
}

// newHostMetricsCmd writes a server's metrics. systemd runs it every minute.
func newHostMetricsCmd() *cobra.Command {
	return hidden("host-metrics", func(ctx context.Context, c *cli.Console, args []string) error {
		b, err := os.ReadFile(args[0])
		if err != nil {
			return fail(exitBadInput, err)
		}
		m, err := metrics.Read(b)
		if err != nil {
			return fail(exitBadInput, fmt.Errorf("%s: %w", args[0], err))
		}
		text := metrics.Measure(ctx, m)
		if len(args) == 1 {
			_, err = fmt.Fprint(c.Out, text)
			return err
		}
		// node_exporter reads the file as user prometheus.
		return durable.Write(filepath.Join(args[1], "mortar.prom"), durable.File{Content: []byte(text), Mode: 0o644, UID: os.Getuid(), GID: os.Getgid()})
	})
}

// newHostBrickCmd is the part of a claim that runs on a server; the agent runs one action at a
// time.
func newHostBrickCmd() *cobra.Command {
	var holder string
	cmd := hidden("host-brick", func(ctx context.Context, c *cli.Console, args []string) error {
		text, err := io.ReadAll(os.Stdin)
		if err == nil {
			err = claim.Change(claim.File(), holder, args[0], text)
		}
		return err
	})
	cmd.Flags().StringVar(&holder, "holder", "", "whose command this is")
	return cmd
}

// newScrubArrayCmd runs on a server for mortar scrub.
func newScrubArrayCmd() *cobra.Command {
	var repair bool
	var within time.Duration
	cmd := hidden("scrub-array", func(ctx context.Context, c *cli.Console, args []string) error {
		a, err := scrub.Open(args[0])
		if err != nil {
			return fail(exitBadInput, err)
		}
		work := func() (scrub.Result, error) { return a.Scrub(ctx, repair) }
		if within > 0 {
			work = func() (scrub.Result, error) { return a.Compare(ctx, within) }
		}
		r, err := work()
		if err != nil {
			return err
		}
		r.Array = args[0]
		return cli.JSONLines(c.Out).Encode(r)
	})
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	cmd.Flags().DurationVar(&within, "within", 0, "only compare, from the begin of the array on, for so long")
	return cmd
}
