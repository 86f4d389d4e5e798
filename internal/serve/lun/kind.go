// Package lun is the storage kind of LUNs of RAID arrays: their multipath maps and their
// reservations. It may not know what is on the LUNs: the rest of the service is behind
// Service.
package lun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	rule "github.com/mortarhpc/mortar/internal/base/pace"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/pace"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// LUNStorage are LUNs of RAID arrays, each by its multipath map.
type LUNStorage struct {
	LUNs []LUN `json:"luns"`
	// QueueSeconds is how long multipath lets I/O wait for a LUN without any path.
	QueueSeconds int `json:"queue_seconds,omitempty"`
}

type LUN struct {
	Name string `json:"name"` // of its multipath map: /dev/mapper/NAME
	WWID string `json:"wwid"` // as multipath(8) prints it: 3600c0ff000…
	Size int64  `json:"size"` // bytes
	// Array names the LUN's array: its LUNs forget their reservations together. "" if an
	// earlier release wrote the file.
	Array string `json:"array,omitempty"`
	// Paths is the smallest number of paths that a start accepts; 0: 1.
	Paths int `json:"paths,omitempty"`
}

// beside says whether two LUNs are known to be of one array.
func (l LUN) beside(o LUN) bool { return l.Array != "" && l.Array == o.Array }

func (c *LUNStorage) Check(f *unit.Faults) {
	if len(c.LUNs) == 0 {
		f.Add("luns is empty")
	}
	if c.QueueSeconds < 0 {
		f.Add("queue_seconds %d: 0 or more are needed", c.QueueSeconds)
	}
	for i, l := range c.LUNs {
		f.Word(fmt.Sprintf("luns[%d].name", i), l.Name)
		if !unit.Plain(l.WWID, ".-_") {
			f.Add("luns[%d].wwid %q: the WWID that multipath -ll prints is needed", i, l.WWID)
		}
		if l.Size <= 0 || l.Size%unit.Sector != 0 {
			f.Add("luns[%d].size %d: bytes are needed, a multiple of %d", i, l.Size, unit.Sector)
		}
		if l.Paths < 0 {
			f.Add("luns[%d].paths %d: 0 or more are needed", i, l.Paths)
		}
		for _, b := range c.LUNs[:i] {
			if l.Name == b.Name || l.WWID == b.WWID {
				f.Add("luns[%d] %q has the name or WWID of another one", i, l.Name)
			}
		}
	}
}

func (c *LUNStorage) Names() []string {
	return lists.Map(c.LUNs, func(l LUN) string { return l.Name })
}

// Kind is the storage kind of LUNs. Their multipath maps are there on every
// server all the time, so a start has nothing to do but to look.
type Kind struct {
	*unit.Host
	cfg     *LUNStorage
	group   bool // they are in a volume group
	svc     Service
	Reserve *reservedLUNs // nil: they are not reserved
}

// lunService is what the LUNs need of their service.
type Service interface {
	// Active says whether some, and whether all, of the service's volumes are there.
	Active() (some, all bool, err error)
	// HoldUdev lets udev queue events until the service is up.
	HoldUdev(ctx context.Context)
}

// New is the kind; keys are those by which servers reserve the LUNs, empty: they do not.
func New(h *unit.Host, cfg *LUNStorage, group bool, keys pr.Servers, svc Service) *Kind {
	l := &Kind{Host: h, cfg: cfg, group: group, svc: svc}
	if len(keys) > 0 {
		l.Reserve = &reservedLUNs{Kind: l, keys: keys}
	}
	return l
}

func (s *Kind) Layers() []unit.Part {
	all := []unit.Part{{Name: "luns", State: s.lunState, Start: s.lookAtLUNs, Stop: func(context.Context) error { return nil }, Shared: true}}
	if s.Reserve != nil {
		// After a crash they may be all that is left: a service is stopped then.
		all = append(all, unit.Part{Name: "reservations", State: s.reserveState, Start: s.Reserve.Take, Stop: s.Reserve.Give, Shared: true})
	}
	return all
}

// find finds the multipath map of a LUN by its WWID, or says why there is none.
func (s *Kind) find(l LUN) (dev string, gone error, err error) {
	names, err := s.K.ReadDir("/sys/block")
	if err != nil {
		return "", nil, err
	}
	for _, n := range names {
		if strings.HasPrefix(n, "dm-") && s.Line("/sys/block/"+n+"/dm/uuid") == "mpath-"+l.WWID {
			return n, nil, nil
		}
	}
	if dev, _ := s.DM(names, l.Name); dev != "" {
		return "", refusal.New("lun-name", refusal.Args{"lun": l.Name, "map": s.Line("/sys/block/" + dev + "/dm/uuid"), "wwid": l.WWID}), nil
	}
	return "", refusal.New("lun-missing", refusal.Args{"lun": l.Name, "wwid": l.WWID}), nil
}

// judge finds what is wrong with a LUN's map. Paths are not looked at: while all
// of them are gone the map queues, for as long as the design says, and then the
// file system fails. A monitor that moved the service would cut that short.
func (s *Kind) judge(l LUN, dev string) error {
	dir := "/sys/block/" + dev
	if got := int64(s.Number(dir+"/size")) * unit.Sector; got != l.Size {
		return refusal.New("lun-size", refusal.Args{"lun": l.Name, "wwid": l.WWID, "bytes": got, "want": l.Size})
	}
	if s.Line(dir+"/dm/suspended") == "1" {
		return refusal.New("lun-suspended", refusal.Args{"lun": l.Name, "device": dev})
	}
	return nil
}

func (s *Kind) lunState() (unit.State, error) {
	if err := s.judgeAll(false); err != nil {
		return unit.Broken, err
	}
	return unit.Running, nil
}

// judgeAll finds what is wrong with the LUNs, for a start also with their paths.
func (s *Kind) judgeAll(paths bool) error {
	var faults error
	for _, l := range s.cfg.LUNs {
		dev, fault, err := s.find(l)
		if err != nil {
			return err
		}
		if fault == nil {
			fault = s.judge(l, dev)
		}
		if need := max(l.Paths, 1); fault == nil && paths && s.Paths(dev) < need {
			fault = refusal.New("lun-paths", refusal.Args{"lun": l.Name, "paths": s.Paths(dev), "want": need})
		}
		faults = errors.Join(faults, fault)
	}
	return faults
}

// lunPatience is how long a start waits for LUNs that have paths and do not answer: an array
// whose other controller takes its LUNs holds I/O back for some time.
const lunPatience = 30 * time.Second

// lookAtLUNs refuses a start if a LUN is not here as designed, before anything
// is changed. On a server that has just booted it waits for late ones.
func (s *Kind) lookAtLUNs(ctx context.Context) error {
	begin := s.K.Now()
	end := begin
	if s.Uptime() < unit.YoungHost {
		end = begin.Add(unit.MemberWait)
	}
	for {
		err := s.Sound(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, kernel.ErrSilent) {
			end = begin.Add(lunPatience)
		}
		if !s.K.Now().Before(end) || s.K.Sleep(ctx, 250*time.Millisecond) != nil {
			return refusal.Because("luns", err)
		}
	}
	if _, all, err := s.svc.Active(); err != nil || all || !s.group {
		return err // no device will appear
	}
	s.svc.HoldUdev(ctx)
	return nil
}

func (s *Kind) Devices() ([]unit.Device, error) {
	var out []unit.Device
	for _, l := range s.cfg.LUNs {
		dev, gone, err := s.find(l)
		if err != nil {
			return nil, err
		}
		d := unit.Device{Name: l.Name, What: "LUN " + l.Name, Gone: gone}
		if gone == nil {
			d.Path = "/dev/" + dev
		}
		out = append(out, d)
	}
	return out, nil
}

func (s *Kind) Paced() func() string { return pace.Measured(s.Host, s.slowSince) }

// slowSince names the one LUN that was slow since a shot, while the others were well: they
// have the same paths, so the partner would wait for it, too. One that answers nothing at all
// is not named: the server may have lost it.
func (s *Kind) slowSince(before pace.Shot) string {
	after, err := pace.Shoot(s.Host)
	if err != nil {
		return ""
	}
	seen, window := rule.Between(before.Stat, after.Stat), after.At.Sub(before.At)
	devs := map[string]string{}
	for _, l := range s.cfg.LUNs {
		if dev, gone, err := s.find(l); err == nil && gone == nil {
			devs[l.Name] = dev
		}
	}
	var late []string
	for name, dev := range devs {
		var peers []rule.Answers
		for _, d := range devs {
			if got, ok := seen[d]; ok && d != dev {
				peers = append(peers, got)
			}
		}
		if p := pace.PaceOf(seen[dev], peers, window); p.Verdict == pace.Slow {
			if seen[dev].Stuck {
				return ""
			}
			late = append(late, fmt.Sprintf("LUN %s takes %d ms for an answer, the others %d ms", name, p.Took.Milliseconds(), p.Peers.Milliseconds()))
		}
	}
	if len(late) != 1 {
		return ""
	}
	return late[0]
}

func (s *Kind) Reachable() bool {
	for _, l := range s.cfg.LUNs {
		if dev, gone, err := s.find(l); err == nil && (gone != nil || s.Paths(dev) == 0) {
			return false
		}
	}
	return true
}

func (s *Kind) Sound(ctx context.Context) error {
	if err := s.judgeAll(true); err != nil {
		return err
	}
	return s.answer(ctx)
}

// answer finds LUNs that have paths and do not answer. What else is wrong with them the
// layers above say.
func (s *Kind) answer(ctx context.Context) error {
	devices, err := s.Devices()
	if err != nil {
		return err
	}
	all := lists.Map(devices, func(d unit.Device) kernel.Question { return kernel.Question{Dev: d.Path, N: 4096} })
	var silent error
	for i, a := range s.K.Ask(ctx, kernel.AskLimit, all) {
		if errors.Is(a.Err, kernel.ErrSilent) {
			silent = errors.Join(silent, fmt.Errorf("LUN %s has paths, and %w; see the array", devices[i].Name, a.Err))
		}
	}
	return silent
}

// note: LUNs have nothing that another server would not see.
func (s *Kind) Queues() time.Duration { return time.Duration(s.cfg.QueueSeconds) * time.Second }

func (s *Kind) Open(context.Context) error { return nil }
func (s *Kind) Up() bool                   { return false }
func (s *Kind) Writable() bool             { return false }

// Reflexes: the array looks after its disks and spares by itself.
func (s *Kind) Reflexes(unit.Watch) []*unit.Reflex { return nil }

func (s *Kind) Free() bool         { return true }
func (s *Kind) Modules() []string  { return []string{"dm_multipath"} }
func (s *Kind) Programs() []string { return nil }
