package linux

import "unsafe"

// Aligned is a buffer of n bytes that begins at a multiple of 4096, as O_DIRECT
// wants it.
//
// Source: open(2), O_DIRECT
func Aligned(n int) []byte {
	const to = 4096
	b := make([]byte, n+to)
	skip := (to - int(uintptr(unsafe.Pointer(&b[0]))%to)) % to
	return b[skip : skip+n : skip+n]
}
