// Package md knows what everybody who works with md arrays needs: the spelling
// of their UUIDs, which mdadm, blkid and sysfs each write their own way, the
// ARRAY lines of mdadm.conf(5), and which members an array can do without. It
// talks to no kernel.
package md

import "strings"

// Hex keeps the hexadecimal digits of a UUID or WWN, in lower case.
func Hex(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'f':
			return r
		case r >= 'A' && r <= 'F':
			return r - 'A' + 'a'
		}
		return -1
	}, s)
}

// SameUUID compares two UUIDs whatever their punctuation: md writes
// aaaaaaaa:bbbbbbbb:…, blkid aaaaaaaa-bbbb-….
func SameUUID(a, b string) bool {
	a, b = Hex(a), Hex(b)
	return a != "" && a == b
}

// UUID spells a UUID as mdadm(8) does; another text stays as it is.
func UUID(u string) string {
	h := Hex(u)
	if len(h) != 32 {
		return u
	}
	return h[:8] + ":" + h[8:16] + ":" + h[16:24] + ":" + h[24:]
}
