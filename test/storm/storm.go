package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	n4 "github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

type storm struct {
	Server, First                     netip.Addr
	Export, Interface                 string
	Clients, NLM, Busy, Dead, DeadNLM int
	Lease, Settle, Patience           time.Duration

	count counts
	v4    []*client4
	v3    []*client3
	// probe makes the files of NFSv3's clients, and asks for new opens and locks after the
	// crash; probe3 does it over NLM.
	probe  *client4
	probe3 *client3
	// vanish takes a dead client's address away.
	vanish func(netip.Addr) error
}

// atOnce is how many clients begin at the same time.
const atOnce = 64

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05.0")}, args...)...)
}

func (s *storm) run() (*figures, error) {
	link, err := netlink.LinkByName(s.Interface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", s.Interface, err)
	}
	s.vanish = func(a netip.Addr) error { return netlink.AddrDel(link, hostAddr(a)) }
	addr := s.First
	next := func() (a netip.Addr, err error) {
		a, addr = addr, addr.Next()
		return a, netlink.AddrReplace(link, hostAddr(a))
	}
	if err := s.make(next); err != nil {
		return nil, err
	}
	if err := s.files(); err != nil {
		return nil, err
	}
	f := &figures{Clients: map[string]int{
		"all": s.Clients, "nfs4": len(s.v4), "nfs3": len(s.v3), "busy": s.Busy, "dead_nfs4": s.Dead, "dead_nfs3": s.DeadNLM,
	}}
	ready := make(chan error, 1)
	go func() {
		began := time.Now()
		err := s.begin()
		f.Setup = seconds(began, time.Now())
		say("%d clients have their locks after %.1f s", s.Clients, f.Setup)
		time.Sleep(s.Settle)
		ready <- err
	}()
	return f, s.crash(f, ready)
}

func hostAddr(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice())}
}

// make makes the clients, each with an address.
func (s *storm) make(next func() (netip.Addr, error)) error {
	new4 := func(name string) (*client4, error) {
		a, err := next()
		return &client4{s: s, name: name, from: a}, err
	}
	new3 := func(name string) (*client3, error) {
		a, err := next()
		c := &client3{s: s, name: name, from: a, notified: make(chan struct{}, 1)}
		return c, err
	}
	var err error
	if s.probe, err = new4("storm-probe"); err != nil {
		return err
	}
	if s.probe3, err = new3("storm-probe3"); err != nil {
		return err
	}
	for i := range s.Clients - s.NLM {
		c, err := new4(fmt.Sprintf("storm%05d", i))
		if err != nil {
			return err
		}
		s.v4 = append(s.v4, c)
	}
	for i := range s.NLM {
		c, err := new3(fmt.Sprintf("storm3-%05d", i))
		if err != nil {
			return err
		}
		if i >= s.DeadNLM {
			if err := c.listen(); err != nil {
				return err
			}
		}
		s.v3 = append(s.v3, c)
	}
	return nil
}

// files makes the files of the clients of NFSv3. nfsd's handles are the same in all versions.
func (s *storm) files() error {
	if err := s.again(context.Background(), s.probe.name, s.probe.begin); err != nil {
		return err
	}
	for _, c := range append([]*client3{s.probe3}, s.v3...) {
		err := s.again(context.Background(), c.name, func() error {
			open, fh, err := s.probe.openNew(c.name)
			if err != nil {
				return err
			}
			c.fh = fh
			_, err = s.probe.sequenced("CLOSE", &n4.NfsArgop4_OP_PUTFH{Opputfh: n4.Putfh4args{Object: fh}}, &n4.NfsArgop4_OP_CLOSE{Opclose: n4.Close4args{OpenStateid: open}})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// begin has all clients take their locks. Then each lives, or is dead: its address is gone.
func (s *storm) begin() error {
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(atOnce)
	start := func(name string, from netip.Addr, begin func() error, dead bool, live func()) {
		g.Go(func() error {
			if err := s.again(ctx, name, begin); err != nil {
				return err
			}
			if dead {
				return s.vanish(from)
			}
			go live()
			return nil
		})
	}
	for i, c := range s.v4 {
		start(c.name, c.from, c.begin, i < s.Dead, func() { c.live(i < s.Dead+s.Busy) })
	}
	for i, c := range s.v3 {
		start(c.name, c.from, c.begin, i < s.DeadNLM, c.live)
	}
	return g.Wait()
}

// again tries until it works; a server that is slow, or in its grace period, has two minutes.
func (s *storm) again(ctx context.Context, who string, f func() error) error {
	err := ctx.Err()
	for until := time.Now().Add(2 * time.Minute); ctx.Err() == nil && time.Now().Before(until); time.Sleep(time.Second) {
		if err = f(); err == nil {
			return nil
		}
		s.count.failed(err)
		say("%s: %v", who, err)
	}
	return fmt.Errorf("%s: %w", who, err)
}

// pause is how long a client waits before it connects again after so many failures in a
// row: 3 s, then twice as long each time, at most half of the lease.
// Source: xprt_reconnect_backoff() and nfs4_set_lease_period() of the kernel.
func (s *storm) pause(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	return min(3*time.Second<<min(failures-2, 5), s.Lease/2)
}

// renewal is when a Linux client renews its lease. Source: fs/nfs/nfs4renewd.c.
func (s *storm) renewal() time.Duration { return s.Lease * 2 / 3 }

// live is a client's life once it has its lock.
func (c *client4) live(busy bool) {
	use, every := c.renew, c.s.renewal()
	if busy {
		use, every = c.work, 5*time.Second
	}
	do, recovers, failures := use, false, 0
	time.Sleep(rand.N(every))
	for {
		err := do()
		switch {
		case err == nil:
			failures = 0
			if recovers {
				do, recovers = use, false
				c.s.count.reclaimed("nfs4")
			}
			time.Sleep(every)
			continue
		case restarted(err):
			do, recovers, failures = c.recover, true, 0
			continue
		case later(err):
			c.s.count.failed(err)
			time.Sleep(time.Second)
			continue
		case errors.As(err, new(status)):
			c.s.count.lose("nfs4", err)
			return
		}
		c.s.count.failed(err)
		failures++
		time.Sleep(c.s.pause(failures))
	}
}

// live runs a client that has its lock until the storm ends. The client pings nfsd over its
// connection, and reclaims the lock when rpc.statd sends SM_NOTIFY.
func (c *client3) live() {
	next := time.After(rand.N(c.s.renewal()))
	failures := 0
	for {
		select {
		case <-next:
			wait := c.s.renewal()
			if err := c.ping(); err != nil {
				c.s.count.failed(err)
				failures++
				wait = c.s.pause(failures)
			} else {
				failures = 0
			}
			next = time.After(wait)
		case <-c.notified:
			c.s.drop(&c.lockd)
			for try := 1; ; try++ {
				err := c.lock(c.fh, true)
				if err == nil {
					if !c.back {
						c.s.count.reclaimed("nfs3") // sm-notify may say it twice
					}
					c.back = true
					break
				}
				c.s.count.failed(err)
				if errors.As(err, new(denied)) {
					c.s.count.lose("nfs3", err)
					break
				}
				time.Sleep(c.s.pause(try))
			}
		}
	}
}

// probeEvery is how often the probe asks.
const probeEvery = 100 * time.Millisecond

// crash waits for the crash, and for the end of what it leads to.
func (s *storm) crash(f *figures, ready <-chan error) error {
	var last time.Time
	for silent := false; ; time.Sleep(probeEvery) {
		select {
		case err := <-ready:
			if err != nil {
				return err
			}
			say("ready")
		default:
		}
		began := time.Now()
		err := s.probe.quick(s.probe.renew)
		if err == nil {
			last, silent = began, false
			continue
		}
		if restarted(err) {
			break
		}
		if !silent {
			say("the server does not answer: %v", err)
		}
		silent = true
	}
	up := time.Now()
	f.Outage = seconds(last, up)
	say("the server has started anew, %.1f s after its last answer", f.Outage)
	new := map[string]time.Time{}
	var g errgroup.Group
	ask := func(name string, do func() error) func() error {
		return func() error {
			for until := up.Add(s.Patience); time.Now().Before(until); time.Sleep(probeEvery) {
				err := do()
				if err == nil {
					s.count.do(func() { new[name] = time.Now() })
					say("%s after %.1f s", name, time.Since(up).Seconds())
					return nil
				}
				s.count.failed(err)
				if restarted(err) {
					s.count.failed(s.probe.recover())
				}
			}
			return fmt.Errorf("no %s within %v", name, s.Patience)
		}
	}
	g.Go(func() error {
		var open n4.Stateid4
		var fh []byte
		for _, step := range []func() error{
			ask("probe_reclaim", s.probe.recover),
			ask("new_open", func() (err error) { open, fh, err = s.probe.openNew("storm-new"); return err }),
			ask("new_lock", func() error { _, err := s.probe.lockFile(fh, open, false); return err }),
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if s.NLM > 0 {
		g.Go(ask("new_lock_nfs3", func() error { return s.probe3.lock(s.probe3.fh, false) }))
	}
	g.Go(func() error { return s.allBack(up) })
	err := g.Wait()
	s.figures(f, up, last, new)
	if len(f.Lost) > 0 {
		err = errors.Join(err, fmt.Errorf("locks were lost: %v", f.Lost))
	}
	return err
}

// quick does something that must be done within a second.
func (c *client4) quick(do func() error) error {
	if c.c == nil {
		c.tries++
		k, err := c.s.dial(c.from, nfsPort, c.tries, time.Second)
		if err != nil {
			return err
		}
		c.c = k
	}
	k := c.c
	t := time.AfterFunc(time.Second, func() { _ = k.Close() })
	defer t.Stop()
	return do()
}

// allBack waits until each client that lives has its lock back, or has lost it.
func (s *storm) allBack(up time.Time) error {
	want := s.Clients - s.Dead - s.DeadNLM
	for time.Since(up) < s.Patience {
		have := 0
		s.count.do(func() {
			have = len(s.count.reclaims["nfs4"]) + len(s.count.reclaims["nfs3"])
			for _, n := range s.count.lost {
				have += n
			}
		})
		if have >= want {
			say("the last of %d clients is back after %.1f s", want, time.Since(up).Seconds())
			return nil
		}
		time.Sleep(probeEvery)
	}
	return fmt.Errorf("not all of %d clients have reclaimed within %v", want, s.Patience)
}

func (s *storm) figures(f *figures, up, crashed time.Time, new map[string]time.Time) {
	s.count.do(func() {
		f.Reclaims, f.AfterUp = map[string]*spread{}, map[string]float64{}
		for name, at := range new {
			f.AfterUp[name] = seconds(up, at)
		}
		for protocol, at := range s.count.reclaims {
			f.Reclaims[protocol] = after(up, at)
			f.AfterUp["last_reclaim"] = max(f.AfterUp["last_reclaim"], f.Reclaims[protocol].Last)
		}
		dials := lists.Only(s.count.dials, func(t time.Time) bool { return t.After(crashed) })
		f.Connections = map[string]int{"most": s.count.most, "attempts": len(dials), "most_in_a_second": mostWithin(dials, time.Second)}
		f.Errors, f.Lost = s.count.errs, s.count.lost
	})
}
