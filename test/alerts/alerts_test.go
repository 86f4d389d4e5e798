package alerts_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const rules = "../../packaging/prometheus/mortar.rules.yml"

func promtool(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "../../scripts/promtool.sh").Output()
	if err != nil {
		t.Fatalf("scripts/promtool.sh: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), args...).CombinedOutput()
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

// Each alert has a test in which it fires.
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

// Rules and board ask for metrics that the documentation has. Package observe
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
