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
	open := func(cmd *cobra.Command, config string) (*cache.Stack, error) {
		cfg, err := cache.LoadOrParse(config)
		if err != nil {
			return nil, fail(exitBadInput, err)
		}
		return cache.New(cfg, func(format string, a ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", a...) }), nil
	}
	add := func(use, short string, run func(cmd *cobra.Command, s *cache.Stack) error) *cobra.Command {
		sub := &cobra.Command{
			Use: use + " CONFIG", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				s, err := open(cmd, args[0])
				if err != nil {
					return err
				}
				return run(cmd, s)
			},
		}
		c.AddCommand(sub)
		return sub
	}
	wait := false
	start := add("start", "Bring the cache up over its active volume", func(cmd *cobra.Command, s *cache.Stack) error {
		if wait {
			if err := s.WaitVolume(cmd.Context()); err != nil {
				return err
			}
		}
		s.Hold = ocf.Hold
		return s.Locked(cmd.Context(), func() error { return s.Start(cmd.Context()) })
	})
	start.Flags().BoolVar(&wait, "wait", false, "wait for the volume, as at boot")
	add("on", "Say whether a cache is on: yes or no", func(cmd *cobra.Command, s *cache.Stack) error {
		word := "yes"
		if s.OnDisks() == nil {
			word = "no"
		}
		fmt.Fprintln(cmd.OutOrStdout(), word)
		return nil
	})
	add("stop", "Take it down; dirty data stays on the SSDs", func(cmd *cobra.Command, s *cache.Stack) error {
		s.Hold = ocf.Hold
		return s.Locked(cmd.Context(), func() error { return s.Stop(cmd.Context()) })
	})
	add("apply", "Bring it to its config, under load", func(cmd *cobra.Command, s *cache.Stack) error {
		s.Hold = ocf.Hold
		return s.Apply(cmd.Context(), progressLines(cmd.OutOrStdout()))
	})
	add("off", "Write dirty data to the disks and free the SSDs, under load", func(cmd *cobra.Command, s *cache.Stack) error {
		s.Hold = ocf.Hold
		return s.Off(cmd.Context(), progressLines(cmd.OutOrStdout()))
	})
	add("needs", "Say what apply would do", func(cmd *cobra.Command, s *cache.Stack) error {
		n, err := s.Needs()
		if err == nil && n != "" {
			fmt.Fprintln(cmd.OutOrStdout(), n)
		}
		return err
	})
	add("watch", "Write down which SSDs hold the newest dirty data, until ended", func(cmd *cobra.Command, s *cache.Stack) error {
		s.Hold = ocf.TryHold
		return s.Watch(cmd.Context())
	})
	add("stall", "For a drill: have bcache take no dirty data, and write none to the disks; the next start or apply ends it", func(cmd *cobra.Command, s *cache.Stack) error {
		s.Hold = ocf.Hold
		return s.Stall(cmd.Context())
	})
	smart := true
	stats := add("stats", "Counters and state as JSON", func(cmd *cobra.Command, s *cache.Stack) error {
		st := s.Read(cmd.Context(), smart)
		st.TimeNS = time.Now().UnixNano()
		return json.NewEncoder(cmd.OutOrStdout()).Encode(st)
	})
	stats.Flags().BoolVar(&smart, "smart", true, "ask each SSD for its health")
	for _, x := range []struct {
		use, short string
		run        func(ctx context.Context, s *cache.Stack, file string) error
	}{
		{"fill", "For a drill: write a new file until the mirror is full, and write nothing to the disks meanwhile", func(ctx context.Context, s *cache.Stack, file string) error {
			percent, err := s.Fill(ctx, file)
			if err == nil {
				fmt.Fprintf(c.OutOrStdout(), "%d %% of the mirror is dirty\n", percent)
			}
			return err
		}},
		{"drain", "End of fill", func(_ context.Context, s *cache.Stack, file string) error { return s.Drain(file) }},
	} {
		c.AddCommand(&cobra.Command{
			Use: x.use + " CONFIG FILE", Short: x.short, Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				s, err := open(cmd, args[0])
				if err != nil {
					return err
				}
				return x.run(cmd.Context(), s, args[1])
			},
		})
	}
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
