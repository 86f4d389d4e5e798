package alerts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/pace"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/watch"
)

const rules = "../../packaging/prometheus/mortar.rules.yml"

func promtool(t *testing.T, args ...string) string { return promtoolOf(t, "", args...) }

// promtoolOf runs promtool with a text on its standard input.
func promtoolOf(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "../../scripts/debian-program.sh", "promtool", "promtool", "prometheus").Output()
	if err != nil {
		t.Fatalf("scripts/debian-program.sh promtool: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", rules)
	promtool(t, "test", "rules", "mortar.test.yml")
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Prometheus can parse the metrics of mortar watch, and docs/metrics.md documents each of
// them.
func TestWatchMetrics(t *testing.T) {
	now := time.Now()
	var b strings.Builder
	watch.Metrics(&b, []watch.View{
		{Name: "brick1", Looked: &now, Hosts: 3, Silent: map[string]string{"c1": `"late"`}, Points: []watch.Point{{Read: 1, Written: 2}},
			Status: &observe.Status{Level: observe.Fault, Faults: 1, Parts: []*observe.Part{{Name: "file system", Level: observe.Fault}}}},
		{Name: "brick2"},
	})
	promtoolOf(t, b.String(), "check", "metrics")
	docs := read(t, "../../docs/watch.md")
	for _, m := range regexp.MustCompile(`# TYPE (\w+)`).FindAllStringSubmatch(b.String(), -1) {
		if !strings.Contains(docs, m[1]) {
			t.Errorf("docs/watch.md lacks %s", m[1])
		}
	}
}

// Each alert fires in a test of promtool.
func TestEachAlertIsTried(t *testing.T) {
	tried := read(t, "mortar.test.yml")
	names := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, rules), -1)
	if len(names) < 20 {
		t.Errorf("%d alerts", len(names))
	}
	for _, n := range names {
		if !regexp.MustCompile(`alertname: ` + n[1] + `\n +exp_alerts: \[\{`).MatchString(tried) {
			t.Errorf("no test in which %s fires", n[1])
		}
	}
}

// The code of each alert is that of a finding.
func TestAlertsHaveCodes(t *testing.T) {
	findings := read(t, "../../docs/findings.md")
	for _, block := range strings.Split(read(t, rules), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		m := regexp.MustCompile(`code: ([a-z-]+)`).FindStringSubmatch(rest)
		if name != "MortarMetricsOld" && (m == nil || !strings.Contains(findings, "| `"+m[1]+"` |")) {
			t.Errorf("%s has no code of a finding", name)
		}
	}
}

// An alert calls a disk slow by the rule of package pace.
func TestSlowIsOneRule(t *testing.T) {
	text := read(t, rules)
	for _, want := range []string{fmt.Sprintf(">= %g\n", pace.Least.Seconds()), fmt.Sprintf("%d * quantile", pace.Times)} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q", rules, want)
		}
	}
}

// The rules and the board use only metrics that docs/metrics.md documents. Package observe
// writes no others.
func TestMetricsAreDocumented(t *testing.T) {
	docs := read(t, "../../docs/metrics.md")
	board := read(t, "../../packaging/prometheus/mortar-board.json")
	if !json.Valid([]byte(board)) {
		t.Error("the board is no JSON")
	}
	for _, m := range regexp.MustCompile(`mortar_[a-z_]+`).FindAllString(read(t, rules)+board, -1) {
		short := "`_" + m[strings.LastIndex(m, "_")+1:]
		if !strings.Contains(docs, "`"+m+"`") && !strings.Contains(docs, short) && !strings.Contains(docs, "`_"+strings.SplitN(m, "_", 3)[2]) {
			t.Errorf("docs/metrics.md does not describe %s", m)
		}
	}
}
