// Storm is a program of the tests: thousands of NFS clients of one machine, each with an
// address, a name, an open file and a lock of its own, which reclaim them when their server
// has crashed. It speaks NFSv4.1, and NLM with rpc.statd's protocol for NFSv3, and does what
// a Linux client does: an idle one finds out at its next renewal of the lease, a busy one at
// once, and a dead one vanishes without a word.
//
//	storm -server 10.88.1.100 -export /srv/home/data -interface storm0 -first 10.88.16.0 -clients 2000 -nlm 200 -busy 100 -dead 20
//
// It needs root and an interface with an address of the export's network, best in a network
// namespace of its own, because it listens on port 111 of the NFSv3 clients' addresses. When
// all clients are there it prints "ready" on standard error and waits for the crash. It ends with figures as
// JSON on standard output when every client that lives has its lock back and another open
// and lock was granted; with code 1 if that does not come within -patience, or a lock was
// lost. All times are in seconds.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"time"
)

func main() {
	s := &storm{count: newCounts()}
	server := flag.String("server", "", "service address")
	first := flag.String("first", "", "address of the first client; the others follow")
	flag.StringVar(&s.Export, "export", "", "path of the export on the server")
	flag.StringVar(&s.Interface, "interface", "", "interface that gets the clients' addresses")
	flag.IntVar(&s.Clients, "clients", 100, "clients in all")
	flag.IntVar(&s.NLM, "nlm", 0, "how many of them speak NFSv3")
	flag.IntVar(&s.Busy, "busy", 5, "how many of them open and lock another file each 5 s")
	flag.IntVar(&s.Dead, "dead", 0, "how many of them are dead when the server crashes, all of NFSv4.1")
	flag.IntVar(&s.DeadNLM, "dead-nlm", 0, "the same of NFSv3")
	flag.DurationVar(&s.Lease, "lease", 30*time.Second, "the server's lease")
	flag.DurationVar(&s.Settle, "settle", 75*time.Second, "how long the dead are dead before the program is ready")
	flag.DurationVar(&s.Patience, "patience", 5*time.Minute, "how long to wait for the end after the crash")
	flag.Parse()
	var err1, err2 error
	s.Server, err1 = netip.ParseAddr(*server)
	s.First, err2 = netip.ParseAddr(*first)
	if err1 != nil || err2 != nil || s.Export == "" || s.Interface == "" || flag.NArg() > 0 || s.NLM+s.Dead > s.Clients || s.DeadNLM > s.NLM {
		fmt.Fprintln(os.Stderr, "storm: -server, -first (addresses), -export and -interface are needed; -nlm and -dead are parts of -clients")
		flag.Usage()
		os.Exit(2)
	}
	f, err := s.run()
	if f != nil {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(f); err != nil {
			fmt.Fprintln(os.Stderr, "storm:", err)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

// figures are what the program prints, in seconds.
type figures struct {
	Clients map[string]int `json:"clients"`
	// Setup is how long it took until all had their locks.
	Setup float64 `json:"setup"`
	// Outage is from the last answer of the crashed server to the first of the next one. All
	// others are from that first answer.
	Outage   float64            `json:"outage"`
	AfterUp  map[string]float64 `json:"after_up"`
	Reclaims map[string]*spread `json:"reclaims"`
	// Lost are the locks that the server refused to give back, by protocol and error.
	Lost map[string]int `json:"lost"`
	// Connections are the most at once, and of attempts after the crash: all, and the most within a second.
	Connections map[string]int `json:"connections"`
	Errors      map[string]int `json:"errors"`
}
