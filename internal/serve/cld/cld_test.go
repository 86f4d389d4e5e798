package cld

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ask is a message of nfsd.
func ask(version, command byte, xid uint32, name string, hash ...byte) message {
	m := make(message, map[byte]int{1: size1, 2: size2}[version])
	m[0], m[1] = version, command
	binary.NativeEndian.PutUint32(m[4:], xid)
	binary.NativeEndian.PutUint16(m[nameAt:], uint16(copy(m[nameAt+2:hashAt], name)))
	if version == 2 {
		m[hashAt] = byte(copy(m[hashAt+1:], hash))
	}
	return m
}

// upcall is what the kernel knows of a message.
type upcall struct {
	message
	read   int // bytes that the daemon has
	told   []message
	status int // -1: there is no answer yet
}

// fakePipe is a pipe of rpc_pipefs as the kernel has it. In it is the list of messages that
// no process has begun to read.
type fakePipe struct {
	t     *testing.T
	queue []*upcall
	all   map[uint32]*upcall
	files map[int]*upcall // nil: no message
	fd    int
	most  int // open files
	ended bool
}

func newFakePipe(t *testing.T) *fakePipe {
	return &fakePipe{t: t, all: map[uint32]*upcall{}, files: map[int]*upcall{}, fd: 100, most: 1000}
}

func (p *fakePipe) ask(m message) *upcall {
	u := &upcall{message: m, status: -1}
	p.queue, p.all[binary.NativeEndian.Uint32(m[4:])] = append(p.queue, u), u
	return u
}

func (p *fakePipe) open() (int, error) {
	if p.ended {
		return -1, unix.ENOENT
	}
	if len(p.files) == p.most {
		return -1, unix.EMFILE
	}
	p.fd++
	p.files[p.fd] = nil
	return p.fd, nil
}

func (p *fakePipe) read(fd int, b []byte) (int, error) {
	u, ok := p.files[fd]
	switch {
	case !ok:
		return -1, unix.EBADF
	case p.ended:
		return -1, unix.EPIPE
	case u == nil && len(p.queue) == 0:
		return 0, nil
	case u == nil:
		u, p.queue = p.queue[0], p.queue[1:]
		u.read = 0
		p.files[fd] = u
	}
	n := copy(b, u.message[u.read:])
	if u.read += n; u.read == len(u.message) {
		p.files[fd] = nil
	}
	return n, nil
}

func (p *fakePipe) write(fd int, b []byte) (int, error) {
	if p.ended {
		return -1, unix.EPIPE
	}
	u := p.all[binary.NativeEndian.Uint32(b[4:])]
	if u == nil || u.status >= 0 || len(b) != len(u.message) {
		return -1, unix.EINVAL
	}
	if u.read < len(u.message) {
		p.t.Error("an answer before the question was read whole: Linux 6.1 would use memory that is free, Linux 6.12.118 refuses it")
		return -1, unix.EINVAL
	}
	status := -int(int16(binary.NativeEndian.Uint16(b[2:])))
	if status == int(unix.EINPROGRESS) {
		u.told = append(u.told, slices.Clone(message(b)))
		return len(b), nil
	}
	u.status = status
	u.told = append(u.told, slices.Clone(message(b)))
	return len(b), nil
}

func (p *fakePipe) close(fd int) {
	if u := p.files[fd]; u != nil && !p.ended {
		p.queue = append(p.queue, u) // EAGAIN: nfsd asks again
	}
	delete(p.files, fd)
}

func (p *fakePipe) wait(fd int) (ready, ended bool) {
	if _, ok := p.files[fd]; !ok {
		return false, false
	}
	return len(p.queue) > 0, p.ended
}

// kill ends the daemon.
func (p *fakePipe) kill() {
	for _, fd := range slices.Collect(maps.Keys(p.files)) {
		p.close(fd)
	}
}

// daemon is one with a database, and a function that lets it look once.
func daemon(t *testing.T, db string) (*fakePipe, *store, func()) {
	t.Helper()
	k, s := newFakePipe(t), &store{db: db}
	t.Cleanup(s.close)
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	p := &pipe{system: k}
	return k, s, func() {
		if all := p.take(); len(all) > 0 {
			serve(p, s, all, t.Logf)
		}
	}
}

// sql reads a database that no daemon has.
func sql(t *testing.T, db, text string) string {
	t.Helper()
	out, err := exec.Command("sqlite3", db, text).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func newDB(t *testing.T) string { return filepath.Join(t.TempDir(), "main.sqlite") }

func TestMessage(t *testing.T) {
	m := ask(2, create, 7, "c'1", bytes.Repeat([]byte{0xab}, 32)...)
	if !m.known() || string(m.name()) != "c'1" || len(m.hash()) != 32 || len(ask(1, create, 7, "c").hash()) != 0 {
		t.Errorf("%q", m)
	}
	for what, m := range map[string]message{
		"nothing":           {},
		"a new version":     append(message{3}, ask(2, create, 1, "a")[1:]...),
		"cut off":           ask(2, create, 1, "a")[:size2-1],
		"the other size":    append(message{1}, ask(2, create, 1, "a")[1:]...),
		"a new command":     ask(2, 6, 1, "a"),
		"a long name":       append(ask(2, create, 1, "a")[:nameAt], append([]byte{1, 4}, ask(2, create, 1, "a")[nameAt+2:]...)...),
		"a long hash":       append(ask(2, create, 1, "a")[:hashAt], append([]byte{33}, ask(2, create, 1, "a")[hashAt+1:]...)...),
		"a long name, v1":   append(ask(1, create, 1, "a")[:nameAt], append([]byte{1, 4}, ask(1, create, 1, "a")[nameAt+2:]...)...),
		"a header, no more": ask(2, create, 1, "a")[:nameAt],
	} {
		if m.known() {
			t.Errorf("%s: %q", what, m)
		}
	}
	if !append(ask(1, graceDone, 1, "")[:nameAt], bytes.Repeat([]byte{255}, 1026)...).known() { // a time is in place of the name
		t.Error("graceDone")
	}
	long := ask(1, create, 1, strings.Repeat("x", 1024))
	if !long.known() || len(long.name()) != 1024 {
		t.Error("the longest name")
	}
	long.answer(unix.EREMOTEIO)
	if got := int16(binary.NativeEndian.Uint16(long[2:])); got != -int16(unix.EREMOTEIO) {
		t.Error(got)
	}
}

// The database is the one that nfsdcld makes.
func TestNewDatabase(t *testing.T) {
	db := newDB(t)
	_, s, _ := daemon(t, db)
	s.close()
	// By nfsdcld 2.6.2 of Debian 12.
	const want = `CREATE TABLE parameters (key TEXT PRIMARY KEY, value TEXT)
CREATE TABLE grace (current INTEGER , recovery INTEGER)
CREATE TABLE "rec-0000000000000001" (id BLOB PRIMARY KEY, princhash BLOB)
version|4
first_time|1
1|0
text|text|integer`
	if got := sql(t, db, "SELECT sql FROM sqlite_master WHERE sql NOT NULL; SELECT * FROM parameters; SELECT * FROM grace; SELECT typeof(key), typeof(value), typeof(current) FROM parameters, grace LIMIT 1;"); got != want {
		t.Errorf("%s", got)
	}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	s.close()
	sql(t, db, "UPDATE parameters SET value = '5' WHERE key = 'version';")
	if err := s.open(); err == nil || !strings.Contains(err.Error(), "no database of nfsdcld, version 4") {
		t.Error(err)
	}
}

// nfsd starts, clients reclaim or not, the grace period ends, nfsd starts again.
func TestEpochs(t *testing.T) {
	for _, version := range []byte{1, 2} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			db := newDB(t)
			k, s, look := daemon(t, db)
			xid := uint32(0)
			does := func(command byte, name string, hash ...byte) *upcall {
				t.Helper()
				xid++
				u := k.ask(ask(version, command, xid, name, hash...))
				look()
				return u
			}
			must := func(u *upcall, status unix.Errno) *upcall {
				t.Helper()
				if u.status != int(status) {
					t.Errorf("status %d, want %d", u.status, status)
				}
				return u
			}
			listed := func(want string) {
				t.Helper()
				u := must(does(graceStart, ""), 0)
				var got []string
				for _, m := range u.told[:len(u.told)-1] {
					got = append(got, fmt.Sprintf("%s %x", m.name(), m.hash()))
				}
				slices.Sort(got)
				if strings.Join(got, ", ") != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			u := must(does(getVersion, ""), 0)
			if got := u.told[0][nameAt]; got != 2 {
				t.Errorf("version %d", got)
			}
			listed("")
			must(does(graceDone, ""), 0)
			must(does(create, "a"), 0)
			must(does(create, "b"), 0)
			must(does(create, "gone"), 0)
			must(does(create, "a"), 0) // once more
			must(does(remove, "gone"), 0)
			must(does(remove, "never was"), 0)
			must(does(create, "odd \x00\xff'\n", bytes.Repeat([]byte{0xab}, 32)...), 0)
			odd := "odd \x00\xff'\n "
			if version == 2 {
				odd += strings.Repeat("ab", 32)
			}
			listed("a , b , " + odd)
			must(does(create, "b"), 0) // has reclaimed
			listed("a , b , " + odd)   // nfsd was started again in the grace period
			must(does(create, "b"), 0)
			must(does(graceDone, ""), 0)
			listed("b ")
			// The kernel asks for each client after it was refused the list.
			must(does(check, "a"), unix.EACCES)
			must(does(check, "b"), 0)
			must(does(graceDone, ""), 0)
			must(does(check, "b"), 0)
			must(does(check, "new"), unix.EACCES)
			must(does(graceDone, ""), 0)
			must(does(graceDone, ""), 0) // no client has reclaimed
			must(does(6, "x"), unix.EOPNOTSUPP)
			s.close()
			if got := sql(t, db, "SELECT name FROM sqlite_master WHERE name GLOB 'rec-*'; SELECT * FROM grace; SELECT * FROM parameters;"); got != "rec-0000000000000006\n6|0\nversion|4\nfirst_time|0" {
				t.Error(got)
			}
		})
	}
}

// All clients that wait are written down in one transaction, and all are answered.
func TestManyAtOnce(t *testing.T) {
	db := newDB(t)
	k, s, look := daemon(t, db)
	transactions := 0
	s.in = &watched{s.in, func(text string) { transactions += strings.Count(text, "COMMIT;") }}
	for i := range uint32(256) {
		k.ask(ask(2, create, i, fmt.Sprintf("Linux NFSv4.2 c%d", i)))
	}
	look()
	for xid, u := range k.all {
		if u.status != 0 {
			t.Errorf("question %d: %d", xid, u.status)
		}
	}
	if transactions != 1 || len(k.files) > 257 {
		t.Errorf("%d transactions, %d open files", transactions, len(k.files))
	}
	// Without so many files it takes some more.
	k.kill()
	k.most = 100
	p := &pipe{system: k}
	for i := range uint32(256) {
		k.ask(ask(2, remove, 1000+i, fmt.Sprintf("Linux NFSv4.2 c%d", i)))
	}
	for range 3 {
		serve(p, s, p.take(), t.Logf)
	}
	if len(k.queue) != 0 || k.all[1255].status != 0 || transactions != 4 {
		t.Errorf("%d wait, %d transactions", len(k.queue), transactions)
	}
	s.close()
	if got := sql(t, db, `SELECT count(*) FROM "rec-0000000000000001";`); got != "0" {
		t.Error(got)
	}
}

// watched sees what is written to sqlite3.
type watched struct {
	io.WriteCloser
	see func(text string)
}

func (w *watched) WriteString(text string) (int, error) {
	w.see(text)
	return w.Write([]byte(text))
}

// A sqlite3 that is killed costs nothing, whether it has made a change by then or not.
func TestSQLiteIsKilled(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after the change: ", after), func(t *testing.T) {
			db := newDB(t)
			k, s, look := daemon(t, db)
			kills := 0
			for i, m := range []message{
				ask(2, create, 0, "a"), ask(2, create, 0, "b"), ask(2, graceStart, 0, ""), ask(2, create, 0, "b"), ask(2, create, 0, "new"),
				ask(2, graceDone, 0, ""), ask(2, remove, 0, "new"), ask(2, graceStart, 0, ""),
			} {
				in := s.in
				s.in = &watched{in, func(text string) {
					change, _, ok := strings.Cut(text, "SELECT 'done'")
					if !ok || !strings.Contains(text, "COMMIT") {
						return
					}
					kills++
					if !after {
						s.process.Process.Kill()
						return
					}
					// It makes the change, and ends without a word.
					io.WriteString(in, change)
					in.Close()
				}}
				binary.NativeEndian.PutUint32(m[4:], uint32(i))
				u := k.ask(m)
				look()
				if u.status != 0 {
					t.Errorf("question %d: status %d", i, u.status)
				}
				if last := u.told[:len(u.told)-1]; i == 7 && (len(last) != 1 || string(last[0].name()) != "b") {
					t.Errorf("may reclaim: %q", last)
				}
			}
			s.close()
			if got := sql(t, db, "SELECT name FROM sqlite_master WHERE name GLOB 'rec-*'; SELECT * FROM grace;"); got != "rec-0000000000000002\nrec-0000000000000003\n3|2" || kills != 8 {
				t.Errorf("%s, %d kills", got, kills)
			}
		})
	}
}

// A change that is not on the disks is not answered as if it were.
func TestChangeFails(t *testing.T) {
	db := newDB(t)
	k, s, look := daemon(t, db)
	s.close()
	sql(t, db, `ALTER TABLE "rec-0000000000000001" RENAME TO elsewhere;`)
	all := map[*upcall]unix.Errno{
		k.ask(ask(2, getVersion, 1, "")): 0, k.ask(ask(2, create, 2, "a")): unix.EREMOTEIO, k.ask(ask(2, remove, 3, "a")): unix.EREMOTEIO, k.ask(ask(2, 9, 4, "a")): unix.EOPNOTSUPP,
	}
	look()
	for u, want := range all {
		if u.status != int(want) {
			t.Errorf("%d: status %d, want %d", u.command(), u.status, want)
		}
	}
	s.close()
	sql(t, db, `ALTER TABLE elsewhere RENAME TO "rec-0000000000000001";`)
	u := k.ask(ask(2, create, 5, "a"))
	look()
	if u.status != 0 {
		t.Error(u.status)
	}
	// Two daemons, of this package or nfsdcld, never have one database.
	if out, err := exec.Command("sqlite3", db, ".timeout 0", "SELECT * FROM grace;").CombinedOutput(); err == nil || !strings.Contains(string(out), "database is locked") {
		t.Errorf("%v %s", err, out)
	}
}

// A message that is not understood is answered, and hinders no other one.
func TestMalformed(t *testing.T) {
	k, s, look := daemon(t, newDB(t))
	xid := uint32(0)
	asked := func(m message) *upcall {
		xid++
		m = slices.Concat(m, make(message, nameAt))[:max(len(m), nameAt)]
		binary.NativeEndian.PutUint32(m[4:], xid)
		return k.ask(m)
	}
	var good, bad []*upcall
	for _, m := range []message{{2}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, append(message{3}, make(message, 1099)...), ask(2, create, 0, "a")[:hashAt], ask(2, 77, 0, "a"), append(message{2}, bytes.Repeat([]byte{255}, size2-1)...)} {
		good, bad = append(good, asked(ask(2, create, 0, "a"))), append(bad, asked(m))
	}
	look()
	for i := range good {
		if good[i].status != 0 || bad[i].status != int(unix.EOPNOTSUPP) {
			t.Errorf("%d: status %d and %d", i, good[i].status, bad[i].status)
		}
	}
	if s.current != 1 {
		t.Error(s.epochs)
	}
}

// nfsd asks a daemon again what another one had read and not answered.
func TestDaemonIsKilled(t *testing.T) {
	k, s, _ := daemon(t, newDB(t))
	for i := range uint32(20) {
		k.ask(ask(2, create, i, fmt.Sprint("c", i)))
	}
	if all := (&pipe{system: k}).take(); len(all) != 20 || len(k.queue) != 0 {
		t.Fatalf("%d questions, %d wait", len(all), len(k.queue))
	}
	k.kill()
	p := &pipe{system: k}
	serve(p, s, p.take(), t.Logf)
	for xid, u := range k.all {
		if u.status != 0 {
			t.Errorf("question %d: %d", xid, u.status)
		}
	}
}

// nfsd stops, and starts again.
func TestPipeEnds(t *testing.T) {
	k, _, look := daemon(t, newDB(t))
	for xid := range uint32(3) {
		u := k.ask(ask(2, create, xid, "a"))
		look()
		if u.status != 0 {
			t.Error(u.status)
		}
		k.ended = true
		look()
		if len(k.files) != 0 {
			t.Errorf("%d open files", len(k.files))
		}
		look()
		k.ended = false
	}
}

// The test starts itself as the daemon: the process bears nfsdcld's name, and SIGTERM ends it.
func TestRun(t *testing.T) {
	if db := os.Getenv("CLD_DB"); db != "" {
		ctx, stop := signal.NotifyContext(t.Context(), unix.SIGTERM)
		defer stop()
		if err := Run(ctx, []string{db, db + ".pipe"}, t.Logf); err != nil {
			t.Fatal(err)
		}
		return
	}
	db := newDB(t)
	c := exec.Command(os.Args[0], "-test.run", "^TestRun$")
	c.Env = append(os.Environ(), "CLD_DB="+db)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for name := ""; name != Name; {
		select {
		case err := <-ended:
			t.Fatal("it has ended:", err)
		case <-time.After(time.Millisecond):
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.Process.Pid))
		name = strings.TrimSpace(string(b))
	}
	if err := c.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(db + "*"); err != nil || len(left) != 1 {
		t.Errorf("sqlite3 has not closed the database: %q", left)
	}
}
