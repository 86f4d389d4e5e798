// Package cld is the daemon that keeps the list of NFSv4 clients for nfsd, in place of nfsdcld
// and with its database. It may not know the service, its configuration or Pacemaker, nor judge
// which clients are gone.
//
// nfsdcld writes down one client after the other, and waits for the disks each time; each waits
// with a thread of nfsd. After a crash with 2,000 clients nfsd served nothing for a minute. This
// daemon writes down all clients that wait, at once.
package cld

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// Action is the agent calling itself as this daemon.
	Action = "_cld"
	// Name is the name of its process: all that looks for nfsdcld finds it.
	Name = "nfsdcld"
)

// Run is the daemon: args are the paths of the database and of nfsd's pipe. It takes its name
// when it can answer, and ends with ctx.
func Run(ctx context.Context, args []string, log func(format string, a ...any)) error {
	s := &store{db: args[0]}
	defer s.close()
	stop, stops, err := os.Pipe()
	if err == nil {
		defer context.AfterFunc(ctx, func() { stops.Close() })()
		err = s.open()
	}
	if err == nil {
		err = os.WriteFile("/proc/self/comm", []byte(Name), 0)
	}
	if err != nil {
		log("%v", err)
	}
	p := &pipe{system: kernel{args[1], stop}}
	for err == nil && ctx.Err() == nil {
		if all := p.take(); len(all) > 0 {
			serve(p, s, all, log)
		}
	}
	return err
}

// serve does what nfsd asks for, and answers when that is on the disks.
func serve(p *pipe, s *store, all []question, log func(string, ...any)) {
	var changes []message
	for _, q := range all {
		if q.known() && q.command() != getVersion {
			changes = append(changes, q.message)
		}
	}
	var printed []string
	var failed error
	if len(changes) > 0 {
		if printed, failed = s.change(changes); failed != nil {
			log("%d changes of the list of clients are lost: %v", len(changes), failed)
		}
	}
	for i := range all {
		q := &all[i]
		var status unix.Errno
		switch {
		case !q.known():
			status = unix.EOPNOTSUPP
		case q.command() == getVersion:
			q.message[nameAt] = 2
		case failed != nil:
			status = unix.EREMOTEIO
		case q.command() == check:
			if printed[0] == "0" {
				status = unix.EACCES
			}
			printed = printed[1:]
		case q.command() == graceStart:
			clients, err := s.reclaimers()
			for _, c := range clients {
				if q.about(c); err == nil {
					err = p.tell(q, unix.EINPROGRESS)
				}
			}
			if err != nil {
				log("nfsd does not know who may reclaim: %v", err)
				status = unix.EREMOTEIO
			}
		}
		if err := p.end(q, status); err != nil {
			log("an answer does not reach nfsd: %v", err)
		}
	}
}
