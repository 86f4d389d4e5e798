// Package lazyregexp has regular expressions that are compiled when they are
// first used. A process of Mortar is started for every action of the resource
// agent and for every session with a host, and needs next to none of those
// that the whole program has. (The standard library does the same, in a
// package that is internal to it.)
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// Regexp is a regular expression; see package regexp for its methods.
type Regexp struct {
	text string
	once sync.Once
	re   *regexp.Regexp
}

// inTest says that a test's binary runs, where a mistake in an expression is
// to be found whether or not it is used.
var inTest = len(os.Args) > 0 && strings.HasSuffix(os.Args[0], ".test")

// New makes one of an expression that is known to be right.
func New(text string) *Regexp {
	r := &Regexp{text: text}
	if inTest {
		r.get()
	}
	return r
}

func (r *Regexp) get() *regexp.Regexp {
	r.once.Do(func() { r.re = regexp.MustCompile(r.text) })
	return r.re
}

func (r *Regexp) MatchString(s string) bool                  { return r.get().MatchString(s) }
func (r *Regexp) FindStringSubmatch(s string) []string       { return r.get().FindStringSubmatch(s) }
func (r *Regexp) FindSubmatch(b []byte) [][]byte             { return r.get().FindSubmatch(b) }
func (r *Regexp) FindAllSubmatch(b []byte, n int) [][][]byte { return r.get().FindAllSubmatch(b, n) }
func (r *Regexp) ReplaceAllString(s, by string) string       { return r.get().ReplaceAllString(s, by) }
func (r *Regexp) SubexpNames() []string                      { return r.get().SubexpNames() }
