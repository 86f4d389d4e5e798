package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// What TakeAway takes, as the watcher calls it.
const (
	theAddress = "service address"
	theName    = "the line of"
)

// errNoAddress refuses a service that clients do not reach by an address of its own.
var errNoAddress = errors.New("the service has no address of its own")

// takenAway takes a thing from the active server, on which the watcher puts it back.
func takenAway(what string) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		if kind.Of(s.Design).Address(s.Service) == "" {
			return nil, errNoAddress
		}
		return []Step{{Fault: Fault{Kind: TakeAway, On: s.Active, Args: []string{what}}, Until: putBack(s.Active, what)}}, nil
	}
}

// putBack waits until the watcher says that it has put a thing back. It takes the watcher a
// moment: a look at the thing itself may come too late to see that it was gone.
func putBack(server, what string) *Condition {
	c := logged("the watcher puts it back", time.Minute, func(_ *View, x report.Event) bool {
		return x.Host == server && strings.Contains(x.Text, ": "+what+" ") && strings.HasSuffix(x.Text, "was gone: put back")
	})
	c.Sign = true
	return c
}

func hasAddress(e *engine, _ Fault) error {
	if d := e.env.Design; kind.Of(d).Address(d.Services()[0]) == "" { // they are all of one kind
		return errNoAddress
	}
	return nil
}

// taking is the action that takes a thing away: what systemd-networkd does to an address
// that is not in its files, and cloud-init to lines that are not in its template. A lazy
// unmount of nfsd's files is no such thing: the kernel then ends nfsd, and the service moves.
func (e *engine) taking(f Fault) resource.Action {
	s := e.service
	if f.Args[0] == theName {
		return resource.Action{Title: "remove the line of " + s.Address + " from " + linux.HostsFile,
			Cmd: []string{"sed", "-i", `/^` + strings.ReplaceAll(s.Address, ".", `\.`) + `[[:space:]]/d`, linux.HostsFile}}
	}
	argv := []string{"ip"}
	if s.Namespace != "" {
		argv = append(argv, "-n", s.Namespace)
	}
	return resource.Action{Title: "take the service address away", Cmd: append(argv, "address", "del", kind.Of(e.env.Design).Address(s), "dev", "")}
}

// takeAway takes a thing away; the address from whatever interface has it.
func (e *engine) takeAway(ctx context.Context, f Fault) error {
	a := e.taking(f)
	if f.Args[0] == theAddress {
		look := append(a.Cmd[:len(a.Cmd)-5:len(a.Cmd)-5], "-o", "addr", "show", "to", e.service.Address)
		out, err := e.query(ctx, f.On, look...)
		if err != nil {
			return err
		}
		fields := strings.Fields(out.Stdout)
		if len(fields) < 2 {
			return fmt.Errorf("%s has no service address %s", f.On, e.service.Address)
		}
		a.Cmd[len(a.Cmd)-1], _, _ = strings.Cut(fields[1], "@")
	}
	return e.do(ctx, f.On, a)
}
