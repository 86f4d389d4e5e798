package ocf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// LUNStorage are LUNs of RAID arrays, each by its multipath map.
type LUNStorage struct {
	LUNs []LUN `json:"luns"`
	// Reservations has the key of each node, with which LUNs are reserved for the
	// server that has the service; empty: they are not. Those without a volume
	// group need it.
	Reservations map[string]string `json:"reservations,omitempty"`
	// QueueSeconds is how long multipath lets I/O wait for a LUN without any path.
	QueueSeconds int `json:"queue_seconds,omitempty"`
}

// LUN is one LUN.
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

func (c *LUNStorage) check(group bool, nodes map[string]string, f *faults) {
	if len(c.LUNs) == 0 {
		f.add("luns is empty")
	}
	if c.QueueSeconds < 0 {
		f.add("queue_seconds %d: 0 or more are needed", c.QueueSeconds)
	}
	for i, l := range c.LUNs {
		f.word(fmt.Sprintf("luns[%d].name", i), l.Name)
		if !plain(l.WWID, ".-_") {
			f.add("luns[%d].wwid %q: the WWID that multipath -ll prints is needed", i, l.WWID)
		}
		if l.Size <= 0 || l.Size%sector != 0 {
			f.add("luns[%d].size %d: bytes are needed, a multiple of %d", i, l.Size, sector)
		}
		if l.Paths < 0 {
			f.add("luns[%d].paths %d: 0 or more are needed", i, l.Paths)
		}
		for _, b := range c.LUNs[:i] {
			if l.Name == b.Name || l.WWID == b.WWID {
				f.add("luns[%d] %q has the name or WWID of another one", i, l.Name)
			}
		}
	}
	c.checkReservations(group, nodes, f)
}

func (c *LUNStorage) names() []string {
	var out []string
	for _, l := range c.LUNs {
		out = append(out, l.Name)
	}
	return out
}

// lunKind is the storage kind of LUNs. Their multipath maps are there on every
// server all the time, so a start has nothing to do but to look.
type lunKind struct {
	*Host
	cfg     *LUNStorage
	group   bool // they are in a volume group
	svc     lunService
	reserve *reservedLUNs // nil: they are not reserved
}

// lunService is what the LUNs need of their service.
type lunService interface {
	// active says whether some, and whether all, of the service's volumes are there.
	active() (some, all bool, err error)
	// holdUdev lets udev queue events until the service is up.
	holdUdev(ctx context.Context)
}

func newLUNs(h *Host, cfg *LUNStorage, group bool, svc lunService) *lunKind {
	l := &lunKind{Host: h, cfg: cfg, group: group, svc: svc}
	if len(cfg.Reservations) > 0 {
		l.reserve = newReservedLUNs(l)
	}
	return l
}

func (s *lunKind) layers() []part {
	all := []part{{"luns", s.lunState, s.lookAtLUNs, func(context.Context) error { return nil }, true}}
	if s.reserve != nil {
		// After a crash they may be all that is left: a service is stopped then.
		all = append(all, part{"reservations", s.reserveState, s.reserve.Take, s.reserve.Give, true})
	}
	return all
}

// find finds the multipath map of a LUN by its WWID, or says why there is none.
func (s *lunKind) find(l LUN) (dev string, gone error, err error) {
	names, err := s.k.ReadDir("/sys/block")
	if err != nil {
		return "", nil, err
	}
	for _, n := range names {
		if strings.HasPrefix(n, "dm-") && s.line("/sys/block/"+n+"/dm/uuid") == "mpath-"+l.WWID {
			return n, nil, nil
		}
	}
	if dev, _ := s.dm(names, l.Name); dev != "" {
		return "", fmt.Errorf("LUN %s: the map of that name is %q, not that of WWID %s", l.Name, s.line("/sys/block/"+dev+"/dm/uuid"), l.WWID), nil
	}
	return "", fmt.Errorf("LUN %s: no multipath map has WWID %s; see that the array is on, that it presents the LUN to this server, and multipath -ll", l.Name, l.WWID), nil
}

// judge finds what is wrong with a LUN's map. Paths are not looked at: while all
// of them are gone the map queues, for as long as the design says, and then the
// file system fails. A monitor that moved the service would cut that short.
func (s *lunKind) judge(l LUN, dev string) error {
	dir := "/sys/block/" + dev
	if got := int64(s.number(dir+"/size")) * sector; got != l.Size {
		return fmt.Errorf("LUN %s (WWID %s) has %d bytes, not %d as designed", l.Name, l.WWID, got, l.Size)
	}
	if s.line(dir+"/dm/suspended") == "1" {
		return fmt.Errorf("LUN %s: its map %s is suspended", l.Name, dev)
	}
	return nil
}

func (s *lunKind) lunState() (state, error) {
	if err := s.judgeAll(false); err != nil {
		return broken, err
	}
	return running, nil
}

// judgeAll finds what is wrong with the LUNs, for a start also with their paths.
func (s *lunKind) judgeAll(paths bool) error {
	var faults error
	for _, l := range s.cfg.LUNs {
		dev, fault, err := s.find(l)
		if err != nil {
			return err
		}
		if fault == nil {
			fault = s.judge(l, dev)
		}
		if need := max(l.Paths, 1); fault == nil && paths && s.paths(dev) < need {
			fault = fmt.Errorf("LUN %s has %d paths that work, fewer than %d", l.Name, s.paths(dev), need)
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
func (s *lunKind) lookAtLUNs(ctx context.Context) error {
	begin := s.k.Now()
	end := begin
	if s.uptime() < youngHost {
		end = begin.Add(memberWait)
	}
	for {
		err := s.sound(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, kernel.ErrSilent) {
			end = begin.Add(lunPatience)
		}
		if !s.k.Now().Before(end) || s.k.Sleep(ctx, 250*time.Millisecond) != nil {
			return refuse(err)
		}
	}
	if _, all, err := s.svc.active(); err != nil || all || !s.group {
		return err // no device will appear
	}
	s.svc.holdUdev(ctx)
	return nil
}

func (s *lunKind) devices() ([]device, error) {
	var out []device
	for _, l := range s.cfg.LUNs {
		dev, gone, err := s.find(l)
		if err != nil {
			return nil, err
		}
		d := device{name: l.Name, what: "LUN " + l.Name, gone: gone}
		if gone == nil {
			d.path = "/dev/" + dev
		}
		out = append(out, d)
	}
	return out, nil
}

// paced measures the LUNs.
func (s *lunKind) paced() func() string { return measured(s.Host, s.slowSince) }

// slowSince names the one LUN that was slow since a shot, while the others were well: they
// have the same paths, so the partner would wait for it, too. One that answers nothing at all
// is not named: the server may have lost it.
func (s *lunKind) slowSince(before shot) string {
	after, err := shoot(s.Host)
	if err != nil {
		return ""
	}
	seen, window := answersBetween(before.stat, after.stat), after.at.Sub(before.at)
	devs := map[string]string{}
	for _, l := range s.cfg.LUNs {
		if dev, gone, err := s.find(l); err == nil && gone == nil {
			devs[l.Name] = dev
		}
	}
	var late []string
	for name, dev := range devs {
		var peers []answers
		for _, d := range devs {
			if got, ok := seen[d]; ok && d != dev {
				peers = append(peers, got)
			}
		}
		if p := paceOf(seen[dev], peers, window); p.verdict == slow {
			if seen[dev].stuck {
				return ""
			}
			late = append(late, fmt.Sprintf("LUN %s takes %d ms for an answer, the others %d ms", name, p.took.Milliseconds(), p.peers.Milliseconds()))
		}
	}
	if len(late) != 1 {
		return ""
	}
	return late[0]
}

func (s *lunKind) reachable() bool {
	for _, l := range s.cfg.LUNs {
		if dev, gone, err := s.find(l); err == nil && (gone != nil || s.paths(dev) == 0) {
			return false
		}
	}
	return true
}

func (s *lunKind) sound(ctx context.Context) error {
	if err := s.judgeAll(true); err != nil {
		return err
	}
	return s.answer(ctx)
}

// answer finds LUNs that have paths and do not answer. What else is wrong with them the
// layers above say.
func (s *lunKind) answer(ctx context.Context) error {
	devices, err := s.devices()
	if err != nil {
		return err
	}
	var all []kernel.Question
	for _, d := range devices {
		all = append(all, kernel.Question{Dev: d.path, N: 4096})
	}
	var silent error
	for i, a := range s.k.Ask(ctx, kernel.AskLimit, all) {
		if errors.Is(a.Err, kernel.ErrSilent) {
			silent = errors.Join(silent, fmt.Errorf("LUN %s has paths, and %w; see the array", devices[i].name, a.Err))
		}
	}
	return silent
}

// note: LUNs have nothing that another server would not see.
func (s *lunKind) queues() time.Duration { return time.Duration(s.cfg.QueueSeconds) * time.Second }

func (s *lunKind) open(context.Context) error { return nil }
func (s *lunKind) up() bool                   { return false }
func (s *lunKind) writable() bool             { return false }

// reflexes: the array looks after its disks and spares by itself.
func (s *lunKind) reflexes(watch) []*reflex { return nil }

func (s *lunKind) free() bool         { return true }
func (s *lunKind) modules() []string  { return []string{"dm_multipath"} }
func (s *lunKind) programs() []string { return nil }
