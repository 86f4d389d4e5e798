package linux

import (
	"strings"

	"golang.org/x/sys/unix"
)

// ErrnoIn is the error number that the message of a program names, 0 if it names none: few
// programs tell it by their exit code.
//
// Source: strerror(3) in the C locale, of glibc and of musl; umount(8) and umount.nfs(8), whose
// targets and devices are "busy"
func ErrnoIn(text string) unix.Errno {
	text = strings.ToLower(text)
	for _, e := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.ESTALE, unix.EINVAL, unix.EIO, unix.ENOENT, unix.ENOTDIR} {
		if strings.Contains(text, strings.ToLower(e.Error())) {
			return e
		}
	}
	if strings.Contains(text, "resource busy") || strings.Contains(text, "is busy") {
		return unix.EBUSY
	}
	return 0
}
