package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

func TestPrintDoubt(t *testing.T) {
	d := &ocf.Doubt{Service: "home", At: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC),
		Arrays: []ocf.ArrayInDoubt{{Name: "r0", Blocks: []int64{81920, 86016}}, {Name: "r1", Unknown: "it has no write-intent bitmap"}},
		Owners: &ocf.Owners{Free: 1, Files: []ocf.FileInDoubt{{Inode: 263, Path: "/srv/home/data/a", Offsets: []int64{4096}}, {Inode: 300}}, Unsearched: "the search for names was cut short"}}
	var w bytes.Buffer
	printDoubt(&w, d)
	want := `service home, looked at 2026-11-26 12:00:00 UTC
array r0: 2 blocks of 4096 bytes may be wrong, at these bytes of the array:
  81920
  86016
array r1: any block of its missing disks may be wrong: it has no write-intent bitmap
files: 2; blocks of the file system's own data: 0, of no file: 1, of a cache's label and superblocks: 0, outside the volume: 0
the list is not complete: the search for names was cut short
  inode 263 /srv/home/data/a
    at byte 4096
  inode 300 (its name was not found)
`
	if diff := cmp.Diff(want, w.String()); diff != "" {
		t.Error(diff)
	}
}
