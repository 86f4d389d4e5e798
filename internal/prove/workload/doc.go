// Package workload is load: writers, readers, lock workers and makers of names
// that run inside the agent on a client, write the self-describing data of
// package stream through the mounts under test, keep a ledger off it, and record latencies,
// stalls, errors and a timeline; and the reading back of what they wrote. It
// measures and never judges: whether a stall is too long or a lost byte fails
// a drill is the caller's business. It knows nothing of servers, clusters or
// faults.
//
// The phases of benchmarks are here too (BenchJob): sequential, random and
// metadata, by Mortar's own threads or by fio, iozone, mdtest or IOR. Their
// data is self-describing as well, and what a region must hold is known from
// the counts of the phases that wrote it, without a ledger.
//
// Every worker makes its system calls in a goroutine of its own and keeps its
// figures under a lock that is never held across a system call, so a worker
// that hangs in an uninterruptible call (a hard NFS mount whose server is
// gone) costs only itself: it is reported as stuck.
package workload
