package vdisk

import (
	"encoding/binary"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// target serves a drive over iSCSI.
func target(t *testing.T, d *Drive) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		_ = ServeISCSI(l, func(name string) (*Drive, int) {
			if name != "iqn.t:sd0.path1" {
				return nil, 0
			}
			return d, 1
		})
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// QEMU's client writes, reads, flushes and discards, in requests that are larger than a burst.
func TestISCSI(t *testing.T) {
	_, disk := volatileFile(t)
	disk.size = 40 * CacheBlock
	big := 8 << 20
	if err := disk.file.Truncate(int64(big)); err != nil {
		t.Fatal(err)
	}
	disk.size = int64(big)
	d := &Drive{Disk: disk, Make: Make{Serial: "S1", WWN: 0x5000c50000000001}}
	port := target(t, d)
	io := func(commands ...string) string { return qemuIO(t, port, commands...) }
	io("write -P 1 0 3M", "write -P 2 4k 512", "flush", "read -P 1 0 4k", "read -P 2 4k 512", "read -P 1 8k 2M", "discard 1M 64k", "read -P 0 1M 64k", "write -z 2M 64k", "read -P 0 2M 64k")
	if out := io("length"); !strings.Contains(out, "8 MiB") {
		t.Error(out)
	}
	// A drive of four operations a second takes a second and a half for eight, and answers pings meanwhile.
	d.Set(d.Make, Speed{IOPS: 4})
	begin := time.Now()
	var reads []string
	for range 8 {
		reads = append(reads, "aio_read 0 4k")
	}
	io(append(reads, "aio_flush")...)
	if took := time.Since(begin); took < 1500*time.Millisecond {
		t.Errorf("8 reads took %v", took)
	}
	// A server whose reservation was taken away writes nothing.
	d.Set(d.Make, Speed{})
	reserveOut(d, "other", 6, 0, 0, 0xb)
	reserveOut(d, "other", 1, 5, 0xb, 0)
	out, _ := exec.Command("qemu-io", "-t", "none", "--image-opts", fmt.Sprintf("driver=iscsi,transport=tcp,portal=127.0.0.1:%d,target=iqn.t:sd0.path1,lun=0,initiator-name=iqn.t:nfs1", port),
		"-c", "read 0 4k", "-c", "write -P 9 0 4k").CombinedOutput()
	if !strings.Contains(string(out), "read 4096/4096") || !strings.Contains(string(out), "write failed") {
		t.Errorf("%s", out)
	}
}

// reserveOut sends PERSISTENT RESERVE OUT.
func reserveOut(d *Drive, nexus string, action, kind byte, key, other uint64) sense {
	list := make([]byte, 24)
	binary.BigEndian.PutUint64(list, key)
	binary.BigEndian.PutUint64(list[8:], other)
	_, s := d.do(&command{nexus: nexus, block: append([]byte{opPROut, action, kind}, make([]byte, 13)...), data: list})
	return s
}

// Registrations are of nexuses, and all of them may write; what preempts takes all of a key away.
//
// Source: SPC-4, 5.13
func TestReservations(t *testing.T) {
	_, disk := volatileFile(t)
	d := &Drive{Disk: disk}
	const register, reserve, release, clear, preempt = 6, 1, 2, 3, 5
	state := func() string {
		keys, _ := d.do(&command{nexus: "look", block: []byte{opPRIn, 0, 15: 0}})
		held, _ := d.do(&command{nexus: "look", block: []byte{opPRIn, 1, 15: 0}})
		s := ""
		for at := 8; at < len(keys); at += 8 {
			s += fmt.Sprintf("%x ", binary.BigEndian.Uint64(keys[at:]))
		}
		if len(held) >= 24 {
			s += fmt.Sprintf("held %x type %d", binary.BigEndian.Uint64(held[8:]), held[21])
		}
		return s
	}
	write := func(nexus string) sense {
		_, s := d.do(&command{nexus: nexus, block: []byte{0x2a, 8: 1, 15: 0}, data: make([]byte, block)})
		return s
	}
	read := func(nexus string) sense {
		_, s := d.do(&command{nexus: nexus, block: []byte{0x28, 8: 1, 15: 0}})
		return s
	}
	for i, c := range []struct {
		nexus      string
		action     byte
		key, other uint64
		want       sense
		after      string
	}{
		{"a0", reserve, 0xa, 0, conflict, ""},
		{"a0", register, 0, 0xa, sense{}, "a "},
		{"a1", register, 0, 0xa, sense{}, "a a "},
		{"a0", reserve, 0xa, 0, sense{}, "a a held a type 5"},
		{"a1", reserve, 0xa, 0, conflict, "a a held a type 5"},
		{"b0", preempt, 0xb, 0xa, conflict, "a a held a type 5"},
		{"b0", register, 0, 0xb, sense{}, "a a b held a type 5"},
		{"b0", preempt, 0xb, 0xa, sense{}, "b held b type 5"},
		{"b0", preempt, 0xb, 0xa, conflict, "b held b type 5"},
		{"b1", register, 0, 0xb, sense{}, "b b held b type 5"},
		{"b1", preempt, 0xb, 0xb, sense{}, "b held b type 5"}, // its own key: this path holds it now
		{"b1", register, 0xb, 0, sense{}, ""},
		{"b1", register, 0, 0xb, sense{}, "b "},
		{"b1", reserve, 0xb, 0, sense{}, "b held b type 5"},
	} {
		if got := reserveOut(d, c.nexus, c.action, 5, c.key, c.other); got != c.want || state() != c.after {
			t.Errorf("%d: %+v, %s", i, got, state())
		}
	}
	if write("a0") != preempted || write("a0") != conflict || read("a0") != (sense{}) || write("b1") != (sense{}) || write("c") != conflict {
		t.Error("who may write")
	}
	if d.Forget(); state() != "" || reserveOut(d, "b1", register, 5, 0, 0xb) != (sense{}) || reserveOut(d, "b1", reserve, 5, 0xb, 0) != (sense{}) {
		t.Error("without power")
	}
	if reserveOut(d, "b1", release, 5, 0xb, 0) != (sense{}) || write("c") != (sense{}) || reserveOut(d, "b1", clear, 0, 0xb, 0) != (sense{}) || state() != "" {
		t.Error(state())
	}
}
