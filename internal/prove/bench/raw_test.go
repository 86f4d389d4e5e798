package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/test/example"
)

// fio writes zeroes within the device, and its rate is read. A report of an error has no rate.
func TestRawCell(t *testing.T) {
	dir := t.TempDir()
	var devices []string
	for _, name := range []string{"a", "b:c"} {
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, make([]byte, 100<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		devices = append(devices, f)
	}
	for _, g := range [][2]int{{1, 1}, {2, 4}, {16, 1}} {
		for _, load := range []string{loadWrite, loadRead, loadRandom} {
			argv := deviceCommand(devices, g, load, 1)
			out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
			if err != nil {
				t.Fatalf("%q: %v", argv, err)
			}
			if rate, err := deviceRate(string(out), load); err != nil || rate <= 0 {
				t.Errorf("%v, %s: %v, %v", g, load, rate, err)
			}
		}
	}
	for _, f := range devices {
		b, err := os.ReadFile(f)
		if err != nil || len(b) != 100<<20 {
			t.Fatalf("%s: %d bytes, %v", f, len(b), err)
		}
		for i, x := range b {
			if x != 0 {
				t.Fatalf("%s: byte %d is %d", f, i, x)
			}
		}
	}
	for _, text := range []string{"", `{"jobs":[]}`, `{"jobs":[{"error":28,"write":{"bw_bytes":5}}]}`, "fio: no such file"} {
		if rate, err := deviceRate(text, loadWrite); err == nil {
			t.Errorf("%q: %v", text, rate)
		}
	}
}

// The survey has the paper's cells: 1 to 16 regions, and as many to 64 threads.
func TestSurvey(t *testing.T) {
	if got := (&Options{}).survey([]int{1, 2}, 1); len(got) != 4 {
		t.Error(got)
	}
	got := (&Options{Survey: true}).survey([]int{1, 2, 4, 8, 16}, 1)
	if first, last := got[0], got[len(got)-1]; len(got) != 7+6+5+4+3 || first != [2]int{1, 1} || last != [2]int{16, 4} {
		t.Errorf("%d: %v", len(got), got)
	}
	suite, err := Load(SuiteRaw, "")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Plan(suite, Options{Survey: true, Seconds: 2}, 0, 0); err != nil || p.Measurements != 50 || p.MostSeconds != 100 {
		t.Errorf("%+v, %v", p, err)
	}
}

// Each OSS writes the disks of its own OSTs, and the MDS none; of two services each server writes one's.
func TestRawServers(t *testing.T) {
	for file, want := range map[string][]string{"lustre-small.yaml": {"oss01", "oss02"}, "nfs-ha.yaml": {"nfs1"}, "nss-ha-xl.yaml": {"nss1", "nss2"}, "nfs-dfc.yaml": {"nss1"}} {
		var mu sync.Mutex
		var got []string
		env := Env{Design: example.Design(t, file), Dial: func(_ context.Context, name string) (*host.Session, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, name)
			return nil, errors.New("off")
		}}
		suite, err := Load(SuiteRaw, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), env, suite, Options{}); err == nil {
			t.Error("servers that are off were written to")
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
}
