//go:build rack

package rack_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/test/racktest"
)

// yearsLoad is a script that writes files of 256 KiB with fsync. It records the checksum and
// the time of each acknowledged file.
const yearsLoad = `i=0; while [ ! -e /root/stop ]; do i=$((i+1)); dd if=/dev/urandom of=/root/f bs=64k count=4 2> /dev/null; s=$(sha256sum < /root/f | cut -d" " -f1)
dd if=/root/f of=/mnt/home/years-$i bs=64k conv=fsync 2> /dev/null && echo "$s  /mnt/home/years-$i" >> /root/sums
date +%s.%N >> /root/log; done; touch /root/stopped`

// yearStep is one task of administrators in the years of a brick.
type yearStep struct {
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	// Stall is the longest time between two writes of the load during the step, in seconds.
	Stall float64 `json:"longest_stall_seconds"`
}

// years is a rack with the brick under test.
type years struct {
	t     *testing.T
	spec  string
	steps []yearStep
}

func (y *years) on(node, command string) string {
	y.t.Helper()
	return must(y.t, "rack", "ssh", y.spec, node, "--", command)
}

func (y *years) fault(words ...string) {
	y.t.Helper()
	must(y.t, append([]string{"rack", "fault", y.spec}, words...)...)
}

// step runs a task and measures the load's longest stall meanwhile.
func (y *years) step(name string, do func()) {
	y.t.Helper()
	start, from := time.Now(), strings.TrimSpace(y.on("c1", "date +%s.%N"))
	do()
	s := yearStep{Step: name, Seconds: time.Since(start).Seconds()}
	out := y.on("c1", fmt.Sprintf(`sleep 1; touch /root/log; awk -v from=%s '$1>from{d=$1-(p?p:from); if(d>m)m=d; p=$1} END{print m+0}' /root/log`, from))
	var err error
	if s.Stall, err = strconv.ParseFloat(strings.TrimSpace(out), 64); err != nil {
		y.t.Errorf("%s: %v", name, err)
	}
	fmt.Printf("=== %s: %s: %.1f s, longest stall %.1f s\n", y.t.Name(), name, s.Seconds, s.Stall)
	y.steps = append(y.steps, s)
}

// until waits until a command succeeds on a node.
func (y *years) until(node, command string) {
	y.t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(3 * time.Second) {
		if _, code := mortar(y.t, "rack", "ssh", y.spec, node, "--", command); code == 0 {
			return
		}
	}
	y.t.Fatalf("%s: %s", node, command)
}

// healthy waits until status reports no fault.
func (y *years) healthy() {
	y.t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Second) {
		if _, code := mortar(y.t, "status", y.spec); code == 0 {
			return
		}
	}
	y.t.Fatal("the brick is not healthy after five minutes")
}

// TestYears runs the years of a brick in one go, while a client writes: two unknown servers
// become a brick, Prometheus is attached, a disk is replaced, the volume grows, both servers
// are upgraded, one is replaced. It then reads every acknowledged file back.
func TestYears(t *testing.T) {
	dir := racktest.Dir(t)
	y := &years{t: t, spec: filepath.Join(dir, "brick.yaml")}
	small := strings.Replace(must(t, "init", "nfs-ha"), "name: brick1", "name: years", 1)
	// The rack has more disks than the brick begins with.
	const a, b = `"MA[01-03]", size: 2GB, type: nl-sas}`, `"MB[01-03]", size: 2GB, type: nl-sas}`
	large := strings.NewReplacer(a, a+"\n      - {serial: \"MA[04-05]\", size: 2GB, growth: 1}", b, b+"\n      - {serial: \"MB[04-05]\", size: 2GB, growth: 1}").Replace(small)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("large.yaml", large)
	write("brick.yaml", small)
	t.Cleanup(func() {
		if out, code := mortar(t, "rack", "down", y.spec); code != 0 {
			t.Errorf("rack down: exit %d\n%s", code, out)
		}
		leftovers(t, dir)
	})
	must(t, "rack", "up", filepath.Join(dir, "large.yaml"))
	y.step("discover", func() {
		write("found.yaml", must(t, "discover", "nfs1", "nfs2", "--clients", "c1", "--inventory", filepath.Join(dir, ".mortar/years/rack/inventory.json")))
		must(t, "check", filepath.Join(dir, "found.yaml"))
	})
	y.step("apply", func() { must(t, "apply", y.spec, "--yes", "--skip-fence-test") })
	y.on("c1", "cat > /root/load << 'X'\n"+yearsLoad+"\nX\nsetsid sh /root/load > /dev/null 2>&1 < /dev/null & sleep 3")
	exporter := program(t, "prometheus-node-exporter", "prometheus-node-exporter")
	var got *messages
	y.step("attach Prometheus", func() {
		for _, s := range []string{"nfs1", "nfs2"} {
			exportMetrics(t, y.spec, s, exporter)
		}
		got = alerting(t, dir, "mortar-years")
	})
	y.healthy()
	y.step("failover", func() { must(t, "failover", y.spec) })
	y.healthy()
	y.step("replace a disk", func() {
		must(t, "disk", "fail", y.spec, "MA01", "--yes")
		y.fault("disk-out", "MA01")
		y.fault("disk-blank", "MA01", "ZX01")
		must(t, "disk", "replace", y.spec, "MA01", "--with", "ZX01", "--yes")
	})
	y.step("grow", func() { must(t, "grow", y.spec, "--disks", "A=MA[04-05]", "--disks", "B=MB[04-05]", "--yes") })
	y.healthy()
	y.step("upgrade", func() { must(t, "upgrade", y.spec, "--yes", "--reboot-only", "--skip-fence-test") })
	y.healthy()
	y.step("an alert fires and resolves", func() {
		for _, s := range []string{"nfs1", "nfs2"} { // both have booted since
			exportMetrics(t, y.spec, s, exporter)
		}
		y.fault("path-out", "nfs2", "MB02", "1")
		got.wait("firing", "MortarDiskPaths")
		y.fault("path-in", "nfs2", "MB02", "1")
		got.wait("resolved", "MortarDiskPaths")
	})
	y.step("replace a server", func() {
		must(t, "standby", y.spec, "nfs1")
		y.on("nfs1", "systemctl stop pacemaker corosync")
		y.fault("poweroff", "nfs1")
		y.fault("server-new", "nfs1")
		y.fault("paths-out", "nfs1")
		y.fault("poweron", "nfs1")
		y.until("nfs1", "true")
		if out := must(t, "server", "replace", y.spec, "nfs1", "--yes", "--json"); !strings.Contains(out, `"prepared":"nfs1"`) {
			t.Error("the first run of server replace does not say that nfs1 is prepared")
		}
		y.fault("paths-in", "nfs1")
		y.until("nfs1", "lsblk -dno SERIAL | grep -q MB05")
		must(t, "server", "replace", y.spec, "nfs1", "--yes", "--skip-fence-test")
		must(t, "unstandby", y.spec, "nfs1")
	})
	y.healthy()
	y.step("failback", func() { must(t, "failback", y.spec, "home") })
	y.healthy()
	unchanged(t, "apply", y.spec, "--yes", "--json", "--skip-fence-test")
	y.readBack()
}

// readBack ends the load, reads every file it has written, and writes the summary.
func (y *years) readBack() {
	t := y.t
	y.on("c1", "touch /root/stop; until [ -e /root/stopped ]; do sleep 1; done; echo 3 > /proc/sys/vm/drop_caches")
	counts := strings.Fields(y.on("c1", "wc -l < /root/sums; sha256sum --quiet -c /root/sums 2> /dev/null | wc -l"))
	files, err := strconv.ParseInt(counts[0], 10, 64)
	lost, err2 := strconv.ParseInt(counts[1], 10, 64)
	if err != nil || err2 != nil || files == 0 || lost != 0 {
		t.Errorf("%v of %v files are not as they were written (%v, %v)", counts[1], counts[0], err, err2)
	}
	const size = 256 << 10
	text, err := json.MarshalIndent(map[string]any{
		"date": time.Now().UTC().Format(time.RFC3339), "mortar_version": strings.TrimSpace(must(t, "version")), "steps": y.steps,
		"files": files, "acknowledged_bytes": files * size, "lost_bytes": lost * size,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("../../out/years", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("../../out/years/summary.json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
