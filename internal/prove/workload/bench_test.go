package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBenchJobRefused(t *testing.T) {
	good := BenchJob{RunID: "r", Dir: "/d", Phase: SeqWrite, Threads: 2, FileBytes: 1 << 20, RecordBytes: 1 << 20}
	for _, tc := range []struct {
		change func(*BenchJob)
		want   string
	}{
		{func(j *BenchJob) { j.RunID = "../x" }, "run_id"},
		{func(j *BenchJob) { j.Set = "a/b" }, "set"},
		{func(j *BenchJob) { j.Phase, j.RecordBytes = "write", 1<<20 }, `"write"`},
		{func(j *BenchJob) { j.Dir = "d" }, `"d"`},
		{func(j *BenchJob) { j.RecordBytes = 0 }, "record_bytes"},
		{func(j *BenchJob) { j.FileBytes = 0 }, "file_bytes"},
		{func(j *BenchJob) { j.FileBytes = 1<<20 + 4096 }, "file_bytes"},
		{func(j *BenchJob) { j.Layout = "n1" }, "layout"},
	} {
		j := good
		tc.change(&j)
		if err := j.fill(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want one with %q", j, err, tc.want)
		}
	}
	if err := good.fill(); err != nil {
		t.Fatal(err)
	}
	if good.Set != "data" || good.Layout != OwnFile {
		t.Errorf("defaults: %+v", good)
	}
}

func TestMergeRegions(t *testing.T) {
	a := []BenchRegion{{Rank: 0, Bytes: 1}, {Rank: 1, Bytes: 1}}
	b := []BenchRegion{{Rank: 1, Bytes: 2}, {Rank: 2, Bytes: 2}}
	want := []BenchRegion{{Rank: 0, Bytes: 1}, {Rank: 1, Bytes: 2}, {Rank: 2, Bytes: 2}}
	if d := cmp.Diff(want, MergeRegions(a, b)); d != "" {
		t.Error(d)
	}
	if a[1].Bytes != 1 {
		t.Error("an argument was changed")
	}
}
