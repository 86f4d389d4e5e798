package nfs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/cld"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// nfsd ends its grace period as soon as every client has reclaimed that nfsdcld knows. A
// client that died keeps its state as long as no other one wants it (it is a "courtesy"
// client), and its record, for up to a day. After a crash it would cost the whole period. Its
// lease was over before the crash, so the server owes it nothing: RFC 8881, 8.4.3. A start
// takes the records of such clients away before nfsd reads them.

// goneAfter is how many leases a client must have been silent for. One would do by the
// protocol. TCP sends again up to half of the time later that the network was away.
const goneAfter = 2

// goneFile, on the volume, has a line for each client that is gone: its directory below
// nfsd's clients, its name in hexadecimal digits, and the inodes that it has locked.
func (s *server) goneFile() string { return s.cfg.StateDir + "/mortar/gone" }

// goneNow are the clients that are gone; nil if the volume has them already. A whole look
// reads what nfsd says of each client. The others, by the watcher every 2 s, only see which
// of those on the list have come back: a client that the list names would lose its locks.
func (s *recorder) goneNow(whole bool) (*list, error) {
	if s.threads() == 0 {
		return nil, nil
	}
	was, err := s.K.ReadFile(s.goneFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var look []string
	if whole {
		if look, err = s.K.ReadDir(s.NfsdDir() + "/clients"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	} else {
		for line := range strings.Lines(string(was)) {
			id, _, _ := strings.Cut(line, " ")
			look = append(look, id)
		}
	}
	var now strings.Builder
	for _, id := range look {
		dir := s.NfsdDir() + "/clients/" + id
		b, err := s.K.ReadFile(dir + "/info")
		if errors.Is(err, fs.ErrNotExist) {
			continue // nfsd has removed it meanwhile
		}
		if err != nil {
			return nil, err
		}
		if name, ok := goneClient(string(b), goneAfter*s.cfg.NFS.Lease); ok {
			b, err := s.K.ReadFile(dir + "/states")
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			fmt.Fprintln(&now, strings.Join(append([]string{id, hex.EncodeToString(name)}, lockedInodes(string(b))...), " "))
		}
	}
	if now.String() == string(was) {
		return nil, nil
	}
	l := &list{file: s.goneFile(), current: true}
	if now.Len() > 0 {
		l.text = []byte(now.String())
	}
	return l, nil
}

// goneClient is the name of a client whose lease is over and that has been silent for so
// many seconds, by nfsd's file about it.
//
// Source: client_info_show() of the kernel; seq_escape_mem() writes bytes of the name as \xHH.
func goneClient(info string, seconds int) (name []byte, gone bool) {
	lapsed, silent := false, 0
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "status":
			lapsed = value == "courtesy" || value == "expirable"
		case "seconds from last renew":
			silent, _ = strconv.Atoi(value)
		case "name":
			text, err := strconv.Unquote(value)
			if err != nil {
				return nil, false
			}
			name = []byte(text)
		}
	}
	return name, lapsed && silent > seconds && len(name) > 0
}

// lockedInodes are the inodes that a client has locked, by nfsd's file about its state.
//
// Source: nfs4_show_lock() and nfs4_show_superblock() of the kernel.
func lockedInodes(states string) (all []string) {
	for line := range strings.Lines(states) {
		_, at, ok := strings.Cut(line, "superblock: \"")
		at, _, end := strings.Cut(at, "\"")
		if f := strings.Split(at, ":"); ok && end && len(f) == 3 && strings.Contains(line, "type: lock,") {
			all = append(all, f[2])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// forgetGone takes the clients that were gone out of nfsdcld's database. It runs before
// nfsdcld does. With a database that it cannot read the grace period lasts to its end.
//
// Source: utils/nfsdcld/sqlite.c of nfs-utils: a table "rec-EPOCH" of the clients of each
// epoch.
func (s *daemons) forgetGone(ctx context.Context) error {
	b, err := s.K.ReadFile(s.goneFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var names, inodes []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 {
			names, inodes = append(names, "X'"+f[1]+"'"), append(inodes, f[2:]...)
		}
	}
	if err := s.deleteClients(ctx, names); err != nil {
		s.Log.Note("clients that were gone before keep the grace period up: %v", err)
	} else {
		s.Log.Note("%d clients whose lease was over before cannot reclaim", len(names))
		s.Log.NoteErr(s.NLM.unlist(inodes), "the locks of clients that were gone are waited for")
	}
	// A client that comes back after this start is not gone.
	return s.K.Remove(s.goneFile())
}

func (s *daemons) deleteClients(ctx context.Context, names []string) error {
	tables, err := s.cldTables(ctx)
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("BEGIN;\n")
	for _, table := range tables {
		fmt.Fprintf(&text, "DELETE FROM %q WHERE id IN (%s);\n", table, strings.Join(names, ", "))
	}
	_, err = s.cldSQL(ctx, text.String()+"COMMIT;\n")
	return err
}

// cldTables are the tables of clients of nfsdcld's database.
func (s *daemons) cldTables(ctx context.Context) ([]string, error) {
	out, err := s.cldSQL(ctx, "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'rec-*';\n")
	return strings.Fields(out), err
}

// cldSQL runs SQL in nfsdcld's database, while nfsdcld does not run.
func (s *daemons) cldSQL(ctx context.Context, text string) (string, error) {
	db := s.cfg.StateDir + cldDB
	if err := s.K.Access(db); err != nil {
		return "", err
	}
	return s.K.Run(ctx, kernel.Command{Argv: cld.SQLite(db), Stdin: text})
}

// reclaimTime is how long one client's reclaim may hold the others up. nfsdcld and rpc.statd
// write each down by itself, and wait for the disks. On a rack 2,000 clients took 45 ms each,
// and nfsd's period of 30 s, which it doubles while clients reclaim, ended before: the others
// lost their locks.
const reclaimTime = 100 * time.Millisecond

// reclaimSeconds is how long all clients may need to reclaim.
func (s *daemons) reclaimSeconds(ctx context.Context) (seconds int) {
	if err := s.K.Access(s.cfg.StateDir + cldDB); errors.Is(err, fs.ErrNotExist) {
		return 0 // nfsdcld makes it
	}
	tables, err := s.cldTables(ctx)
	var text strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&text, "SELECT count(*) FROM %q;\n", table)
	}
	out := ""
	if err == nil {
		out, err = s.cldSQL(ctx, text.String())
	}
	if err != nil {
		s.Log.Note("how many NFSv4 clients may reclaim is not known, so all have the longest time: %v", err)
		return maxLockGrace
	}
	held, err := s.NLM.toNotify()
	if err != nil {
		s.Log.Note("how many NFSv3 clients may reclaim is not known: %v", err)
	}
	n := len(held)
	for f := range strings.FieldsSeq(out) {
		if k, err := strconv.Atoi(f); err == nil {
			n += k
		}
	}
	return min(int(time.Duration(n)*reclaimTime/time.Second), maxLockGrace)
}
