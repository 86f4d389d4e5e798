// Package alerts tries the alert rules and the board of packaging/prometheus with
// promtool. It has tests only.
package alerts
