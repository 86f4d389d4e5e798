//go:build !amd64

package qemu

// rdtsc: other processors have none, and TSCkHz returns 0.
func rdtsc() uint64 { return 0 }
