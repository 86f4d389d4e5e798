package spec

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Error is one thing wrong with a file: where, what, and how to mend it.
type Error struct {
	File            string // as it was named to Load or Parse
	Line            int    // from 1
	Col             int    // from 1, in characters
	Msg             string // what is wrong
	Mend            string // how to mend it; may be empty
	health.Identity        // of the refusal of a host; else none
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
	if e.Mend != "" {
		s += "; " + e.Mend
	}
	return s
}

// Errors is everything found wrong with a file, in the order of its lines.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single errors to errors.As and errors.Is.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, err := range e {
		out[i] = err
	}
	return out
}

// sorted orders by position and drops exact repeats.
func (e Errors) sorted() Errors {
	sort.SliceStable(e, func(i, j int) bool {
		if e[i].Line != e[j].Line {
			return e[i].Line < e[j].Line
		}
		return e[i].Col < e[j].Col
	})
	var out Errors
	for i, err := range e {
		if i > 0 && err.Error() == e[i-1].Error() {
			continue
		}
		out = append(out, err)
	}
	return out
}

// Nearest returns the candidate a mistyped word most likely meant, or "".
func Nearest(word string, candidates []string) string {
	best, bestDist := "", 1<<30
	begins := slices.DeleteFunc(slices.Clone(candidates), func(c string) bool { return !strings.HasPrefix(c, word) })
	if len(begins) == 1 && len(word) > 2 {
		return begins[0]
	}
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < bestDist {
			best, bestDist = c, d
		}
	}
	// More than a third wrong is another word, not a slip.
	if bestDist > max(1, (len(word)+2)/3) {
		return ""
	}
	return best
}

// distance is the optimal string alignment distance: insertions, deletions,
// substitutions and swaps of neighbours.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 64 || len(y) > 64 { // no known word is that long
		return 1 << 20
	}
	prev2, prev, cur := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		cur[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(y)]
}

// oneOf lists words as "a, b or c".
func oneOf(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
