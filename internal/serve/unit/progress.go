package unit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// How long a mount, a comparison of parities or the registration of a cache takes follows from
// what a crash has left, and no arithmetic knows it: a quota check reads every inode. The kernel
// does not let go of such a piece either. A start that gave up would have its server fenced, and
// the partner would begin anew. So a piece tells how far it is, the start has all the time in
// which the piece gets on, and `mortar status` shows the same note.

// Progress is the note of a piece.
type Progress struct {
	What  string    `json:"what"`
	Began time.Time `json:"began"`
	Moved time.Time `json:"moved"` // when the piece was last seen to get on
	Far   string    `json:"far"`   // how far it is, in words
}

// String is for `mortar status`.
func (p *Progress) String() string {
	return fmt.Sprintf("%s, %.0f s, %s", p.What, p.Moved.Sub(p.Began).Seconds(), p.Far)
}

const (
	// progressTick is how often a piece is looked at, and the time of an action counted.
	progressTick = 2 * time.Second
	// stillFor is how long a piece may stand still before its time counts: a disk that
	// hangs for IoWait is no reason to move a service either.
	stillFor = IoWait
)

// ProgressFile is the note of the piece that a start of a service is at.
func ProgressFile(service string) string { return RunDir + "/progress-" + service + ".json" }

func (s *Host) progressNote() Note { return s.RunNote("progress", ".json") }

// Long runs a piece of an action, and keeps its note while far, which tells how far the piece
// is, changes.
func (s *Host) Long(what string, far func() string, piece func() error) error {
	p := Progress{What: what, Began: time.Now(), Far: far()}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressTick)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				if at := far(); at != p.Far {
					p.Far, p.Moved = at, now
					s.Log.NoteErr(s.progressNote().Save(&p), "")
				}
			}
		}
	}()
	err := piece()
	close(done)
	<-ended
	if !p.Moved.IsZero() {
		s.progressNote().Forget()
		s.Log.Note("%s took %.0f s: %s", what, time.Since(p.Began).Seconds(), far())
	}
	return err
}

// Moved tells how much was read from and written to block devices (dm-3) since now: how far a
// piece is whose I/O goes to them.
func (s *Host) Moved(devs func() []string) func() string {
	count := func() (sum linux.DiskStat) {
		if b, err := s.K.ReadFile("/proc/diskstats"); err == nil {
			all := linux.ParseDiskStats(string(b))
			for _, d := range devs() {
				sum.Read, sum.Written = sum.Read+all[d].Read, sum.Written+all[d].Written
			}
		}
		return sum
	}
	before := count()
	return func() string {
		now := count()
		return fmt.Sprintf("%d KiB read, %d KiB written", (now.Read-before.Read)>>10, (now.Written-before.Written)>>10)
	}
}

// Budget is a context that ends when an action of the service has had its time. The time in
// which a long piece of it gets on does not count.
func (s *Host) Budget(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	s.progressNote().Forget() // of an action that was killed
	ctx, cancel := context.WithCancelCause(ctx)
	var counting sync.WaitGroup
	counting.Go(func() {
		tick := time.NewTicker(min(progressTick, max(limit/10, time.Millisecond)))
		defer tick.Stop()
		used, last := time.Duration(0), time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if !s.getsOn(now) {
					used += now.Sub(last)
				}
				last = now
				if used >= limit {
					cancel(context.DeadlineExceeded)
					return
				}
			}
		}
	})
	return ctx, func() { cancel(nil); counting.Wait() }
}

// getsOn says whether a piece has got on lately. A clock that jumps makes a note old or young
// for one tick only.
func (s *Host) getsOn(now time.Time) bool {
	var p Progress
	return s.progressNote().Load(&p) == nil && p.What != "" && now.Sub(p.Moved).Abs() < stillFor
}
