//go:build rack

package rack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/test/racktest"
)

// TestAlerts breaks a path to a disk of a rack and waits for the message that a person gets.
// The servers' timer writes metrics, node_exporter reads them, Prometheus scrapes them with
// Mortar's rules, Alertmanager sends the message. The message names what mortar status names.
// When the path is mended, a second message says so. All programs are Debian's; only the
// rules' waiting times are shorter.
func TestAlerts(t *testing.T) {
	dir := racktest.Dir(t)
	spec := filepath.Join(dir, "brick.yaml")
	text := strings.Replace(must(t, "init", "nfs-ha"), "name: brick1", "name: alerts", 1)
	if err := os.WriteFile(spec, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	takeDown(t, dir, spec)
	must(t, "rack", "up", spec)
	must(t, "apply", spec, "--yes", "--skip-fence-test")
	exporter := program(t, "prometheus-node-exporter", "prometheus-node-exporter")
	for _, s := range []string{"nfs1", "nfs2"} {
		exportMetrics(t, spec, s, exporter)
	}
	got := alerting(t, dir, "mortar-alerts")

	must(t, "rack", "fault", spec, "path-out", "nfs1", "MA01", "1")
	fired := got.wait("firing", "MortarDiskPaths")
	for _, w := range []string{"nfs1", "MA01", "enclosure A bay 1", "alerts"} {
		if !strings.Contains(fired, w) {
			t.Errorf("the message lacks %q: %s", w, fired)
		}
	}
	out, code := mortar(t, "status", spec)
	if code != 1 || !strings.Contains(out, "nfs1") || !strings.Contains(out, "enclosure A bay 1") {
		t.Errorf("status: exit %d\n%s", code, out)
	}
	must(t, "rack", "fault", spec, "path-in", "nfs1", "MA01", "1")
	got.wait("resolved", "MortarDiskPaths")
	if names := got.firing(); len(names) > 0 {
		t.Errorf("still firing: %v", names)
	}
}

// exportMetrics runs node_exporter on a server, with the folder whose existence makes the
// server write metrics.
func exportMetrics(t *testing.T, spec, server, exporter string) {
	t.Helper()
	install(t, spec, server, exporter, "/usr/local/bin/node-exporter")
	must(t, "rack", "ssh", spec, server, "--", "mkdir -p /var/lib/prometheus/node-exporter && systemd-run --quiet --unit=node-exporter "+
		"/usr/local/bin/node-exporter --collector.textfile.directory=/var/lib/prometheus/node-exporter")
}

// program returns the path of a program of a Debian package.
func program(t *testing.T, name, pkg string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../scripts/debian-program.sh", name, pkg).Output()
	if err != nil {
		t.Fatalf("scripts/debian-program.sh %s %s: %v", name, pkg, err)
	}
	return strings.TrimSpace(string(out))
}

// install copies a program to a node of a rack.
func install(t *testing.T, spec, node, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.CommandContext(t.Context(), "../../bin/mortar", "rack", "ssh", spec, node, "--", "cat > "+to+" && chmod 755 "+to)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s to %s: %v\n%s", from, node, err, out)
	}
}

// messages records what Alertmanager sends.
type messages struct {
	t    *testing.T
	mu   sync.Mutex
	last map[string]message // by alert and its labels
}

type message struct {
	Status      string
	Labels      map[string]string
	Annotations map[string]string
}

// ServeHTTP receives Alertmanager's webhook.
func (m *messages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Alerts []message }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range body.Alerts {
		fmt.Printf("=== %s: %s %s: %s\n", m.t.Name(), a.Status, a.Labels["alertname"], a.Annotations["summary"])
		m.last[fmt.Sprint(a.Labels)] = a
	}
}

// wait returns the text of an alert once the alert is in a state.
func (m *messages) wait(status, name string) string {
	m.t.Helper()
	for end := time.Now().Add(8 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		m.mu.Lock()
		for _, a := range m.last {
			if a.Status == status && a.Labels["alertname"] == name {
				m.mu.Unlock()
				return a.Annotations["summary"]
			}
		}
		m.mu.Unlock()
	}
	m.t.Fatalf("no message that %s is %s", name, status)
	return ""
}

func (m *messages) firing() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.last {
		if a.Status == "firing" {
			names = append(names, a.Labels["alertname"]+": "+a.Annotations["summary"])
		}
	}
	return names
}

// waits matches the times for which a rule waits before it fires and resolves. The test
// shortens them, because servers write metrics every minute.
var waits = regexp.MustCompile(`(?m)^(\s+(?:keep_firing_for|for):).*$`)

// alerting runs Prometheus and Alertmanager on the loopback of the rack's network. It leaves
// out the alert of a brick whose fencing was never tested.
func alerting(t *testing.T, dir, space string) *messages {
	m := &messages{t: t, last: map[string]message{}}
	var l net.Listener
	if err := netns.Do(space, func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:9099")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	hook := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = hook.Serve(l) }()
	t.Cleanup(func() { _ = hook.Close() })

	rules, err := os.ReadFile("../../packaging/prometheus/mortar.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "alerting")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"rules.yml": waits.ReplaceAllString(string(rules), "$1 5s"),
		"prometheus.yml": `global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: [rules.yml]
alerting: {alertmanagers: [{static_configs: [{targets: ["127.0.0.1:9093"]}]}]}
scrape_configs:
  - job_name: node
    static_configs:
      - {targets: ["10.77.3.11:9100"], labels: {instance: nfs1}}
      - {targets: ["10.77.3.12:9100"], labels: {instance: nfs2}}
`,
		"alertmanager.yml": `route: {receiver: hook, group_by: ["..."], group_wait: 1s, group_interval: 5s, repeat_interval: 1h, routes: [{receiver: none, matchers: ["alertname=MortarFencingUnproven"]}]}
receivers: [{name: none}, {name: hook, webhook_configs: [{url: "http://127.0.0.1:9099/", send_resolved: true}]}]
`,
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The program needs a file of its package at a fixed path.
	manager := program(t, "prometheus-alertmanager", "prometheus-alertmanager")
	share := filepath.Join(filepath.Dir(filepath.Dir(manager)), "share")
	start(t, space, at, "/usr/bin/unshare", "--mount", "/bin/sh", "-ec", `mount -t overlay overlay -o "lowerdir=$1:/usr/share" /usr/share; shift; exec "$@"`, "sh", share,
		manager, "--config.file=alertmanager.yml", "--storage.path=am",
		"--web.listen-address=127.0.0.1:9093", "--cluster.listen-address=")
	start(t, space, at, program(t, "prometheus", "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", "--web.listen-address=127.0.0.1:9090")
	return m
}

// start runs a program in a network namespace until the test ends.
func start(t *testing.T, space, dir, path string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := netns.Do(space, cmd.Start); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // the test killed it
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(path), out.String())
		}
	})
}
