package spec

import (
	"fmt"
	"slices"
	"strings"
)

// DiskNamed is the serial number of a disk of an enclosure as the spec spells it.
func (s *Spec) DiskNamed(serial string) (string, bool) {
	l, _, ok := s.diskAt(serial)
	return l.Serial, ok
}

type diskEntry struct {
	at      string // path of its entry: enclosures[0].disks[1]
	listed  string // its serial number or range
	serials []string
	index   int // of the disk among them
}

func (s *Spec) diskAt(serial string) (DiskList, diskEntry, bool) {
	for i, in := range s.Enclosures {
		for j, l := range in.Disks {
			serials, err := l.Serials()
			if err != nil {
				continue
			}
			if k := slices.IndexFunc(serials, func(x string) bool { return strings.EqualFold(x, serial) }); k >= 0 {
				e := diskEntry{fmt.Sprintf("enclosures[%d].disks[%d]", i, j), l.Serial, serials, k}
				l.Serial = serials[k]
				return l, e, true
			}
		}
	}
	return DiskList{}, diskEntry{}, false
}

// FailDisk returns the text of a spec in which a disk of an enclosure is listed as failed.
// Nothing else of the text changes, but the comments of that list.
func (s *Spec) FailDisk(serial string) ([]byte, error) {
	disk, _, ok := s.diskAt(serial)
	if !ok {
		return nil, s.noDisk(serial)
	}
	if slices.Contains(s.Failed, disk.Serial) {
		return s.Source, nil
	}
	text := setFailed(s.Source, append(slices.Clone(s.Failed), disk.Serial))
	_, err := Parse(s.File, text)
	return text, err
}

// ReplaceDisk returns the text of a spec in which another disk is in the bay of
// one of an enclosure, and no disk of that bay is failed. wwn is written if the
// old disk has one. A range that the old disk is listed in is split; nothing else
// of the text changes.
func (s *Spec) ReplaceDisk(old, serial, wwn string) ([]byte, error) {
	disk, e, ok := s.diskAt(old)
	if !ok {
		return nil, s.noDisk(old)
	}
	part := func(serials []string) []string {
		if len(serials) == 0 {
			return nil
		}
		l := disk
		l.Serial = rangeOf(e.listed, serials)
		return []string{s.diskText(e.at, l)}
	}
	after := disk
	after.Serial = serial
	if after.WWN != "" {
		after.WWN = wwn
	}
	entries := slices.Concat(part(e.serials[:e.index]), []string{s.diskText(e.at, after)}, part(e.serials[e.index+1:]))
	want := s.allDisks()
	want[slices.Index(want, disk.Serial)] = serial
	text, ok := splice(s.Source, e.at, false, entries...)
	if ok {
		failed := slices.DeleteFunc(slices.Clone(s.Failed), func(x string) bool { return x == disk.Serial })
		if len(failed) < len(s.Failed) {
			text = setFailed(text, failed)
		}
		next, err := Parse(s.File, text)
		if err != nil {
			return nil, fmt.Errorf("with this change, %w", err)
		}
		if got, _, ok := next.diskAt(serial); ok && got == after && slices.Equal(next.allDisks(), want) {
			return text, nil
		}
	}
	return nil, fmt.Errorf("%s: the disks of this enclosure are written in a way that cannot be edited here; write %s in the place of disk %s by hand", s.File, s.diskText(e.at, after), old)
}

func setFailed(src []byte, serials []string) []byte {
	if len(serials) == 0 {
		return setKey(src, "failed")
	}
	return setKey(src, "failed", `failed: ["`+strings.Join(serials, `", "`)+`"]`)
}

func (s *Spec) noDisk(serial string) error {
	near := Nearest(serial, s.allDisks())
	if near != "" {
		near = "; a near one is " + near + ", but compare with the disk's label"
	}
	return fmt.Errorf("%s: no enclosure has a disk %s%s", s.File, serial, near)
}

// allDisks are the serial numbers of all disks in enclosures, in bay order.
func (s *Spec) allDisks() []string {
	var out []string
	for _, in := range s.Enclosures {
		for _, l := range in.Disks {
			serials, _ := l.Serials()
			out = append(out, serials...)
		}
	}
	return out
}

// rangeOf writes some successive serial numbers of a range, as the spec has it.
func rangeOf(whole string, serials []string) string {
	m := re().ranges.FindStringSubmatch(whole)
	if m == nil || len(serials) == 1 {
		return serials[0]
	}
	digits := func(s string) string { return s[len(m[1]) : len(s)-len(m[4])] }
	return m[1] + "[" + digits(serials[0]) + "-" + digits(serials[len(serials)-1]) + "]" + m[4]
}

// diskText is an entry of a disk in flow style. Keys that the entry at a path
// leaves to their default stay out.
func (s *Spec) diskText(at string, l DiskList) string {
	text := fmt.Sprintf("{serial: %q", l.Serial)
	if l.WWN != "" {
		text += fmt.Sprintf(", wwn: %q", l.WWN)
	}
	text += ", size: " + l.Size.String()
	if s.Given(at + ".type") {
		text += ", type: " + l.Type
	}
	if s.Given(at + ".rpm") {
		text += fmt.Sprintf(", rpm: %d", l.RPM)
	}
	if l.Sector > 0 {
		text += fmt.Sprintf(", sector: %d", l.Sector)
	}
	if l.Growth > 0 {
		text += fmt.Sprintf(", growth: %d", l.Growth)
	}
	return text + "}"
}
