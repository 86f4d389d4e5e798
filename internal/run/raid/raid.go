// Package raid asks RAID arrays and controllers how they are, each family by
// its own management: ME4 over HTTPS, MD3 by SMcli, PERC by perccli. It reads
// only. What an array says becomes Items; what they mean for a brick is for
// package observe to say.
package raid

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
)

// Level says how well an item is.
type Level string

// Levels of items.
const (
	Good  Level = "good"
	Watch Level = "watch" // it serves, and somebody should look
	Bad   Level = "bad"
)

// Item is a part of an array.
type Item struct {
	Kind  string `json:"kind"` // controller, group, disk, cache, LUN or array
	Name  string `json:"name"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	// Percent of a rebuild; nil while none runs.
	Percent *float64 `json:"percent,omitempty"`
	Mend    string   `json:"mend,omitempty"`
}

// Health is what an array says of itself.
type Health struct {
	How   string `json:"how"` // who was asked, and what was checked of him
	Items []Item `json:"items"`
	// Spares are disks that wait to take a failed one's place, Disks those that
	// the array has; nil: it does not tell.
	Spares *int `json:"spares,omitempty"`
	Disks  *int `json:"disks,omitempty"`
	// Levels are the RAID levels of groups or virtual disks by name.
	Levels map[string]int `json:"levels,omitempty"`
}

func (h *Health) add(kind, name string, level Level, format string, args ...any) *Item {
	h.Items = append(h.Items, Item{Kind: kind, Name: name, Level: level, Text: fmt.Sprintf(format, args...)})
	return &h.Items[len(h.Items)-1]
}

// Answer is an array's health, or why there is none.
type Answer struct {
	Health *Health `json:"health,omitempty"`
	// NotAsked says why nobody could ask: no tool, no password. Err: it was asked,
	// and did not answer.
	NotAsked string `json:"not_asked,omitempty"`
	Mend     string `json:"mend,omitempty"`
	Err      string `json:"err,omitempty"`
}

// Dial opens a connection to a management address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// reason puts what an array says of the cause behind a text. The array's full
// stop goes, as more may follow.
func reason(text, why string) string {
	why = strings.TrimSuffix(strings.Join(strings.Fields(why), " "), ".")
	if why == "" {
		return text
	}
	return text + ": " + why
}

// percentOf reads "12%"; nil if it is none.
func percentOf(s string) *float64 {
	var p float64
	if _, err := fmt.Sscanf(strings.TrimSpace(s), "%g%%", &p); err != nil || p < 0 || p > 100 {
		return nil
	}
	return &p
}

// levelOf reads the level out of a name like RAID6.
func levelOf(s string) int {
	var n int
	if _, err := fmt.Sscanf(strings.ToUpper(cmp.Or(strings.TrimSpace(s), "-")), "RAID%d", &n); err != nil {
		return -1
	}
	return n
}
