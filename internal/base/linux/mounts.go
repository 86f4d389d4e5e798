// Package linux parses what the kernel and standard tools of a host print: one
// parser for each format, which all callers share. It is pure: callers hand it text;
// it runs no command, reads no file and knows no brick. It also has the kernel's
// demands on memory.
package linux

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Mount is a mounted file system.
type Mount struct {
	Source, Target, Type string
	// Options are those of the mount; ParseMounts cannot tell those of the file
	// system from them.
	Options []string

	// Only ParseMountInfo knows what follows.

	Super []string // options of the file system
	Dev   string   // major:minor
	Root  string   // of the mount, within its file system
}

// Option gives the value of an option of the mount ("" if it has none) and
// whether it is set.
func (m Mount) Option(name string) (value string, set bool) {
	for _, o := range m.Options {
		if k, v, _ := strings.Cut(o, "="); k == name {
			return v, true
		}
	}
	return "", false
}

// ReadOnly says whether the mount, or its file system, cannot be written to.
func (m Mount) ReadOnly() bool { return ReadOnly(m.Options) || ReadOnly(m.Super) }

// ReadOnly says whether options are those of a file system that cannot be written to. Since Linux
// 6.15 an error leaves ext4 and ldiskfs "rw", with emergency_ro.
// Source: fs/ext4/super.c, ext4_seq_options_show
func ReadOnly(options []string) bool {
	return slices.Contains(options, "ro") || slices.Contains(options, "emergency_ro")
}

// ParseMounts reads /proc/self/mounts, or fstab, in order.
// Source: proc_pid_mounts(5), fstab(5)
func ParseMounts(text string) []Mount {
	var ms []Mount
	for line := range strings.Lines(text) {
		f := Fields(strings.TrimSuffix(line, "\n"))
		if len(f) < 4 || strings.HasPrefix(f[0], "#") {
			continue
		}
		ms = append(ms, Mount{Source: Unescape(f[0]), Target: Unescape(f[1]), Type: f[2], Options: strings.Split(f[3], ",")})
	}
	return ms
}

// ParseMountInfo reads /proc/self/mountinfo, in order.
// Source: proc_pid_mountinfo(5)
func ParseMountInfo(text string) []Mount {
	var ms []Mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 2 {
			continue
		}
		m := Mount{Dev: l[2], Root: Unescape(l[3]), Target: Unescape(l[4]), Options: strings.Split(l[5], ","), Type: r[0], Source: Unescape(r[1])}
		if len(r) > 2 {
			m.Super = strings.Split(r[2], ",")
		}
		ms = append(ms, m)
	}
	return ms
}

// MountAt finds what is mounted at a path: the last one, which hides others.
func MountAt(ms []Mount, target string) (Mount, bool) {
	target = path.Clean(target)
	for i := len(ms) - 1; i >= 0; i-- {
		if path.Clean(ms[i].Target) == target {
			return ms[i], true
		}
	}
	return Mount{}, false
}

// MountOf finds the mount that a path is on.
func MountOf(ms []Mount, p string) (Mount, bool) {
	p = path.Clean(p)
	best, found := Mount{}, false
	for _, m := range ms {
		if len(m.Target) >= len(best.Target) && (m.Target == "/" || p == m.Target || strings.HasPrefix(p, m.Target+"/")) {
			best, found = m, true
		}
	}
	return best, found
}

// Fields splits a line as fstab(5) says: at spaces and tabs, and nothing else.
func Fields(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
}

// Unescape undoes the octal escapes of /proc/*/mounts, fstab and etab.
func Unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Escape is the opposite of Unescape.
func Escape(s string) string {
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(s)
}
