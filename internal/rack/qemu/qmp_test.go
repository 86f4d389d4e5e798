package qemu

import (
	"encoding/json"
	"net"
	"testing"
	"time"
)

// A device that QEMU releases late has more time than one command: on a slow machine
// an array answered the requests under way only after the limit of a command.
func TestLateReleaseOutlivesOneCommand(t *testing.T) {
	ours, qemu := net.Pipe()
	defer qemu.Close()
	until := time.Now().Add(300 * time.Millisecond)
	go func() {
		dec, enc := json.NewDecoder(qemu), json.NewEncoder(qemu)
		for {
			var m map[string]any
			if dec.Decode(&m) != nil {
				return
			}
			if time.Now().Before(until) {
				enc.Encode(map[string]any{"error": map[string]string{"class": "GenericError", "desc": "Node lun is in use"}})
			} else {
				enc.Encode(map[string]any{"return": map[string]string{}})
			}
		}
	}()
	q := &Client{ctx: t.Context(), conn: ours, dec: json.NewDecoder(ours), Answer: 100 * time.Millisecond}
	defer q.Close()
	if err := q.dropSession("lun"); err != nil {
		t.Fatal(err)
	}
	if time.Now().Before(until) {
		t.Fatal("the session was dropped while it was in use")
	}
}

// A QEMU whose main loop hangs costs one command's limit, and the error names the command.
func TestHungQEMU(t *testing.T) {
	ours, qemu := net.Pipe()
	defer qemu.Close()
	go json.NewDecoder(qemu).Decode(new(any)) // reads, and never answers
	q := &Client{ctx: t.Context(), conn: ours, dec: json.NewDecoder(ours), Answer: 50 * time.Millisecond}
	defer q.Close()
	if _, err := q.Status(); err == nil || err.Error() != "qmp query-status: read pipe: i/o timeout" {
		t.Fatal(err)
	}
}
