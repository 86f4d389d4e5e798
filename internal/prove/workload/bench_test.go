package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBenchJobRefused(t *testing.T) {
	good := BenchJob{RunID: "r", Dir: "/d", Phase: SeqWrite, Threads: 2, FileBytes: 1 << 20}
	for _, tc := range []struct {
		change func(*BenchJob)
		want   string
	}{
		{func(j *BenchJob) { j.RunID = "../x" }, "run_id"},
		{func(j *BenchJob) { j.Set = "a/b" }, "set"},
		{func(j *BenchJob) { j.Phase = "write" }, "seq-write, seq-read"},
		{func(j *BenchJob) { j.Engine = "dd" }, "engine"},
		{func(j *BenchJob) { j.Dir = "d" }, "absolute"},
		{func(j *BenchJob) { j.Threads = -1 }, "threads"},
		{func(j *BenchJob) { j.Clients, j.ClientIndex = 2, 2 }, "client_index"},
		{func(j *BenchJob) { j.RecordBytes = 1000 }, "record_bytes"},
		{func(j *BenchJob) { j.Phase, j.RecordBytes = RandRead, 512 }, "4096"},
		{func(j *BenchJob) { j.Direct, j.RecordBytes = true, 47008 }, "multiple of 512"},
		{func(j *BenchJob) { j.FileBytes = 0 }, "file_bytes"},
		{func(j *BenchJob) { j.FileBytes = 1<<20 + 4096 }, "file_bytes"},
		{func(j *BenchJob) { j.Device = "/dev/sda" }, "only seq-read and rand-read"},
		{func(j *BenchJob) { j.RegionThreads = 2 }, "region_threads"},
		{func(j *BenchJob) { j.Limit = 5 }, "limit 5"},
		{func(j *BenchJob) { j.Layout = "n1" }, "layout"},
		{func(j *BenchJob) { j.StallSeconds = -1 }, "stall_seconds"},
		{func(j *BenchJob) { j.Phase, j.Items = MDCreate, -1 }, "items"},
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
	md := BenchJob{RunID: "r", Dir: "/d", Phase: MDCreate}
	if err := md.fill(); err != nil || md.Branch != 320 || md.Items != 3000 || md.Set != "tree" {
		t.Errorf("metadata defaults: %+v, %v", md, err)
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
