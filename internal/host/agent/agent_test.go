package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// session serves mux over pipes and gives the client's end.
func session(t *testing.T, mux Mux) (*Client, func() error) {
	t.Helper()
	reqR, reqW := io.Pipe()
	respR, respW := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := Serve(context.Background(), reqR, respW, mux)
		_ = respW.Close()
		served <- err
	}()
	return NewClient(respR, reqW), func() error {
		_ = reqW.Close()
		return <-served
	}
}

// testResource is a file with a content, and whatever else a test needs.
type testResource struct {
	Path, Want string
	Refuse     bool
	Panic      bool
}

func (r *testResource) Identity() (kind, id string) { return "test", r.Path }
func (r *testResource) Diff(sys resource.Look) ([]resource.Action, error) {
	switch {
	case r.Panic:
		panic("told to")
	case r.Refuse:
		return nil, &resource.Refusal{What: "found " + r.Path, Mend: "remove it"}
	}
	b, err := sys.ReadFile(r.Path)
	if err == nil && string(b) == r.Want {
		return nil, nil
	}
	return []resource.Action{{Title: "write", File: &resource.File{Path: r.Path, Content: []byte(r.Want), Mode: 0o644}}}, nil
}

var testKinds = []resource.Resource{&testResource{}}

// core is the core ops with a lock of the test's own.
func core(t *testing.T) Mux {
	t.Helper()
	m := NewCore(HostSys{}, testKinds, "")
	r := &runner{lock: &hostLock{path: filepath.Join(t.TempDir(), "lock")}}
	OpRun.Answer(m, r.run)
	return m
}

// While a command of one machine claims the brick, no other machine's command acts.
func TestClaimed(t *testing.T) {
	r := &runner{lock: &hostLock{path: filepath.Join(t.TempDir(), "lock")}, holder: "b", brick: filepath.Join(t.TempDir(), "brick.json")}
	act := func() error {
		_, err := r.run(t.Context(), RunParams{Action: resource.Action{Title: "x", Cmd: []string{"true"}}}, func(RunEvent) {})
		return err
	}
	if err := claim.Change(r.brick, "a", "take", []byte(`{"holder":"","by":"alice@adm1 (mortar apply)","since":"2026-01-02T15:04:05Z"}`)); err != nil {
		t.Fatal(err)
	}
	if err := act(); err == nil || !strings.Contains(err.Error(), "alice@adm1 (mortar apply)") {
		t.Error(err)
	}
	r.holder = "a"
	if err := act(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(r.brick, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := act(); err == nil {
		t.Error("an action passes although nobody knows whose the brick is")
	}
}

func TestCalls(t *testing.T) {
	dir := t.TempDir()
	c, end := session(t, core(t))
	ctx := t.Context()

	var hello Hello
	if err := c.Call(ctx, "hello", nil, &hello, nil); err != nil || hello.Protocol != Protocol || hello.Hostname == "" || hello.ID == "" || hello.MemBytes < 1<<20 || hello.BootID == "" {
		t.Errorf("hello: %+v %v", hello, err)
	}
	var now TimeResult
	if err := c.Call(ctx, "time", nil, &now, nil); err != nil || time.Since(time.Unix(0, now.NowNS)).Abs() > time.Hour {
		t.Errorf("time: %+v %v", now, err)
	}
	file := dir + "/new/x"
	res := func(r *testResource) WireResource {
		w, err := Wire(r)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	want := res(&testResource{Path: file, Want: "one\n"})
	var d DiffsResult
	if err := c.Call(ctx, "diffs", DiffsParams{[]WireResource{want}}, &d, nil); err != nil || len(d.Results) != 1 || len(d.Results[0].Actions) != 1 || len(d.Results[0].Before) != 0 {
		t.Fatalf("diffs: %+v %v", d, err)
	}
	if err := c.Call(ctx, "run", RunParams{Action: d.Results[0].Actions[0]}, nil, nil); err != nil {
		t.Fatal(err)
	}
	var read ReadResult
	if err := c.Call(ctx, "read", ReadParams{file}, &read, nil); err != nil || string(read.Content) != "one\n" {
		t.Errorf("read: %q %v", read.Content, err)
	}
	var all DiffsResult
	if err := c.Call(ctx, "diffs", DiffsParams{[]WireResource{
		want, res(&testResource{Path: file, Want: "two\n"}), res(&testResource{Path: "y", Refuse: true}),
		res(&testResource{Panic: true}), {Kind: "nothing", Resource: json.RawMessage("{}")},
	}}, &all, nil); err != nil || len(all.Results) != 5 {
		t.Fatalf("diffs: %+v %v", all, err)
	}
	r := all.Results
	if len(r[0].Actions) != 0 || r[0].Error != nil {
		t.Errorf("as wanted: %+v", r[0])
	}
	if len(r[1].Actions) != 1 || string(r[1].Before[file]) != "one\n" {
		t.Errorf("to change: %+v", r[1])
	}
	if e := r[2].Error; e == nil || !e.Refusal || e.Message != "found y" || e.Mend != "remove it" {
		t.Errorf("refused: %+v", e)
	}
	if e := r[3].Error; e == nil || !strings.Contains(e.Message, "panic") {
		t.Errorf("panicked: %+v", e)
	}
	if e := r[4].Error; e == nil || !strings.Contains(e.Message, "nothing") {
		t.Errorf("unknown: %+v", e)
	}
	for op, params := range map[string]any{
		"nothing": nil,
		"run":     map[string]any{"Acktion": 1},
		"read":    ReadParams{"/nowhere"},
		"query":   QueryParams{[]string{"no-such-command"}},
	} {
		var e *Error
		if err := c.Call(ctx, op, params, nil, nil); !errors.As(err, &e) {
			t.Errorf("op %s: %v", op, err)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if err := c.Call(ctx, "time", nil, nil, nil); !errors.Is(err, ErrLost) {
		t.Errorf("after the end: %v", err)
	}
}

func TestRunCommand(t *testing.T) {
	r := &runner{lock: &hostLock{path: filepath.Join(t.TempDir(), "lock")}}
	sh := func(script string, more func(*resource.Action)) (resource.Output, error) {
		a := resource.Action{Title: "try", Cmd: []string{"sh", "-c", script}}
		if more != nil {
			more(&a)
		}
		return r.run(t.Context(), RunParams{Action: a}, func(RunEvent) {})
	}
	if out, err := sh("cat; echo $LC_ALL $PATH", func(a *resource.Action) { a.Stdin = []byte("in\n") }); err != nil || !strings.HasPrefix(out.Stdout, "in\nC /usr/local/sbin:") {
		t.Errorf("%+v %v", out, err)
	}
	var e *Error
	a := resource.Action{Title: "x", Cmd: []string{"no-such-program"}}
	if _, err := r.run(t.Context(), RunParams{Action: a}, func(RunEvent) {}); !errors.As(err, &e) || e.Cause != resource.NotInstalled {
		t.Errorf("no program: %+v", err)
	}
	if _, err := sh("echo no >&2; exit 4", nil); !errors.As(err, &e) || e.Code != 4 || e.Stderr != "no\n" || len(e.Cmd) != 3 {
		t.Errorf("failure: %+v", err)
	}
	if _, err := sh("echo umount: /mnt: target is busy. >&2; exit 32", nil); !errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOSPC) {
		t.Errorf("busy: %+v", err)
	}
	if _, err := sh("exit 4", func(a *resource.Action) { a.OKCodes = []int{4} }); err != nil {
		t.Errorf("a code that is fine: %v", err)
	}
	if _, err := sh("kill -TERM $$", nil); !errors.As(err, &e) || e.Code != -1 {
		t.Errorf("died: %+v", err)
	}
	// Killed with everything it started: the pipe's other end closes at once.
	if _, err := sh("sleep 1000 & echo $! > "+t.TempDir()+"/pid; sleep 1000", func(a *resource.Action) { a.Seconds = 1 }); !errors.As(err, &e) || !strings.Contains(e.Message, "1s") {
		t.Errorf("time bound: %v", err)
	}
	// A secret that a tool repeats is masked.
	_, err := sh("cat >&2; exit 1", func(a *resource.Action) { a.Secret, a.Stdin = true, []byte("user\nhunter2\n") })
	if !errors.As(err, &e) || strings.Contains(e.Stderr, "hunter2") || !strings.Contains(e.Stderr, "***") {
		t.Errorf("secret: %+v", err)
	}
	// A file that goes with the command is removed once that has succeeded.
	mark := filepath.Join(t.TempDir(), "pending")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	remove := func(a *resource.Action) { a.File = &resource.File{Path: mark, Remove: true} }
	if _, err := sh("exit 1", remove); err == nil {
		t.Error("failed, and is no error")
	} else if _, err := os.Stat(mark); err != nil {
		t.Errorf("removed after a failure: %v", err)
	}
	if _, err := sh("exit 0", remove); err != nil {
		t.Error(err)
	} else if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := sh("exit 0", func(a *resource.Action) { a.File = &resource.File{Path: mark} }); err == nil {
		t.Error("a command and a file to write were taken")
	}
	if _, err := r.run(t.Context(), RunParams{Action: resource.Action{Title: "nothing"}}, func(RunEvent) {}); err == nil {
		t.Error("an empty action was run")
	}
	if _, err := r.run(t.Context(), RunParams{Action: resource.Action{Title: "absent", Cmd: []string{"no-such-command"}}}, func(RunEvent) {}); !errors.As(err, &e) || !strings.Contains(e.Message, "not found") {
		t.Errorf("absent: %v", err)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/big", make([]byte, readLimit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/fits", make([]byte, readLimit), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, dir + "/fifo", dir + "/big", dir + "/missing"} {
		if _, err := (HostSys{}).ReadFile(p); err == nil {
			t.Errorf("%s was read", p)
		}
	}
	if _, err := (HostSys{}).ReadFile(dir + "/missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for _, p := range []string{dir + "/fits", "/proc/self/mounts", "/sys/kernel/uevent_seqnum"} {
		if b, err := (HostSys{}).ReadFile(p); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", p, len(b), err)
		}
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	p := func(n string) string { return filepath.Join(dir, n) }
	for _, f := range []resource.File{
		{Path: p("a/b"), Content: []byte("1"), Mode: 0o640},
		{Path: p("a/b"), Content: []byte("2"), Mode: 0o600},
		{Path: p("d"), Mkdir: true, Mode: 0o1777},
		{Path: p("d"), Mkdir: true, Mode: 0o750},
		{Path: p("l"), Symlink: "a"},
		{Path: p("l"), Symlink: "a/b"},
		{Path: p("gone"), Remove: true},
	} {
		if err := writeFile(f); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if b, err := os.ReadFile(p("l")); err != nil || string(b) != "2" {
		t.Errorf("%q %v", b, err)
	}
	for n, want := range map[string]uint32{"a/b": 0o600, "d": 0o750, "a": 0o755} {
		if fi, err := (HostSys{}).Stat(p(n)); err != nil || fi.Mode != want {
			t.Errorf("%s: mode %o, want %o (%v)", n, fi.Mode, want, err)
		}
	}
	if err := writeFile(resource.File{Path: p("l"), Remove: true}); err != nil {
		t.Error(err)
	}
	for _, f := range []resource.File{
		{Path: "relative", Content: []byte("x")}, {Path: p("a") + "/../z"}, {Path: "/"}, {Path: ""},
		{Path: p("a/b"), Mkdir: true}, {Path: p("d"), Content: []byte("over a directory")},
		{Path: p("o"), Owner: "no-such-user"}, {Path: p("o"), Group: "no-such-group"}, {Path: "/proc/no-such-knob"},
	} {
		if err := writeFile(f); err == nil {
			t.Errorf("%+v was written", f)
		}
	}
	if left, _ := filepath.Glob(p(".mortar-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSecretFilesAreClosedByDefault(t *testing.T) {
	p := filepath.Join(t.TempDir(), "s")
	r := &runner{lock: &hostLock{path: filepath.Join(t.TempDir(), "lock")}}
	if _, err := r.run(t.Context(), RunParams{Action: resource.Action{Title: "s", Secret: true, File: &resource.File{Path: p, Content: []byte("x")}}}, func(RunEvent) {}); err != nil {
		t.Fatal(err)
	}
	if fi, err := (HostSys{}).Stat(p); err != nil || fi.Mode != 0o600 {
		t.Errorf("mode %o %v", fi.Mode, err)
	}
}

// An action that has begun is finished although the other end went away.
func TestActionOutlivesTheSession(t *testing.T) {
	dir := t.TempDir()
	reqR, reqW := io.Pipe()
	respR, respW := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), reqR, respW, core(t)) }()
	c := NewClient(respR, reqW)
	fifo := dir + "/begun"
	for _, p := range []string{fifo, dir + "/go"} {
		if err := unix.Mkfifo(p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		_ = c.Call(context.Background(), "run", RunParams{Action: resource.Action{Title: "slow",
			Cmd: []string{"sh", "-c", `echo > "$1/begun"; read x < "$1/go"; echo "$x" > "$1/done"`, "sh", dir}}}, nil, nil)
	}()
	if _, err := os.ReadFile(fifo); err != nil { // waits until it has begun
		t.Fatal(err)
	}
	_ = reqW.Close()
	_ = respR.Close()
	if err := os.WriteFile(dir+"/go", []byte("finished\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-served
	if b, err := os.ReadFile(dir + "/done"); err != nil || string(b) != "finished\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestActionsOfTwoSessionsDoNotOverlap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	one, two := &hostLock{path: path}, &hostLock{path: path}
	no := func() { t.Error("had to wait") }
	r1, err := one.acquire(t.Context(), no)
	if err != nil {
		t.Fatal(err)
	}
	r1b, err := one.acquire(t.Context(), no) // of the same session: may overlap
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	waited := 0
	if _, err := two.acquire(ctx, func() { waited++ }); !errors.Is(err, context.Canceled) || waited != 1 {
		t.Errorf("two at once: %v, told %d times", err, waited)
	}
	r1()
	if ok, err := two.try(); ok || err != nil {
		t.Errorf("while one still runs: %v %v", ok, err)
	}
	r1b()
	r2, err := two.acquire(t.Context(), no)
	if err != nil {
		t.Fatal(err)
	}
	r2()
}

// An action that takes hours keeps only its like waiting: another session can act on the host as
// soon as it has begun.
func TestActionBesideOthers(t *testing.T) {
	dir := t.TempDir()
	session := func() *runner { return &runner{lock: &hostLock{path: dir + "/lock"}} }
	for _, p := range []string{"/begun", "/go"} {
		if err := unix.Mkfifo(dir+p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flush := resource.Action{Title: "flush", Beside: "cache-home.json", Cmd: []string{"sh", "-c", `echo > "$1/begun"; read x < "$1/go"; echo flushed >> "$1/order"`, "sh", dir}}
	end := sync.OnceFunc(func() {
		if err := os.WriteFile(dir+"/go", []byte("x\n"), 0); err != nil {
			t.Error(err)
		}
	})
	quiet := func(RunEvent) {}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, err := session().run(t.Context(), RunParams{Action: flush}, quiet); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.ReadFile(dir + "/begun"); err != nil { // until the flush has begun
		t.Fatal(err)
	}
	next := resource.Action{Title: "off", Beside: flush.Beside, Cmd: []string{"sh", "-c", `echo off >> "$1/order"`, "sh", dir}}
	waits := make(chan bool, 1)
	wg.Go(func() {
		if _, err := session().run(t.Context(), RunParams{Action: next}, func(e RunEvent) { waits <- e.Waiting }); err != nil {
			t.Error(err)
		}
	})
	if !<-waits {
		t.Error("the next action on the same cache does not say that it waits")
	}
	// Neither the flush nor what waits for it keeps others from acting.
	if _, err := session().run(t.Context(), RunParams{Action: resource.Action{Title: "x", Cmd: []string{"true"}}}, func(RunEvent) {
		t.Error("another action waits for the flush")
		end()
	}); err != nil {
		t.Error(err)
	}
	other := next
	other.Beside, other.Cmd = "cache-scratch.json", []string{"true"}
	if _, err := session().run(t.Context(), RunParams{Action: other}, func(RunEvent) { t.Error("another cache waits for the flush") }); err != nil {
		t.Error(err)
	}
	if _, err := session().run(t.Context(), RunParams{Action: resource.Action{Title: "x", Beside: "../x", Cmd: []string{"true"}}}, quiet); err == nil {
		t.Error("a lock outside of its directory is taken")
	}
	end()
	wg.Wait()
	if b, err := os.ReadFile(dir + "/order"); err != nil || string(b) != "flushed\noff\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestFollow(t *testing.T) {
	c, end := session(t, core(t))
	var lines []string
	var out resource.Output
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Call(t.Context(), "follow", QueryParams{[]string{"ls", "-U", "-d", dir + "/one", dir + "/two", dir + "/three"}}, &out, func(raw json.RawMessage) {
		var e FollowEvent
		if err := json.Unmarshal(raw, &e); err != nil || e.TNS == 0 {
			t.Errorf("%s: %v", raw, err)
		}
		lines = append(lines, e.Line)
	}); err != nil || out.Code != 2 || strings.Join(lines, " ") != dir+"/one "+dir+"/two" {
		t.Errorf("%v %+v %v", lines, out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Call(ctx, "follow", QueryParams{[]string{"tail", "-n", "+1", "-F", dir + "/one"}}, nil, func(json.RawMessage) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := end(); err != nil { // ends only when the handler has
		t.Error(err)
	}
	running, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range running {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(dir)) {
			t.Errorf("%s still runs: %q", p, b)
		}
	}
}

// What changes the host goes by op run, for every caller.
func TestOnlyRunChangesTheHost(t *testing.T) {
	c, end := session(t, core(t))
	file := filepath.Join(t.TempDir(), "made")
	for _, argv := range [][]string{
		{"touch", file}, {"sh", "-c", "touch " + file}, {"/usr/bin/touch", file}, {"tee", file},
		{"wipefs", "--all", file}, {"mdadm", "--create", file}, {"systemctl", "stop", "x"}, {"ip", "link", "set", "dev", "x", "down"},
		{"ip", "-batch", file, "link", "show"}, {"fence_ipmilan", "--ip=x"}, {"fence_ipmilan", "--action=status", "--action=off"},
		{"journalctl", "--vacuum-time=1s"}, {"cibadmin", "--replace"}, {"ipmitool", "chassis", "power", "off"}, {"lvm", "vgremove", "x"},
		{"dmsetup", "remove", "x"}, {"/usr/local/sbin/mortar", "host-cache", "off", "x"}, {},
	} {
		for _, op := range []string{"query", "follow"} {
			var e *Error
			if err := c.Call(t.Context(), op, QueryParams{argv}, nil, nil); !errors.As(err, &e) || len(argv) > 0 && !e.Refused.Has("command-unknown") {
				t.Errorf("%s %q: %v", op, argv, err)
			}
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a query made a file")
	}
	destroy := resource.Action{Title: "wipe", Cmd: []string{"touch", file}, Destroys: []string{"MA01", "MA02"}}
	for _, permitted := range [][]string{nil, {"MA01"}, {"MA01", "MA03"}} {
		var e *Error
		if err := c.Call(t.Context(), "run", RunParams{Action: destroy, Permitted: permitted}, nil, nil); !errors.As(err, &e) || !e.Refusal || !e.Refused.Has("wipe-not-permitted", "serial", "") {
			t.Errorf("permitted %v: %v", permitted, err)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("what nobody permitted was destroyed")
	}
	if err := c.Call(t.Context(), "run", RunParams{Action: destroy, Permitted: []string{"MA02", "MA01"}}, nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// An op that only reads ends in an error when it gives no sign. Events are
// signs, and the error says whether the agent itself lives.
func TestSilence(t *testing.T) {
	hang := make(chan struct{})
	step := make(chan struct{})
	mux := Merge(core(t), Mux{
		"facts": func(context.Context, json.RawMessage, func(any)) (any, error) { <-hang; return nil, nil },
		"diffs": func(_ context.Context, _ json.RawMessage, emit func(any)) (any, error) {
			for i := range 5 {
				emit(DiffsEvent{i})
				<-step
			}
			return DiffsResult{}, nil
		},
		"load": func(context.Context, json.RawMessage, func(any)) (any, error) { <-hang; return nil, nil },
	})
	c, end := session(t, mux)
	c.silence = map[string]time.Duration{"facts": time.Millisecond, "diffs": time.Minute}
	var silent *SilentError
	if err := c.Call(t.Context(), "facts", nil, nil, nil); !errors.As(err, &silent) || silent.Op != "facts" || !silent.Alive || !strings.Contains(err.Error(), "hangs in the kernel") {
		t.Errorf("facts: %v", err)
	}
	if errors.Is(silent, ErrLost) {
		t.Error("an agent that answers is not lost")
	}
	signs := 0
	if err := c.Call(t.Context(), "diffs", nil, nil, func(json.RawMessage) { signs++; step <- struct{}{} }); err != nil || signs != 5 {
		t.Errorf("diffs: %v after %d signs", err, signs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "load", nil, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("load, which has no limit: %v", err)
	}
	close(hang)
	if err := end(); err != nil {
		t.Error(err)
	}
	// Every op that plans and checks rest on has a limit.
	for _, op := range []string{"hello", "time", OpGather, "diffs", "query", "read"} {
		if silence[op] <= 0 {
			t.Errorf("op %s has no limit", op)
		}
	}
	if e := (&SilentError{Op: "facts", Limit: time.Minute}); !strings.Contains(e.Error(), "nothing else") || !errors.Is(e, ErrLost) {
		t.Error(e)
	}
}

// Each change is logged before it begins, and its failure after it; without
// what may be secret.
func TestChangesAreLogged(t *testing.T) {
	var lines []string
	r := &runner{lock: &hostLock{path: filepath.Join(t.TempDir(), "lock")}, log: func(l string) { lines = append(lines, l) }}
	for _, a := range []resource.Action{
		{Title: "say", Cmd: []string{"cat", "/dev/null", "a\nb"}, Stdin: []byte("secret"), OKCodes: []int{1}},
		{Title: "fail", Cmd: []string{"false"}, Destroys: []string{"MA01"}},
		{Title: "write", Secret: true, File: &resource.File{Path: filepath.Join(t.TempDir(), "f"), Content: []byte("secret")}},
	} {
		_, _ = r.run(t.Context(), RunParams{Action: a, Permitted: []string{"MA01"}, By: "alice@ws (mortar apply)"}, func(RunEvent) {})
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{"alice@ws (mortar apply): say: cat /dev/null a b", "fail: false; destroys the data on MA01", "alice@ws (mortar apply): failed: fail: ", "write: file /"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
	if len(lines) != 4 || strings.Contains(all, "secret") {
		t.Errorf("%s", all)
	}
}

// lineCounter keeps what is written and closes done after so many lines.
type lineCounter struct {
	bytes.Buffer
	left int
	done chan struct{}
}

func (l *lineCounter) Write(p []byte) (int, error) {
	n, err := l.Buffer.Write(p)
	if l.left > 0 {
		if l.left -= bytes.Count(p, []byte("\n")); l.left <= 0 {
			close(l.done)
		}
	}
	return n, err
}

func TestServeAnswersGarbage(t *testing.T) {
	mux := Mux{
		"ok":    func(context.Context, json.RawMessage, func(any)) (any, error) { return "fine", nil },
		"panic": func(context.Context, json.RawMessage, func(any)) (any, error) { panic("told to") },
		"huge": func(context.Context, json.RawMessage, func(any)) (any, error) {
			return strings.Repeat("x", MaxLine), nil
		},
		"odd": func(context.Context, json.RawMessage, func(any)) (any, error) { return func() {}, nil },
	}
	in := "nonsense\n\n{}\n[1]\n" + `{"id":1,"op":"panic"}` + "\n" + `{"id":2,"op":"huge"}` + "\n" + `{"id":3,"op":"odd"}` + "\n" +
		`{"id":4,"op":"what"}` + "\n" + `{"id":5,"op":"cancel","params":7}` + "\n" + `{"id":6,"op":"cancel","params":{"id":99}}` + "\n" +
		`{"id":7,"op":"` + strings.Repeat("y", MaxLine) + `"}` + "\n" + `{"id":8,"op":"ok"}` + "\n" + `{"id":9,"op":"ok"}` // no line end
	// The session ends when every line has its answer, however slow this
	// machine is: Serve does not wait for long once its input has ended.
	const answers = 11
	out := &lineCounter{left: answers, done: make(chan struct{})}
	r, w := io.Pipe()
	go func() {
		_, err := io.WriteString(w, in)
		select {
		case <-out.done:
		case <-time.After(time.Minute):
		}
		w.CloseWithError(err) // nil: the end
	}()
	if err := Serve(t.Context(), r, out, mux); err != nil {
		t.Fatal(err)
	}
	got := map[uint64][]Response{}
	for line := range bytes.Lines(out.Bytes()) {
		var r Response
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%.100s: %v", line, err)
		}
		got[r.ID] = append(got[r.ID], r)
	}
	for id, want := range map[uint64]string{1: "panic", 2: "longer than a line", 3: "unsupported type", 4: `unknown op "what"`, 5: "cancel"} {
		if r := got[id]; len(r) != 1 || r[0].Error == nil || !strings.Contains(r[0].Error.Message, want) {
			t.Errorf("request %d: %+v", id, r)
		}
	}
	if len(got[0]) != 4 { // nonsense, {}, [1], the overlong line
		t.Errorf("%d lines answered without an id: %+v", len(got[0]), got[0])
	}
	if r := got[8]; len(r) != 1 || string(r[0].Result) != `"fine"` {
		t.Errorf("after all that: %+v", r)
	}
	if len(got[7])+len(got[9]) != 0 {
		t.Errorf("answered what was no request: %+v", got)
	}
}

func TestTooManyRequests(t *testing.T) {
	release := make(chan struct{})
	mux := Mux{"wait": func(context.Context, json.RawMessage, func(any)) (any, error) { <-release; return nil, nil }}
	reqR, reqW := io.Pipe()
	respR, respW := io.Pipe()
	go func() { _ = Serve(context.Background(), reqR, respW, mux) }()
	go func() {
		for i := range maxRequests + 1 {
			_, _ = fmt.Fprintf(reqW, `{"id":%d,"op":"wait"}`+"\n", i+1)
		}
		_, _ = fmt.Fprintf(reqW, `{"id":1,"op":"wait"}`+"\n")
	}()
	d := json.NewDecoder(respR)
	for _, want := range []string{"requests at once", "still running"} {
		var r Response
		if err := d.Decode(&r); err != nil || r.Error == nil || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%+v %v, want %q", r, err, want)
		}
	}
	close(release)
	go func() { _ = reqW.Close() }()
	for range maxRequests {
		var r Response
		if err := d.Decode(&r); err != nil || r.Error != nil {
			t.Fatalf("%+v %v", r, err)
		}
	}
}

// The end of a session does not wait for a handler that hangs in the kernel.
func TestHungHandlerDoesNotKeepTheAgent(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	mux := Mux{"hang": func(context.Context, json.RawMessage, func(any)) (any, error) { <-hang; return nil, nil }}
	if err := Serve(t.Context(), strings.NewReader(`{"id":1,"op":"hang"}`+"\n"), io.Discard, mux); err != nil {
		t.Error(err)
	}
}

func FuzzServe(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"op":"hello"}`, `{"id":1,"op":"diffs","params":{"resources":[{"kind":"test","resource":{"Path":"/x"}}]}}`, `{"id":2,"op":"cancel","params":{"id":1}}`,
		`{"id":1,"op":"diffs","params":{"resources":[{"kind":"test","resource":{"Panic":true}}]}}`, `{"id":18446744073709551615,"op":"time"}`,
		`{"id":1,"op":"read","params":{"path":"/proc/self/mounts"}}`, "\x00\xff{", `{"id":-1}`, `{"id":1,"op":null,"params":[[[[`,
	} {
		f.Add([]byte(s + "\n" + s + "\n"))
	}
	full := NewCore(HostSys{}, testKinds, "")
	mux := Mux{} // all but what would start processes a fuzzer thought up
	for op, h := range full {
		if op != "run" && op != "query" && op != "follow" && op != "read" {
			mux[op] = h
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		if err := Serve(t.Context(), bytes.NewReader(in), &out, mux); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(out.Bytes()) {
			var r Response
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		// And what an agent may send to the client.
		c := NewClient(bytes.NewReader(in), io.Discard)
		<-c.Done()
	})
}
