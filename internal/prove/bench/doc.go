// Package bench runs suites of benchmarks on a brick. It plans the phases with
// their thread counts and sizes (Suite, Sets), empties the caches and starts the
// phases on all clients at the same moment (Run), and computes what a set of
// threads achieved together (window, merged histograms, io500's score). Package
// workload makes the load inside the agents; the result is a report.Run. Sizing,
// windows and scores are pure; only run.go, prepare.go, phase.go, cold.go,
// deviceio.go and profile.go reach hosts.
package bench
