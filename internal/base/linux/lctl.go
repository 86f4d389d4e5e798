package linux

import "strings"

// ParseParams reads `lctl get_param PATTERN...`: values by the parameter's name. A value of one line follows
// the name and "="; one of several lines begins on the next line.
//
// Source: lctl-get_param(8); seen with Lustre 2.17.57
func ParseParams(text string) map[string]string {
	all := map[string]string{}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		k, v, ok := strings.Cut(line, "=")
		// A parameter's name has dots and no blanks; lines of a value are "key: value".
		if ok && strings.Contains(k, ".") && !strings.ContainsAny(k, " :") {
			name, all[k] = k, v
			continue
		}
		if name != "" {
			all[name] = strings.TrimPrefix(all[name]+"\n"+line, "\n")
		}
	}
	return all
}

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
