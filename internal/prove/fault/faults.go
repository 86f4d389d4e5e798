// Package fault has what drills break, how, and how hosts show it: a row for each kind of fault
// (words, the command of a virtual rack, why no command does it to real hardware, chance in
// random schedules, the condition by which it is seen, the outcome), the faults that Mortar
// injects itself, and the Site, by which they reach the brick. It makes no load, and judges
// nothing.
package fault

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// Kind is the kind of a fault. Injector.Can reports which kinds an Injector can
// inject.
type Kind string

// Kinds of faults; Fault.On and Fault.Args say which part. Each has a row in rows.
const (
	Freeze   Kind = "freeze"    // the server stops executing; its power stays on
	Panic    Kind = "panic"     // the server's kernel panics
	PowerOff Kind = "power-off" // the server loses power at once

	ClientDown Kind = "client-down" // a client loses power at once, or resets

	LinkDown   Kind = "link-down"   // a server's cable; network
	SwitchDown Kind = "switch-down" // a whole network

	// A disk of a JBOD goes by its serial number, a LUN of an array by its name.
	PathOut   Kind = "path-out"   // a server's paths over one HBA to a disk or LUN; which, HBA (from 0)
	HBAOut    Kind = "hba-out"    // a server's HBA with all its paths; HBA (from 0)
	PathsOut  Kind = "paths-out"  // every path of a server to every disk
	ModuleOut Kind = "module-out" // an enclosure's I/O module, with one path of each server; enclosure, module (from 0)
	DiskOut   Kind = "disk-out"   // a shared disk; serial
	DiskSlow  Kind = "disk-slow"  // a shared disk answers late; serial, operations a second, bytes a second
	Corrupt   Kind = "corrupt"    // bytes of a shared disk are overwritten, without an error; serial, offset, length
	LocalDisk Kind = "local-disk" // one disk of a server's system mirror; which (from 0)

	// Faults of RAID arrays. An array goes by its name, its controllers are 0 and 1.
	ControllerOut      Kind = "controller-out"      // a controller dies, the other one takes its LUNs; array, controller
	ControllerFailover Kind = "controller-failover" // the other controller takes its LUNs by command, all paths stay; array, controller
	ArrayDisk          Kind = "array-disk"          // a disk of a RAID group is pulled from an array; serial
	ArrayPower         Kind = "array-power"         // an array's power; array
	LUNSlow            Kind = "lun-slow"            // each answer of a LUN is late; LUN, milliseconds
	LUNMissing         Kind = "lun-missing"         // a LUN is hidden from a server; LUN

	FeedOff Kind = "feed-off" // a PDU's power
	BMCDead Kind = "bmc-dead" // a server's BMC no longer answers
	BMCLies Kind = "bmc-lies" // a server's BMC reports that it switched the server, and did not
	Astray  Kind = "astray"   // something else is plugged into a server's outlets
	PDUDead Kind = "pdu-dead" // a PDU's controller no longer answers; its outlets stay as they are

	// Faults that the agents on the servers inject, on any hardware.
	Kill        Kind = "kill"         // a daemon dies at once; its name, or nfsd for the kernel's threads
	TakeAway    Kind = "take-away"    // something on a server takes away what the service needs, and the watcher can put back; unit.TheAddress or unit.TheName
	Hang        Kind = "hang"         // a daemon is stopped by a signal: it stays, and answers nothing; its name
	DiskHang    Kind = "disk-hang"    // a disk or LUN answers a server nothing, neither data nor an error; serial or LUN
	HoldRebuild Kind = "hold-rebuild" // rebuilds of md take as long as with large disks, until the server boots
	WriteSoon   Kind = "write-soon"   // a server writes dirty data to the disks after a second, until it boots
	FillFS      Kind = "fill-fs"      // the service's file system is filled to the last block
	HoldFS      Kind = "hold-fs"      // the service's file system or volume is kept in use, until the server boots; mount point or device
	BitRot      Kind = "bit-rot"      // Corrupt, on data of the load that no worker overwrites
	CacheApply  Kind = "cache-apply"  // a cache is brought to its config, as `mortar apply` does; service
	FillOST     Kind = "fill-ost"     // an OST is filled to the last block; its index
	ClockJump   Kind = "clock-jump"   // a server's clock jumps; seconds, forward or (negative) back
	LNetDown    Kind = "lnet-down"    // LNet of a server loses its network
	CacheFill   Kind = "cache-fill"   // the mirror is filled with dirty data, and does not write it to the disks meanwhile; service, mount point

	CacheFlush Kind = "cache-flush" // a command that flushes a cache begins, and waits for disks that take nothing; service, command

	// The administrator's commands; Mend ends a standby.
	Move       Kind = "move"        // mortar failover or failback; On is the target
	Standby    Kind = "standby"     // mortar standby
	ConfirmOff Kind = "confirm-off" // mortar confirm-off
)

// Kinds of changes that an administrator makes while the brick serves. Mortar makes
// them itself, by its own commands, and has the Injector do what takes a hand.
const (
	DamageFS      Kind = "damage-fs"      // blocks of an XFS are overwritten; what, service
	RepairFS      Kind = "repair-fs"      // mortar repair; what was damaged, service
	ChangeDisk    Kind = "change-disk"    // a disk is replaced; serial, serial of the new one
	ChangeServer  Kind = "change-server"  // a new machine takes a server's place
	ChangeUpgrade Kind = "change-upgrade" // every server is rebooted, one at a time
	ChangeGrow    Kind = "change-grow"    // the volume gets the disks that the brick does not use
	ChangeCache   Kind = "change-cache"   // the cache is turned off and added again; CacheKept or CacheGone

	// What takes a hand in a change. A change cannot be taken back, so these have no
	// mending either.
	DiskBlank Kind = "disk-blank" // a blank disk is in the slot of one that is out; serial, serial of the new one
	ServerNew Kind = "server-new" // a freshly installed machine is in the place of a server that is off
)

// RackCommand is how a virtual rack does a fault.
type RackCommand struct {
	On  string   // the rack's fault that injects
	Off []string // the rack's faults that mend, in order
	// Each: inject the fault for every disk or LUN that the server has paths to.
	// Its name goes between the server and the fault's arguments.
	Each bool
	// Zero: the same fault with 0 for all arguments after the first mends it.
	Zero bool
	// Reset: a server that still hangs is reset to mend it.
	Reset bool
}

// Row describes a kind of fault.
type Row struct {
	Kind Kind
	// words describe the fault: {on} is the server, {0} and {1} are the Args.
	words string
	// Rack is how a virtual rack does it; nil: Mortar does it itself.
	Rack *RackCommand
	// ByHand is why no command does it to real hardware; "": one does, or it is untried.
	ByHand string

	// inject and heal are set for a fault that Mortar injects itself, through the
	// agents or by the administrator's commands; the Injector injects the others.
	// can returns why the fault is impossible; a nil can means always possible. A
	// fault without heal mends itself.
	can          func(b *Site, f Fault) error
	inject, heal faultFunc
	// Ready refuses a brick that would not survive the fault.
	Ready faultFunc
	// Back does what remains to be done after the hardware is whole again.
	Back faultFunc

	// seen is the condition by which the servers see a fault after which the service stays;
	// it may be nil.
	seen func(s Scene, f Fault) *Condition
	// Harms is the part of the brick that a fault harms after which the service stays: two
	// faults of a schedule that harm different parts are judged as if each came alone.
	Harms string
	// Outcome is what a fault that comes alone does to the service and to the servers; nil:
	// the server may be fenced, and a service may move from it. on is OnActive, OnPassive, or
	// "" for the partner of the active server, which serves too.
	Outcome func(on string, args []string) Outcome
	// Disks: disks or paths of the brick are not whole after it.
	Disks bool
	// Chances are how random schedules draw it; none: they do not.
	Chances []Chance
}

type faultFunc func(ctx context.Context, b *Site, f Fault) error

// Outcome is where a service is after a fault, and who may be fenced.
type Outcome struct {
	Where   judge.Place
	Fencing judge.Fencing
}

func serviceStays(string, []string) Outcome { return Outcome{judge.Stays, judge.NoServer} }

func staysIfPassive(on string, _ []string) Outcome {
	if on == OnPassive {
		return Outcome{judge.Stays, judge.NoServer}
	}
	return Outcome{judge.Anywhere, judge.NoServer}
}

func staysIfPrivate(on string, args []string) Outcome {
	if args[0] == "private" {
		on = OnPassive
	}
	return staysIfPassive(on, args)
}

func takenOver(on string, _ []string) Outcome {
	switch on {
	case OnActive:
		return Outcome{judge.Moves, judge.Victim}
	case OnPassive:
		return Outcome{judge.Stays, judge.Allow}
	}
	return Outcome{judge.Anywhere, judge.Allow}
}

// Chance is how a schedule draws a fault.
type Chance struct {
	On []string // which servers; nil: none
	// args returns the possible arguments of the fault for a brick; none: the
	// brick has no part for this fault.
	Args func(s Scene) [][]string
	// shortest and longest time until the drill mends the fault, in seconds; 0:
	// the fault needs no mending.
	Shortest, Longest int
}

func draw(on []string, args func(s Scene) [][]string, shortest, longest int) []Chance {
	return []Chance{{on, args, shortest, longest}}
}

func rack(on string, off ...string) *RackCommand { return &RackCommand{On: on, Off: off} }

const noArrays = "Mortar gives no commands to arrays: "

// Rows describe every fault. Schedules draw in their order: another order would have a seed draw
// another schedule. They do not draw faults
// that a person must end (confirm-off, bytes overwritten on a disk, a missing LUN), faults
// that clients see as errors (a full file system or OST), the death of a client, which ends a
// part of the load, fence devices that lie, after which no data is safe without reservations,
// and a mirror of dirty data that is filled, which takes longer than a schedule.
var Rows []Row

// Kinds has the rows by kind.
var Kinds = map[Kind]Row{}

func init() {
	Rows = []Row{
		{Kind: Freeze, words: "freezing {on}", Rack: rack("freeze", "poweron", "unfreeze"), ByHand: "a real server cannot be frozen from outside; use --how panic or --how power",
			seen: silent, Disks: true, Chances: draw(eitherServer, noArguments, 5, 60)},
		{Kind: Panic, words: "panicking {on}", Rack: &RackCommand{On: "panic", Off: []string{"poweron"}, Reset: true},
			seen: silent, Disks: true, Outcome: takenOver, Chances: draw(eitherServer, noArguments, 5, 60)},
		{Kind: PowerOff, words: "cutting the power of {on}", Rack: rack("kill", "poweron"),
			seen: silent, Disks: true, Outcome: takenOver, Chances: draw(eitherServer, noArguments, 5, 60)},
		{Kind: LinkDown, words: "pulling the {0} cable of {on}", Rack: rack("link-down", "link-up"), Back: healAgain,
			Harms: "links", Outcome: staysIfPrivate, Chances: draw(eitherServer, words("private", "public"), 3, 40),
			seen: func(s Scene, f Fault) *Condition { return linkGone(f.Args[0], f.On) }},
		{Kind: SwitchDown, words: "switching the {0} network off", Rack: rack("switch-down", "switch-up"), Back: healAgain,
			Harms: "links", Outcome: staysIfPrivate, Chances: draw(nil, words("private", "public"), 3, 20),
			seen: func(s Scene, f Fault) *Condition { return linkGone(f.Args[0], s.Servers()...) }},
		{Kind: PathOut, words: "cutting the path of {on} to {0} over HBA {1}", Rack: rack("path-out", "path-in"), Back: healAgain,
			Harms: "storage", Outcome: serviceStays, Disks: true, Chances: draw(eitherServer, ofStorage(PathOut), 5, 40),
			seen: func(s Scene, f Fault) *Condition { return pathsLost(s, f.Args[0], f.On) }},
		{Kind: HBAOut, words: "cutting HBA {0} of {on}", Rack: &RackCommand{On: "path-out", Off: []string{"path-in"}, Each: true}, Back: healAgain,
			Harms: "storage", Outcome: serviceStays, Disks: true, Chances: draw(eitherServer, words("0", "1"), 5, 40), seen: pathsGone},
		{Kind: PathsOut, words: "cutting every path of {on}", Rack: rack("paths-out", "paths-in"), Back: healAgain,
			Disks: true, Chances: draw(eitherServer, noArguments, 5, 40), seen: pathsGone},
		{Kind: ModuleOut, words: "pulling I/O module {1} of enclosure {0}", Rack: rack("module-out", "module-in"),
			Harms: "storage", Outcome: serviceStays, Disks: true, Chances: draw(nil, ofStorage(ModuleOut), 5, 40),
			seen: func(s Scene, f Fault) *Condition { return pathsLost(s, "", s.Servers()...) }},
		{Kind: DiskOut, words: "pulling disk {0}", Rack: rack("disk-out", "disk-in"), Back: returnDisk,
			Harms: "storage", Outcome: serviceStays, Disks: true, Chances: append(draw(nil, ofStorage(DiskOut), 5, 40), draw(nil, Scene.ssds, 5, 40)...), seen: diskGone},
		{Kind: DiskSlow, words: "holding disk {0} to {1} operations and {2} bytes a second", Rack: &RackCommand{On: "throttle", Off: []string{"throttle"}, Zero: true}, ByHand: "no command makes a real disk slow", Back: returnSlow,
			Outcome: serviceStays, Disks: true, Chances: draw(nil, ofStorage(DiskSlow), 5, 40), seen: slowUnlessIdle},
		{Kind: ControllerOut, words: "killing controller {1} of array {0}", Rack: rack("module-out", "module-in"), ByHand: noArrays + "shut the controller down by the array's own tool",
			Harms: "storage", Outcome: serviceStays, Disks: true, Chances: draw(nil, ofStorage(ControllerOut), 5, 40),
			seen: func(s Scene, f Fault) *Condition { return lunsShow(s, pathsLimit, onOne, f.Args[0]) }},
		{Kind: ControllerFailover, words: "moving the LUNs of controller {1} of array {0} to the other one", Rack: rack("controller-failover", "controller-failback"), ByHand: noArrays + "move the LUNs by the array's own tool",
			Harms: "storage", Outcome: serviceStays, Disks: true, Chances: draw(nil, ofStorage(ControllerFailover), 5, 40),
			seen: func(s Scene, f Fault) *Condition { return lunsShow(s, pathsLimit, onOther, f.Args...) }},
		{Kind: ArrayDisk, words: "pulling disk {0} of an array", Rack: rack("disk-out", "disk-in"), ByHand: "no command reaches a disk inside an array: pull the disk by hand",
			Harms: "storage", Outcome: serviceStays, Disks: true, Chances: draw(nil, ofStorage(ArrayDisk), 5, 40), seen: diskGone},
		// I/O waits for longer (no_path_retry).
		{Kind: ArrayPower, words: "cutting the power of array {0}", Rack: rack("array-off", "array-on"), ByHand: "Mortar does not switch arrays off: switch the array off by hand",
			Outcome: serviceStays, Disks: true, Chances: draw(nil, ofStorage(ArrayPower), 5, 40),
			seen: func(s Scene, f Fault) *Condition { return lunsShow(s, SeenLimit, unreached, f.Args[0]) }},
		{Kind: LUNSlow, words: "delaying each answer of LUN {0} by {1} ms", Rack: &RackCommand{On: "lun-slow", Off: []string{"lun-slow"}, Zero: true}, ByHand: "no command makes a LUN of a real array slow",
			Outcome: serviceStays, Disks: true, Chances: draw(nil, ofStorage(LUNSlow), 5, 40),
			seen: func(s Scene, f Fault) *Condition { return lunLate(s, f.Args[0]) }},
		{Kind: LocalDisk, words: "pulling a system disk of {on}", Rack: rack("system-disk-out", "system-disk-in"), Ready: mirrored, Back: returnSystemDisk,
			Outcome: serviceStays, Chances: draw(eitherServer, words("0", "1"), 5, 40),
			seen: mirrorDegraded},
		{Kind: FeedOff, words: "switching PDU {0} off", Rack: rack("feed-off", "feed-on"),
			Harms: "power", Outcome: serviceStays, Disks: true, Chances: draw(nil, pdus, 3, 30),
			seen: feedLost},
		{Kind: BMCDead, words: "killing the BMC of {on}", Rack: rack("bmc-dead", "bmc-alive"), Harms: "power", Outcome: serviceStays, Chances: draw(eitherServer, noArguments, 5, 40)},
		{Kind: PDUDead, words: "killing the controller of PDU {0}", Rack: rack("pdu-dead", "pdu-alive"),
			Harms: "power", Outcome: serviceStays, Chances: draw(nil, pdus, 5, 40),
			seen: func(s Scene, f Fault) *Condition {
				return Shows(2*time.Minute, SignOf(observe.PDUSilent, "pdu", f.Args[0]))
			}},
		{Kind: Kill, words: "killing {0} on {on}", can: mayKill, inject: killDaemon, heal: startDaemon, Chances: draw([]string{OnActive}, killable, 0, 0),
			Outcome: func(_ string, args []string) Outcome {
				if slices.Contains(OfCluster, args[0]) {
					return Outcome{judge.Anywhere, judge.Allow}
				}
				return Outcome{judge.Anywhere, judge.NoServer}
			}},
		{Kind: LNetDown, words: "taking the network from LNet of {on}", can: hasLustre, inject: lnetDown, heal: lnetUp, Outcome: staysIfPassive, Chances: draw(eitherServer, ofLustre, 5, 40)},
		{Kind: ClockJump, words: "moving the clock of {on} by {0} s", inject: jumpClock, heal: healLater(setClockRight), Back: healUntilDone(setClockRight),
			Harms: "clocks", Outcome: serviceStays, Chances: draw(eitherServer, words("3600", "-3600"), 5, 40),
			seen: clockSeen},
		// The service may stay there, so no heal.
		{Kind: Move, words: "moving service {0} to {on}", can: hasOperator, inject: moveService, Chances: draw(eitherServer, words(MoveArg), 0, 0),
			Outcome: func(string, []string) Outcome { return Outcome{judge.Moves, judge.NoServer} }},
		{Kind: Standby, words: "putting {on} in standby", can: hasOperator, inject: setStandby, heal: endStandby, Outcome: staysIfPassive, Chances: draw(eitherServer, noArguments, 5, 40),
			seen: func(s Scene, f Fault) *Condition { return Shows(SeenLimit, SignOf(observe.InStandby, "host", f.On)) }},

		{Kind: ConfirmOff, words: "confirming that {on} is off", can: hasOperator, inject: func(ctx context.Context, b *Site, f Fault) error { return b.Env.Operator.ConfirmOff(ctx, f.On) }},
		{Kind: ClientDown, words: "crashing client {on}", Rack: rack("kill", "poweron"), Back: clientBack},
		{Kind: Corrupt, words: "overwriting {2} bytes of disk {0} at offset {1}", Rack: rack("corrupt"), ByHand: "Mortar never corrupts data on real disks"}, // only a scrub mends it
		{Kind: LUNMissing, words: "hiding LUN {0} from {on}", Rack: rack("lun-out", "lun-in"), ByHand: "a server finds a LUN again when it boots, unless the array hides it: unmap it by the array's own tool"},
		{Kind: BMCLies, words: "having the BMC of {on} switch something else", Rack: rack("bmc-lies", "bmc-honest")},
		{Kind: Astray, words: "plugging something else into the outlets of {on}", Rack: rack("outlets-astray", "outlets-back")},
		{Kind: TakeAway, words: "taking the service's {0} from {on}", can: hasAddress, inject: takeFrom}, // the watcher puts it back, or Pacemaker moves the service
		{Kind: Hang, words: "stopping {0} on {on} by a signal", can: mayHang, inject: hangDaemon, heal: letDaemonGoOn},
		{Kind: DiskHang, words: "having {0} hang on {on}", inject: hangDisk, heal: healLater(letAnswer), Back: healUntilDone(letAnswer)},
		{Kind: WriteSoon, words: "having {on} write data to its disks after a second", inject: setParameters, heal: healLater(resetParameters), Back: healUntilDone(resetParameters)},
		{Kind: HoldRebuild, words: "holding rebuilds on {on} to 100 KiB/s", inject: setParameters, heal: healLater(resetParameters), Back: healUntilDone(resetParameters)},
		{Kind: FillFS, words: "filling {0} on {on}", inject: fillFS, heal: emptyFS},
		{Kind: HoldFS, words: "keeping {0} on {on} in use", inject: holdFS, heal: releaseFS},
		{Kind: BitRot, words: "overwriting bytes of one disk beneath the RAID", can: mayRot, inject: spoilDisk}, // the scrub mends the data, or the drill fails
		{Kind: DamageFS, words: "overwriting {0} of the file system of {1}", can: mayDamage, inject: damageFS, heal: repairFS},
		{Kind: RepairFS, words: "mortar repair of {1}, after {0} were lost", can: hasOperator, inject: repairFS},
		{Kind: FillOST, words: "filling OST {0}", can: hasLustre, inject: fillOST, heal: emptyOST},
		{Kind: CacheApply, words: "giving SSDs back to the cache of {0}", inject: applyCache},
		{Kind: CacheFill, words: "filling the mirror of dirty data of {0}", inject: fillCache, heal: drainCache},
		{Kind: CacheFlush, words: "starting mortar cache {1} of {0} on {on}, whose disks take nothing", inject: startFlush, heal: endFlush},
	}
	Rows = append(Rows, changes()...)
	for _, r := range Rows {
		Kinds[r.Kind] = r
	}
}

// changes are the faults that are changes of a brick. settled comes after each: nothing may be
// left to apply. A change is not taken back.
func changes() []Row {
	return []Row{
		{Kind: ChangeDisk, words: "replacing disk {0} by {1}", can: mayChange(DiskBlank), Ready: planDisk, inject: resume, heal: resume, Back: settled},
		{Kind: ChangeServer, words: "replacing server {on}", can: mayChange(ServerNew), Ready: planServer, inject: resume, heal: resume, Back: settled},
		{Kind: ChangeUpgrade, words: "rebooting each server", can: hasOperator, Ready: planUpgrade, inject: resume, heal: stopUpgrade, Back: settled},
		{Kind: ChangeGrow, words: "growing the volume", can: mayGrow, Ready: planGrow, inject: resume, heal: resume, Back: settled},
		{Kind: ChangeCache, words: "turning the cache off, and taking it up again", can: hasOperator, Ready: planCache, inject: resume, heal: resume, Back: settled},
		{Kind: DiskBlank, words: "pushing blank disk {1} into the slot of {0}", Rack: rack("disk-blank"), ByHand: "a disk is swapped by hand: `mortar disk fail`, swap it in its bay, `mortar disk replace`"},
		{Kind: ServerNew, words: "putting another machine in the place of {on}", Rack: rack("server-new"), ByHand: "a machine is put in by hand: see `mortar help server replace`"},
	}
}

// healLater is the heal of a fault of a server that may be away: back sees to that.
func healLater(do faultFunc) faultFunc {
	return func(ctx context.Context, b *Site, f Fault) error {
		if err := do(ctx, b, f); err != nil {
			b.Say("%s is mended once %s is back: %v", f, f.On, err)
		}
		return ctx.Err()
	}
}

// healUntilDone is the back of a fault that is mended by a command.
func healUntilDone(do faultFunc) faultFunc {
	return func(ctx context.Context, b *Site, f Fault) error {
		return untilSeen(ctx, func() error { return do(ctx, b, f) })
	}
}

func pathsGone(s Scene, f Fault) *Condition { return pathsLost(s, "", f.On) }

// diskGone waits until a disk of the RAID group, or an SSD of the cache, is missed.
func diskGone(s Scene, f Fault) *Condition {
	switch {
	case slices.Contains(s.Members, f.Args[0]):
		return s.Storage().Without(f.Args[0])
	case s.Service.Storage.Cache != nil:
		return ssdOut(s, f.Args[0])
	}
	return nil
}

// slowUnlessIdle waits until a disk is seen to be slow. Those below a write-back cache may be
// idle.
func slowUnlessIdle(s Scene, f Fault) *Condition {
	if c := s.Service.Storage.Cache; c != nil && c.Mode == cache.WriteBack {
		return nil
	}
	return SlowSeen(s, f.Args[0])
}

// Unhealthy is the error of a brick with problems before the drill. The drill
// changed nothing.
type Unhealthy struct{ Problems []string }

func (e *Unhealthy) Error() string {
	return "the brick is not healthy, so nothing was broken: " + strings.Join(e.Problems, "; ") + " (mortar status shows more)"
}

// Refused is the error of a drill that is impossible here. The drill changed
// nothing.
type Refused struct{ Why string }

func (e *Refused) Error() string { return e.Why }

// Fault is one fault to inject, or one command to run on the brick.
type Fault struct {
	Kind Kind
	On   string   // server; "" for parts that belong to no server
	Args []string // the part, for kinds that need one
}

// Is reports whether two faults are the same.
func (f Fault) Is(o Fault) bool { return f.String() == o.String() }

func (f Fault) String() string {
	parts := []string{string(f.Kind)}
	if f.On != "" {
		parts = append(parts, f.On)
	}
	return strings.Join(append(parts, f.Args...), " ")
}

// Seen waits until the servers see a fault after which the service stays; nil: they see none.
func (f Fault) Seen(s Scene) *Condition {
	if see := Kinds[f.Kind].seen; see != nil {
		return see(s, f)
	}
	return nil
}

// Words describe the fault.
func (f Fault) Words() string {
	words := []string{"{on}", f.On}
	for i, a := range f.Args {
		words = append(words, "{"+strconv.Itoa(i)+"}", a)
	}
	return strings.NewReplacer(words...).Replace(Kinds[f.Kind].words)
}

// InjectorOf returns the Injector of a fault: Mortar itself or env.Injector.
func (b *Site) InjectorOf(f Fault) Injector {
	if how := Kinds[f.Kind]; how.inject != nil {
		return ownInjector{b, how}
	}
	return b.Env.Injector
}

// ownInjector is the Injector of the faults that Mortar injects itself.
type ownInjector struct {
	b *Site
	Row
}

func (o ownInjector) Can(f Fault) error {
	if o.can == nil {
		return nil
	}
	return o.can(o.b, f)
}

func (o ownInjector) Inject(ctx context.Context, f Fault) error { return o.inject(ctx, o.b, f) }

func (o ownInjector) Heal(ctx context.Context, f Fault) error {
	if o.heal == nil {
		return nil
	}
	return o.heal(ctx, o.b, f)
}

// Can returns why a fault is impossible here.
func (b *Site) Can(f Fault) error { return b.InjectorOf(f).Can(f) }

// healAgain mends a fault of a real server that did not answer before: that need not mean
// that it was fenced, and boots.
func healAgain(ctx context.Context, b *Site, f Fault) error {
	if b.Env.Virtual {
		return nil
	}
	return b.Env.Injector.Heal(ctx, f)
}

func hasOperator(b *Site, f Fault) error {
	if b.Env.Operator == nil {
		return fmt.Errorf("no injector is there to do %q", f.Kind)
	}
	return nil
}

func moveService(ctx context.Context, b *Site, f Fault) error {
	if b.Random {
		// A fault before this one may have moved it already. Then this one would do nothing.
		if on, err := b.Location(ctx, f.Args[0]); err == nil && slices.Equal(on, []string{f.On}) {
			return fmt.Errorf("service %s runs on %s already", f.Args[0], f.On)
		}
	}
	return b.Env.Operator.Move(ctx, f.Args[0], f.On)
}

func setStandby(ctx context.Context, b *Site, f Fault) error {
	return b.Env.Operator.Standby(ctx, f.On, true)
}

func endStandby(ctx context.Context, b *Site, f Fault) error {
	return b.Env.Operator.Standby(ctx, f.On, false)
}
