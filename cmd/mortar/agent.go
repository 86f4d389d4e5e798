package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/netprobe"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/failover"
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
