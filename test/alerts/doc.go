// Package alerts tests the alert rules and the board of packaging/prometheus with promtool. It
// has tests only.
package alerts
