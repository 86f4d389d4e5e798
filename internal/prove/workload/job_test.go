package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/strictjson"
)

func TestJobDefaults(t *testing.T) {
	j := Job{RunID: "r1", Writers: []Writer{{Name: "a", Dir: "/m"}, {Name: "b", Dir: "/m", Pattern: Append}}, Readers: []Reader{{Name: "c", Writer: "a"}}, Locks: []Lock{{Name: "l", Dir: "/m", Role: Probe}}}
	if err := j.fill(); err != nil {
		t.Fatal(err)
	}
	a, b := j.Writers[0], j.Writers[1]
	if a.Pattern != Seq || a.Mode != OSync || a.BlockBytes != 65536 || a.FileBytes != 64<<20 || a.FsyncEvery != 16 || b.FileBytes != 0 {
		t.Errorf("%+v %+v", a, b)
	}
	if j.LedgerDir != "/var/lib/mortar/runs/r1" || j.StallSeconds != 0.5 || j.BucketSeconds != 0.1 || j.StuckSeconds != 10 || j.ProgressSeconds != 1 {
		t.Errorf("%+v", j)
	}
	if r := j.Readers[0]; r.Dir != "/m" || r.BlockBytes != 65536 {
		t.Errorf("%+v", r)
	}
	if l := j.Locks[0]; l.Kind != "ofd" || l.File != "l" || l.IntervalSeconds != 0.5 {
		t.Errorf("%+v", l)
	}
}

func TestJobRefused(t *testing.T) {
	for _, tc := range []struct{ job, want string }{
		{`{}`, `run_id ""`},
		{`{"run_id":"../x","writers":[{"name":"a","dir":"/m"}]}`, `run_id "../x"`},
		{`{"run_id":".x","writers":[{"name":"a","dir":"/m"}]}`, `run_id ".x"`},
		{`{"run_id":"r"}`, "no workers"},
		{`{"run_id":"r","wirters":[]}`, "unknown field"},
		{`{"run_id":"r","writers":[{"name":"a/b","dir":"/m"}]}`, `worker name "a/b"`},
		{`{"run_id":"r","writers":[{"name":"a","dir":"m"}]}`, "not an absolute path"},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m"},{"name":"a","dir":"/m"}]}`, "two workers"},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m","block_bytes":1000}]}`, "multiple of 4096"},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m","block_bytes":8192,"file_size_bytes":12288}]}`, "not a multiple of block_bytes"},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m","mode":"async"}]}`, `mode "async"`},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m","pattern":"zigzag"}]}`, `pattern "zigzag"`},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m","ops_per_second":-1}]}`, "ops_per_second"},
		{`{"run_id":"r","stall_seconds":-1,"writers":[{"name":"a","dir":"/m"}]}`, "stall_seconds"},
		{`{"run_id":"r","bucket_seconds":1e-6,"writers":[{"name":"a","dir":"/m"}]}`, "bucket_seconds"},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m"}],"readers":[{"name":"b","writer":"c"}]}`, `no writer is named "c"`},
		{`{"run_id":"r","locks":[{"name":"a","dir":"/m","role":"keep"}]}`, `role "keep"`},
		{`{"run_id":"r","locks":[{"name":"a","dir":"/m","role":"hold","kind":"bsd"}]}`, `kind "bsd"`},
		{`{"run_id":"r","locks":[{"name":"a","dir":"/m","role":"hold","file":"../../etc/x"}]}`, `file "../../etc/x"`},
	} {
		var j Job
		err := strictjson.Decode(json.RawMessage(tc.job), &j)
		if err == nil {
			err = j.fill()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.job, err, tc.want)
		}
	}
}

func TestMapDir(t *testing.T) {
	dirs := map[string]string{"/mnt/a": "/verify/a", "/mnt/a/deep": "/other", "/": "/root"}
	for in, want := range map[string]string{
		"/mnt/a": "/verify/a", "/mnt/a/x": "/verify/a/x", "/mnt/ab": "/root/mnt/ab", "/mnt/a/deep/y": "/other/y",
	} {
		if got := mapDir(in, dirs); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := mapDir("/mnt/a", nil); got != "/mnt/a" {
		t.Error(got)
	}
}
