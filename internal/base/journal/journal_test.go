package journal

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/test/field"
)

// kindOf is what a drill reads of a message.
func kindOf(ident, msg string) Meaning {
	m, _ := Means(Line{Ident: ident, Message: msg, Priority: 6}, nil)
	return Meaning{Kind: m.Kind, Node: m.Node, Resource: m.Resource}
}

// The kernel's lines about a cache are details of its history.
func TestCacheLines(t *testing.T) {
	for msg, want := range map[string]string{
		"bcache: register_bcache() registered backing device sdb":                  "cache",
		"nvme nvme1: Shutdown timeout set to 10 seconds":                           "cache",
		"Command line: console=ttyS0 nvme_core.multipath=N nvme_core.io_timeout=2": "",
	} {
		if m, ok := Means(Line{Ident: "kernel", Message: msg, Priority: 6}, nil); ok != (want != "") || m.Part != want || ok && !m.Detail {
			t.Errorf("%s: %+v", msg, m)
		}
	}
	for _, msg := range []string{"bcache: bch_cache_set_error() error on 8f1e1434: journal io error", "bcache: bch_count_io_errors() md126: IO error on writing btree."} {
		if m, _ := Means(Line{Ident: "kernel", Message: msg, Priority: 3}, nil); m.Part != "cache" || m.Level != Fault || m.Detail {
			t.Errorf("%s: %+v", msg, m)
		}
	}
}

func TestMeaning(t *testing.T) {
	for _, c := range []struct {
		ident, msg string
		want       Meaning
	}{
		{"kernel", "sd 2:0:0:1: reservation conflict", Meaning{Kind: Conflict}},
		// corosync 3.1
		{"corosync", "[TOTEM ] Token has not been received in 750 ms ", Meaning{Kind: Note}},
		{"corosync", "[TOTEM ] A processor failed, forming new configuration: token timed out (1000ms), waiting 1200ms for consensus.", Meaning{Kind: Detected}},
		{"corosync", "[TOTEM ] A processor failed, forming new configuration.", Meaning{Kind: Detected}},
		{"corosync", "[KNET  ] link: host: 1 link: 0 is down", Meaning{Kind: Link}},
		{"corosync", "[KNET  ] host: host: 1 has no active links", Meaning{Kind: Link}},
		{"corosync", "[TOTEM ] A new membership (2.12) was formed. Members left: 1", Meaning{Kind: Membership}},
		{"corosync", "[TOTEM ] A new membership (1.16) was formed. Members joined: 1", Meaning{Kind: Membership}},
		{"corosync", "[QUORUM] Members[1]: 2", Meaning{}},
		{"corosync", "[MAIN  ] Completed service synchronization, ready to provide service.", Meaning{}},
		// Pacemaker 3.0
		{"pacemaker-controld", "Our peer on the DC (nfs1) is dead", Meaning{Kind: Note}},
		{"pacemaker-controld", "Requesting fencing (reboot) targeting node nfs1", Meaning{Kind: Fencing, Node: "nfs1"}},
		{"pacemaker-fenced", "Client pacemaker-controld.812 wants to fence (reboot) nfs1 using any device", Meaning{Kind: Fencing, Node: "nfs1"}},
		{"pacemaker-fenced", "Requesting peer fencing (reboot) targeting nfs1", Meaning{Kind: Fencing, Node: "nfs1"}},
		{"pacemaker-fenced", "Requesting that nfs2 perform 'reboot' action targeting nfs1 using fence-nfs1-bmc", Meaning{Kind: Fencing, Node: "nfs1"}},
		{"pacemaker-fenced", "Delaying 'reboot' action targeting nfs1 using fence-nfs1-bmc for 2s", Meaning{Kind: Note, Node: "nfs1"}},
		{"pacemaker-fenced", "Operation 'reboot' [1450] targeting nfs1 using fence-nfs1-bmc returned 0", Meaning{Kind: Note, Node: "nfs1", Resource: "fence-nfs1-bmc"}},
		{"pacemaker-fenced", "Operation 'reboot' [1450] (call 2 from pacemaker-controld.812) targeting nfs1 using fence-nfs1-bmc returned 0 (OK)", Meaning{Kind: Note, Node: "nfs1", Resource: "fence-nfs1-bmc"}},
		{"pacemaker-fenced", "Operation 'reboot' targeting nfs1 by nfs2 for pacemaker-controld.812@nfs2: OK (complete)", Meaning{Kind: Fenced, Node: "nfs1"}},
		{"pacemaker-fenced", "Operation 'reboot' targeting nfs1 by <anyone> for pacemaker-controld.812@nfs2: Error occurred (No fence device)", Meaning{Kind: FenceFail, Node: "nfs1"}},
		{"pacemaker-controld", "Peer nfs1 was terminated (reboot) by nfs2 on behalf of pacemaker-controld.812@nfs2: OK (complete)", Meaning{Kind: Fenced, Node: "nfs1"}},
		{"pacemaker-controld", "Peer nfs1 was not terminated (reboot) by <anyone> on behalf of pacemaker-controld.812@nfs2: Error occurred (No fence device)", Meaning{Kind: FenceFail, Node: "nfs1"}},
		{"pacemaker-controld", "Initiating start operation service-home_start_0 locally on nfs2", Meaning{Kind: Starting, Node: "nfs2", Resource: "service-home"}},
		{"pacemaker-controld", "Requesting local execution of start operation for service-home on nfs2", Meaning{Kind: Starting, Node: "nfs2", Resource: "service-home"}},
		{"pacemaker-controld", "Result of start operation for service-home on nfs2: ok", Meaning{Kind: Started, Node: "nfs2", Resource: "service-home"}},
		{"pacemaker-controld", "Result of start operation for service-home on nfs2: error (array lost two members)", Meaning{Kind: StartFail, Node: "nfs2", Resource: "service-home"}},
		{"pacemaker-controld", "Result of start operation for service-home on nfs2: Timed out after 2m (Resource agent did not complete within 2m)", Meaning{Kind: StartFail, Node: "nfs2", Resource: "service-home"}},
		{"pacemaker-controld", "Result of start operation for service-home on nfs2: OK", Meaning{Kind: Started, Node: "nfs2", Resource: "service-home"}},
		{"pacemaker-controld", "Result of monitor operation for service-home on nfs2: OK", Meaning{Kind: Note, Node: "nfs2", Resource: "service-home"}},
		{"pacemaker-fenced", "Operation 'reboot' targeting nfs1 by nfs2 for pacemaker-controld.561@nfs2: OK (Done)", Meaning{Kind: Fenced, Node: "nfs1"}},
		{"pacemaker-controld", "Result of stop operation for service-home on nfs1: ok", Meaning{Kind: Stopped, Node: "nfs1", Resource: "service-home"}},
		// Pacemaker 2.1
		{"pacemaker-controld", "Requesting fencing (reboot) of node nfs1", Meaning{Kind: Fencing, Node: "nfs1"}},
		{"pacemaker-controld", "Peer nfs1 was terminated (reboot) by nfs2 on behalf of pacemaker-controld.812: OK", Meaning{Kind: Fenced, Node: "nfs1"}},
		{"pacemaker-fenced", "Operation 'reboot' targeting nfs1 by nfs2 for pacemaker-controld.812@nfs2.1c6b0a1f: OK", Meaning{Kind: Fenced, Node: "nfs1"}},
		{"pacemaker-controld", "Result of start operation for service-home on nfs2: 0 (ok)", Meaning{Kind: Started, Node: "nfs2", Resource: "service-home"}},
		// Linux 6.12, multipath-tools 0.11
		{"kernel", "sd 2:0:0:3: Asymmetric access state changed", Meaning{Kind: Multipath}},
		{"multipathd", "nss7-lun0: switch to path group #2", Meaning{Kind: Multipath}},
		{"multipathd", "nss7-lun0: path priorities changed. reloading", Meaning{Kind: Multipath}},
		{"multipathd", "nss7-lun0: Entering recovery mode: max_retries=30", Meaning{Kind: Multipath}},
		// Lustre 2.17.57
		{"kernel", "Lustre: small-MDT0000: Imperative Recovery not enabled, recovery window 300-900", Meaning{Kind: FS}},
		{"kernel", "Lustre: small-MDT0000: Will be in recovery for at least 5:00, or until 1 client reconnects", Meaning{Kind: FS}},
		{"kernel", "Lustre: small-MDT0000: Recovery over after 0:01, of 1 clients 1 recovered and 0 were evicted.", Meaning{Kind: FS}},
		{"kernel", "Lustre: srv-small-OST0001: No data found on store. Initialize space.", Meaning{}},
		// Words of another program mean nothing.
		{"sshd", "A processor failed, forming new configuration.", Meaning{}},
	} {
		if got := kindOf(c.ident, c.msg); got != c.want {
			t.Errorf("%s: %s\n got %+v\nwant %+v", c.ident, c.msg, got, c.want)
		}
	}
}

// TestRealJournal reads what a survivor logged while its partner was frozen,
// fenced and rebooted: corosync 3.1.9, Pacemaker 3.0.0.
func TestRealJournal(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "journal-trixie.txt"))
	if err != nil {
		t.Fatal(err)
	}
	re := regexp.MustCompile(`^\S+T(\S+)\+00:00 nfs1 (\S+)\[\d+\]: (.*)$`)
	first := map[string]string{}
	for line := range strings.Lines(string(b)) {
		m := re.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			t.Fatalf("line %q", line)
		}
		f := kindOf(m[2], Clean(m[3]))
		key := strings.TrimSpace(f.Kind + " " + f.Node + " " + f.Resource)
		if f.Kind != "" && first[key] == "" {
			first[key] = m[1]
		}
	}
	want := map[string]string{
		"link": "21:48:41", "note": "21:48:42", "detected": "21:48:43", "membership": "21:48:46", "fencing nfs2": "21:48:49",
		"note nfs2 fence-nfs2-bmc": "21:48:52", "fenced nfs2": "21:48:52", "starting nfs1 service-home": "21:48:52", "started nfs1 service-home": "21:49:10",
		"note nfs1 service-home": "21:49:11", "starting nfs2 fence-nfs1-bmc": "21:49:53",
	}
	if d := cmp.Diff(want, first); d != "" {
		t.Error(d)
	}
}

func TestParseJournal(t *testing.T) {
	line := `{"__REALTIME_TIMESTAMP":"1795000000123456","_SOURCE_REALTIME_TIMESTAMP":"1795000000120000","SYSLOG_IDENTIFIER":"pacemaker-controld","MESSAGE":" notice: Peer nfs1 was terminated (reboot) by nfs2 on behalf of pacemaker-controld.812@nfs2: OK"}`
	l, err := Parse([]byte(line))
	if err != nil || l.NS != 1795000000120000000 || l.Ident != "pacemaker-controld" || l.Priority != 6 || !strings.HasPrefix(l.Message, "Peer nfs1 was terminated") {
		t.Errorf("got %+v %v", l, err)
	}
	l, err = Parse([]byte(`{"__REALTIME_TIMESTAMP":"1","SYSLOG_IDENTIFIER":"corosync","MESSAGE":[91,84,93,255]}`))
	if err != nil || l.Message != "[T]?" {
		t.Errorf("bytes: got %+v %v", l, err)
	}
	for _, bad := range []string{"", "-- Journal begins --", `{"MESSAGE":"x"}`, `{"__REALTIME_TIMESTAMP":"1"}`} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// TestWords: lines that racks logged, and what an administrator reads of them.
func TestWords(t *testing.T) {
	name := func(id string) string { return map[string]string{"1": "nfs1", "2": "nfs2"}[id] }
	for _, c := range []struct {
		ident, msg string
		priority   int
		want       string // PART LEVEL TEXT; detail in parentheses; "" nothing
	}{
		{"corosync", "[KNET  ] link: host: 1 link: 1 is down", 6, "network warning ring 1 to nfs1 is down"},
		{"corosync", "[KNET  ] rx: host: 2 link: 0 is up", 6, "network ok ring 0 to nfs2 is up"},
		{"corosync", "[TOTEM ] A new membership (1.24) was formed. Members joined: 2", 5, "cluster ok nfs2 joined the cluster"},
		{"corosync", "[TOTEM ] A new membership (1.11) was formed. Members joined: 2 left: 2", 5, "cluster warning nfs2 left the cluster and joined it again"},
		{"corosync", "[TOTEM ] A new membership (2.d) was formed. Members left: 1", 5, "cluster warning nfs1 left the cluster"},
		{"corosync", "[TOTEM ] A new membership (2.d) was formed. Members left: 3 4", 5, "cluster warning server 3 and server 4 left the cluster"},
		{"corosync", "[QUORUM] Members[1]: 2", 5, ""},
		{"pacemaker-controld", "Peer nfs1 was terminated (reboot) by nfs2 on behalf of pacemaker-controld.367@nfs2: OK", 5, "fencing warning nfs1 was fenced (reboot) by nfs2"},
		{"pacemaker-controld", "Result of start operation for service-home on nfs2: OK", 5, "service ok service-home runs on nfs2"},
		{"pacemaker-controld", "Result of start operation for fence-nfs1-bmc on nfs2: OK", 5, "(cluster ok fence-nfs1-bmc runs on nfs2)"},
		{"pacemaker-controld", "Result of start operation for service-home on nfs2: error (array lost two members)", 5, "service fault service-home does not start on nfs2: error (array lost two members)"},
		{"pacemaker-controld", "Result of monitor operation for service-scratch on nss2: Timed out after 1m (Resource agent did not complete within 1m)", 3,
			"service fault monitor of service-scratch failed on nss2: Timed out after 1m (Resource agent did not complete within 1m)"},
		{"pacemaker-controld", "Result of probe operation for service-home on nfs2: Not running", 5, "(cluster ok Result of probe operation for service-home on nfs2: Not running)"},
		{"pacemaker-controld", "Result of probe operation for service-home on nfs2: 7 (not running)", 5, "(cluster ok Result of probe operation for service-home on nfs2: 7 (not running))"},
		{"pacemaker-fenced", "Requesting that nss1 perform 'off' action targeting nss2 using fence-pdu-b", 5, "fencing ok nss1 is to fence nss2 by fence-pdu-b (off)"},
		{"pacemaker-fenced", "Client stonith_admin.123 wants to fence (reboot) nss1 using any device", 5, "fencing warning stonith_admin has nss1 fenced (reboot)"},
		{"pacemaker-schedulerd", "Actions: Move       service-home     (                   nfs1 -> nfs2 )", 5, "service ok the cluster decides: Move service-home (nfs1 -> nfs2)"},
		{"multipathd", "35000c56fea133486: remaining active paths: 2", 5, "multipath ok 35000c56fea133486 has 2 working paths"},
		{"multipathd", "nss7-lun7: remaining active paths: 0", 5, "multipath fault nss7-lun7 has no working path"},
		{"multipathd", "dr7-lun7: sdj - tur checker reports path is down", 5, "multipath warning path sdj to dr7-lun7 does not answer"},
		{"multipathd", "nss7-lun7: reload [0 186646528 multipath 1 queue_if_no_path 1 alua 2 1 service-time 0 2 1 8:144 1]", 5,
			"(multipath ok nss7-lun7: reload [0 186646528 multipath 1 queue_if_no_path 1 alua 2 1 service-time 0 2 1 8:144 1])"},
		{"kernel", "md/raid:md127: Disk failure on dm-0, disabling device.", 1, "md fault array md127: dm-0 failed"},
		{"kernel", "md/raid1:md127: Disk failure on nvme0n1p2, disabling device.\nmd/raid1:md127: Operation continuing on 1 devices.", 1, "md fault array md127: nvme0n1p2 failed"},
		{"kernel", "md/raid:md127: Operation continuing on 3 devices.", 1, "md warning array md127 goes on with 3 disks"},
		{"kernel", "md/raid0md126: Disk failure on nvme0n1p1 detected, failing array.", 2, "md fault md/raid0md126: Disk failure on nvme0n1p1 detected, failing array."},
		{"kernel", "md: recovery of RAID array md127", 6, "md warning array md127: a rebuild begins"},
		{"kernel", "md: md127: recover done.", 6, "md ok array md127: the rebuild is done"},
		{"kernel", "md: check of RAID array md127", 6, "md ok array md127: a scrub begins"},
		// By drivers/md/bcache/super.c; not yet compared with what a rack logs.
		{"kernel", "bcache: cached_dev_detach_finish() Caching disabled for dm-5", 6, "cache ok the cache over dm-5 is off"},
		{"kernel", "bcache: bch_cached_dev_attach() Caching dm-5 as bcache0 on set 8f1e1434-7f0b-4b0f-9b4c-0a1f5d0e6c11", 6, "cache ok the cache over dm-5 is on, as bcache0"},
		{"kernel", "bcache: bch_cache_set_error() error on 8f1e1434-7f0b-4b0f-9b4c-0a1f5d0e6c11: journal io error, disabling caching", 3,
			"cache fault an SSD set of the cache failed and is given up: journal io error"},
		{"kernel", "bcache: cache_set_free() Cache set 8f1e1434-7f0b-4b0f-9b4c-0a1f5d0e6c11 unregistered", 6,
			"(cache ok bcache: cache_set_free() Cache set 8f1e1434-7f0b-4b0f-9b4c-0a1f5d0e6c11 unregistered)"},
		{"kernel", "XFS (dm-4): log I/O error -52", 1, "XFS fault the journal of the file system on dm-4 cannot be written: -52"},
		{"kernel", "XFS (dm-4): Filesystem has been shut down due to log error (0x2).", 1, "XFS fault the file system on dm-4 was shut down: XFS (dm-4): Filesystem has been shut down due to log error (0x2)."},
		{"kernel", "NFSD: starting 30-second grace period (net f0000000)", 6, "NFS ok clients may reclaim their locks, for 30 s"},
		{"kernel", "nfs: server 10.9.1.100 not responding, still trying", 5, "NFS warning 10.9.1.100 does not answer this client: its I/O waits"},
		{"kernel", "igb 0000:06:00.0 eno1: igb: eno1 NIC Link is Down", 6, "network warning eno1 has no link"},
		{"kernel", "ixgbe 0000:05:00.0 eth2: NIC Link is Up 10 Gbps, Flow Control: RX/TX", 6, "network ok eth2 has a link"},
		{"kernel", "e1000: eth1: e1000_watchdog: NIC Link is Down", 6, "network warning eth1 has no link"},
		{"kernel", "e1000e: eth0 NIC Link is Down", 6, "network warning eth0 has no link"},
		{"kernel", "mlx5_core 0000:5e:00.0 ens1f0np0: Link down", 6, "network warning ens1f0np0 has no link"},
		{"kernel", "tg3 0000:03:00.0 eno3: Link is down", 6, "network warning eno3 has no link"},
		{"kernel", "[qede_link_update:2345(eno2)]Link is down", 5, "network warning eno2 has no link"},
		{"kernel", "bond0: (slave eth1): link status definitely down, disabling slave", 6, "network warning eth1 of bond0 has no link"},
		{"kernel", "bonding: bond0: link status definitely down for interface eth1, disabling it", 6, "network warning eth1 of bond0 has no link"},
		{"kernel", "bond0: link status definitely up for interface eth1, 10000 Mbps full duplex", 6, "network ok eth1 of bond0 has a link"},
		{"kernel", "bond0: now running without any active interface!", 4, "network fault bond0 has no link at all"},
		{"kernel", "ata1: SATA link down (SStatus 0 SControl 300)", 6, ""},
		{"kernel", "pcieport 0000:00:1c.0: pciehp: Slot(1): Link Down", 6, ""},
		{"kernel", "Linux version 6.12.48+deb13-amd64 (debian-kernel@lists.debian.org)", 5, "kernel ok the host boots (Linux 6.12.48+deb13-amd64)"},
		// No rule matches these. Means returns an error literally, and a warning only
		// if it is of the brick's parts.
		{"kernel", "ACPI: no DMAR table found", 4, ""},
		{"kernel", "megaraid_sas 0000:01:00.0: Found FW in FAULT state", 4, "kernel warning megaraid_sas 0000:01:00.0: Found FW in FAULT state"},
		{"kernel", "ata1.00: exception Emask 0x0", 3, "kernel fault ata1.00: exception Emask 0x0"},
		{"corosync", "[TOTEM ] Process pause detected for 1200 ms, flushing membership messages.", 4, "cluster warning [TOTEM ] Process pause detected for 1200 ms, flushing membership messages."},
		{"systemd-logind", "New session 4 of user root.", 4, ""},
		{"sshd", "error: kex_exchange_identification", 3, ""},
	} {
		m, ok := Means(Line{Ident: c.ident, Message: c.msg, Priority: c.priority}, name)
		got := strings.TrimSpace(m.Part + " " + m.Level + " " + m.Text)
		if m.Detail {
			got = "(" + got + ")"
		}
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %s\n got %s\nwant %s", c.ident, c.msg, got, c.want)
		}
	}
}

// Each rule can be reached, and its words name only what its pattern finds.
func TestRules(t *testing.T) {
	for _, r := range rules() {
		words := r.words
		for _, n := range append(r.re.SubexpNames(), "message") {
			words = strings.ReplaceAll(words, "{"+n+"}", "")
		}
		if strings.ContainsAny(words, "{}") {
			t.Errorf("%s: %q names what %v does not find", r.ident, r.words, r.re)
		}
		if !slices.Contains(Idents, r.ident) {
			t.Errorf("%s is not read", r.ident)
		}
	}
}

var update = flag.Bool("update", false, "rewrite testdata/field")

// Each line of the corpus is an entry of a journal, and its meaning.
func TestField(t *testing.T) {
	field.Check(t, "journal", *update, func(text string) string {
		out := ""
		for line := range strings.Lines(text) {
			l, err := Parse([]byte(line))
			if err != nil {
				out += "error: " + err.Error() + "\n"
				continue
			}
			m, ok := Means(l, nil)
			out += fmt.Sprintf("%s %d %q", l.Ident, l.Priority, l.Message)
			if ok {
				out += fmt.Sprintf(": %s %s %s", m.Part, m.Level, m.Text)
			}
			out += "\n"
		}
		return out
	})
}

// An entry gives a line or an error; a field of another form costs neither the message nor
// the time. Each text of a message is in the line.
func FuzzParse(f *testing.F) {
	f.Add(`{"__REALTIME_TIMESTAMP":"1","SYSLOG_IDENTIFIER":"corosync","MESSAGE":"x","PRIORITY":"3"}`, "a", "b", `["3",null]`)
	for _, c := range field.Cases(f, "journal") {
		for line := range strings.Lines(c.Input) {
			f.Add(line, "notice: a", "Link is down", `{}`)
		}
	}
	f.Fuzz(func(t *testing.T, line, a, b, odd string) {
		l, err := Parse([]byte(line))
		if m, ok := Means(l, nil); err == nil && ok && (m.Part == "" || m.Level == "") {
			t.Errorf("%+v of %q", m, line)
		}
		msgs, errM := json.Marshal([]string{a, b})
		if !json.Valid([]byte(odd)) || !utf8.ValidString(a) || !utf8.ValidString(b) || errM != nil {
			return
		}
		l, err = Parse(fmt.Appendf(nil, `{"MESSAGE":%s,"PRIORITY":%s,"SYSLOG_IDENTIFIER":%s,"_SOURCE_REALTIME_TIMESTAMP":%s,"__REALTIME_TIMESTAMP":"7"}`, msgs, odd, odd, odd))
		for _, m := range []string{a, b} {
			if err != nil || !strings.Contains(l.Message, Clean(m)) {
				t.Errorf("%q with %s: %+v, %v", m, odd, l, err)
			}
		}
	})
}
