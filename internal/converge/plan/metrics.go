package plan

import (
	"encoding/json"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Where a server's metrics go, and what they measure the server against.
const (
	// TextfileDir is where Debian's prometheus-node-exporter reads metrics of
	// others (its default --collector.textfile.directory). It belongs to that
	// package: without it no program reads metrics, and none are written.
	TextfileDir = "/var/lib/prometheus/node-exporter"
	// MeasuredPath has the design.Measured of a server.
	MeasuredPath = "/etc/mortar/metrics.json"

	metricsService = "mortar-metrics.service"
	metricsTimer   = "mortar-metrics.timer"
)

// metrics has a server write what it measures for node_exporter, each minute:
// Prometheus asks as often by default (scrape_interval of its configuration).
func (b *builder) metrics(h string) error {
	if b.stock() {
		return nil // as everybody has it
	}
	text, err := json.Marshal(b.d.Measure(b.pair, h))
	if err != nil {
		return err
	}
	b.add(StageMetrics, h, "what metrics measure against", &resource.TextFile{Path: MeasuredPath, Content: append(text, '\n')})
	b.add(StageMetrics, h, "service that writes metrics", &resource.TextFile{Path: unitPath(metricsService), Content: []byte(resource.Header + `[Unit]
Description=Metrics of Mortar for node_exporter
# The folder comes with prometheus-node-exporter. Without the exporter no program reads them.
ConditionPathIsDirectory=` + TextfileDir + `

[Service]
Type=oneshot
ExecStart=` + mortarPath + ` host-metrics ` + MeasuredPath + ` ` + TextfileDir + `
# What serves goes first.
Nice=10
IOSchedulingClass=idle
# The next one comes after a minute; one that hangs must not stay.
TimeoutStartSec=50
`)})
	b.add(StageMetrics, h, "timer of the metrics", &resource.TextFile{Path: unitPath(metricsTimer), Content: []byte(resource.Header + `[Unit]
Description=Metrics of Mortar each minute

[Timer]
OnCalendar=minutely
AccuracySec=10s

[Install]
WantedBy=timers.target
`)})
	b.add(StageMetrics, h, "metrics", &resource.Units{Name: "metrics", List: []resource.Unit{{Name: metricsTimer, Enabled: true, Active: true}}})
	return nil
}
