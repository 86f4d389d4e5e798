package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// ost is an OST where it is mounted.
type ost struct {
	server, name string
	objects      []string // of the benchmark, hexadecimal
}

// device is the echo client's: a Lustre device that does I/O on the OST's objects
// from the server's kernel.
func (o *ost) device() string { return "mortar-" + o.name }

func (r *profiler) osts() []*ost {
	var out []*ost
	for _, s := range r.env.Design.Services() {
		for _, t := range s.Targets {
			if t.Kind == "ost" {
				out = append(out, &ost{server: r.serves[s.Name], name: t.Name})
			}
		}
	}
	return out
}

// probeOSTs writes objects on all OSTs at once, and reads them past the servers'
// caches: without network and clients, as obdfilter-survey does.
// Source: High Performance, Open Source, Dell Lustre Storage System, section 10.3
func (r *profiler) probeOSTs(ctx context.Context, l *report.Layer, osts []*ost) (err error) {
	defer func() { err = errors.Join(err, r.dropEcho(ctx, osts)) }()
	loads := []string{loadWrite, loadRead}
	for _, load := range loads {
		addLoad(l, load)
	}
	grids := r.opt.objects()
	most := grids[len(grids)-1][0] // objects
	if _, err := eachOST(ctx, osts, func(ctx context.Context, o *ost) (float64, error) { return 0, r.addEcho(ctx, o, most) }); err != nil {
		return err
	}
	// The slowest OST says how much is written in the time of a probe.
	trial, err := r.brw(ctx, osts, true, [2]int{1, 1}, 16)
	if err != nil {
		return err
	}
	for _, g := range grids {
		n := g[0] * g[1]
		count := min(max(int(trial/float64(len(osts)))*r.opt.probe()/n, 4), 4096)
		for i, load := range loads {
			if load == loadRead {
				if err := r.dropServer(ctx); err != nil {
					return err
				}
			}
			began := time.Now()
			sum, err := r.brw(ctx, osts, load == loadWrite, g, count)
			if err != nil {
				return err
			}
			addPoint(&l.Results[i], g[0], g[1], sum, time.Since(began).Seconds(), report.Plural(g[0], "object")+" on each OST, "+report.Plural(g[1], "thread")+" on each object")
		}
	}
	return nil
}

// eachOST calls f for all OSTs at once, and sums their rates up.
func eachOST(ctx context.Context, osts []*ost, f func(context.Context, *ost) (float64, error)) (float64, error) {
	by := map[string]*ost{}
	for _, o := range osts {
		by[o.name] = o
	}
	return summed(ctx, slices.Sorted(maps.Keys(by)), func(ctx context.Context, name string) (float64, error) {
		rate, err := f(ctx, by[name])
		if err != nil {
			err = fmt.Errorf("%s on %s: %w", name, by[name].server, err)
		}
		return rate, err
	})
}

// lctl runs a command of lctl(8) on the OST's server.
func (r *profiler) lctl(ctx context.Context, o *ost, title string, args ...string) (string, error) {
	out, err := r.host(o.server).Run(ctx, resource.Action{Title: title, Cmd: append([]string{"lctl"}, args...), Seconds: 300})
	return out.Stdout, err
}

// addEcho gives an OST an echo client, and objects.
// Source: lctl(8), attach, setup; lustre-iokit's obdfilter-survey
func (r *profiler) addEcho(ctx context.Context, o *ost, objects int) error {
	if err := r.do(ctx, o.server, "load the echo client", "modprobe", "obdecho"); err != nil {
		return err
	}
	if _, err := r.lctl(ctx, o, "attach an echo client", "attach", "echo_client", o.device(), o.device()+"_UUID"); err != nil {
		return err
	}
	if _, err := r.lctl(ctx, o, "set the echo client up", "--device", o.device(), "setup", o.name); err != nil {
		return err
	}
	text, err := r.lctl(ctx, o, "create objects", "--device", o.device(), "create", strconv.Itoa(objects))
	if err != nil {
		return err
	}
	o.objects = linux.ParseEchoObjects(text)
	if len(o.objects) != objects {
		return fmt.Errorf("lctl created %d of %d objects: %s", len(o.objects), objects, strings.TrimSpace(text))
	}
	return nil
}

// brw writes or reads count records of 1 MiB by each thread, objects × threads on all
// OSTs at once, and returns their rate together, MiB/s.
func (r *profiler) brw(ctx context.Context, osts []*ost, write bool, grid [2]int, count int) (float64, error) {
	mode := "rx" // x: without a check of what is in the pages, which costs processor time
	if write {
		mode = "wx"
	}
	return eachOST(ctx, osts, func(ctx context.Context, o *ost) (float64, error) {
		text, err := r.lctl(ctx, o, "I/O on objects", "--threads", strconv.Itoa(grid[0]*grid[1]), "q", o.device(), "test_brw", strconv.Itoa(count), mode, "q", "256",
			strconv.Itoa(grid[1])+"t"+o.objects[0], "p256")
		if err != nil {
			return 0, err
		}
		rate, ok := linux.ParseBRW(text)
		if !ok {
			return 0, fmt.Errorf("lctl test_brw gave no rate: %s", strings.TrimSpace(text))
		}
		return rate, nil
	})
}

// dropEcho removes objects and echo clients, also of a run that was interrupted.
func (r *profiler) dropEcho(ctx context.Context, osts []*ost) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	_, err := eachOST(ctx, osts, func(ctx context.Context, o *ost) (float64, error) {
		var errs []error
		if len(o.objects) > 0 {
			_, err := r.lctl(ctx, o, "remove objects", "--device", o.device(), "destroy", o.objects[0], strconv.Itoa(len(o.objects)))
			errs = append(errs, err)
		}
		for _, w := range []string{"cleanup", "detach"} {
			if _, err := r.lctl(ctx, o, w+" of the echo client", "--device", o.device(), w); err != nil && len(o.objects) > 0 {
				errs = append(errs, err)
			}
		}
		return 0, errors.Join(errs...)
	})
	return err
}

// probeLNet has LNet's self-test send records of 1 MiB between all clients and the
// servers of the OSTs, without disks.
// Source: lst(8); High Performance, Open Source, Dell Lustre Storage System, section 10.4
func (r *profiler) probeLNet(ctx context.Context, l *report.Layer) error {
	var servers []string
	for _, s := range r.env.Design.Services() {
		if kind.Of(r.env.Design).HoldsData(s) && !slices.Contains(servers, r.serves[s.Name]) {
			servers = append(servers, r.serves[s.Name])
		}
	}
	nids, failed := host.All(ctx, slices.Concat(servers, r.clients), func(ctx context.Context, name string) (string, error) {
		if err := r.do(ctx, name, "load LNet's self-test", "modprobe", "lnet_selftest"); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		out, err := r.host(name).Run(ctx, resource.Action{Title: "list the NIDs", Cmd: []string{"lctl", "list_nids"}, Seconds: 60})
		nid, _, _ := strings.Cut(strings.TrimSpace(out.Stdout), "\n")
		if err == nil && nid == "" {
			err = fmt.Errorf("%s has no NID", name)
		}
		return nid, err
	})
	if err := failed.Join(); err != nil {
		return err
	}
	t := selfTest{r: r, console: r.clients[0], session: strconv.Itoa(int(time.Now().UnixNano()%30000) + 1), servers: servers, nids: nids}
	counts, at := r.opt.selfTests(len(r.clients))
	loads := []string{loadRead, loadWrite}
	for _, load := range loads {
		addLoad(l, load)
	}
	for _, n := range counts {
		for i, load := range loads {
			for _, a := range at {
				rate, err := t.measure(ctx, load == loadWrite, n, a)
				if err != nil {
					return err
				}
				addPoint(&l.Results[i], n, a, rate, float64(r.opt.probe()), report.Plural(a, "record")+" at a time from each of "+report.Plural(n, "client"))
			}
		}
	}
	return nil
}

func nidsOf(nids map[string]string, hosts []string) []string {
	return lists.Map(hosts, func(h string) string { return nids[h] })
}

// selfTest is LNet's self-test, led by one host.
type selfTest struct {
	r                *profiler
	console, session string
	servers          []string
	nids             map[string]string // by host
}

func (t *selfTest) lst(ctx context.Context, title string, args ...string) (string, error) {
	out, err := t.r.host(t.console).Run(ctx, resource.Action{Title: title, Cmd: append([]string{"env", "LST_SESSION=" + t.session, "lst"}, args...), Seconds: 120})
	return out.Stdout, err
}

// measure gives the rate of all servers together with the first n clients, MiB/s. It has a
// session of its own: until its session ends, a test keeps its buffers on all nodes, and the
// grid of a survey needs over a GiB of them.
func (t *selfTest) measure(ctx context.Context, write bool, n, concurrency int) (rate float64, err error) {
	if _, err := t.lst(ctx, "LNet's self-test", "new_session", "--timeout", "300", "mortar"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.end(ctx)) }()
	op := map[bool]string{false: "read", true: "write"}[write]
	for _, args := range [][]string{
		append([]string{"add_group", "servers"}, nidsOf(t.nids, t.servers)...),
		append([]string{"add_group", "clients"}, nidsOf(t.nids, t.r.clients[:n])...),
		{"add_batch", op},
		{"add_test", "--batch", op, "--concurrency", strconv.Itoa(concurrency), "--from", "clients", "--to", "servers", "brw", op, "size=1M"},
		strings.Fields("run " + op), // a command of lst
	} {
		if _, err := t.lst(ctx, "LNet's self-test", args...); err != nil {
			return 0, err
		}
	}
	text, err := t.lst(ctx, "rates of LNet's self-test", "stat", "--bw", "--delay", strconv.Itoa(t.r.opt.probe()), "--count", "1", "servers")
	if err != nil {
		return 0, err
	}
	received, sent, ok := linux.ParseLNetRates(text)
	if !ok {
		return 0, fmt.Errorf("lst stat gave no rate: %s", strings.TrimSpace(text))
	}
	// lst gives the mean of the group's servers.
	if write {
		return received * float64(len(t.servers)), nil
	}
	return sent * float64(len(t.servers)), nil
}

func (t *selfTest) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	_, err := t.lst(ctx, "end LNet's self-test", "end_session")
	return err
}
