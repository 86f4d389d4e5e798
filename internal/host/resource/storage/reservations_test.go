package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A LUN or a disk that another host uses is refused by name, whatever is on it, and the refusal
// says how that host's keys go. A disk that answers nothing is no reason to refuse.
func TestReservations(t *testing.T) {
	own := pr.KeyOf("b/1", "nss1")
	ref := DiskRef{LUN: "b-lun0", WWN: "600c0ff000000001", Enclosure: "a", Serial: "600c0ff000000001", Size: 1 << 40}
	disk := DiskRef{Serial: "MA01", Enclosure: "A", Bay: 1, Size: 1 << 40}
	for name, c := range map[string]struct {
		ref   DiskRef
		keys  []string
		state map[string]pr.State
		want  string
	}{
		"nobody":                      {ref, []string{own.String()}, map[string]pr.State{"/dev/sda": {}}, ""},
		"own":                         {ref, []string{own.String()}, map[string]pr.State{"/dev/sda": {Keys: []pr.Key{own, own}, Holder: own}}, ""},
		"a stranger":                  {ref, []string{own.String()}, map[string]pr.State{"/dev/sdb": {Keys: []pr.Key{own, 0xbad}}}, "disk-reserved"},
		"a stranger, no reservations": {ref, nil, map[string]pr.State{"/dev/sda": {Keys: []pr.Key{0xbad}, Holder: 0xbad}}, "disk-reserved"},
		"no path":                     {ref, []string{own.String()}, map[string]pr.State{}, "no path"},
		"a disk":                      {disk, []string{own.String()}, map[string]pr.State{"/dev/sda": {Keys: []pr.Key{own, own}, Holder: own}}, ""},
		"a disk of a third machine":   {disk, []string{own.String()}, map[string]pr.State{"/dev/sda": {Keys: []pr.Key{own, 0xbad}, Holder: 0xbad}}, "disk-reserved"},
		"a disk without an answer":    {disk, []string{own.String()}, map[string]pr.State{}, ""},
	} {
		sys := &resource.Paper{Drives: []resource.DiskFact{{Serial: c.ref.Serial, WWN: ref.WWN, Size: 1 << 40, Device: "/dev/sda", Paths: []string{"/dev/sda", "/dev/sdb"}}}, Reserved: c.state}
		as, err := resource.Diff(t.Context(), sys, &Reservations{Host: "nss1", LUNs: []DiskRef{c.ref}, Keys: c.keys})
		if c.want == "disk-reserved" {
			wantRefusal(t, as, err, c.want, "disk", c.ref.id(), "keys", "0x0000000000000bad", "mend", "")
		} else if c.want != "" {
			if !errors.Is(err, pr.ErrPath) {
				t.Error(name, err)
			}
		} else if err != nil || len(as) > 0 {
			t.Errorf("%s: %v, %v", name, as, err)
		}
	}
}

// hanging is a server whose disks answer once all have been asked.
type hanging struct {
	resource.Paper
	all sync.WaitGroup
}

func (h *hanging) Reservation(context.Context, string) (pr.State, error) {
	h.all.Done()
	h.all.Wait()
	return pr.State{}, pr.ErrPath
}

// All disks are asked at once, because each of them may hang.
func TestReservationsAtOnce(t *testing.T) {
	const disks = 240
	synctest.Test(t, func(t *testing.T) {
		h, r := &hanging{}, &Reservations{Host: "nfs1", Keys: []string{pr.KeyOf("b/1", "nfs1").String()}}
		h.all.Add(disks)
		for i := range disks {
			serial := fmt.Sprintf("MA%03d", i)
			h.Drives = append(h.Drives, resource.DiskFact{Serial: serial, Size: 1 << 40, Device: "/dev/" + serial, Paths: []string{"/dev/" + serial}})
			r.LUNs = append(r.LUNs, DiskRef{Serial: serial, Enclosure: "A", Bay: i + 1})
		}
		if as, err := resource.Diff(t.Context(), h, r); len(as) > 0 || err != nil {
			t.Error(as, err)
		}
	})
}
