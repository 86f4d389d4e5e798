package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// newHostCacheCmd is the part of the cache that runs on a server. systemd runs it at boot;
// apply and the agent run it too.
func newHostCacheCmd() *cobra.Command {
	c := &cobra.Command{
		Use:    "host-cache",
		Short:  "Start, stop and change the cache of a volume, on the server that has it",
		Hidden: true,
	}
	add := func(use, short string, args int, run func(ctx context.Context, w io.Writer, s *cache.Stack, args []string) error) *cobra.Command {
		sub := &cobra.Command{
			Use: use, Short: short, Args: cobra.ExactArgs(args),
			RunE: func(cmd *cobra.Command, args []string) error {
				cfg, err := cache.LoadOrParse(args[0])
				if err != nil {
					return fail(exitBadInput, err)
				}
				s := cache.New(cfg, func(format string, a ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", a...) })
				s.Hold = ocf.Hold
				return run(cmd.Context(), cmd.OutOrStdout(), s, args[1:])
			},
		}
		c.AddCommand(sub)
		return sub
	}
	wait, smart := false, true
	start := add("start CONFIG", "Bring the cache up over its active volume", 1, func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		if wait {
			if err := s.WaitVolume(ctx); err != nil {
				return err
			}
		}
		return s.Locked(ctx, func() error { return s.Start(ctx) })
	})
	start.Flags().BoolVar(&wait, "wait", false, "wait for the volume, as at boot")
	add("on CONFIG", "Say whether a cache is on: yes or no", 1, func(_ context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		_, err := fmt.Fprintln(w, yesNo(s.OnDisks() != nil))
		return err
	})
	add("stop CONFIG", "Take it down; dirty data stays on the SSDs", 1, func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		return s.Locked(ctx, func() error { return s.Stop(ctx) })
	})
	add("apply CONFIG", "Bring it to its config, under load", 1, func(ctx context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		return s.Apply(ctx, progressLines(w))
	})
	add("off CONFIG", "Write dirty data to the disks and free the SSDs, under load", 1, func(ctx context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		return s.Off(ctx, progressLines(w))
	})
	add("needs CONFIG", "Say what apply would do", 1, func(_ context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		n, err := s.Needs()
		if err == nil && n != "" {
			fmt.Fprintln(w, n)
		}
		return err
	})
	add("watch CONFIG", "Write down which SSDs hold the newest dirty data, until ended", 1, func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		s.Hold = ocf.TryHold
		return s.Watch(ctx)
	})
	add("stall CONFIG", "For a drill: have bcache take no dirty data, and write none to the disks; the next start or apply ends it", 1, func(ctx context.Context, _ io.Writer, s *cache.Stack, _ []string) error {
		return s.Stall(ctx)
	})
	stats := add("stats CONFIG", "Counters and state as JSON", 1, func(ctx context.Context, w io.Writer, s *cache.Stack, _ []string) error {
		st := s.Read(ctx, smart)
		st.TimeNS = time.Now().UnixNano()
		return json.NewEncoder(w).Encode(st)
	})
	stats.Flags().BoolVar(&smart, "smart", true, "ask each SSD for its health")
	add("fill CONFIG FILE", "For a drill: write a new file until the mirror is full, and write nothing to the disks meanwhile", 2, func(ctx context.Context, w io.Writer, s *cache.Stack, args []string) error {
		percent, err := s.Fill(ctx, args[0])
		if err == nil {
			fmt.Fprintf(w, "%d %% of the mirror is dirty\n", percent)
		}
		return err
	})
	add("drain CONFIG FILE", "End of fill", 2, func(_ context.Context, _ io.Writer, s *cache.Stack, args []string) error { return s.Drain(args[0]) })
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
