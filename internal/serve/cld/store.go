package cld

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/command"
)

// SQLite is the command that changes a database by the SQL on its standard input. It ends at
// the first error.
func SQLite(db string) []string {
	return []string{"sqlite3", "-batch", "-bail", "-init", "/dev/null", db}
}

// schema is version 4 of nfsdcld's.
//
// Source: sqlite_maindb_init_v4 of utils/nfsdcld/sqlite.c.
const schema = `BEGIN EXCLUSIVE;
CREATE TABLE parameters (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE grace (current INTEGER , recovery INTEGER);
INSERT INTO grace VALUES (1, 0);
CREATE TABLE "rec-0000000000000001" (id BLOB PRIMARY KEY, princhash BLOB);
INSERT INTO parameters VALUES ('version', '4'), ('first_time', '1');
COMMIT;
`

// store is the database. One sqlite3 changes it, and keeps every other process out: of two
// daemons each would go on in epochs of its own.
type store struct {
	db      string
	process *exec.Cmd // nil: none runs
	in      io.WriteCloser
	out     *bufio.Reader
	said    bytes.Buffer // on stderr
	epochs
}

// open starts sqlite3, and makes a database if there is none. With a write-ahead log a
// transaction waits for the disks once and not three times.
//
// Source: https://www.sqlite.org/wal.html
func (s *store) open() error {
	argv := SQLite(s.db)
	path, err := command.LookPath(argv[0])
	if err != nil {
		return err
	}
	c := exec.Command(path, argv[1:]...)
	s.said.Reset()
	c.Env, c.Stderr = command.Environment, &s.said
	s.in, _ = c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		return err
	}
	s.process, s.out = c, bufio.NewReader(out)
	// nfsdcld waits as long for a lock.
	got, err := s.run(".timeout 10000\nPRAGMA locking_mode = EXCLUSIVE;\nPRAGMA journal_mode = WAL;\nPRAGMA synchronous = FULL;\nSELECT count(*) FROM sqlite_master;\n")
	if err == nil && got[len(got)-1] == "0" {
		_, err = s.run(schema)
	}
	if err == nil {
		got, err = s.run("SELECT value, current, recovery FROM parameters, grace WHERE key = 'version';\n")
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(strings.Join(got, " "), "4|%d|%d", &s.current, &s.recovery); err != nil {
		return fmt.Errorf("%s is no database of nfsdcld, version 4: %q", s.db, got)
	}
	return nil
}

// run runs SQL, and returns the lines that it prints, when all of it is done.
func (s *store) run(text string) (lines []string, err error) {
	const done = "done\n"
	_, err = io.WriteString(s.in, text+"SELECT 'done';\n")
	for line := ""; err == nil; lines = append(lines, strings.TrimSpace(line)) {
		if line, err = s.out.ReadString('\n'); line == done {
			return lines, nil
		}
	}
	s.close()
	return nil, fmt.Errorf("sqlite3 has ended: %w: %s", err, strings.TrimSpace(s.said.String()))
}

// close has sqlite3 end, and waits for that.
func (s *store) close() {
	if s.process != nil {
		s.in.Close()
		_ = s.process.Wait() // said has the reason
		s.process = nil
	}
}

// change makes the changes of messages in one transaction, and returns what that prints, when
// they are on the disks.
func (s *store) change(all []message) (printed []string, err error) {
	var next epochs
	text := ""
	// Whether a sqlite3 that was killed has made them is not known: they are made twice.
	for range 2 {
		if s.process == nil {
			if err = s.open(); err != nil {
				s.close()
				continue
			}
		}
		if text == "" {
			next = s.epochs
			for _, m := range all {
				text += next.sql(m)
			}
		}
		if printed, err = s.run("BEGIN IMMEDIATE;\n" + text + "COMMIT;\n"); err == nil {
			s.epochs = next
			return printed, nil
		}
	}
	return nil, err
}

// reclaimers are the clients that may reclaim, for about.
func (s *store) reclaimers() ([]string, error) {
	return s.run(fmt.Sprintf("SELECT hex(id), hex(princhash) FROM %s WHERE length(id) > 0;\n", table(s.recovery)))
}
