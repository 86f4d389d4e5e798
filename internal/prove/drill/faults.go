package drill

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// Kind is the kind of a fault. Injector.Can reports which kinds an Injector can
// inject.
type Kind string

// Kinds of faults; Fault.On and Fault.Args say which part. Each has an entry in
// kinds.
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
	TakeAway    Kind = "take-away"    // something on a server takes away what the service needs, and the watcher can put back; theAddress or theName
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

// faultKind describes a kind of fault.
type faultKind struct {
	// phrase describes the fault: {on} is the server, {0} and {1} are the Args.
	phrase string
	// inject and heal are set for a fault that Mortar injects itself, through the
	// agents or by the administrator's commands; the Injector injects the others.
	// can returns why the fault is impossible; a nil can means always possible. A
	// fault without heal mends itself.
	can          func(e *engine, f Fault) error
	inject, heal faultFunc
	// ready refuses a brick that would not survive the fault.
	ready faultFunc
	// back does what remains to be done after the hardware is whole again.
	back faultFunc
	// harms is the part of the brick that a fault harms after which the service stays: two
	// faults of a schedule that harm different parts are judged as if each came alone.
	harms string
	// seen is the condition by which the servers see a fault after which the service stays;
	// it may be nil.
	seen func(s Scene, f Fault) *Condition
}

type faultFunc func(e *engine, ctx context.Context, f Fault) error

var kinds = map[Kind]faultKind{
	Freeze:             {phrase: "freezing {on}", seen: gone},
	Panic:              {phrase: "panicking {on}", seen: gone},
	PowerOff:           {phrase: "cutting the power of {on}", seen: gone},
	ClientDown:         {phrase: "crashing client {on}", back: (*engine).clientBack},
	LinkDown:           {phrase: "pulling the {0} cable of {on}", back: (*engine).healAgain, harms: "links", seen: func(s Scene, f Fault) *Condition { return linkGone(f.Args[0], f.On) }},
	SwitchDown:         {phrase: "switching the {0} network off", back: (*engine).healAgain, harms: "links", seen: func(s Scene, f Fault) *Condition { return linkGone(f.Args[0], s.servers()...) }},
	PathOut:            {phrase: "cutting the path of {on} to {0} over HBA {1}", back: (*engine).healAgain, harms: "storage", seen: func(s Scene, f Fault) *Condition { return s.storage().lost(f.Args[0], []string{f.On}) }},
	HBAOut:             {phrase: "cutting HBA {0} of {on}", back: (*engine).healAgain, harms: "storage", seen: pathsGone},
	PathsOut:           {phrase: "cutting every path of {on}", back: (*engine).healAgain, seen: pathsGone},
	ModuleOut:          {phrase: "pulling I/O module {1} of enclosure {0}", harms: "storage", seen: func(s Scene, f Fault) *Condition { return s.storage().lost("", s.servers()) }},
	DiskOut:            {phrase: "pulling disk {0}", back: (*engine).returnDisk, harms: "storage", seen: diskGone},
	DiskSlow:           {phrase: "holding disk {0} to {1} operations and {2} bytes a second", back: (*engine).returnSlow, seen: slowUnlessIdle},
	Corrupt:            {phrase: "overwriting {2} bytes of disk {0} at offset {1}"},
	LocalDisk:          {phrase: "pulling a system disk of {on}", ready: (*engine).mirrored, back: (*engine).returnSystemDisk, seen: func(s Scene, f Fault) *Condition { return mirrorDegraded(f.On) }},
	ControllerOut:      {phrase: "killing controller {1} of array {0}", harms: "storage", seen: func(s Scene, f Fault) *Condition { return lunsMoved(s, f, 2) }},
	ControllerFailover: {phrase: "moving the LUNs of controller {1} of array {0} to the other one", harms: "storage", seen: func(s Scene, f Fault) *Condition { return lunsMoved(s, f, 1) }},
	ArrayDisk:          {phrase: "pulling disk {0} of an array", harms: "storage", seen: diskGone},
	ArrayPower:         {phrase: "cutting the power of array {0}", seen: func(s Scene, f Fault) *Condition { return lunStorage{s}.noPath(f.Args[0]) }},
	LUNSlow:            {phrase: "delaying each answer of LUN {0} by {1} ms", seen: func(s Scene, f Fault) *Condition { return lunLate(s, f.Args[0]) }},
	LUNMissing:         {phrase: "hiding LUN {0} from {on}"},

	FeedOff: {phrase: "switching PDU {0} off", harms: "power", seen: func(s Scene, f Fault) *Condition { return feedLost(s.Active, f.Args[0]) }},
	BMCDead: {phrase: "killing the BMC of {on}", harms: "power"},
	BMCLies: {phrase: "having the BMC of {on} switch something else"},
	Astray:  {phrase: "plugging something else into the outlets of {on}"},
	PDUDead: {phrase: "killing the controller of PDU {0}", harms: "power", seen: func(s Scene, f Fault) *Condition {
		return shows(2*time.Minute, signOf(observe.PDUSilent, "pdu", f.Args[0]))
	}},

	Kill:        {phrase: "killing {0} on {on}", can: mayKill, inject: (*engine).kill, heal: (*engine).startDaemon},
	TakeAway:    {phrase: "taking {0} from {on}", can: hasAddress, inject: (*engine).takeAway}, // the watcher puts it back, or Pacemaker moves the service
	Hang:        {phrase: "stopping {0} on {on} by a signal", can: mayHang, inject: (*engine).hang, heal: (*engine).goOn},
	DiskHang:    {phrase: "having {0} hang on {on}", inject: (*engine).hangDisk, heal: (*engine).unhang, back: (*engine).unhungBack},
	WriteSoon:   {phrase: "having {on} write data to its disks after a second", inject: (*engine).set, heal: (*engine).reset, back: (*engine).resetBack},
	HoldRebuild: {phrase: "holding rebuilds on {on} to 100 KiB/s", inject: (*engine).set, heal: (*engine).reset, back: (*engine).resetBack},
	FillFS:      {phrase: "filling {0} on {on}", inject: (*engine).fill, heal: (*engine).empty},
	HoldFS:      {phrase: "keeping {0} on {on} in use", inject: (*engine).hold, heal: (*engine).letGo},
	BitRot:      {phrase: "overwriting bytes of one disk beneath the RAID", can: mayRot, inject: (*engine).spoil}, // the scrub mends the data, or the drill fails
	FillOST:     {phrase: "filling OST {0}", can: hasLustre, inject: (*engine).fillOST, heal: (*engine).emptyOST},
	LNetDown:    {phrase: "taking the network from LNet of {on}", can: hasLustre, inject: (*engine).lnetDown, heal: (*engine).lnetUp},
	ClockJump:   {phrase: "moving the clock of {on} by {0} s", inject: (*engine).jump, heal: (*engine).jumpBack, back: (*engine).clockBack, harms: "clocks", seen: func(s Scene, f Fault) *Condition { return clockSeen(f.On) }},
	CacheApply:  {phrase: "giving SSDs back to the cache of {0}", inject: (*engine).applyCache},
	CacheFill:   {phrase: "filling the mirror of dirty data of {0}", inject: (*engine).fillCache, heal: (*engine).drainCache},
	CacheFlush:  {phrase: "starting mortar cache {1} of {0} on {on}, whose disks take nothing", inject: (*engine).startFlush, heal: (*engine).endFlush},

	Move:       {phrase: "moving service {0} to {on}", can: hasOperator, inject: (*engine).move}, // the service may stay there, so no heal
	Standby:    {phrase: "putting {on} in standby", can: hasOperator, inject: (*engine).standby, heal: (*engine).unstandby, seen: func(s Scene, f Fault) *Condition { return shows(seenLimit, signOf(observe.InStandby, "host", f.On)) }},
	ConfirmOff: {phrase: "confirming that {on} is off", can: hasOperator, inject: (*engine).confirmOff},
}

func gone(_ Scene, f Fault) *Condition { return silent(f.On) }

func pathsGone(s Scene, f Fault) *Condition { return s.storage().lost("", []string{f.On}) }

// diskGone waits until a disk of the RAID group, or an SSD of the cache, is missed.
func diskGone(s Scene, f Fault) *Condition {
	switch {
	case slices.Contains(s.Members, f.Args[0]):
		return s.storage().without(f.Args[0])
	case s.Service.Storage.Cache != nil:
		return ssdOut(s, f.Args[0])
	}
	return nil
}

// lunsMoved waits until the LUNs of a controller are reached by the other one.
func lunsMoved(s Scene, f Fault, share int) *Condition {
	n, err := strconv.Atoi(f.Args[1])
	if err != nil {
		return nil
	}
	return lunStorage{s}.onOther(f.Args[0], n, share)
}

// slowUnlessIdle waits until a disk is seen to be slow. Those below a write-back cache may be
// idle.
func slowUnlessIdle(s Scene, f Fault) *Condition {
	if c := s.Service.Storage.Cache; c != nil && c.Mode == cache.WriteBack {
		return nil
	}
	return slowSeen(s, f.Args[0])
}

// HardwareKinds returns the kinds that an Injector injects, sorted by name.
func HardwareKinds() []Kind {
	var out []Kind
	for k, how := range kinds {
		if how.inject == nil {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// Fault is one fault to inject, or one command to run on the brick.
type Fault struct {
	Kind Kind
	On   string   // server; "" for parts that belong to no server
	Args []string // the part, for kinds that need one
}

func (f Fault) String() string {
	parts := []string{string(f.Kind)}
	if f.On != "" {
		parts = append(parts, f.On)
	}
	return strings.Join(append(parts, f.Args...), " ")
}

// describe is the text of a step.
func describe(s Step) string {
	if s.Mend {
		return "mending: " + s.Fault.String()
	}
	words := []string{"{on}", s.Fault.On}
	for i, a := range s.Fault.Args {
		words = append(words, "{"+strconv.Itoa(i)+"}", a)
	}
	return strings.NewReplacer(words...).Replace(kinds[s.Fault.Kind].phrase)
}

// injector returns the Injector of a fault: Mortar itself or env.Injector.
func (e *engine) injector(f Fault) Injector {
	if how := kinds[f.Kind]; how.inject != nil {
		return ours{e, how}
	}
	return e.env.Injector
}

// ours is the Injector of the faults that Mortar injects itself.
type ours struct {
	e *engine
	faultKind
}

func (o ours) Can(f Fault) error {
	if o.can == nil {
		return nil
	}
	return o.can(o.e, f)
}

func (o ours) Inject(ctx context.Context, f Fault) error { return o.inject(o.e, ctx, f) }

func (o ours) Heal(ctx context.Context, f Fault) error {
	if o.heal == nil {
		return nil
	}
	return o.heal(o.e, ctx, f)
}

// healAgain mends a fault of a real server that did not answer before: that need not mean
// that it was fenced, and boots.
func (e *engine) healAgain(ctx context.Context, f Fault) error {
	if e.env.Virtual {
		return nil
	}
	return e.env.Injector.Heal(ctx, f)
}

func hasOperator(e *engine, f Fault) error {
	if e.env.Operator == nil {
		return fmt.Errorf("there is nobody to do %q", f.Kind)
	}
	return nil
}

func (e *engine) move(ctx context.Context, f Fault) error {
	if e.variant.Schedule != nil {
		// A fault before this one may have moved it already. Then this one would do nothing.
		if on, err := e.location(ctx, f.Args[0]); err == nil && slices.Equal(on, []string{f.On}) {
			return fmt.Errorf("service %s runs on %s already", f.Args[0], f.On)
		}
	}
	return e.env.Operator.Move(ctx, f.Args[0], f.On)
}

func (e *engine) standby(ctx context.Context, f Fault) error {
	return e.env.Operator.Standby(ctx, f.On, true)
}

func (e *engine) unstandby(ctx context.Context, f Fault) error {
	return e.env.Operator.Standby(ctx, f.On, false)
}

func (e *engine) confirmOff(ctx context.Context, f Fault) error {
	return e.env.Operator.ConfirmOff(ctx, f.On)
}
