package rack

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

const (
	// clockTime bounds a login and the setting of a clock. A login takes some seconds
	// on a machine whose emulated nodes have just been restored.
	clockTime = 30 * time.Second
	// setClock has the time sent once its login is done, since that takes long.
	setClock = `echo ready; read -r now; date --set="@$now" > /dev/null`
)

// setClocks sets the clocks of all nodes that run to this host's, and returns the
// nodes whose clock could not be set: those without a cable, or without an ssh server.
// No daemon of a node does that after its machine stood still: a rack has no source of
// time.
func (r *rack) setClocks(ctx context.Context) []string {
	unset := []string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range r.cfg.Nodes {
		n := &r.cfg.Nodes[i]
		if tool.Running(r.dir, n.Name) == nil {
			continue
		}
		wg.Go(func() {
			var state string
			err := r.withQMP(ctx, n.Name, func(q *qemu.Client) (err error) {
				state, err = q.Status()
				return err
			})
			if err == nil && state != qemu.MachineRunning {
				return // frozen: its clock is wrong anyway
			}
			if err == nil {
				err = r.setClock(ctx, n)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				unset = append(unset, n.Name)
			}
		})
	}
	wg.Wait()
	slices.Sort(unset)
	return unset
}

func (r *rack) setClock(ctx context.Context, n *hw.Node) error {
	ctx, cancel := context.WithTimeout(ctx, clockTime)
	defer cancel()
	argv := append(sshArgs(r, n), setClock)
	cmd := exec.CommandContext(ctx, tool.Path("ssh"), argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := netns.Do(r.cfg.Netns(), cmd.Start); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && strings.TrimSpace(line) == "ready" {
		now := time.Now()
		_, err = fmt.Fprintf(in, "%d.%09d\n", now.Unix(), now.Nanosecond())
	}
	in.Close()
	if wait := cmd.Wait(); wait != nil {
		return fmt.Errorf("clock of %s: %w", n.Name, wait)
	}
	return err
}
