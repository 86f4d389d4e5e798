package health

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Kind is what all findings of a code have in common.
type Kind struct {
	Subject string // argument that names what the finding is about; "": the brick
	Level   Level  // OK: the check sets it, by what a device reports
	// Text and Mend have arguments in braces, which may have a verb of fmt. Those of a list
	// are %are, and what joins its words: %, and %; and %and. Text in brackets is left out if
	// an argument in it is empty or 0.
	Text, Mend string
}

// Identity is what programs recognise a finding or a refusal by.
type Identity struct {
	Code    string `json:"code,omitempty"`
	Subject string `json:"subject,omitempty"`
	Args    Args   `json:"args,omitempty"`
}

// Args are strings, lists of them and numbers, by name.
type Args map[string]any

// UnmarshalJSON has lists be lists of strings again.
func (a *Args) UnmarshalJSON(b []byte) error {
	var all map[string]any
	err := json.Unmarshal(b, &all)
	for name, v := range all {
		if some, list := v.([]any); list {
			all[name] = lists.Map(some, func(x any) string { return fmt.Sprint(x) })
		}
	}
	*a = all
	return err
}

// Has reports whether it is that of a code with these arguments: pairs of a name and a value,
// or one of the values; "" is any.
func (i Identity) Has(code string, args ...string) bool {
	for k := 0; k+1 < len(args); k += 2 {
		is, several := i.Args[args[k]].([]string)
		if !several {
			is = []string{fmt.Sprint(i.Args[args[k]])}
		}
		if args[k+1] != "" && !slices.Contains(is, args[k+1]) {
			return false
		}
	}
	return i.Code == code
}

// Say makes the texts of a finding from its arguments. words are the arguments as Text calls
// them, where that is longer than in args.
func (k Kind) Say(args, words map[string]any) (text, mend, subject string) {
	text, _ = Fill(k.Text, words)
	mend, _ = Fill(k.Mend, args)
	if s, has := args[k.Subject]; has {
		subject = fmt.Sprint(s)
	}
	return text, mend, subject
}

// SpecFile is an argument that Fill leaves as it is if it has no value.
const SpecFile = "spec"

// placeholder is an argument in braces, or what is in brackets.
var placeholder = regexp.MustCompile(`\{(\w+)(%[^}]*)?\}|\[[^][]*\]`)

// Fill puts arguments into a text. It reports whether one of them is empty.
func Fill(text string, args map[string]any) (out string, empty bool) {
	out = placeholder.ReplaceAllStringFunc(text, func(s string) string {
		if s[0] == '[' {
			part, none := Fill(s[1:len(s)-1], args)
			if none {
				return ""
			}
			return part
		}
		m := placeholder.FindStringSubmatch(s)
		said := ""
		switch a := args[m[1]].(type) {
		case nil:
			if m[1] == SpecFile {
				return s
			}
		case []string:
			switch {
			case len(a) == 0:
			case m[2] == "%,", m[2] == "%;":
				said = strings.Join(a, m[2][1:]+" ")
			case strings.HasPrefix(m[2], "%and"):
				said = strings.Join(a, " "+m[2][1:]+" ")
			case m[2] != "%are":
				said = List(a)
			case len(a) == 1:
				said = a[0] + " is"
			default:
				said = List(a) + " are"
			}
		default:
			said = fmt.Sprintf(cmp.Or(m[2], "%v"), a)
		}
		empty = empty || said == "" || said == "0"
		return said
	})
	return out, empty
}

// List joins names: a, b and c.
func List(names []string) string {
	switch len(names) {
	case 0:
		return "none"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
