package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/strictjson"
)

func TestJobDefaults(t *testing.T) {
	j := Job{RunID: "r1", Writers: []Writer{{Name: "a", Dir: "/m"}, {Name: "b", Dir: "/m", Pattern: Append}}, Locks: []Lock{{Name: "l", Dir: "/m", Role: Probe}}}
	if err := j.fill(); err != nil {
		t.Fatal(err)
	}
	a, b := j.Writers[0], j.Writers[1]
	if a.Pattern != Seq || a.Mode != OSync || a.BlockBytes != 65536 || a.FileBytes != 64<<20 || a.FsyncEvery != 16 || b.FileBytes != 0 {
		t.Errorf("%+v %+v", a, b)
	}
	if j.LedgerDir != "/var/lib/mortar/runs/r1" || j.StallSeconds != 0.5 || j.StuckSeconds != 10 || j.ProgressSeconds != 1 {
		t.Errorf("%+v", j)
	}
	if l := j.Locks[0]; l.File != "l" || l.IntervalSeconds != 0.5 {
		t.Errorf("%+v", l)
	}
}

func TestJobRefused(t *testing.T) {
	for _, tc := range []struct{ job, want string }{
		{`{}`, `run_id ""`},
		{`{"run_id":"../x","writers":[{"name":"a","dir":"/m"}]}`, `run_id "../x"`},
		{`{"run_id":".x","writers":[{"name":"a","dir":"/m"}]}`, `run_id ".x"`},
		{`{"run_id":"r","wirters":[]}`, `"wirters"`},
		{`{"run_id":"r","writers":[{"name":"a/b","dir":"/m"}]}`, `worker or file "a/b"`},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m","block_bytes":1000}]}`, "block_bytes 1000,"},
		{`{"run_id":"r","writers":[{"name":"a","dir":"/m","block_bytes":8192,"file_size_bytes":12288}]}`, "file_size_bytes 12288 "},
		{`{"run_id":"r","writers":[{"name":"a","dir":"m"}]}`, `dir "m"`},
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
