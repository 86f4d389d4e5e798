package linux

import (
	"regexp"
	"strings"
)

// ParseParams reads `lctl get_param PATTERN...`: values by the parameter's name. A value of one line follows
// the name and "="; one of several lines begins on the next line. What precedes the first parameter is a banner.
//
// Source: lctl-get_param(8); seen with Lustre 2.17.57
func ParseParams(text string) map[string]string {
	all := map[string]string{}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if k, v, ok := strings.Cut(line, "="); ok && param.MatchString(k) {
			name, all[k] = k, v
			continue
		}
		if name != "" {
			all[name] = strings.TrimPrefix(all[name]+"\n"+line, "\n")
		}
	}
	return all
}

// param matches a parameter's name: it has dots and no blanks, and colons only in the NID
// of a client with IPv6. Lines of a value are "key: value".
var param = regexp.MustCompile(`^[A-Za-z][\w-]*\.[^ \t]*[^ \t:]$`)

// ParseKeys reads lines of "key: value".
func ParseKeys(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			all[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return all
}
