package ocf

import (
	"context"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// HoldUdev lets udev queue events instead of handling them until the service
// is up. Each array and volume that appears makes it run mdadm, lvm, blkid
// and multipath several times, at the very moment the clients wait for this
// host. Nothing in a start depends on udev: the kernel makes the devices.
func (s *volumeGroup) HoldUdev(ctx context.Context) {
	if err := s.HeldNote().Write(""); err != nil {
		s.Log.Note("%v", err)
		return // could not be found again should this process die
	}
	ctx, cancel := context.WithTimeout(ctx, udevTime)
	defer cancel()
	if _, err := s.K.Run(ctx, kernel.Command{Argv: []string{"udevadm", "control", "--stop-exec-queue"}}); err != nil {
		s.Log.Note("udev is not held: %v", err)
	}
}

// udevTime bounds the wait for an answer of udev, whose workers may hang with a disk.
const udevTime = 5 * time.Second

// resumeUdev undoes what the storage holds back, at the end of a start, without waiting
// for udev, which has much to do then. The mark stays: the next action makes
// sure.
func (s *volumeGroup) resumeUdev() {
	if !s.HeldNote().There() {
		return
	}
	s.storage.Free()
	s.Log.NoteErr(s.K.Start(kernel.Command{Argv: []string{"udevadm", "control", "--start-exec-queue"}}), "udev stays held")
}

// release makes sure that nothing is held any more: of a start that is over,
// or of an agent that was killed.
func (s *volumeGroup) release() {
	if !s.HeldNote().There() {
		return
	}
	ok := s.storage.Free()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if _, err := s.K.Run(ctx, kernel.Command{Argv: []string{"udevadm", "control", "--start-exec-queue"}}); err != nil {
		s.Log.Note("udev stays held: %v", err)
		ok = false
	}
	if !ok {
		return // the next action tries again
	}
	s.HeldNote().Forget()
}
