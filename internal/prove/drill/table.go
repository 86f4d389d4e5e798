package drill

import (
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// none: the drill has no target for the stall.
const noTarget = -1.0

// daemonReplaced is what is expected of a daemon that hangs: the watcher starts it again in place.
// It needs two looks for that, up to 10 and 5 s apart, with calls that last 5 s.
var daemonReplaced = judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 30}

// Table lists every drill in the order of `mortar drill all`: drills without a
// takeover first, drills that cut all power last.
var Table = []Drill{
	{
		Name: "power-bus", Title: "one power feed fails; every server has a second one",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer},
		Variants: []Variant{{How: "feed", Title: "the first PDU gives no power", Steps: powerBus}},
	},
	{
		Name: "private-switch", Title: "all private links fail; the cluster goes on over the public ones",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer},
		Variants: []Variant{{How: "switch", Title: "the private network's switch is off", Steps: holding(Part{Kind: fault.SwitchDown, Args: []string{"private"}}, linkHold)}},
	},
	{
		Name: "heartbeat-link", Title: "the active server's private link fails; the second ring carries on",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer},
		Variants: []Variant{{How: "cable", Title: "its private cable is pulled", Steps: holding(Part{Kind: fault.LinkDown, On: fault.OnActive, Args: []string{"private"}}, linkHold)}},
	},
	{
		Name: "path-one", Title: "the active server loses paths; multipath goes on over the others",
		Expect: judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{
			{How: "hba", Title: "its first HBA fails, with one path to every disk", Steps: holding(Part{Kind: fault.HBAOut, On: fault.OnActive, Args: []string{"0"}}, pathHold)},
			{How: "disk", Title: "its paths over one HBA to one disk or LUN fail", Steps: pathLoss},
		},
	},
	{
		Name: "controller", Title: "an enclosure's I/O module, or an array's controller, fails: every server loses half of its paths",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{{How: "module", Title: "the first I/O module of the first enclosure is pulled; of an array: the controller that owns the service's first LUN dies, and comes back", Steps: moduleLoss}},
	},
	{
		Name: "local-disk", ownDisks: true, Title: "a disk of the active server's own system mirror fails: clients do not notice, and status says so",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "one of its two system disks is pulled from its slot", Steps: holding(Part{Kind: fault.LocalDisk, On: fault.OnActive, Args: []string{"0"}}, linkHold)}},
	},
	{
		Name: "shared-disk", Title: "a disk of a RAID group fails; a spare is rebuilt in its place",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "a disk is pulled from its slot", Steps: diskLoss(1)}},
	},
	{
		Name: "two-disks", Title: "two disks of one RAID group fail; spares are rebuilt in their place",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "two disks of one group are pulled, one after the other", Steps: diskLoss(2)}},
	},
	{
		Name: "disk-slow", Title: "a disk of a RAID group answers late: clients wait longer, nothing is given up, and status names the disk",
		// A monitor whose own I/O waits too long for the disk finds no fault: the partner
		// would wait for it, too.
		Expect: judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: noTarget, Disks: true},
		Variants: []Variant{
			{How: "throttled", has: dropsSlow(false), Title: "a disk does two operations and 20 kB a second", Steps: diskSlow(false)},
			// What the disk was asked before it is dropped has to be answered by it.
			{How: "dropped", has: dropsSlow(true), Title: "the same, and the spec has slow disks dropped: md goes on without it, and clients with full speed while it is still slow", Steps: diskSlow(true),
				Expect: &judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: noTarget, Disks: true, Within: 6 * time.Minute}},
		},
	},
	{
		Name: "bit-rot", Title: "a disk holds other bytes than were written to it; a scrub finds which disk, and mends it",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Disks: true},
		Variants: []Variant{{How: "scrub", Title: "bytes of one disk are overwritten beneath the RAID, then mortar scrub --repair runs", Append: true, Steps: bitRot}},
	},
	{
		Name: "fs-damage", has: func(d *design.Design) bool { return !onLustre(d) }, Title: "the file system is damaged, and XFS does not mount it: the service starts nowhere, status names mortar repair, which mends it",
		// The stop, a start that fails on both servers, the repair and a start.
		Expect: judge.Expect{Where: judge.Anywhere, Fencing: judge.NoServer, Stall: noTarget, Within: 15 * time.Minute},
		Variants: []Variant{
			{How: "headers", Title: "the headers of the first allocation group are overwritten while the service is stopped", Append: true, Steps: fsDamage(fault.AGHeaders)},
			{How: "superblock", Title: "the first superblock is overwritten while the service is stopped; no dump of the metadata can be made", Append: true, Steps: fsDamage(fault.Superblock)},
		},
	},
	{
		Name: "full-fs", Title: "the file system is full: clients are told so, and go on once there is room",
		Expect: judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: noTarget, Tolerate: []string{"ENOSPC"}},
		Variants: []Variant{
			{How: "full", Title: "a file takes every block that is left", Steps: fullFS},
			{How: "moved", Title: "a file takes every block that is left, and the service is moved by command: clients keep their locks", Steps: fullMoved,
				Expect: &judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: noTarget, Tolerate: []string{"ENOSPC"}}},
		},
	},
	{
		Name: "ost-full", has: onLustre, Title: "an OST is full: writers on it are told so, new files go to the other OSTs, and writing goes on once there is room",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: noTarget, Tolerate: []string{"ENOSPC"}},
		Variants: []Variant{{How: "full", Title: "files on the service's first OST take every block that it has left (Lustre)", Steps: ostFull}},
	},
	{
		Name: "client-crash", Title: "a client that holds locks dies: another one gets them, and no client that lives notices more than a wait",
		// The server of NFSv3 keeps the locks until the client has booted.
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: noTarget, Within: 8 * time.Minute},
		Variants: []Variant{{How: "power", Title: "the first client loses power at once, and boots later", ClientDies: true, Steps: clientCrash}},
	},
	{
		Name: "failover", Title: "the service is moved by command",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: 5},
		Variants: []Variant{{How: "command", Title: "mortar failover", Home: true, Steps: oneFault(toPassive)}},
	},
	{
		Name: "failback", Title: "the service is moved back to its preferred server by command",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: 5},
		Variants: []Variant{{How: "command", Title: "mortar failback", Away: true, Steps: oneFault(toPassive)}},
	},
	{
		Name: "standby", Title: "the active server is put in standby by command",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: 5},
		Variants: []Variant{{How: "command", Title: "mortar standby", Steps: oneFault(Part{Kind: fault.Standby, On: fault.OnActive})}},
	},
	{
		Name: "service-kill", Title: "a daemon on the active server is killed or hangs; it is restarted, or the service moves",
		Expect: judge.Expect{Where: judge.Anywhere, Fencing: judge.NoServer, Stall: 10},
		Variants: []Variant{
			{How: "nfsd", Title: "the kernel's NFS threads are stopped", Steps: killDaemon("nfsd")},
			{How: "mountd", Title: "rpc.mountd is killed", Steps: killDaemon("rpc.mountd")},
			{How: "statd", Title: "rpc.statd is killed", Steps: killDaemon("rpc.statd")},
			{How: "nfsdcld", Title: "nfsdcld, which keeps the NFSv4 clients' records, is killed", Steps: killDaemon("nfsdcld")},
			{How: "stop-mountd", Title: "rpc.mountd is stopped by a signal: it stays, and answers nothing", Steps: hangDaemon("rpc.mountd"), Expect: &daemonReplaced},
			{How: "stop-statd", Title: "rpc.statd is stopped by a signal", Steps: hangDaemon("rpc.statd"), Expect: &daemonReplaced},
			{How: "stop-nfsdcld", Title: "nfsdcld is stopped by a signal", Steps: hangDaemon("nfsdcld"), Expect: &daemonReplaced},
			{How: "pacemaker", Title: "pacemakerd is killed", Steps: killDaemon("pacemakerd"), Expect: &judge.Expect{Where: judge.Anywhere, Fencing: judge.Allow, Stall: 10}},
			{How: "corosync", Title: "corosync is killed", Steps: killDaemon("corosync"), Expect: &judge.Expect{Where: judge.Anywhere, Fencing: judge.Allow, Stall: 10}},
		},
	},
	{
		Name: "address-gone", Title: "something on the active server takes away what its service needs; the watcher puts it back, and the service stays",
		Expect: judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5},
		Variants: []Variant{
			{How: "address", Title: "the service address is removed, as a restart of systemd-networkd does", Steps: takenAway(unit.TheAddress)},
			{How: "hosts", Title: "its line in /etc/hosts is removed, as cloud-init does", Steps: takenAway(unit.TheName)},
		},
	},
	{
		Name: "flapping", Title: "a link of the active server goes down and up ten times; no server fences in a loop",
		Expect: judge.Expect{Where: judge.Anywhere, Fencing: judge.NoServer, Stall: noTarget},
		Variants: []Variant{
			{How: "private", Title: "its private link", Steps: flapLink("private")},
			{How: "public", Title: "its public link", Steps: flapLink("public")},
		},
	},
	{
		Name: "clock-jump", Title: "the active server's clock jumps by an hour; only status notices",
		Expect: judge.Expect{Where: judge.Stays, Fencing: judge.NoServer},
		Variants: []Variant{
			{How: "ahead", Title: "its clock is set an hour ahead, and back", Steps: clockJump(time.Hour)},
			{How: "back", Title: "its clock is set an hour back, and ahead again", Steps: clockJump(-time.Hour)},
		},
	},
	{
		Name: "public-link", Title: "the active server's public link fails; the service moves to the server clients reach",
		Expect: judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: 10},
		Variants: []Variant{{How: "cable", Title: "its public cable is pulled",
			Steps: oneFault(Part{Kind: fault.LinkDown, On: fault.OnActive, Args: []string{"public"}})}},
	},
	{
		Name: "public-switch", Title: "the public network is off and comes back, as when its switch boots; the service stays",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 20},
		Variants: []Variant{{How: "switch", Title: "the public network's switch is off for ten seconds", Steps: switchBoots}},
	},
	{
		Name: "lnet", has: onLustre, Title: "LNet of the active server loses its network; the watcher reports the targets, and they move",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: 10},
		Variants: []Variant{{How: "network", Title: "lnetctl takes the network from its LNet (Lustre)", Steps: lnetGone}},
	},
	{
		Name: "both-rings", Title: "the active server loses private and public link; its partner fences it",
		Expect: judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 10},
		Variants: []Variant{
			{How: "cables", Title: "both cables are pulled", Steps: bothRings(false)},
			{How: "passive", Title: "both cables of the passive server are pulled, which must not fence the active one: the service stays",
				Steps: bothRings(true), Expect: &judge.Expect{Where: judge.Stays, Fencing: judge.Allow}},
			{How: "standby", Title: "the passive server is in standby, and both its cables are pulled, as when a person works on it: the service stays",
				Steps: standbyCutOff, Expect: &judge.Expect{Where: judge.Stays, Fencing: judge.Allow}},
		},
	},
	{
		Name: "server-crash", Title: "the active server dies; its partner fences it and takes over",
		Expect: judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 10},
		Variants: []Variant{
			{How: "freeze", Title: "it stops executing, as with hanging hardware; it may come back any moment, so only fencing makes the take-over safe", Steps: oneFault(Part{Kind: fault.Freeze, On: fault.OnActive})},
			{How: "panic", Title: "its kernel panics", Steps: oneFault(Part{Kind: fault.Panic, On: fault.OnActive})},
			{How: "power", Title: "it loses power at once", Steps: oneFault(Part{Kind: fault.PowerOff, On: fault.OnActive})},
		},
	},
	{
		Name: "mds-and-oss", has: onLustre, Title: "the MDS dies, and an OSS within the same minute; both partners fence and take over",
		// The target of a move, after the second fault.
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 60},
		Variants: []Variant{{How: "freeze", Title: "the active server stops executing, and 15 s later that of the other role (Lustre)", Second: true, Steps: mdsAndOSS}},
	},
	{
		Name: "degraded-crash", Title: "the active server dies while a RAID group lacks a disk; its partner looks whether every stripe is whole, and takes over",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 20, Disks: true},
		Variants: []Variant{{How: "panic", Title: "a disk is pulled from its slot, then the kernel panics mid-write", Steps: degradedCrash}},
	},
	{
		Name: "disk-hung", Title: "a disk of a RAID group answers the passive server nothing, neither data nor an error: that server takes over without it, and has it back when it answers",
		// 10 s until the disk counts as missing.
		Expect: judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 35, Disks: true},
		Variants: []Variant{
			{How: "crash", Title: "the disk hangs on the passive server, then the kernel of the active one panics mid-write", Steps: diskHung(Part{Kind: fault.Panic, On: fault.OnActive})},
			{How: "move", Title: "the disk hangs on the passive server, then the service is moved there by command", Expect: &judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: 25, Disks: true},
				Steps: diskHung(toPassive)},
		},
	},
	{
		Name: "fence-device", Title: "the active server's BMC is dead when the server fails; both PDU outlets fence it",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 15},
		Variants: []Variant{{How: "freeze", Title: "its BMC dies, then it stops executing", Steps: bmcDead}},
	},
	{
		Name: fencingLiesName, has: (*design.Design).Reservable, Title: "the active server freezes, its fence device says that it is off, and it wakes up when its partner serves: what it still has in memory must not reach the disks",
		Expect: judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 15, Wakes: true},
		Variants: []Variant{
			{How: "bmc", Title: "its BMC switches something else", Rewrite: true, Steps: fencingLies(fault.BMCLies)},
			{How: "outlets", Title: "its BMC is dead, and something else hangs on its outlets", Rewrite: true, Steps: fencingLies(fault.BMCDead, fault.Astray)},
		},
	},
	{
		Name: "paths-all", Title: "the active server loses every path to every disk; it stops, or is fenced, and its partner takes over",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.Allow, Stall: 20, Disks: true},
		Variants: []Variant{{How: "paths", Title: "every path to every disk fails", Steps: oneFault(Part{Kind: fault.PathsOut, On: fault.OnActive})}},
	},
	{
		Name: "fence-all", Title: "no fence device works when the active server fails: the service must not start elsewhere before a person has confirmed that the server is off",
		// NFSv3 locks may be reclaimed for as long as the outage was.
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: noTarget, Within: 8 * time.Minute},
		Variants: []Variant{{How: "confirm", Title: "BMC and PDUs die, then it stops executing; then its power is cut by hand and mortar confirm-off says so", Steps: fenceAll}},
	},
	{
		Name: "unfenced", Title: "the active server fails and no fence device works: it resets itself, and the brick comes back without a person",
		// The server boots, after the watchdog or the wait for fencing.
		Expect: judge.Expect{Where: judge.Anywhere, Fencing: judge.Allow, Stall: noTarget, Within: 12 * time.Minute},
		Variants: []Variant{
			{How: "hang", Title: "BMC and PDUs die, then its kernel panics", Steps: hangUnfenced},
			{How: "stuck", Title: "BMC and PDUs die, something keeps the volume in use, and its public cable is pulled: the service cannot be stopped", Steps: stuckUnfenced},
		},
	},
	{
		Name: "ssd-fail", has: cacheMode(""), ownDisks: true, Title: "an SSD of the cache fails mid-write; dirty data is on the other one",
		Expect: judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{
			{How: "first", Title: "the first SSD is pulled from its slot", Steps: ssdFail(0)},
			{How: "second", has: func(d *design.Design) bool { return len(d.Cached().Storage.Cache.SSDs) > 1 }, Title: "the second SSD is pulled from its slot", Steps: ssdFail(1)},
		},
	},
	{
		Name: "ssd-replace", has: cacheMode(cache.WriteBack), ownDisks: true, Title: "an SSD of the cache fails and is replaced, under load",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "the first SSD is pulled, pushed in again, and given back to the cache", Steps: ssdReplace}},
	},
	{
		Name: "ssd-both", has: cacheMode(cache.WriteThrough), ownDisks: true, Title: "every SSD of a write-through cache fails; the service goes on at the disks' speed",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{{How: "pulled", Title: "all SSDs are pulled, one after the other", Steps: ssdAll}},
	},
	{
		Name: "cache-full", has: cacheMode(cache.WriteBack), ownDisks: true, Title: "more is written than the disks take, until the mirror of dirty data is full; writes go on at the disks' speed",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{{How: "filled", Title: "nothing dirty is written to the disks, and a file of random writes fills the mirror", Steps: cacheFull}},
	},
	{
		Name: "cache-flush-move", has: cacheMode(cache.WriteBack), ownDisks: true, Title: "the service leaves its server while all dirty data is written to the disks; it goes on with the rest on the SSDs",
		Expect: judge.Expect{Where: judge.Moves, Fencing: judge.NoServer, Stall: 15, Disks: true},
		Variants: []Variant{
			{How: "mode", Title: "mortar cache mode write-through begins, then the service is moved by command", Steps: flushMove(fault.ModeFlush, toPassive)},
			{How: "off", Title: "mortar cache off begins, then the service is moved by command", Steps: flushMove(fault.OffFlush, toPassive)},
			{How: "freeze", Title: "mortar cache mode write-through begins, then the server stops executing", Steps: flushMove(fault.ModeFlush, Part{Kind: fault.Freeze, On: fault.OnActive}),
				Expect: &judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 15, Disks: true}},
		},
	},
	{
		Name: "ssd-missing", has: cacheMode(""), ownDisks: true, Title: "the active server dies while an SSD is missing, or holds what is not true any more; the service starts on the other one with the rest",
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: 15, Disks: true},
		Variants: []Variant{{How: "freeze", Title: "the first SSD is pulled, then the server stops executing", Steps: ssdThen(false, oneFault(Part{Kind: fault.Freeze, On: fault.OnActive}))}, {How: "returned", Title: "the first SSD is pulled and pushed in again with what it held, then the server stops executing", Steps: ssdThen(true, oneFault(Part{Kind: fault.Freeze, On: fault.OnActive}))}},
	},
	{
		Name: "change-upgrade", Title: "both servers are rebooted, one at a time, as for new packages or firmware: clients see two planned moves",
		Expect:   judge.Expect{Where: judge.Returns, Fencing: judge.NoServer, Stall: moveStall},
		Variants: []Variant{{How: "reboot", Title: "mortar upgrade --reboot-only", Steps: oneFault(Part{Kind: fault.ChangeUpgrade})}},
	},
	{
		Name: "change-disk", Title: "a disk of a RAID group is taken out of service and replaced by a blank one",
		Lasting:  "the spec names the new disk",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: moveStall, Disks: true},
		Variants: []Variant{{How: "replace", Title: "mortar disk fail, the disk is swapped in its bay, mortar disk replace", Steps: replaceDiskSteps}},
	},
	{
		Name: "change-server", Title: "the passive server is retired, and a freshly installed machine takes its place",
		Lasting:  "the system of that server is a new one, and its fencing is unproven until mortar fence-test",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: moveStall, Disks: true},
		Variants: []Variant{{How: "replace", Title: "mortar standby, power off; the new machine boots without its cables, mortar server replace, its cables, mortar server replace, mortar unstandby", Steps: replaceServerSteps}},
	},
	{
		Name: "change-grow", Title: "the volume grows by disks that the brick does not use yet",
		Lasting:  "the spec and the volume have the new disks: a growth cannot be undone",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: moveStall, Disks: true},
		Variants: []Variant{{How: "disks", Title: "mortar grow --disks", Steps: oneFault(Part{Kind: fault.ChangeGrow})}},
	},
	{
		Name: "change-cache", has: cacheMode(""), Title: "the cache is turned off, as for bulk writes, and taken up again",
		Lasting: "the cache is cold",
		Expect:  judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: moveStall, Disks: true},
		Variants: []Variant{
			{How: fault.CacheKept, Title: "mortar cache off, mortar cache add: the service runs all the time", Steps: oneFault(Part{Kind: fault.ChangeCache, Args: []string{fault.CacheKept}})},
			{How: fault.CacheGone, Title: "mortar cache off, a move, mortar cache add, the move back, mortar apply", Steps: oneFault(Part{Kind: fault.ChangeCache, Args: []string{fault.CacheGone}}),
				Expect: &judge.Expect{Where: judge.Returns, Fencing: judge.NoServer, Stall: moveStall}},
		},
	},
	{
		Name: "controller-failover", has: onArrays, Title: "an array's controller hands its LUNs to the other one: all paths stay, and multipath goes on over those that are optimized now",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: 5, Disks: true},
		Variants: []Variant{{How: "command", Title: "the LUNs of one controller are moved to the other one, and back", Steps: lunFault(fault.Fault{Kind: fault.ControllerFailover}, pathHold, pathHold, controllerOf)}},
	},
	{
		Name: "lun-slow", has: onArrays, Title: "a LUN answers late: clients wait longer, and nothing is given up",
		Expect:   judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: noTarget, Disks: true},
		Variants: []Variant{{How: "delay", Title: "each answer of the service's first LUN is 1.5 s late", Steps: lunFault(fault.Fault{Kind: fault.LUNSlow}, linkHold, 0, delayOf)}},
	},
	{
		Name: "array-power", has: onArrays, Title: "an array loses its power: clients wait, and go on when it is back",
		Expect: judge.Expect{Where: judge.Stays, Fencing: judge.NoServer, Stall: noTarget, Disks: true, Within: 6 * time.Minute},
		Variants: []Variant{
			{How: "short", Title: "the array is off for 45 s", Steps: lunFault(fault.Fault{Kind: fault.ArrayPower}, powerHold, 0, arrayOfLUN)},
			{How: "long", Title: "the array is off for longer than I/O waits: I/O fails, the service is down, and comes back with the array", Steps: lunFault(fault.Fault{Kind: fault.ArrayPower}, powerLost, 0, arrayOfLUN),
				Expect: &judge.Expect{Where: judge.Anywhere, Fencing: judge.Allow, Stall: noTarget, Disks: true, Within: 12 * time.Minute}},
		},
	},
	{
		Name: "lun-missing", has: onArrays, Title: "the passive server boots without one of the LUNs, then the active one dies: the service must not start without it, and comes back on its own server",
		Expect:   judge.Expect{Where: judge.Returns, Fencing: judge.Allow, Stall: noTarget, Disks: true, Within: 8 * time.Minute},
		Variants: []Variant{{How: "hidden", Title: "a LUN is hidden from the passive server while that is off; then the kernel of the active one panics", Steps: lunMissing}},
	},
	{
		Name: "lun-hung", has: onArrays, Title: "a LUN answers the passive server nothing, neither data nor an error, and the active one dies: the service must not start without it, and comes back on its own server",
		Expect:   judge.Expect{Where: judge.Returns, Fencing: judge.Allow, Stall: noTarget, Disks: true, Within: 8 * time.Minute},
		Variants: []Variant{{How: "crash", Title: "the LUN hangs on the passive server, then the kernel of the active one panics", Steps: lunHung}},
	},
	{
		Name: "cold-start-alone", Title: "the active server dies and cannot be fenced in time, and its partner, back after a power failure, is alone: the service must not start before a person has confirmed that the other one is off",
		// As with fence-all, and the partner boots too.
		Expect:   judge.Expect{Where: judge.Moves, Fencing: judge.Victim, Stall: noTarget, Within: 10 * time.Minute},
		Variants: []Variant{{How: "confirm", Title: "its BMC dies, it stops executing, and its partner loses power and comes back; then its power is cut by hand and mortar confirm-off says so", Steps: coldStartAlone}},
	},
	{
		Name: "rack-power", Title: "the power of all servers fails mid-write; the brick comes back by itself once it returns",
		// Two servers boot at once.
		Expect:   judge.Expect{Where: judge.Anywhere, Fencing: judge.Allow, Stall: noTarget, Disks: true, Within: 8 * time.Minute},
		Variants: []Variant{{How: "feeds", Title: "every power feed fails at once and returns after five seconds", Steps: rackPower}},
	},
}

// onLustre tells whether a brick has a Lustre file system.
func onLustre(d *design.Design) bool { return kind.Of(d).LNet(d) != "" }

func onArrays(d *design.Design) bool { return len(d.LUNs()) > 0 }

// cacheMode tells whether a brick has a cache of a mode; "": any.
func cacheMode(mode string) func(d *design.Design) bool {
	return func(d *design.Design) bool {
		s := d.Cached()
		return s != nil && (mode == "" || s.Storage.Cache.Mode == mode)
	}
}

// dropsSlow tells whether a service has slow disks dropped, or one has not.
func dropsSlow(drops bool) func(d *design.Design) bool {
	return func(d *design.Design) bool {
		return slices.ContainsFunc(d.Services(), func(s *design.Service) bool { return s.Storage.DropSlow == drops })
	}
}
