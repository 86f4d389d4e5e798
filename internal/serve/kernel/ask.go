package kernel

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	cmd "github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/base/pr"
)

// A disk may hang: it answers neither data nor an error. A thread that reads it cannot be
// given up, and takes its process along. So a disk that is not known to answer is read by a
// process, which can be given up, and so is a file written that a monitor tries the volume
// with. All are asked side by side by one process, because clients wait for a start.

// AnswerAction makes the agent answer questions about devices for another agent.
const AnswerAction = "_ask"

// AskLimit is how long a disk may take for an answer. A disk that repeats the read of a bad
// sector takes seconds (with error recovery control 7 s), and multipath fails a path that has
// died within 3 s.
const AskLimit = 10 * time.Second

// ErrSilent is the error of a device that does not answer.
var ErrSilent = errors.New("it does not answer")

// SilentFor is ErrSilent after a while.
func SilentFor(limit time.Duration) error { return fmt.Errorf("%w within %v", ErrSilent, limit) }

// Question is a range of a device to read. Off and N are multiples of 4096. Or it is a file to
// be written and read back, or what to do about the reservation of a device.
type Question struct {
	Dev   string    `json:"dev"`
	Off   int64     `json:"off"`
	N     int       `json:"n"`
	Write bool      `json:"write,omitempty"`
	Order *pr.Order `json:"order,omitempty"` // its answer is a pr.Done, in JSON
}

// Answer is what a device has answered.
type Answer struct {
	Number int    `json:"number"` // of the question
	Data   []byte `json:"data,omitempty"`
	Errno  int    `json:"errno,omitempty"`
	Text   string `json:"err,omitempty"`
	Err    error  `json:"-"` // of Errno and Text
}

// reply makes an answer of what a read returned.
func reply(number int, b []byte, err error) Answer {
	a := Answer{Number: number, Data: b}
	if err != nil {
		no := syscall.Errno(0)
		errors.As(err, &no)
		a.Errno, a.Text = int(no), err.Error()
	}
	return a
}

// heard gives the answer that a line of AnswerFor holds its error back.
func (a *Answer) heard(q Question) {
	op := "read"
	if q.Write {
		op = "write and read"
	}
	switch {
	case a.Errno != 0:
		a.Err = &fs.PathError{Op: op, Path: q.Dev, Err: syscall.Errno(a.Errno)}
	case a.Text != "":
		a.Err = errors.New(a.Text)
	}
}

// Ask has a process read the devices, and gives the process up after limit.
func (*Linux) Ask(ctx context.Context, limit time.Duration, all []Question) []Answer {
	out := make([]Answer, len(all))
	if len(all) == 0 {
		return out
	}
	in, err := json.Marshal(all)
	if err != nil {
		return noAnswers(out, err)
	}
	size := 0
	for _, q := range all {
		size += 2*q.N + 1<<12 // base64 takes four bytes for three
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, SilentFor(limit))
	defer cancel()
	said, err := cmd.Cmd{Argv: []string{"/proc/self/exe", "ocf", AnswerAction}, Stdin: in, Group: cmd.OwnSession, Limit: 2 * size}.Run(limited)
	if limited.Err() != nil {
		err = context.Cause(limited)
	}
	err = cmp.Or(err, fmt.Errorf("the process that reads it ended: exit code %d: %s", said.Code, strings.TrimSpace(said.Stderr)))
	noAnswers(out, err)
	for line := range strings.Lines(said.Stdout) {
		var a Answer
		if json.Unmarshal([]byte(line), &a) != nil || a.Number < 0 || a.Number >= len(out) {
			continue // the process was killed while it wrote
		}
		a.heard(all[a.Number])
		out[a.Number] = a
	}
	return out
}

func noAnswers(out []Answer, err error) []Answer {
	for i := range out {
		out[i] = Answer{Number: i, Err: err}
	}
	return out
}

// asksDir has a file for each device, which is locked while a process reads it. A process
// that hangs keeps its lock, though it was killed: the next one waits for the lock, in which
// it can be killed, and not for the disk. So there is one process at most for each device
// that cannot be ended, however often the device is looked at.
var asksDir = "/run/mortar/asks"

// AnswerFor answers the questions on stdin, each as soon as its device answers.
func AnswerFor(ctx context.Context, in io.Reader, out io.Writer) error {
	var all []Question
	if err := json.NewDecoder(bufio.NewReader(in)).Decode(&all); err != nil {
		return err
	}
	_ = os.MkdirAll(asksDir, 0o700) // else there are no locks, see askOne
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, q := range all {
		wg.Go(func() {
			b, err := askOne(ctx, q)
			line, merr := json.Marshal(reply(i, b, err))
			if merr != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out.Write(append(line, '\n')) // one write: a killed process leaves whole lines
		})
	}
	wg.Wait()
	return nil
}

func askOne(ctx context.Context, q Question) ([]byte, error) {
	// Without room for its lock in /run a device is asked all the same.
	f, err := os.OpenFile(asksDir+"/"+strings.ReplaceAll(strings.TrimPrefix(q.Dev, "/dev/"), "/", "!"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer f.Close()
		if err := flock.Wait(ctx, f); err != nil {
			return nil, err
		}
	}
	switch {
	case q.Order != nil:
		return json.Marshal(q.Order.Carry(pr.Device))
	case q.Write:
		return nil, writeRead(q.Dev)
	}
	return (&Linux{}).ReadBlocks(q.Dev, q.Off, q.N)
}
