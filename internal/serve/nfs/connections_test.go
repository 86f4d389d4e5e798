package nfs

import (
	"net/netip"
	"testing"
	"time"
)

func TestParseConnections(t *testing.T) {
	const tcp = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0801 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0 100 0 0 10 0
   1: 0900000A:0801 0500000A:0382 01 00000000:00000000 02:0000 00000000     0        0 0 2 0 20 4 30 10 -1
   2: 0900000A:0016 0500000A:0383 01 00000000:00000000 02:0000 00000000     0        0 0 2 0 20 4 30 10 -1
   3: 0100000A:0801 0600000A:0384 01 00000000:00000000 02:0000 00000000     0        0 0 2 0 20 4 30 10 -1
   5: 0900000A:0015 0500000A:0386 01 00000000:00000000 02:0000 00000000     0        0 0 2 0 20 4 30 10 -1
   4: 0900000A:0801 0600000A:0385 06 00000000:00000000 02:0000 00000000     0        0 0 2 0 20 4 30 10 -1
`
	const tcp6 = `  sl  local_address                         remote_address                        st
   0: 0000000000000000FFFF00000900000A:0801 0000000000000000FFFF00000700000A:02BC 01 00000000:00000000
   1: 000080FE00000000FF005450B6AD1DFE:0801 000080FE00000000FF005450B6AD1DFF:02BC 01 00000000:00000000
`
	to, ports := netip.MustParseAddr("10.0.0.9"), []uint16{2049, 21}
	got := string(mergeConnections(nil, append(parseConnections([]byte(tcp), to, ports), parseConnections([]byte(tcp6), to, ports)...), time.Now()))
	if want := "10.0.0.9:2049 10.0.0.5:898\n10.0.0.9:2049 10.0.0.7:700\n10.0.0.9:21 10.0.0.5:902\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMergeConnections(t *testing.T) {
	at := func(sec int64) time.Time { return time.Unix(1_000_000+sec, 0) }
	conn := func(remotes ...string) (out []connection) {
		for _, r := range remotes {
			out = append(out, connection{netip.MustParseAddrPort("10.0.0.9:2049"), netip.MustParseAddrPort(r)})
		}
		return out
	}
	f := mergeConnections(nil, conn("10.0.0.5:700", "10.0.0.6:700"), at(0))
	// After a failover only one has come back so far.
	f = mergeConnections(f, conn("10.0.0.6:701"), at(10))
	want := "10.0.0.9:2049 10.0.0.5:700 1000010\n10.0.0.9:2049 10.0.0.6:700 1000010\n10.0.0.9:2049 10.0.0.6:701\n"
	if string(f) != want {
		t.Errorf("%q, want %q", f, want)
	}
	if got := tickleList(f); got != "10.0.0.9:2049 10.0.0.5:700\n10.0.0.9:2049 10.0.0.6:700\n10.0.0.9:2049 10.0.0.6:701\n" {
		t.Errorf("tickled %q", got)
	}
	// Nothing new: the same text, so that nothing is written.
	if g := mergeConnections(f, conn("10.0.0.6:701"), at(200)); string(g) != want {
		t.Errorf("%q", g)
	}
	// Back again, and forgotten.
	f = mergeConnections(f, conn("10.0.0.5:700"), at(320))
	if want := "10.0.0.9:2049 10.0.0.5:700\n10.0.0.9:2049 10.0.0.6:701 1000320\n"; string(f) != want {
		t.Errorf("%q, want %q", f, want)
	}
	// A time of the other server's clock, which is ahead, is not believed.
	if got := mergeConnections([]byte("a b 2000000\nrubbish\n"), nil, at(0)); string(got) != "a b 1000000\n" {
		t.Errorf("%q", got)
	}
}
