package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
)

func TestPrintDoubt(t *testing.T) {
	d := &doubt.Doubt{Service: "home", At: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC),
		Arrays: []doubt.ArrayInDoubt{{Name: "r0", Blocks: []int64{81920, 86016}}, {Name: "r1", Unknown: "it has no write-intent bitmap"}},
		Owners: &doubt.Owners{Free: 1, Files: []doubt.FileInDoubt{{Inode: 263, Path: "/srv/home/data/a", Offsets: []int64{4096}}, {Inode: 300}}, Unsearched: "the search for names was cut short"}}
	var w bytes.Buffer
	printDoubt(&w, d)
	printOwners(&w, d)
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

// The owner of a file on the volume chooses its name. A name neither obeys the terminal nor looks
// like the question.
func TestPlantedNames(t *testing.T) {
	d := &doubt.Doubt{Service: "home", At: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), Owners: &doubt.Owners{
		Unsearched: "xfs_db: \x1b[2Jgone\xff",
		Files: []doubt.FileInDoubt{
			{Inode: 1, Path: "/srv/home/\x1b]0;owned\x07"},
			{Inode: 2, Path: "/srv/home/a\n\nNothing is in doubt. Type the service's name to go on: "},
			{Inode: 3, Path: "/srv/home/\u202egpj.exe\u009b8m"},
		}}}
	var w bytes.Buffer
	printDoubt(screen.To(&w), d)
	printOwners(screen.To(&w), d)
	want := `service home, looked at 2026-11-26 12:00:00 UTC
files: 3; blocks of the file system's own data: 0, of no file: 0, of a cache's label and superblocks: 0, outside the volume: 0
the list is not complete: xfs_db: \u001b[2Jgone\xff
  inode 1 /srv/home/\u001b]0;owned\u0007
  inode 2 /srv/home/a\u000a\u000aNothing is in doubt. Type the service's name to go on: 
  inode 3 /srv/home/\u202egpj.exe\u009b8m
`
	if diff := cmp.Diff(want, w.String()); diff != "" {
		t.Error(diff)
	}
}
