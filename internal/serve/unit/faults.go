package unit

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
)

// Faults collects the faults of a config.
type Faults []error

func (f *Faults) Add(format string, a ...any) { *f = append(*f, fmt.Errorf(format, a...)) }

// Word checks a name that becomes an argument of a command.
func (f *Faults) Word(key, v string) {
	if v == "" {
		f.Add("%s is empty", key)
	} else if strings.ContainsAny(v, " \t\r\n/\"'\\") || strings.HasPrefix(v, "-") {
		f.Add("%s %q: a name without blanks, quotes and slashes is needed", key, v)
	}
}

// Abs checks that a path is absolute, and says whether it is.
func (f *Faults) Abs(key, v string) bool {
	if !path.IsAbs(v) || path.Clean(v) != v || v == "/" || strings.ContainsAny(v, " \t\r\n\"\\") {
		f.Add("%s %q: a clean absolute path without blanks, below /, is needed", key, v)
		return false
	}
	return true
}

func (f *Faults) Addresses(key string, as ...string) {
	for _, a := range as {
		if _, err := netip.ParseAddr(a); err != nil {
			f.Add("%s: %q is not an address", key, a)
		}
	}
}

// Plain says whether a word is there and has only letters, digits and the
// further characters: exportfs and its table have no quotes for others.
func Plain(word, further string) bool {
	return word != "" && strings.IndexFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(further, r)
	}) < 0
}

// Below says whether path p is under directory dir.
func Below(dir, p string) bool { return strings.HasPrefix(p, dir+"/") }
