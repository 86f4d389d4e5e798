package design

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// crowd is an example with so many clients, of which one is in the spec by name.
func crowd(t *testing.T, example string, clients int, edits ...string) *Design {
	t.Helper()
	b, err := os.ReadFile("../../../examples/" + example + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	if clients > 1 {
		edits = append(edits, "\nclients:\n", fmt.Sprintf("\nclients:\n  - count: %d\n", clients-1))
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.NewReplacer(edits...).Replace(string(b))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What follows from the number of clients: nfsd keeps the connections of all, and a brick with
// few has the values that it has always had.
func TestTuningByClients(t *testing.T) {
	const threads = "  threads: 256"
	for _, tt := range []struct {
		clients                          int
		speed                            string
		threads, nconnect, slots, slots3 string
	}{
		{1, "1Gb/s", "256", "", "128", ""},
		{64, "100Gb/s", "256", "16", "128", ""},
		{128, "100Gb/s", "256", "16", "128", "128"},
		{400, "10Gb/s", "800", "4", "64", "64"},
		{400, "100Gb/s", "800", "16", "64", "64"},
		{1500, "100Gb/s", "1024", "16", "16", "16"},
		{spec.MaxClients, "100Gb/s", "1024", "2", "16", "16"},
	} {
		d := crowd(t, "nfs-ha", tt.clients, threads, "  #", "speed: 1Gb/s", "speed: "+tt.speed, "memory: 1280MiB", "memory: 256GiB")
		got := []string{d.Value("nfsd", "threads"), d.Value("nfs", "nconnect"), d.Value("module", "nfs.max_session_slots"), d.Value("module", "sunrpc.tcp_max_slot_table_entries")}
		want := []string{tt.threads, tt.nconnect, tt.slots, tt.slots3}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("%d clients, %s: %q, want %q", tt.clients, tt.speed, got, want)
		}
		most := d.Value("nfsd", "max_connections")
		if kept, err := strconv.Atoi(most); err != nil || kept < connections(d.Spec, max(1, nconnect(d.Spec))) || d.Value("module", "lockd.nlm_max_connections") != most {
			t.Errorf("%d clients have %d connections, nfsd keeps %q", tt.clients, connections(d.Spec, nconnect(d.Spec)), most)
		}
		if wide := d.Value("sysctl", "net.core.somaxconn"); (wide == "4096") != (tt.clients > 64) {
			t.Errorf("%d clients: somaxconn %q", tt.clients, wide)
		}
	}
}
