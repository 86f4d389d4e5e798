package qemu

// rdtsc reads the processor's time stamp counter.
func rdtsc() uint64
