package md

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfArrays(t *testing.T) {
	const text = `# ARRAY /dev/md/no UUID=1
HOMEHOST <system>
ARRAY /dev/md/home  metadata=1.2 UUID=5d1c0aaa:01234567:89abcdef:00000001 name=any:home
   spares=1

ARRAY <IGNORE> UUID=2
  # of nobody
arr
	/dev/md0 "uuid=5d1c0aaa 01234567" # UUID=3
MAILADDR root
 ARRAY=x
array name=b devices=/dev/sda,/dev/sdb`
	want := []ConfArray{
		{Device: "/dev/md/home", UUID: "5d1c0aaa:01234567:89abcdef:00000001", First: 2, Last: 3},
		{Device: "<IGNORE>", UUID: "2", First: 5, Last: 5},
		{Device: "/dev/md0", UUID: "5d1c0aaa 01234567", First: 7, Last: 8},
		{First: 11, Last: 11},
	}
	got := ConfArrays(text)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got[0].Ignored() || !got[1].Ignored() {
		t.Error("ignored")
	}
	if len(ConfArrays("")) != 0 || len(ConfArrays("ARRAYS /dev/md0\nar x")) != 0 {
		t.Error("lines that are none")
	}
}

func FuzzConfArrays(f *testing.F) {
	f.Add("ARRAY <ignore> UUID=1\n spares=\"1\n")
	f.Fuzz(func(t *testing.T, text string) { ConfArrays(text) })
}
