package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

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
