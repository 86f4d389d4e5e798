package hosttest

import (
	"errors"
	"regexp"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

var argument = regexp.MustCompile(` (\w+)=`)

// Refuses reports whether an error is a refusal with a code and arguments, written as
// "code name=value name=value".
func Refuses(err error, want string) bool {
	var r *resource.Refusal
	is := argument.Split(want, -1)
	var args []string
	for i, m := range argument.FindAllStringSubmatch(want, -1) {
		args = append(args, m[1], is[i+1])
	}
	return errors.As(err, &r) && r.Has(is[0], args...)
}
