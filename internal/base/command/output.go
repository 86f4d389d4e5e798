package command

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// sink takes stdout or stderr.
type sink interface {
	writer() io.Writer
	String() string
	Close() error
}

const defaultLimit = 8 << 20

func (c Cmd) limit() int {
	if c.Limit > 0 {
		return c.Limit
	}
	return defaultLimit
}

func (c Cmd) sinks() (stdout, stderr sink, err error) {
	if c.Group != OwnSession {
		return &clipped{limit: c.limit()}, &clipped{limit: c.limit()}, nil
	}
	o, err := newMemory(c.limit())
	if err != nil {
		return nil, nil, err
	}
	e, err := newMemory(c.limit())
	if err != nil {
		o.Close()
		return nil, nil, err
	}
	return o, e, nil
}

// memory is a file in memory. Not a pipe: a daemon that keeps it open would
// be waited for.
type memory struct {
	*os.File
	limit int
}

func newMemory(limit int) (*memory, error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &memory{os.NewFile(uintptr(fd), "output"), limit}, nil
}

func (m *memory) writer() io.Writer { return m.File } // the file itself, so that no goroutine copies

func (m *memory) String() string {
	c := &clipped{limit: m.limit}
	_, _ = io.Copy(c, io.NewSectionReader(m, 0, 1<<62)) // memory can be read
	return c.String()
}

// clipped keeps the first and the last half of limit bytes.
type clipped struct {
	mu         sync.Mutex
	limit      int
	head, tail []byte
	dropped    int
}

func (c *clipped) writer() io.Writer { return c }

func (c *clipped) Close() error { return nil }

func (c *clipped) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	half := c.limit / 2
	if room := half - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	c.tail = append(c.tail, p...)
	if over := len(c.tail) - half; over > half { // trim now and then, not on each write
		c.dropped += over
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
	return n, nil
}

func (c *clipped) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail, dropped := c.tail, c.dropped
	if over := len(tail) - c.limit/2; over > 0 {
		tail, dropped = tail[over:], dropped+over
	}
	if dropped == 0 {
		return string(c.head) + string(tail)
	}
	return fmt.Sprintf("%s\n[… %d bytes cut …]\n%s", c.head, dropped, tail)
}
