package workload

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/prove/stream"
)

func call(t *testing.T, op func(context.Context, json.RawMessage, func(any)) (any, error), params any, emit func(any)) (any, error) {
	t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	if emit == nil {
		emit = func(any) {}
	}
	return op(t.Context(), raw, emit)
}

func TestHandlers(t *testing.T) {
	h := Handlers()
	dir, led := t.TempDir(), filepath.Join(t.TempDir(), "new", "run")
	job := Job{RunID: "h", LedgerDir: led, ProgressSeconds: 0.02,
		Writers: []Writer{{Name: "w", Dir: dir, BlockBytes: 4096, FileBytes: 1 << 16}}, Locks: []Lock{{Name: "p", Dir: dir, Role: Probe}}}
	type answer struct {
		v   any
		err error
	}
	done, running := make(chan answer, 1), make(chan struct{}, 1)
	go func() {
		v, err := call(t, h["load.run"], job, func(e any) {
			if p := e.(Progress); p.Workers[0].Ops > 40 && p.Workers[1].Ops > 0 {
				select {
				case running <- struct{}{}:
				default:
				}
			}
		})
		done <- answer{v, err}
	}()
	<-running
	if _, err := call(t, h["load.run"], job, nil); err == nil {
		t.Error("a second run of the name")
	}
	// Another process with the same run.
	if _, err := call(t, Handlers()["load.run"], job, nil); err == nil {
		t.Error("a second run of the name, by another process")
	}
	if _, err := call(t, h["load.clean"], StopParams{RunID: "h", LedgerDir: led}, nil); err == nil {
		t.Error("cleaned under way")
	}
	if _, err := call(t, h["load.stop"], StopParams{RunID: "nothing"}, nil); err == nil {
		t.Error("stopped nothing")
	}
	if _, err := call(t, h["load.stop"], StopParams{RunID: "h"}, nil); err != nil {
		t.Error(err)
	}
	a := <-done
	if a.err != nil {
		t.Fatal(a.err)
	}
	res := a.v.(*Result)
	again, err := call(t, h["load.result"], StopParams{RunID: "h", LedgerDir: led}, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := json.Marshal(res)
	two, _ := json.Marshal(again)
	if string(one) != string(two) {
		t.Errorf("the result as kept differs:\n%s\n%s", one, two)
	}
	v, err := call(t, h["verify.run"], VerifyParams{Ledger: res.Ledger}, nil)
	if err != nil || !v.(*stream.Report).Pass() || v.(*stream.Report).AcknowledgedBytes != 1<<16 {
		t.Fatal(v, err)
	}
	raw, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(raw), `"acknowledged_bytes":65536`) {
		t.Errorf("%s %v", raw, err)
	}
	if _, err := call(t, h["verify.run"], map[string]any{"ledgers": "x"}, nil); err == nil {
		t.Error("an unknown key passes")
	}

	// load.clean removes only the run's files.
	keep := filepath.Join(dir, "h", "precious")
	if err := os.WriteFile(keep, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = call(t, h["load.clean"], StopParams{RunID: "h", LedgerDir: led}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "h")); len(left) != 1 || left[0].Name() != "precious" {
		t.Errorf("left %v", left)
	}
	if _, err := os.Stat(led); !os.IsNotExist(err) {
		t.Error("ledgers are left:", err)
	}
	// Again: nothing to do is no error.
	if _, err := call(t, h["load.clean"], StopParams{RunID: "h", LedgerDir: led}, nil); err != nil {
		t.Error(err)
	}
	if _, err := call(t, h["load.clean"], StopParams{RunID: "../h"}, nil); err == nil {
		t.Error("a path passes for a run id")
	}
}

// After a broken connection, another session stops the run and gets its result.
func TestStopFromAnotherSession(t *testing.T) {
	led := t.TempDir()
	job := Job{RunID: "s", LedgerDir: led, ProgressSeconds: 0.02, Writers: []Writer{{Name: "w", Dir: t.TempDir(), BlockBytes: 4096}}}
	running, done := make(chan struct{}), make(chan error, 1)
	go func() {
		blocked := false
		_, err := call(t, Handlers()["load.run"], job, func(any) {
			if !blocked {
				blocked = true
				close(running)
			}
			<-t.Context().Done() // the other end reads no more
		})
		done <- err
	}()
	<-running
	h := Handlers()
	p := StopParams{RunID: "s", LedgerDir: led}
	if _, err := call(t, h["load.stop"], p, nil); err != nil {
		t.Fatal(err)
	}
	v, err := call(t, h["load.result"], p, nil)
	if err != nil || v.(*Result).StoppedBy != "stop" || v.(*Result).Workers[0].Ops == 0 {
		t.Fatalf("%+v %v", v, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Through the agent: the connection goes away in the middle of a run, which
// then ends in order and leaves its result.
func TestDisconnected(t *testing.T) {
	led := t.TempDir()
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- agent.Serve(t.Context(), in, out, Handlers()) }()
	params, err := json.Marshal(Job{RunID: "d", LedgerDir: led, ProgressSeconds: 0.02, Writers: []Writer{{Name: "w", Dir: t.TempDir(), BlockBytes: 4096}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(requests).Encode(agent.Request{ID: 1, Op: "load.run", Params: params}); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(answers)
	for ops := int64(0); ops == 0; {
		var r agent.Response
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		var p Progress
		if err := json.Unmarshal(r.Event, &p); err != nil {
			t.Fatal(err)
		}
		ops = p.Workers[0].Ops
	}
	requests.Close()
	answers.Close()
	<-served
	v, err := call(t, Handlers()["load.result"], StopParams{RunID: "d", LedgerDir: led}, nil)
	if err != nil || v.(*Result).StoppedBy != "cancelled" {
		t.Errorf("%+v %v", v, err)
	}
}

func TestTimelineGetsCoarser(t *testing.T) {
	w := &worker{clock: newClock(), bucket: 10, lat: newHistogram(), fd: -1}
	for i := range int64(maxBuckets) * 3 {
		w.res.Timeline.Ops[w.at(w.clock.wall+i*10)]++
	}
	var sum int64
	for i, n := range w.res.Timeline.Ops {
		if n != 4 {
			t.Fatalf("bucket %d has %d", i, n)
		}
		sum += n
	}
	if sum != maxBuckets*3 || w.bucket != 40 || len(w.res.Timeline.Bytes) != len(w.res.Timeline.Ops) {
		t.Errorf("%d ops in %d buckets of %d", sum, len(w.res.Timeline.Ops), w.bucket)
	}
}

func TestCancelled(t *testing.T) {
	led := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	job := Job{RunID: "c", LedgerDir: led, ProgressSeconds: 0.02, Writers: []Writer{{Name: "w", Dir: t.TempDir(), BlockBytes: 4096}}}
	res, err := Run(ctx, job, Control{}, func(p Progress) {
		if p.Workers[0].Ops > 0 {
			cancel()
		}
	})
	if err != nil || res.StoppedBy != "cancelled" {
		t.Errorf("%+v %v", res, err)
	}
	if _, err := os.Stat(filepath.Join(led, "result.json")); err != nil {
		t.Error(err)
	}
	if _, err := Verify(ctx, VerifyParams{Ledger: led}); err == nil {
		t.Error("a cancelled verification passes")
	}
}
