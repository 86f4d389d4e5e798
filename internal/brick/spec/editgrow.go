package spec

import (
	"fmt"
	"slices"
)

// Added are disks that a brick is to grow by.
type Added struct {
	Enclosure string // one that the spec has, or a new one
	Serial    string // serial number, or a range
	Size      Bytes  // 0: that of the last disks of the enclosure, or of the brick
	Service   string // of a new enclosure, where there are two services
}

// Growth is the number of the brick's last growth; 0: it has not grown.
func (s *Spec) Growth() int {
	n := 0
	for _, e := range s.Enclosures {
		for _, l := range e.Disks {
			n = max(n, l.Growth)
		}
	}
	return n
}

// HasGrown tells whether these disks, and no others, are the brick's last growth:
// a person has written it into the spec before.
func (s *Spec) HasGrown(added []Added) bool {
	var last, want []string
	for _, e := range s.Enclosures {
		for _, l := range e.Disks {
			if serials, err := l.Serials(); err == nil && l.Growth > 0 && l.Growth == s.Growth() {
				last = append(last, serials...)
			}
		}
	}
	for _, a := range added {
		serials, err := expandSerial(a.Serial)
		if err != nil {
			return false
		}
		want = append(want, serials...)
	}
	slices.Sort(last)
	slices.Sort(want)
	return slices.Equal(last, want)
}

// Grow returns the text of a spec with disks added as one growth, behind those that
// each enclosure has. Nothing else of the text changes, but the comments of the
// entries before them.
func (s *Spec) Grow(added []Added) ([]byte, error) {
	next, growth := s, s.Growth()+1
	for _, a := range added {
		text, err := next.addDisks(a, growth)
		if err != nil {
			return nil, err
		}
		// Half a growth may break a rule that the whole one keeps.
		if next, err = read(s.File, text); err != nil {
			return nil, fmt.Errorf("with this change, %w", err)
		}
	}
	if _, err := Parse(s.File, next.Source); err != nil {
		return nil, fmt.Errorf("with this change, %w", err)
	}
	return next.Source, nil
}

func (s *Spec) addDisks(a Added, growth int) ([]byte, error) {
	i := slices.IndexFunc(s.Enclosures, func(e Enclosure) bool { return e.Name == a.Enclosure })
	if i < 0 {
		return s.addEnclosure(a, growth)
	}
	e := s.Enclosures[i]
	at := fmt.Sprintf("enclosures[%d].disks[%d]", i, len(e.Disks)-1)
	last := e.Disks[len(e.Disks)-1]
	if a.Service != "" && a.Service != e.Service {
		return nil, fmt.Errorf("%s: the disks of enclosure %s are for service %s, not %s", s.File, e.Name, e.Service, a.Service)
	}
	text, ok := splice(s.Source, at, false, s.diskText(at, last), s.diskText(at, entryLike(last, a, growth)))
	if !ok {
		return nil, fmt.Errorf("%s: the disks of enclosure %s are written in a way that cannot be edited here; add %s by hand", s.File, e.Name, s.diskText(at, entryLike(last, a, growth)))
	}
	return text, nil
}

// entryLike is an entry for disks of the same kind as others.
func entryLike(l DiskList, a Added, growth int) DiskList {
	l.Serial, l.WWN, l.Growth = a.Serial, "", growth
	if a.Size > 0 {
		l.Size = a.Size
	}
	return l
}

// addEnclosure writes a new enclosure behind the others, in block style.
func (s *Spec) addEnclosure(a Added, growth int) ([]byte, error) {
	i := len(s.Enclosures) - 1
	old := s.Enclosures[i]
	j := len(old.Disks) - 1
	text := "name: " + a.Enclosure
	if a.Service != "" {
		text += "\nservice: " + a.Service
	}
	text += "\ndisks:\n  - " + s.diskText(fmt.Sprintf("enclosures[%d].disks[%d]", i, j), entryLike(old.Disks[j], a, growth))
	out, ok := splice(s.Source, fmt.Sprintf("enclosures[%d]", i), true, text)
	if !ok {
		return nil, fmt.Errorf("%s: the enclosures are written in a way that cannot be edited here; add enclosure %s by hand", s.File, a.Enclosure)
	}
	return out, nil
}
