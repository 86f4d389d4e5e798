package spec

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// with parses the base of the tests with other clients, in networks that are large enough.
func withClients(t *testing.T, clients string) *Spec {
	t.Helper()
	b, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "cidr: 10.3.0.0/24", "cidr: 10.3.0.0/16", 1)
	before, rest, _ := strings.Cut(text, "clients:\n  -")
	_, after, _ := strings.Cut(rest, "\nwipe:")
	s, err := Parse("brick.yaml", []byte(before+"clients:\n"+clients+"\nwipe:"+after))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A range stands for its clients, whose addresses count up; the rest of the entry is that of
// each. Those that are only counted have no name.
func TestClientRanges(t *testing.T) {
	s := withClients(t, `  - {name: login1, address: 10.3.9.1, public: 10.1.9.1, load: true}
  - {name: "c[001-400]", address: 10.3.1.1, public: 10.1.1.1, memory: 4GiB}
  - {count: 1100}
`)
	if n := len(s.Clients); n != 401 || s.Nodes() != 1501 {
		t.Fatalf("%d clients, %d nodes", n, s.Nodes())
	}
	last := s.Clients[400]
	if last.Name != "c400" || last.Address != "10.3.2.144" || last.Public != "10.1.2.144" || last.Memory != 4*GiB || last.Load {
		t.Errorf("%+v", last)
	}
	line, _ := s.HostPos("c400", "address")
	if want, _ := s.Pos("clients[1].address"); line != want {
		t.Errorf("c400 is at line %d, its range at %d", line, want)
	}
	few := s.KeepClients(func(c Client) bool { return c.Load })
	if len(few.Clients) != 1 || few.Nodes() != 1501 || len(s.Clients) != 401 {
		t.Errorf("%d kept of %d, of %d nodes", len(few.Clients), len(s.Clients), few.Nodes())
	}
}

func TestSelect(t *testing.T) {
	s := withClients(t, `  - {name: "c[01-12]", address: 10.3.1.1, public: 10.1.1.1}
  - {name: load, address: 10.3.9.1, public: 10.1.9.1, load: true}
  - {name: l2, address: 10.3.9.2, public: 10.1.9.2, load: true}
`)
	for words, want := range map[string]string{
		"c03": "c03", "c[02-03]": "c02 c03", "servers": "s1 s2", "servers,c01": "c01 s1 s2",
		"load": "load", // the host of that name
	} {
		got, err := s.Select(strings.Split(words, ","))
		if err != nil || strings.Join(slices.Sorted(maps.Keys(got)), " ") != want {
			t.Errorf("%s: %v, %v", words, got, err)
		}
	}
	for words, want := range map[string]string{
		"c13": `"c13"`, "c[10-13]": `"c13"`, "": `""`, "c[3-1]": "c[3-1]",
		"server": `"servers"`, // what was meant
	} {
		if got, err := s.Select([]string{words}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", words, got, err)
		}
	}
	// Groups without a host.
	s = withClients(t, "  - {count: 400}\n")
	for _, group := range []string{"clients", "load"} {
		if got, err := s.Select([]string{group}); err == nil {
			t.Errorf("%s: %v", group, got)
		}
	}
}

// A spec of the most clients is read in a moment, and the number of threads follows from them,
// as far as the memory goes.
func TestManyClients(t *testing.T) {
	start := time.Now()
	s := withClients(t, fmt.Sprintf("  - {name: \"c[00001-%d]\", address: 10.3.1.1, public: 10.1.1.1}\n", MaxClients))
	t.Logf("%d clients: %v", len(s.Clients), time.Since(start))
	for n, want := range map[int]int{1: 256, 128: 256, 400: 800, 1500: 1024, MaxClients: 1024} {
		s.nodes, s.NFS.Threads = n, 256
		if got := s.defaultThreads(); got != want {
			t.Errorf("%d clients: %d threads, want %d", n, got, want)
		}
	}
	for i := range s.Servers {
		s.Servers[i].Memory = 8 * GiB
	}
	s.nodes, s.NFS.Threads = MaxClients, 256
	if got := s.defaultThreads(); got != 512 {
		t.Errorf("8 GiB: %d threads", got)
	}
}
