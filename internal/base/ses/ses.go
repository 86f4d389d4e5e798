// Package ses reads the pages of SCSI enclosure services (SES) that sg_ses prints in
// hexadecimal: power supplies, fans, sensors and slots of an enclosure. It runs nothing
// and reaches no enclosure. The bits are those of the standard, so that another version
// of sg_ses changes nothing.
//
// Source: SES-3 (INCITS 518), 6.1 and 7; sg3_utils, sg_ses.c
package ses

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Enclosure is what an enclosure reports of itself.
type Enclosure struct {
	ID       string // logical identifier, 16 hex digits
	Vendor   string
	Product  string
	Elements []Element
}

// Element is a part of an enclosure: a power supply, a fan, a sensor, a slot.
type Element struct {
	Kind  string // power supply, fan, temperature …
	Name  string // as the enclosure calls it, or its kind and number
	Level health.Level
	Text  string // reading with unit, and what is wrong
	// Celsius is the reading of a temperature sensor; 0: none.
	Celsius int `json:",omitempty"`
	// Silent: there is no such part.
	Silent bool `json:",omitempty"`
	// Lost: the element had a state before, and has none any more.
	Lost bool `json:",omitempty"`
}

// Pages are the names, for sg_ses --page, of the pages that Parse needs: configuration,
// status, and the names of the elements. An enclosure may lack the last one.
var Pages = []string{"cf", "es", "ed"}

// Numbers of these pages.
const (
	pageConfig = 1
	pageStatus = 2
	pageNames  = 7
)

// Parse reads the output of sg_ses -HHH for Pages, one after the other.
func Parse(text string) (Enclosure, error) {
	pages, err := split(text)
	if err != nil {
		return Enclosure{}, err
	}
	e, types, err := config(pages[pageConfig])
	if err != nil {
		return e, err
	}
	status, names := pages[pageStatus], pages[pageNames]
	if len(status) < 8 {
		return e, errors.New("the enclosure has no status page")
	}
	if g := generation(pages[pageConfig]); generation(status) != g || len(names) >= 8 && generation(names) != g {
		return e, errors.New("the enclosure changed while it was read")
	}
	words, at := descriptors(names, types), 8
	for i, t := range types {
		// The first descriptor of a type is of all its elements together.
		for n := range t.count + 1 {
			if at+4 > len(status) {
				return e, errors.New("the status page of the enclosure ends too early")
			}
			if n > 0 {
				e.Elements = append(e.Elements, element(t, n, words[i], [4]byte(status[at:])))
			}
			at += 4
		}
	}
	return e, nil
}

// split divides the bytes into pages, by their lengths. Lines before a page that are not
// hexadecimal are a banner.
func split(text string) (map[byte][]byte, error) {
	var rest []byte
	pages := map[byte][]byte{}
	odd := ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		b, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
		if err != nil {
			odd = fmt.Sprintf("sg_ses printed %.60q, which is no hexadecimal page", strings.TrimSpace(line))
			if len(rest) > 0 {
				return nil, errors.New(odd)
			}
			continue
		}
		rest = append(rest, b...)
		for len(rest) >= 4 {
			n := 4 + int(binary.BigEndian.Uint16(rest[2:]))
			if n > len(rest) {
				break
			}
			pages[rest[0]], rest = rest[:n:n], rest[n:]
		}
	}
	switch {
	case len(rest) >= 4:
		return nil, fmt.Errorf("page %d of the enclosure has %d bytes of %d", rest[0], len(rest), 4+int(binary.BigEndian.Uint16(rest[2:])))
	case len(pages) == 0 && odd != "":
		return nil, errors.New(odd)
	}
	return pages, nil
}

func generation(page []byte) uint32 { return binary.BigEndian.Uint32(page[4:]) }

type elementType struct {
	code  byte
	count int
}

// config reads the configuration page: who the enclosure is, and which elements it has,
// in the order of the other pages.
func config(p []byte) (e Enclosure, types []elementType, err error) {
	short := errors.New("the configuration page of the enclosure is missing or too short")
	if len(p) < 8 {
		return e, nil, short
	}
	at, headers := 8, 0
	for i := range int(p[1]) + 1 { // the primary subenclosure, and the secondary ones
		if at+40 > len(p) {
			return e, nil, short
		}
		if i == 0 {
			e.ID = hex.EncodeToString(p[at+4 : at+12])
			e.Vendor, e.Product = word(p[at+12:at+20]), word(p[at+20:at+36])
		}
		headers += int(p[at+2])
		at += 4 + int(p[at+3])
	}
	if at+4*headers > len(p) {
		return e, nil, short
	}
	for range headers {
		types = append(types, elementType{p[at], int(p[at+1])})
		at += 4
	}
	return e, types, nil
}

func descriptors(p []byte, types []elementType) [][]string {
	out := make([][]string, len(types))
	at := 8
	for i, t := range types {
		for n := range t.count + 1 {
			if at+4 > len(p) {
				return out
			}
			end := at + 4 + int(binary.BigEndian.Uint16(p[at+2:]))
			if end > len(p) {
				return out
			}
			if n > 0 {
				out[i] = append(out[i], word(p[at+4:end]))
			}
			at = end
		}
	}
	return out
}

// word keeps the printable ASCII of a field.
func word(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(b))
	return strings.Join(strings.Fields(s), " ")
}
