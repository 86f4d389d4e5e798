package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// none: the drill has no target for the stall.
const none = -1.0

// hung is what is expected of a daemon that hangs: the watcher starts it again in place.
// It needs two looks for that, up to 10 and 5 s apart, with calls that last 5 s.
var hung = Expect{Where: Stays, Fencing: Nobody, Stall: 30}

// Table lists every drill in the order of `mortar drill all`: drills without a
// takeover first, drills that cut all power last.
var Table = []Drill{
	{
		Name: "power-bus", Title: "one power feed fails; every server has a second one",
		Expect:   Expect{Where: Stays, Fencing: Nobody},
		Variants: []Variant{{How: "feed", Title: "the first PDU gives no power", Steps: powerBus}},
	},
	{
		Name: "private-switch", Title: "all private links fail; the cluster goes on over the public ones",
		Expect: Expect{Where: Stays, Fencing: Nobody},
		Variants: []Variant{{How: "switch", Title: "the private network's switch is off", Steps: witnessed(one(Fault{Kind: SwitchDown, Args: []string{"private"}}, linkHold),
			func(s Scene) *Condition { return linkGone("private", s.servers()...) })}},
	},
	{
		Name: "heartbeat-link", Title: "the active server's private link fails; the second ring carries on",
		Expect: Expect{Where: Stays, Fencing: Nobody},
		Variants: []Variant{{How: "cable", Title: "its private cable is pulled",
			Steps: witnessed(active(Fault{Kind: LinkDown, Args: []string{"private"}}, linkHold), func(s Scene) *Condition { return linkGone("private", s.Active) })}},
	},
	{
		Name: "path-one", Title: "the active server loses paths; multipath goes on over the others",
		Expect: Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{
			{How: "hba", Title: "its first HBA fails, with one path to every disk", Steps: witnessed(active(Fault{Kind: HBAOut, Args: []string{"0"}}, pathHold), func(s Scene) *Condition { return s.storage().lost("", []string{s.Active}) })},
			{How: "disk", Title: "its paths over one HBA to one disk or LUN fail", Steps: func(s Scene) ([]Step, error) {
				name, err := s.storage().reached()
				if err != nil {
					return nil, err
				}
				return []Step{{Fault: Fault{Kind: PathOut, On: s.Active, Args: []string{name, "0"}}, Wait: pathHold, Look: true, Until: s.storage().lost(name, []string{s.Active})}}, nil
			}},
		},
	},
	{
		Name: "controller", Title: "an enclosure's I/O module, or an array's controller, fails: every server loses half of its paths",
		Expect: Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{{How: "module", Title: "the first I/O module of the first enclosure is pulled; of an array: the controller that owns the service's first LUN dies, and comes back",
			Steps: func(s Scene) ([]Step, error) { return s.storage().module() }}},
	},
	{
		Name: "local-disk", Title: "a disk of the active server's own system mirror fails: clients do not notice, and status says so",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "one of its two system disks is pulled from its slot", Steps: localDisk}},
	},
	{
		Name: "shared-disk", Title: "a disk of a RAID group fails; a spare is rebuilt in its place",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "a disk is pulled from its slot", Steps: diskLoss(1)}},
	},
	{
		Name: "two-disks", Title: "two disks of one RAID group fail; spares are rebuilt in their place",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "two disks of one group are pulled, one after the other", Steps: diskLoss(2)}},
	},
	{
		Name: "disk-slow", Title: "a disk of a RAID group answers late: clients wait longer, nothing is given up, and status names the disk",
		// A monitor whose own I/O waits too long for the disk finds no fault: the partner
		// would wait for it, too.
		Expect: Expect{Where: Stays, Fencing: Nobody, Stall: none, Disks: true},
		Variants: []Variant{
			{How: "throttled", Title: "a disk does two operations and 20 kB a second", Steps: diskSlow},
			// What the disk was asked before it is dropped has to be answered by it.
			{How: "dropped", Title: "the same, and the spec has slow disks dropped: md goes on without it, and clients with full speed while it is still slow", Steps: diskDropped,
				Expect: &Expect{Where: Stays, Fencing: Nobody, Stall: none, Disks: true, Within: 6 * time.Minute}},
		},
	},
	{
		Name: "bit-rot", Title: "a disk holds other bytes than were written to it; a scrub finds which disk, and mends it",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Disks: true},
		Variants: []Variant{{How: "scrub", Title: "bytes of one disk are overwritten beneath the RAID, then mortar scrub --repair runs", Append: true, Steps: bitRot}},
	},
	{
		Name: "full-fs", Title: "the file system is full: clients are told so, and go on once there is room",
		Expect: Expect{Where: Stays, Fencing: Nobody, Stall: none, Tolerate: []string{"ENOSPC"}},
		Variants: []Variant{
			{How: "full", Title: "a file takes every block that is left", Steps: fullFS},
			{How: "moved", Title: "a file takes every block that is left, and the service is moved by command: clients keep their locks", Steps: fullMoved,
				Expect: &Expect{Where: Moves, Fencing: Nobody, Stall: none, Tolerate: []string{"ENOSPC"}}},
		},
	},
	{
		Name: "ost-full", Title: "an OST is full: writers on it are told so, new files go to the other OSTs, and writing goes on once there is room",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: none, Tolerate: []string{"ENOSPC"}},
		Variants: []Variant{{How: "full", Title: "files on the service's first OST take every block that it has left (Lustre)", Steps: ostFull}},
	},
	{
		Name: "client-crash", Title: "a client that holds locks dies: another one gets them, and no client that lives notices more than a wait",
		// The server of NFSv3 keeps the locks until the client has booted.
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: none, Within: 8 * time.Minute},
		Variants: []Variant{{How: "power", Title: "the first client loses power at once, and boots later", ClientDies: true, Steps: clientCrash}},
	},
	{
		Name: "failover", Title: "the service is moved by command",
		Expect:   Expect{Where: Moves, Fencing: Nobody, Stall: 5},
		Variants: []Variant{{How: "command", Title: "mortar failover", Home: true, Steps: move(Scene.passive)}},
	},
	{
		Name: "failback", Title: "the service is moved back to its preferred server by command",
		Expect:   Expect{Where: Moves, Fencing: Nobody, Stall: 5},
		Variants: []Variant{{How: "command", Title: "mortar failback", Away: true, Steps: move(Scene.passive)}},
	},
	{
		Name: "standby", Title: "the active server is put in standby by command",
		Expect: Expect{Where: Moves, Fencing: Nobody, Stall: 5},
		Variants: []Variant{{How: "command", Title: "mortar standby", Steps: func(s Scene) ([]Step, error) {
			return []Step{{Fault: Fault{Kind: Standby, On: s.Active}}}, nil
		}}},
	},
	{
		Name: "service-kill", Title: "a daemon on the active server is killed or hangs; it is restarted, or the service moves",
		Expect: Expect{Where: Anywhere, Fencing: Nobody, Stall: 10},
		Variants: []Variant{
			{How: "nfsd", Title: "the kernel's NFS threads are stopped", Steps: kill("nfsd")},
			{How: "mountd", Title: "rpc.mountd is killed", Steps: kill("rpc.mountd")},
			{How: "statd", Title: "rpc.statd is killed", Steps: kill("rpc.statd")},
			{How: "nfsdcld", Title: "nfsdcld, which keeps the NFSv4 clients' records, is killed", Steps: kill("nfsdcld")},
			{How: "stop-mountd", Title: "rpc.mountd is stopped by a signal: it stays, and answers nothing", Steps: hang("rpc.mountd"), Expect: &hung},
			{How: "stop-statd", Title: "rpc.statd is stopped by a signal", Steps: hang("rpc.statd"), Expect: &hung},
			{How: "stop-nfsdcld", Title: "nfsdcld is stopped by a signal", Steps: hang("nfsdcld"), Expect: &hung},
			{How: "pacemaker", Title: "pacemakerd is killed", Steps: kill("pacemakerd"), Expect: &Expect{Where: Anywhere, Fencing: Allow, Stall: 10}},
			{How: "corosync", Title: "corosync is killed", Steps: kill("corosync"), Expect: &Expect{Where: Anywhere, Fencing: Allow, Stall: 10}},
		},
	},
	{
		Name: "address-gone", Title: "something on the active server takes away what its service needs; the watcher puts it back, and the service stays",
		Expect: Expect{Where: Stays, Fencing: Nobody, Stall: 5},
		Variants: []Variant{
			{How: "address", Title: "the service address is removed, as a restart of systemd-networkd does", Steps: takenAway(theAddress)},
			{How: "hosts", Title: "its line in /etc/hosts is removed, as cloud-init does", Steps: takenAway(theName)},
		},
	},
	{
		Name: "flapping", Title: "a link of the active server goes down and up ten times; nobody fences in a loop",
		Expect: Expect{Where: Anywhere, Fencing: Nobody, Stall: none},
		Variants: []Variant{
			{How: "private", Title: "its private link", Steps: flap("private")},
			{How: "public", Title: "its public link", Steps: flap("public")},
		},
	},
	{
		Name: "clock-jump", Title: "the active server's clock jumps by an hour; nobody notices but status",
		Expect: Expect{Where: Stays, Fencing: Nobody},
		Variants: []Variant{
			{How: "ahead", Title: "its clock is set an hour ahead, and back", Steps: clockJump(time.Hour)},
			{How: "back", Title: "its clock is set an hour back, and ahead again", Steps: clockJump(-time.Hour)},
		},
	},
	{
		Name: "public-link", Title: "the active server's public link fails; the service moves to the server clients reach",
		Expect: Expect{Where: Moves, Fencing: Nobody, Stall: 10},
		Variants: []Variant{{How: "cable", Title: "its public cable is pulled",
			Steps: active(Fault{Kind: LinkDown, Args: []string{"public"}}, 0)}},
	},
	{
		Name: "public-switch", Title: "the public network is off and comes back, as when its switch boots; the service stays",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: 20},
		Variants: []Variant{{How: "switch", Title: "the public network's switch is off for ten seconds", Steps: switchBoots}},
	},
	{
		Name: "lnet", Title: "LNet of the active server loses its network; the watcher reports the targets, and they move",
		Expect:   Expect{Where: Moves, Fencing: Nobody, Stall: 10},
		Variants: []Variant{{How: "network", Title: "lnetctl takes the network from its LNet (Lustre)", Steps: lnetGone}},
	},
	{
		Name: "both-rings", Title: "the active server loses private and public link; its partner fences it",
		Expect: Expect{Where: Moves, Fencing: Victim, Stall: 10},
		Variants: []Variant{
			{How: "cables", Title: "both cables are pulled", Steps: bothRings(func(s Scene) string { return s.Active }, 0)},
			{How: "passive", Title: "both cables of the passive server are pulled, which must not fence the active one: the service stays",
				Steps: bothRings(Scene.passive, passiveHold), Expect: &Expect{Where: Stays, Fencing: Allow}},
			{How: "standby", Title: "the passive server is in standby, and both its cables are pulled, as when a person works on it: the service stays",
				Steps: standbyCutOff, Expect: &Expect{Where: Stays, Fencing: Allow}},
		},
	},
	{
		Name: "server-crash", Title: "the active server dies; its partner fences it and takes over",
		Expect: Expect{Where: Moves, Fencing: Victim, Stall: 10},
		Variants: []Variant{
			{How: "freeze", Title: "it stops executing, as with hanging hardware; it may come back any moment, so only fencing makes the take-over safe", Steps: active(Fault{Kind: Freeze}, 0)},
			{How: "panic", Title: "its kernel panics", Steps: active(Fault{Kind: Panic}, 0)},
			{How: "power", Title: "it loses power at once", Steps: active(Fault{Kind: PowerOff}, 0)},
		},
	},
	{
		Name: "mds-and-oss", Title: "the MDS dies, and an OSS within the same minute; both partners fence and take over",
		// The target of a move, after the second fault.
		Expect:   Expect{Where: Moves, Fencing: Victim, Stall: 60},
		Variants: []Variant{{How: "freeze", Title: "the active server stops executing, and 15 s later that of the other role (Lustre)", Second: true, Steps: mdsAndOSS}},
	},
	{
		Name: "degraded-crash", Title: "the active server dies while a RAID group lacks a disk; its partner looks whether every stripe is whole, and takes over",
		Expect:   Expect{Where: Moves, Fencing: Victim, Stall: 20, Disks: true},
		Variants: []Variant{{How: "panic", Title: "a disk is pulled from its slot, then the kernel panics mid-write", Steps: degradedCrash}},
	},
	{
		Name: "disk-hung", Title: "a disk of a RAID group answers the passive server nothing, neither data nor an error: that server takes over without it, and has it back when it answers",
		// 10 s until the disk counts as missing.
		Expect: Expect{Where: Moves, Fencing: Victim, Stall: 35, Disks: true},
		Variants: []Variant{
			{How: "crash", Title: "the disk hangs on the passive server, then the kernel of the active one panics mid-write", Steps: diskHung(func(s Scene) Fault { return Fault{Kind: Panic, On: s.Active} })},
			{How: "move", Title: "the disk hangs on the passive server, then the service is moved there by command", Expect: &Expect{Where: Moves, Fencing: Nobody, Stall: 25, Disks: true},
				Steps: diskHung(func(s Scene) Fault { return Fault{Kind: Move, On: s.Passive, Args: []string{s.Service.Name}} })},
		},
	},
	{
		Name: "fence-device", Title: "the active server's BMC is dead when the server fails; both PDU outlets fence it",
		Expect: Expect{Where: Moves, Fencing: Victim, Stall: 15},
		Variants: []Variant{{How: "freeze", Title: "its BMC dies, then it stops executing", Steps: func(s Scene) ([]Step, error) {
			return []Step{
				{Fault: Fault{Kind: BMCDead, On: s.Active}, Prepare: true, Wait: 2 * time.Second},
				{Fault: Fault{Kind: Freeze, On: s.Active}},
			}, nil
		}}},
	},
	{
		Name: fencingLiesName, Title: "the active server freezes, its fence device says that it is off, and it wakes up when its partner serves: what it still has in memory must not reach the LUNs",
		Expect: Expect{Where: Moves, Fencing: Victim, Stall: 15, Wakes: true},
		Variants: []Variant{
			{How: "bmc", Title: "its BMC switches something else", Rewrite: true, Steps: fencingLies(BMCLies)},
			{How: "outlets", Title: "its BMC is dead, and something else hangs on its outlets", Rewrite: true, Steps: fencingLies(BMCDead, Astray)},
		},
	},
	{
		Name: "paths-all", Title: "the active server loses every path to every disk; it stops, or is fenced, and its partner takes over",
		Expect:   Expect{Where: Moves, Fencing: Allow, Stall: 20, Disks: true},
		Variants: []Variant{{How: "paths", Title: "every path to every disk fails", Steps: active(Fault{Kind: PathsOut}, 0)}},
	},
	{
		Name: "fence-all", Title: "no fence device works when the active server fails: the service must not start elsewhere before a person has confirmed that the server is off",
		// NFSv3 locks may be reclaimed for as long as the outage was.
		Expect:   Expect{Where: Moves, Fencing: Victim, Stall: none, Within: 8 * time.Minute},
		Variants: []Variant{{How: "confirm", Title: "BMC and PDUs die, then it stops executing; then its power is cut by hand and mortar confirm-off says so", Steps: fenceAll}},
	},
	{
		Name: "unfenced", Title: "the active server fails and no fence device works: it resets itself, and the brick comes back without a person",
		// The server boots, after the watchdog or the wait for fencing.
		Expect: Expect{Where: Anywhere, Fencing: Allow, Stall: none, Within: 12 * time.Minute},
		Variants: []Variant{
			{How: "hang", Title: "BMC and PDUs die, then its kernel panics", Steps: hangUnfenced},
			{How: "stuck", Title: "BMC and PDUs die, something keeps the volume in use, and its public cable is pulled: the service cannot be stopped", Steps: stuckUnfenced},
		},
	},
	{
		Name: "cold-start-alone", Title: "the active server dies and cannot be fenced in time, and its partner, back after a power failure, is alone: the service must not start before a person has confirmed that the other one is off",
		// As with fence-all, and the partner boots too.
		Expect:   Expect{Where: Moves, Fencing: Victim, Stall: none, Within: 10 * time.Minute},
		Variants: []Variant{{How: "confirm", Title: "its BMC dies, it stops executing, and its partner loses power and comes back; then its power is cut by hand and mortar confirm-off says so", Steps: coldStartAlone}},
	},
	{
		Name: "rack-power", Title: "the power of all servers fails mid-write; the brick comes back by itself once it returns",
		// Two servers boot at once.
		Expect:   Expect{Where: Anywhere, Fencing: Allow, Stall: none, Disks: true, Within: 8 * time.Minute},
		Variants: []Variant{{How: "feeds", Title: "every power feed fails at once and returns after five seconds", Steps: rackPower}},
	},
}

const (
	// linkHold is how long a fault without consequences lasts: several times the
	// time after which the cluster declares a server dead.
	linkHold = 15 * time.Second
	// pathHold is longer than multipathd's polling interval.
	pathHold = 15 * time.Second
)

// passiveHold is longer than either server needs to fence the other; one of them
// first waits for priority-fencing-delay.
const passiveHold = 25 * time.Second

func bothRings(whose func(Scene) string, hold time.Duration) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		on := whose(s)
		if on != s.Active && len(s.Design.PairOf(s.Service.Name).Services) > 1 {
			return nil, errors.New("with two services neither server is passive")
		}
		steps := []Step{
			{Fault: Fault{Kind: LinkDown, On: on, Args: []string{"private"}}},
			{Fault: Fault{Kind: LinkDown, On: on, Args: []string{"public"}}},
		}
		if hold > 0 {
			// At once: the partner may fence it.
			steps[1].Until = cutOff(on)
			steps = append(steps, Step{Wait: hold, Look: true})
		}
		return steps, nil
	}
}

// switchHold is longer than the watcher waits until it tells of a link that is back (10 s,
// and 5 s until Pacemaker acts): a restart at that moment belongs to the drill.
const switchHold = 25 * time.Second

// standbyCutOff cuts off a server on which Pacemaker has stopped all of Mortar's agents.
func standbyCutOff(s Scene) ([]Step, error) {
	steps, err := bothRings(Scene.passive, passiveHold)(s)
	return append([]Step{{Fault: Fault{Kind: Standby, On: s.Passive}, Prepare: true}}, steps...), err
}

// one is a single fault that lasts for hold.
func one(f Fault, hold time.Duration) func(Scene) ([]Step, error) {
	return func(Scene) ([]Step, error) { return []Step{{Fault: f, Wait: hold, Look: hold > 0}}, nil }
}

// active is a single fault of the active server.
func active(f Fault, hold time.Duration) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) { return one(f.of(s.Active), hold)(s) }
}

// of returns the same fault of a server. All drills share the table of faults, so none may
// write into it.
func (f Fault) of(server string) Fault {
	f.On = server
	return f
}

func (s Scene) passive() string { return s.Passive }

func move(to func(Scene) string) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		return []Step{{Fault: Fault{Kind: Move, On: to(s), Args: []string{s.Service.Name}}}}, nil
	}
}

// disks are n members of one of the service's RAID groups, by serial.
func (s Scene) disks(n int) ([]string, error) {
	if len(s.Members) < n {
		return nil, fmt.Errorf("no RAID group of service %s has %d disks that Mortar knows", s.Service.Name, n)
	}
	return s.Members[:n], nil
}

func powerBus(s Scene) ([]Step, error) {
	if len(s.Design.Spec.PDUs) == 0 {
		return nil, fmt.Errorf("the brick has no PDU in its spec")
	}
	pdu := s.Design.Spec.PDUs[0].Name
	return []Step{{Fault: Fault{Kind: FeedOff, Args: []string{pdu}}, Wait: linkHold, Look: true, Until: feedLost(s.Active, pdu)}}, nil
}

func diskLoss(n int) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		ds, err := s.disks(n)
		if err != nil {
			return nil, err
		}
		if n > s.Group.Parity || s.Group.Level == 10 && n > 1 {
			return nil, fmt.Errorf("RAID group %s cannot lose %d disks", s.Group.Name, n)
		}
		var steps []Step
		for _, d := range ds {
			steps = append(steps, Step{Fault: s.storage().pulled(d), Wait: 3 * time.Second})
		}
		last := &steps[len(steps)-1]
		last.Look = true
		last.Until = s.storage().without(ds...)
		return steps, nil
	}
}

// degradedCrash makes the server die before the rebuild of a spare ends.
func degradedCrash(s Scene) ([]Step, error) {
	steps, err := diskLoss(1)(s)
	if err != nil {
		return nil, err
	}
	if s.storage().rebuilds() {
		steps = append([]Step{{Fault: Fault{Kind: HoldRebuild, On: s.Active}}}, steps...)
	}
	for i := range steps {
		steps[i].Prepare, steps[i].Look = true, false // a look takes time in which the rebuild goes on
	}
	return append(steps, Step{Fault: Fault{Kind: Panic, On: s.Active}, Until: s.storage().startedDegraded()}), nil
}

// kill kills a daemon and waits until a daemon of that name runs again on the
// server of the service.
func kill(daemon string) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		st := Step{Fault: Fault{Kind: Kill, On: s.Active, Args: []string{daemon}}}
		cluster := slices.Contains(ofCluster, daemon)
		switch {
		case !cluster && !slices.Contains(kind.Of(s.Design).Daemons(), daemon):
			return nil, fmt.Errorf("service %s has no %s", s.Service.Name, daemon)
		case cluster:
			// The server may lose its membership and be fenced. So the drill
			// requires only the service, and health at the end.
			st.Wait = 20 * time.Second
		default:
			st.Until = &Condition{What: "daemon back", Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
				for _, server := range []string{v.Active, v.Passive} {
					if daemonRuns(ctx, v, server, daemon) && v.mounted(ctx, server) {
						return true, fmt.Sprintf("%s runs on %s", daemon, server)
					}
				}
				return false, daemon + " does not run where the service is"
			}}
		}
		return []Step{st}, nil
	}
}

// hang stops a daemon by a signal and waits until another process has taken its place.
func hang(daemon string) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		if !slices.Contains(kind.Of(s.Design).Daemons(), daemon) {
			return nil, fmt.Errorf("service %s has no %s", s.Service.Name, daemon)
		}
		return []Step{{Fault: Fault{Kind: Hang, On: s.Active, Args: []string{daemon}}, Until: &Condition{What: "daemon replaced", Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
			stopped, err := v.e.query(ctx, s.Active, "pgrep", "--runstates", "T", "-x", daemon)
			if err != nil || stopped.Code != 1 {
				return false, daemon + " is stopped"
			}
			return daemonRuns(ctx, v, s.Active, daemon), fmt.Sprintf("another %s runs on %s", daemon, s.Active)
		}}}}, nil
	}
}

func daemonRuns(ctx context.Context, v *View, server, daemon string) bool {
	if daemon == "nfsd" {
		s, err := v.e.read(ctx, server, ocf.NFSDDir(v.Service.Namespace)+"/threads")
		return err == nil && strings.TrimSpace(s) != "0" && strings.TrimSpace(s) != ""
	}
	out, err := v.e.query(ctx, server, "pgrep", "-x", daemon)
	return err == nil && out.Code == 0
}

func flap(network string) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		f := Fault{Kind: LinkDown, On: s.Active, Args: []string{network}}
		var steps []Step
		for range 10 {
			steps = append(steps, Step{Fault: f, Wait: 2 * time.Second}, Step{Fault: f, Mend: true, Wait: 2 * time.Second})
		}
		steps[0].Until = linkGone(network, s.Active)
		steps[len(steps)-1].Wait = linkHold
		return steps, nil
	}
}

// errNoFiles refuses drills that need files on a server.
var errNoFiles = errors.New("servers see no files of this brick")

// fullHold is how long the file system stays full: long enough for two monitors
// of the service, which must succeed.
const fullHold = 25 * time.Second

func fullFS(s Scene) ([]Step, error) {
	dir := kind.Of(s.Design).Files(s.Service)
	if dir == "" {
		return nil, fmt.Errorf("%w: ost-full is the drill of a full Lustre", errNoFiles)
	}
	f := Fault{Kind: FillFS, On: s.Active, Args: []string{dir}}
	return []Step{
		{Fault: f, Wait: fullHold, Look: true, Until: &Condition{What: "clients are told", Limit: 30 * time.Second, Look: func(ctx context.Context, v *View) (bool, string) {
			said, room := v.probeSpace(ctx)
			return len(said) > 0 && room == 0, fmt.Sprintf("a new file on each mount: %s", strings.Join(said, ", "))
		}}},
		{Fault: f, Mend: true, Until: &Condition{What: "clients have room again", Limit: 30 * time.Second, Look: func(ctx context.Context, v *View) (bool, string) {
			said, room := v.probeSpace(ctx)
			return room > 0 && len(said) == room, fmt.Sprintf("a new file on each mount: %s", strings.Join(said, ", "))
		}}},
	}, nil
}

// fullMoved moves the service while its file system is full.
func fullMoved(s Scene) ([]Step, error) {
	steps, err := fullFS(s)
	if err != nil {
		return nil, err
	}
	steps[0].Wait, steps[0].Prepare = 0, true
	return []Step{steps[0], {Fault: Fault{Kind: Move, On: s.Passive, Args: []string{s.Service.Name}}, Wait: fullHold, Look: true}, steps[1]}, nil
}

// fenceHold is how long the drill watches that the service does not start while
// no fence device works: longer than the slowest takeover so far.
const fenceHold = 45 * time.Second

// unfenceable breaks every fence device of the active server.
func unfenceable(s Scene) []Step {
	steps := []Step{{Fault: Fault{Kind: BMCDead, On: s.Active}, Prepare: true}}
	for _, p := range s.Design.Spec.PDUs {
		steps = append(steps, Step{Fault: Fault{Kind: PDUDead, Args: []string{p.Name}}, Prepare: true})
	}
	return steps
}

func fenceAll(s Scene) ([]Step, error) {
	return append(unfenceable(s),
		Step{Fault: Fault{Kind: Freeze, On: s.Active}, Until: logged("fencing fails", 3*time.Minute, func(_ *View, e report.Event) bool {
			return e.Kind == report.EventFenceFail && namesNode(e.Text, s.Active)
		})},
		Step{Wait: fenceHold, Look: true, Until: shows(30*time.Second, signOf(observe.MemberLost, "host", s.Active))},
		Step{Fault: Fault{Kind: PowerOff, On: s.Active}},
		Step{Fault: Fault{Kind: ConfirmOff, On: s.Active}},
	), nil
}

// bootLimit bounds the time from a rack server's power-on to a cluster with an
// elected coordinator.
const bootLimit = 3 * time.Minute

// coldStartAlone cuts the passive server's power before it can fence the active
// one. The passive server misses the active one after 3 s (token and consensus),
// and the dead BMC delays the fencing for longer than that.
func coldStartAlone(s Scene) ([]Step, error) {
	if len(s.Design.PairOf(s.Service.Name).Services) > 1 {
		return nil, errors.New("with two services neither server is passive")
	}
	off := Fault{Kind: PowerOff, On: s.Passive}
	return []Step{
		{Fault: Fault{Kind: BMCDead, On: s.Active}, Prepare: true, Wait: 2 * time.Second},
		{Fault: Fault{Kind: Freeze, On: s.Active}, Wait: time.Second},
		{Fault: off, Wait: 2 * time.Second},
		{Fault: off, Mend: true, Until: shows(bootLimit, signOf(observe.QuorumWaits, "missing", s.Active))},
		{Wait: fenceHold, Look: true},
		{Fault: Fault{Kind: PowerOff, On: s.Active}},
		{Fault: Fault{Kind: ConfirmOff, On: s.Active}},
	}, nil
}

// switchBoots takes the public network from servers and clients for ten seconds: the
// link of each client changes, too, which no cable of a server does.
func switchBoots(s Scene) ([]Step, error) {
	steps := briefly(Fault{Kind: SwitchDown, Args: []string{"public"}}, 10*time.Second, linkGone("public", s.servers()...))
	steps[len(steps)-1].Wait = switchHold
	return steps, nil
}

// briefly injects a fault, waits until it is seen, and mends it after a while.
func briefly(f Fault, hold time.Duration, seen *Condition) []Step {
	return []Step{{Fault: f, Until: seen}, {Wait: hold}, {Fault: f, Mend: true}}
}

// diskSlow makes a disk a hundred times slower until status names the disk. It
// mends the disk under load: while the disk is slow, every operation stalls.
func diskSlow(s Scene) ([]Step, error) {
	f, err := s.storage().slow()
	if err != nil {
		return nil, err
	}
	if s.Service.Storage.DropSlow {
		return nil, errors.New("the spec has slow disks dropped (storage.drop_slow_disks): use --how dropped")
	}
	return []Step{{Fault: f, Wait: linkHold, Until: slowSeen(s, f.Args[0])}, {Fault: f, Mend: true}}, nil
}

// slowSeen waits until mortar status names a slow disk, or says that it is dropped where
// the spec has that.
func slowSeen(s Scene, disk string) *Condition {
	if s.Service.Storage.DropSlow {
		return shows(dropLimit, signOf(observe.DiskDropped, "disk", disk, "group", s.Group.Name))
	}
	return shows(time.Minute, signOf(observe.DiskSlow, "disk", disk))
}

// dropLimit bounds the time until a slow disk is dropped and status says so: the
// watcher compares disks for most of a minute, and then records what it does.
const dropLimit = 3 * time.Minute

// diskDropped makes a disk a hundred times slower and leaves it so: every worker must
// go on, because the group does without the disk.
func diskDropped(s Scene) ([]Step, error) {
	f, err := s.storage().slow()
	if err != nil {
		return nil, err
	}
	if !s.Service.Storage.DropSlow {
		return nil, errors.New("the spec does not have slow disks dropped (storage.drop_slow_disks is off)")
	}
	return []Step{{Fault: f, Look: true, Until: slowSeen(s, f.Args[0])}}, nil
}

func rackPower(s Scene) ([]Step, error) {
	if len(s.Design.Spec.PDUs) == 0 {
		return nil, fmt.Errorf("the brick has no PDU in its spec")
	}
	var off, on []Step
	for _, p := range s.Design.Spec.PDUs {
		f := Fault{Kind: FeedOff, Args: []string{p.Name}}
		off, on = append(off, Step{Fault: f}), append(on, Step{Fault: f, Mend: true})
	}
	for i := range s.Design.Arrays {
		a := &s.Design.Arrays[i]
		if s.Design.PathsTo(a, a.Servers[0]) < 2 {
			continue // inside the server: it has that one's power
		}
		// Before the last feed: the servers still write.
		f := Fault{Kind: ArrayPower, Args: []string{a.Name}}
		off, on = slices.Insert(off, len(off)-1, Step{Fault: f}), append([]Step{{Fault: f, Mend: true}}, on...)
	}
	off[len(off)-1].Wait = 5 * time.Second
	on[len(on)-1].Until = booted("every server booted", s.Design.Servers()...)
	return slices.Concat(off, on), nil
}
