package linux

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// Dropped records a disk that ocf:mortar:watch has had md go on without, because it
// was slow. It is an attribute of the server that did it, in the cluster's
// configuration: there the partner has it too, and it survives a boot.
type Dropped struct {
	Node   string // server that did it
	Group  string // md array
	Serial string
	Device string // /dev/mapper/3…
	At     time.Time
	// TookMS is the time of an answer of the disk in milliseconds, PeersMS that of the
	// other members of its group.
	TookMS, PeersMS int64
}

// droppedPrefix begins the name of the attribute; the group follows.
const droppedPrefix = "mortar-dropped-"

// DroppedLog begins the line that a host's journal has of it.
const DroppedLog = "dropped slow disk "

// Attr is the name of the record's attribute: a group has one record.
func (d Dropped) Attr() string { return droppedPrefix + d.Group }

// String is the attribute's value.
func (d Dropped) String() string {
	return fmt.Sprintf("%s %s %s %dms %dms", d.Serial, d.Device, d.At.UTC().Format(time.RFC3339), d.TookMS, d.PeersMS)
}

// Forget is the command that removes the record.
func (d Dropped) Forget() []string {
	return []string{"crm_attribute", "--node", d.Node, "--name", d.Attr(), "--delete", "--lifetime", "forever"}
}

// Words says how slow the disk was.
func (d Dropped) Words() string {
	return fmt.Sprintf("it took %d ms for an answer, its peers %d ms", d.TookMS, d.PeersMS)
}

// ReadDropped returns the records in the cluster's configuration on disk, without parsing one
// that has none.
func ReadDropped(read func(string) ([]byte, error)) ([]Dropped, error) {
	text, err := read(CIBFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !bytes.Contains(text, []byte(droppedPrefix)) {
		return nil, err
	}
	c, err := ParseCIB(text)
	return c.Dropped(), err
}

// Dropped returns the records of dropped disks. It leaves out what it cannot parse. c
// may be nil.
func (c *CIB) Dropped() (out []Dropped) {
	if c == nil {
		return nil
	}
	for _, n := range c.Nodes {
		for _, a := range n.Attrs {
			group, ok := strings.CutPrefix(a.Name, droppedPrefix)
			if !ok {
				continue
			}
			if d, err := parseDropped(a.Value); err == nil {
				d.Node, d.Group = n.Name, group
				out = append(out, d)
			}
		}
	}
	return out
}

func parseDropped(s string) (d Dropped, err error) {
	f := strings.Fields(s)
	if len(f) != 5 {
		return d, fmt.Errorf("record of a dropped disk %q: want serial, device, time and two durations", s)
	}
	d.Serial, d.Device = f[0], f[1]
	if d.At, err = time.Parse(time.RFC3339, f[2]); err != nil {
		return d, fmt.Errorf("record of a dropped disk: %w", err)
	}
	for i, to := range []*int64{&d.TookMS, &d.PeersMS} {
		if *to, err = strconv.ParseInt(strings.TrimSuffix(f[3+i], "ms"), 10, 64); err != nil {
			return d, fmt.Errorf("record of a dropped disk: %w", err)
		}
	}
	return d, nil
}
