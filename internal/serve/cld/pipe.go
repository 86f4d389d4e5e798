package cld

import (
	"os"

	"golang.org/x/sys/unix"
)

// nfsd waits a second for a process that opens its pipe. In ms.
const (
	openEvery = 10
	lookEvery = 250 // whether nfsd has stopped: that wakes no process
)

// system are the calls that a pipe of rpc_pipefs answers in a way of its own. A read that finds
// no message returns 0. An open file with which a message was read in part has the message
// until it is read whole.
//
// Source: net/sunrpc/rpc_pipe.c of the kernel.
type system interface {
	open() (fd int, err error)
	read(fd int, b []byte) (int, error)
	write(fd int, b []byte) (int, error)
	close(fd int)
	// wait waits some time for a message, or for the end of the pipe; of file -1 for neither.
	wait(fd int) (ready, ended bool)
}

// kernel is the running one.
type kernel struct {
	path string
	stop *os.File // at its end no wait lasts
}

func (k kernel) open() (int, error) {
	return unix.Open(k.path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}
func (kernel) read(fd int, b []byte) (int, error)  { return unix.Read(fd, b) }
func (kernel) write(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
func (kernel) close(fd int)                        { unix.Close(fd) }

func (k kernel) wait(fd int) (ready, ended bool) {
	fds, timeout := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(k.stop.Fd())}}, lookEvery
	if fd < 0 {
		timeout = openEvery
	}
	if _, err := unix.Poll(fds, timeout); err != nil {
		return false, false // a signal
	}
	return fds[0].Revents&unix.POLLIN != 0, fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// question is a message of nfsd, read by an open file of its own. Of one without a hash the end
// is left unread until just before the answer: if this process ends meanwhile, the kernel closes
// its files and nfsd asks again. Of a question that was read whole the client would not be
// written down; in Linux 6.1 a thread of nfsd would wait for the answer for ever.
//
// Source: cld_release_pipe() and cld_pipe_downcall() of the kernel.
type question struct {
	message
	fd   int
	held bool
}

// pipe is nfsd's pipe.
type pipe struct {
	system
	free []int // open files without a question
}

// take returns the questions that wait, or none after some time.
func (p *pipe) take() (all []question) {
	ready, ended := p.wait(p.file())
	if ended { // nfsd has stopped
		for _, fd := range p.free {
			p.close(fd)
		}
		p.free = nil
		return nil
	}
	for ready {
		q, ok := p.question(p.file())
		if !ok {
			break
		}
		all, p.free = append(all, q), p.free[:len(p.free)-1]
	}
	return all
}

// file is one without a question; -1: it cannot be opened.
func (p *pipe) file() int {
	if len(p.free) == 0 {
		fd, err := p.open()
		if err != nil {
			return -1
		}
		p.free = append(p.free, fd)
	}
	return p.free[len(p.free)-1]
}

// question reads one, if there is one.
func (p *pipe) question(fd int) (question, bool) {
	b := make([]byte, 2*size2)
	n, err := p.read(fd, b[:hashAt+1])
	if err != nil || n < nameAt {
		return question{}, false
	}
	if n <= hashAt { // that is all of it
		return question{b[:n], fd, false}, true
	}
	if b[0] == 2 && b[hashAt] == 0 {
		return question{b[:size2], fd, true}, true
	}
	more, err := p.read(fd, b[n:])
	return question{b[:n+more], fd, false}, err == nil
}

// tell gives an answer, which may not be the last one.
func (p *pipe) tell(q *question, status unix.Errno) error {
	if q.held {
		q.held = false
		if _, err := p.read(q.fd, make([]byte, size2)); err != nil {
			return err
		}
	}
	q.answer(status)
	_, err := p.write(q.fd, q.message)
	return err
}

// end gives the last answer.
func (p *pipe) end(q *question, status unix.Errno) error {
	p.free = append(p.free, q.fd)
	return p.tell(q, status)
}
