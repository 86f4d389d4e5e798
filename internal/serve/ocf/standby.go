package ocf

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/cld"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Pacemaker stops the watcher of a server in standby. Two of its tasks must go on as long as
// the cluster's daemons run there: a server in standby that is cut off would fence its
// partner, which serves; and a service that the standby cannot stop keeps its volume, which
// only a reset ends if fencing fails. So the agent's stop leaves a process that does these
// two and nothing else. It ends with the cluster's daemons, or when the watcher starts.

// standbyAction is the agent calling itself, as the process that stays in the watcher's place.
const standbyAction = "_rest"

var staying = map[string]func(context.Context, []string) error{unit.WatchAction: watchMain, standbyAction: standbyMain, cld.Action: cldMain}

func cldMain(ctx context.Context, args []string) error { return cld.Run(ctx, args, logAs(cld.Name)) }

var standbyProcess = watchProcess{file: unit.RunDir + "/rest", action: standbyAction, grace: 2 * time.Second}

// clusterEngine is the name of the process without which a server fences no server.
var clusterEngine = "corosync"

// standbyTick is shorter than the time after which a server misses its partner.
const standbyTick = 500 * time.Millisecond

// startStandby starts the process that stays, if the cluster's daemons run.
func startStandby(ctx context.Context, files []string) error {
	if len(files) == 0 || clusterPID() == 0 {
		return nil
	}
	return standbyProcess.begin(ctx, files)
}

// standbyMain is that process: it ends with ctx, or with the cluster's daemons.
func standbyMain(ctx context.Context, files []string) error {
	f, w, err := standbyProcess.open(kernel.New(), files, logAs("mortar-watch"))
	if err != nil {
		return err
	}
	defer f.Close()
	of := clusterPID()
	w.standBy(ctx, func() bool { return processName(of) == clusterEngine })
	return nil
}

// standBy does what a server needs without its watcher, until ctx ends or there is no cluster.
func (w *watcher) standBy(ctx context.Context, clustered func() bool) {
	defer func() { w.blockFencing(context.WithoutCancel(ctx), false) }()
	for ctx.Err() == nil && clustered() {
		w.watchFencing(ctx)
		for _, s := range w.services {
			w.unstopped(s)
		}
		if w.k.Sleep(ctx, standbyTick) != nil {
			return
		}
	}
}

// clusterPID is the process ID of the cluster's daemon, 0 if it does not run.
func clusterPID() int {
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0
	}
	for _, f := range all {
		if pid := pidOf([]byte(filepath.Base(filepath.Dir(f)))); pid > 0 && processName(pid) == clusterEngine {
			return pid
		}
	}
	return 0
}

// processName is the name of a process; "" if there is none.
func processName(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
