// Package raid asks RAID arrays and controllers for their health, each family
// through its own management: ME4 over HTTPS, MD3 by SMcli, PERC by perccli. It only
// reads. It returns an array's report as Items; package observe judges what they
// mean for a brick.
package raid

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Item is a part of an array.
type Item struct {
	Kind  string       `json:"kind"` // controller, group, disk, cache, LUN or array
	Name  string       `json:"name"`
	Level health.Level `json:"level"`
	Text  string       `json:"text"`
	// Percent of a rebuild; nil while none runs.
	Percent *float64 `json:"percent,omitempty"`
	Mend    string   `json:"mend,omitempty"`
}

// Health is an array's report on itself.
type Health struct {
	How   string `json:"how"` // management that answered, and how its identity was checked
	Items []Item `json:"items"`
	// Spares is the number of spare disks, Disks that of all disks of the array;
	// nil: the array does not report it.
	Spares *int `json:"spares,omitempty"`
	Disks  *int `json:"disks,omitempty"`
	// Levels are the RAID levels of groups or virtual disks by name.
	Levels map[string]int `json:"levels,omitempty"`
	// Unread are the records of the report that are not understood.
	Unread health.Unread `json:"unread,omitempty"`
	// Raw are the answers as they came, by the question, of an array that was asked from this
	// machine. Those of a server's commands are among the server's answers.
	Raw map[string]string `json:"raw,omitempty"`
}

func (h *Health) add(kind, name string, level health.Level, format string, args ...any) *Item {
	h.Items = append(h.Items, Item{Kind: kind, Name: name, Level: level, Text: fmt.Sprintf(format, args...)})
	return &h.Items[len(h.Items)-1]
}

// Answer is an array's health, or why it is unknown.
type Answer struct {
	Health *Health `json:"health,omitempty"`
	// NotAsked is why the array was not asked: no tool, no password. Err is why
	// an array that was asked did not answer.
	NotAsked string `json:"not_asked,omitempty"`
	Mend     string `json:"mend,omitempty"`
	Err      string `json:"err,omitempty"`
}

// Dial opens a connection to a management address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// reason appends an array's text on the cause to text, without the array's full
// stop, as more may follow.
func reason(text, why string) string {
	why = strings.TrimSuffix(strings.Join(strings.Fields(why), " "), ".")
	if why == "" {
		return text
	}
	return text + ": " + why
}

// percentOf reads "12%"; nil if s is no percentage.
func percentOf(s string) *float64 {
	var p float64
	if _, err := fmt.Sscanf(strings.TrimSpace(s), "%g%%", &p); err != nil || p < 0 || p > 100 {
		return nil
	}
	return &p
}

// levelOf returns the level in a name like RAID6.
func levelOf(s string) int {
	var n int
	if _, err := fmt.Sscanf(strings.ToUpper(cmp.Or(strings.TrimSpace(s), "-")), "RAID%d", &n); err != nil {
		return -1
	}
	return n
}
