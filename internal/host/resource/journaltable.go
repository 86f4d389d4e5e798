package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
)

// JournalTable are the partitions of a journal's mirror, one for each array. The kernel
// finds them whenever it assembles the mirror.
type JournalTable struct {
	Mirror string // name of the md array
	UUID   string // of the md array
	Table  string // identifier of the partition table: a table with another one is not ours
	Parts  []JournalPart
	// Assemble: the brick is being built, and the mirror is brought up here. Otherwise the
	// table is there already: there is nothing to do while the mirror is not here, and
	// nothing is written.
	Assemble bool
}

// JournalPart is a partition, numbered from 1. Start and Size are in bytes.
type JournalPart struct {
	Name        string // of the array
	Start, Size int64
	Device      string // by udev
}

// Kind is "journal-table".
func (j *JournalTable) Kind() string { return "journal-table" }

// ID is the mirror.
func (j *JournalTable) ID() string { return j.Mirror }

// Diff compares the table on the mirror. While the brick is built it writes one where
// there is none of this brick: the mirror was made on SSDs that carried nothing, and what
// shows on it now was on them before. Later a mirror without the table has lost it, and
// may still have the journals.
func (j *JournalTable) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	dev, err := j.dev(sys)
	if err != nil {
		return nil, err
	}
	if dev == "" {
		if !j.Assemble {
			return nil, nil // the cluster is about to start or stop it
		}
		return j.write("/dev/md/" + j.Mirror), nil
	}
	t, err := readTable(ctx, sys, "/dev/"+dev)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(t.ID, j.Table) {
		if !j.Assemble {
			return nil, j.lost(dev, t)
		}
		return j.over(ctx, sys, dev)
	}
	if got, want := t.parts(), j.parts(); got != want {
		return nil, &Refusal{
			What: fmt.Sprintf("the partitions of mirror %s are %s, not %s", j.Mirror, got, want),
			Mend: "the journal of a brick that exists is not divided anew: correct the groups, or the sizes of the SSDs, in the spec",
		}
	}
	if named, err := j.named(sys); err != nil || named {
		return nil, err
	}
	return []Action{j.wait()}, nil
}

// dev is the kernel's name of the mirror, "" while it does not run here.
func (j *JournalTable) dev(sys Sys) (string, error) {
	arrays, err := linux.MDArrays(Tree{sys})
	if err != nil {
		return "", err
	}
	for _, a := range arrays {
		if md.SameUUID(a.UUID, j.UUID) && a.Running() {
			return a.Dev, nil
		}
	}
	return "", nil
}

// lost refuses to write the table of a brick that exists: its arrays may need what their
// journals hold.
func (j *JournalTable) lost(dev string, t table) error {
	has := "carries no partition table"
	if t.ID != "" {
		has = "carries partition table " + t.ID
	}
	return &Refusal{
		What: fmt.Sprintf("mirror %s (/dev/%s) %s, not %s with the journals of this brick, which was built before", j.Mirror, dev, has, j.Table),
		Mend: fmt.Sprintf("nothing is written over it, as the arrays may need their journals. Look at it with `sfdisk --dump /dev/%s` and `sgdisk --verify /dev/%s`, which can read the backup at its end, and restore the table with sgdisk or sfdisk: it has %s. If the journals are lost, see docs/failures.md", dev, dev, j.parts()),
	}
}

// over writes the table over what is not this brick's, unless something uses it.
func (j *JournalTable) over(ctx context.Context, sys Sys, dev string) ([]Action, error) {
	_, ms, err := users(sys)
	if err != nil {
		return nil, err
	}
	use, err := inUse(sys, ms, []string{dev})
	if err != nil {
		return nil, err
	}
	if use != "" {
		return nil, &Refusal{What: fmt.Sprintf("mirror %s (/dev/%s) is in use by %s", j.Mirror, dev, use), Mend: "stop what uses it: nothing but the arrays of this brick may"}
	}
	return j.write("/dev/" + dev), nil
}

func (j *JournalTable) write(dev string) []Action {
	var b strings.Builder
	fmt.Fprintf(&b, "label: gpt\nlabel-id: %s\n", j.Table)
	for i, p := range j.Parts {
		fmt.Fprintf(&b, "%d : start=%dKiB, size=%dKiB, type=linux-raid, name=%s\n", i+1, p.Start/1024, p.Size/1024, p.Name)
	}
	return []Action{{
		Title: "partition mirror " + j.Mirror + " for the journals", Why: "each array has a journal of its own",
		Cmd: []string{"sfdisk", "--quiet", "--wipe", "always", "--wipe-partitions", "always", dev}, Stdin: []byte(b.String()),
	}, {
		// udev has the kernel read the table once more when sfdisk closes the mirror, for
		// which the partitions vanish and come back. Source: udevadm(8), settle; 63-md-raid-arrays.rules, watch
		Title: "let udev read the partitions", Cmd: []string{"udevadm", "settle", "--timeout=100"}, OKCodes: []int{1},
	}, j.wait()}
}

// wait waits for the partitions' names, which mdadm gets.
func (j *JournalTable) wait() Action {
	a := Action{Title: "wait for the partitions of mirror " + j.Mirror, Cmd: []string{"udevadm", "wait", "--timeout=100"}}
	for _, p := range j.Parts {
		a.Cmd = append(a.Cmd, p.Device)
	}
	return a
}

func (j *JournalTable) named(sys Sys) (bool, error) {
	for _, p := range j.Parts {
		if ok, err := exists(sys, p.Device); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func (j *JournalTable) parts() string {
	var out []string
	for _, p := range j.Parts {
		out = append(out, partText(p.Name, p.Start, p.Size))
	}
	return strings.Join(out, ", ")
}

func partText(name string, start, size int64) string {
	return fmt.Sprintf("%s (%d bytes at %d)", name, size, start)
}

// table is a partition table as sfdisk prints it.
type table struct {
	ID         string `json:"id"`
	SectorSize int64  `json:"sectorsize"`
	Partitions []struct {
		Start int64  `json:"start"` // sectors
		Size  int64  `json:"size"`
		Name  string `json:"name"`
	} `json:"partitions"`
}

func (t table) parts() string {
	var out []string
	for _, p := range t.Partitions {
		out = append(out, partText(p.Name, p.Start*t.SectorSize, p.Size*t.SectorSize))
	}
	return strings.Join(out, ", ")
}

// readTable reads the partition table of a device; an empty one if it has none. The exit
// code is 1 then.
// Source: sfdisk(8), --json
func readTable(ctx context.Context, sys Sys, dev string) (table, error) {
	var doc struct {
		Table table `json:"partitiontable"`
	}
	out, installed, err := query(ctx, sys, "sfdisk", "--json", dev)
	switch {
	case err != nil:
		return doc.Table, err
	case !installed:
		return doc.Table, fmt.Errorf("sfdisk is missing (package fdisk)")
	case out.Code != 0 && strings.Contains(out.Stderr, "does not contain a recognized partition table"):
		return doc.Table, nil
	case out.Code != 0:
		return doc.Table, failed(out, "sfdisk", "--json", dev)
	}
	if err := json.Unmarshal([]byte(out.Stdout), &doc); err != nil {
		return doc.Table, fmt.Errorf("sfdisk --json %s: %w", dev, err)
	}
	if doc.Table.SectorSize == 0 {
		doc.Table.SectorSize = 512 // util-linux before 2.35 does not say
	}
	return doc.Table, nil
}
