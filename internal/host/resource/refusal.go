package resource

import (
	"fmt"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Refusal says that a change may not be made, e.g. because it would destroy
// data that the user did not tell Mortar to wipe. It is the user's to mend.
type Refusal struct {
	health.Identity        // none if an agent of an earlier release refuses
	What            string // what was found
	Mend            string // how to go on
}

func (r *Refusal) Error() string { return r.What + "; " + r.Mend }

// With are the arguments of a refusal, by the names that the texts of its code use.
type With = map[string]any

// Named is an argument that programs know by an ID, and people by more words: strings, or
// lists of them. Without an ID it is in the text alone.
type Named struct{ ID, Words any }

// Codes are kinds of refusals, by what programs recognise them by: the argument that is the
// subject, the text and the remedy, as health.Kind has them. Keep codes: other programs know them.
type Codes map[string][3]string

// Register adds the refusals of a package to those that Refuse knows.
func Register(more Codes) Codes {
	for code, k := range more {
		if _, twice := codes[code]; twice {
			panic("two refusals have the code " + code)
		}
		codes[code] = k
	}
	return more
}

// Registered has the refusals of all packages of this program.
func Registered() Codes { return codes }

// Refuse makes a refusal of a code.
func Refuse(code string, args With) *Refusal {
	k, known := codes[code]
	if !known {
		panic("no refusal has the code " + code)
	}
	r, ids, words := &Refusal{Identity: health.Identity{Code: code, Args: With{}}}, With{}, With{}
	for name, a := range args {
		words[name] = a
		switch x := a.(type) {
		case Named:
			a, words[name] = x.ID, x.Words
		case error:
			a = x.Error()
		case fmt.Stringer:
			a = x.String()
		}
		ids[name] = a // an empty one has a form, too: {owner%q}
		if l, several := a.([]string); a != nil && a != "" && (!several || len(l) > 0) {
			r.Args[name] = a
		}
	}
	r.What, r.Mend, r.Subject = health.Kind{Subject: k[0], Text: k[1], Mend: k[2]}.Say(ids, words)
	return r
}
