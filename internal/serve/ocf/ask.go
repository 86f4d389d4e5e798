package ocf

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
)

// A disk may hang: it answers neither data nor an error. A thread that reads it cannot be
// given up, and takes its process along. So a disk that is not known to answer is read by a
// process, which can be given up. All disks are read side by side by one process, because
// clients wait for a start.

// askAction makes the agent read devices for another agent.
const askAction = "_ask"

// askLimit is how long a disk may take for an answer. A disk that repeats the read of a bad
// sector takes seconds (with error recovery control 7 s), and multipath fails a path that has
// died within 3 s.
const askLimit = 10 * time.Second

// errSilent is the error of a device that does not answer.
var errSilent = fmt.Errorf("it does not answer within %v", askLimit)

// question is a range of a device to read. off and n are multiples of 4096.
type question struct {
	Dev string `json:"dev"`
	Off int64  `json:"off"`
	N   int    `json:"n"`
}

// answer is what a device has answered.
type answer struct {
	Number int    `json:"number"` // of the question
	Data   []byte `json:"data,omitempty"`
	Errno  int    `json:"errno,omitempty"`
	Err    string `json:"err,omitempty"`
	err    error
}

// reply makes an answer of what a read returned.
func reply(number int, b []byte, err error) answer {
	a := answer{Number: number, Data: b}
	if err != nil {
		no := syscall.Errno(0)
		errors.As(err, &no)
		a.Errno, a.Err = int(no), err.Error()
	}
	return a
}

// heard gives the answer that a line of askFor holds its error back.
func (a *answer) heard(dev string) {
	switch {
	case a.Errno != 0:
		a.err = &fs.PathError{Op: "read", Path: dev, Err: syscall.Errno(a.Errno)}
	case a.Err != "":
		a.err = errors.New(a.Err)
	}
}

// Ask has a process read the devices, and gives the process up after askLimit.
func (*realKernel) Ask(ctx context.Context, all []question) []answer {
	out := make([]answer, len(all))
	if len(all) == 0 {
		return out
	}
	in, err := json.Marshal(all)
	if err != nil {
		return noAnswers(out, err)
	}
	size := 0
	for _, q := range all {
		size += 2*q.N + 1<<10 // base64 takes four bytes for three
	}
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	said, err := cmd.Cmd{Argv: []string{"/proc/self/exe", "ocf", askAction}, Stdin: in, Group: cmd.OwnSession, Limit: 2 * size}.Run(limited)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited.Err() != nil:
		err = errSilent
	default:
		err = cmp.Or(err, fmt.Errorf("the process that reads it ended: exit code %d: %s", said.Code, strings.TrimSpace(said.Stderr)))
	}
	noAnswers(out, err)
	for line := range strings.Lines(said.Stdout) {
		var a answer
		if json.Unmarshal([]byte(line), &a) != nil || a.Number < 0 || a.Number >= len(out) {
			continue // the process was killed while it wrote
		}
		a.heard(all[a.Number].Dev)
		out[a.Number] = a
	}
	return out
}

func noAnswers(out []answer, err error) []answer {
	for i := range out {
		out[i] = answer{Number: i, err: err}
	}
	return out
}

// asksDir has a file for each device, which is locked while a process reads it. A process
// that hangs keeps its lock, though it was killed: the next one waits for the lock, in which
// it can be killed, and not for the disk. So there is one process at most for each device
// that cannot be ended, however often the device is looked at.
var asksDir = runDir + "/asks"

// askFor answers the questions on stdin, each as soon as its device answers.
func askFor(ctx context.Context, in io.Reader, out io.Writer) error {
	var all []question
	if err := json.NewDecoder(bufio.NewReader(in)).Decode(&all); err != nil {
		return err
	}
	if err := os.MkdirAll(asksDir, 0o700); err != nil {
		return err
	}
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

func askOne(ctx context.Context, q question) ([]byte, error) {
	f, err := os.OpenFile(asksDir+"/"+strings.ReplaceAll(strings.TrimPrefix(q.Dev, "/dev/"), "/", "!"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := flock.Wait(ctx, f); err != nil {
		return nil, err
	}
	return (&realKernel{}).ReadBlocks(q.Dev, q.Off, q.N)
}
