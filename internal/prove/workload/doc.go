// Package workload puts load on the mounts under test and verifies the data
// afterwards. Its workers (writers, lock workers and makers of names) run inside
// the agent on a client. They write the self-describing data of package stream,
// keep a ledger outside the file system under test, and record latencies,
// stalls, errors and a timeline. The package measures and never
// judges: the caller decides whether a stall is too long or a lost byte fails
// a drill. It knows nothing of servers, clusters or faults.
//
// The package also runs the phases of benchmarks (BenchJob): sequential, random
// and metadata, by fio. It starts a process for each thread, has all of them
// begin at one moment, and reads what they report.
//
// Every worker makes its system calls in a goroutine of its own and keeps its
// figures under a lock that is never held across a system call. So a worker
// that hangs in an uninterruptible call (a hard NFS mount whose server is
// gone) delays no other worker, and the result reports it as stuck.
package workload
