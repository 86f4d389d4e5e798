// Package bench runs suites of benchmarks on a brick: which phases, at which
// thread counts and sizes (Suite, Sets), the synchronous start on all clients
// and cold caches before it (Run), and what a set of threads achieved
// together (window, merged histograms, io500's score). The load itself is made
// by package workload inside the agents; what comes out is a report.Run.
// Sizing, windows and scores are pure; hosts are reached in run.go,
// prepare.go, phase.go, cold.go and profile.go only.
package bench
