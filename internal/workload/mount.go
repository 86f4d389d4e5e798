package workload

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mountOf names the file system a path is on by /proc/self/mountinfo alone:
// asking the file system itself could hang.
func mountOf(path string) (fstype, source string) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", ""
	}
	return findMount(string(b), filepath.Clean(path))
}

// findMount names the mount above path.
func findMount(mountinfo, path string) (fstype, source string) {
	fstype, source, _ = findMountOptions(mountinfo, path)
	return fstype, source
}

// findMountOptions finds the longest mount point above path; of several on the
// same point the last one is on top. The options are those of the mount and of
// the file system. Source: proc_pid_mountinfo(5)
func findMountOptions(mountinfo, path string) (fstype, source, options string) {
	best := -1
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 2 {
			continue
		}
		point := unescapeMount(l[4])
		if len(point) >= best && (point == "/" || path == point || strings.HasPrefix(path, point+"/")) {
			best, fstype, source, options = len(point), r[0], unescapeMount(r[1]), l[5]
			if len(r) > 2 {
				options += "," + r[2]
			}
		}
	}
	return fstype, source, options
}

// unescapeMount undoes the octal escapes for space, tab, newline, backslash.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
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
