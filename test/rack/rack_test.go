//go:build rack

// Package rack_test runs the built binary on a virtual rack as a user would: init, check, rack
// up, plan, apply (killed on the way), apply again, status, drill, report, rack down. It needs
// root and QEMU. `make test-rack` runs it.
package rack_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/test/racktest"
)

// mortar runs the built binary and returns its stdout and exit code. Output also goes to the
// test's log as it comes, so that a CI run shows progress.
func mortar(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return mortarTo(t, nil, args...)
}

// mortarTo is mortar; also has a look at the output, and may end the command.
func mortarTo(t *testing.T, also func(cmd *exec.Cmd) io.Writer, args ...string) (string, int) {
	t.Helper()
	bin, err := filepath.Abs("../../bin/mortar")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	fmt.Printf("=== %s $ mortar %s\n", t.Name(), strings.Join(args, " "))
	cmd := exec.Command(bin, args...)
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, os.Stdout)
	if also != nil {
		cmd.Stdout = io.MultiWriter(&out, os.Stdout, also(cmd))
	}
	cmd.Stderr = os.Stdout
	// A command does not outlive its test. The kernel sends the signal when the thread that
	// started the command ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err = cmd.Run()
	code := cmd.ProcessState.ExitCode()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatalf("mortar %v: %v", args, err)
	}
	fmt.Printf("=== %s exit %d after %.1f s\n", t.Name(), code, time.Since(start).Seconds())
	return out.String(), code
}

// killed is the exit code of a command that a signal ended.
const killed = -1

// killer kills an apply --json when one more action begins than it lets end.
type killer struct {
	cmd  *exec.Cmd
	left int
}

func (k *killer) Write(b []byte) (int, error) {
	n := bytes.Count(b, []byte(`{"event":"action"`))
	if k.left >= 0 && k.left < n {
		_ = k.cmd.Process.Kill() // it may have ended
	}
	k.left -= n
	return len(b), nil
}

// killedApply runs an apply --json and kills it after so many actions. It returns the exit code.
func killedApply(t *testing.T, after int, apply ...string) int {
	t.Helper()
	_, code := mortarTo(t, func(cmd *exec.Cmd) io.Writer { return &killer{cmd: cmd, left: after} }, apply...)
	return code
}

// must runs the binary and fails the test unless it exits 0.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, code := mortar(t, args...)
	if code != 0 {
		t.Fatalf("mortar %v: exit %d", args, code)
	}
	return out
}

// lastJSON decodes the last line of a JSON-lines output.
func lastJSON(t *testing.T, out string, v any) {
	t.Helper()
	var last string
	sc := bufio.NewScanner(strings.NewReader(out))
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		if s := strings.TrimSpace(sc.Text()); s != "" {
			last = s
		}
	}
	if err := json.Unmarshal([]byte(last), v); err != nil {
		t.Fatalf("last line %.200q: %v", last, err)
	}
}

type applyResult struct {
	Changed *int `json:"changed"`
}

// unchanged reports whether an apply with --json changes nothing, and fails the test
// otherwise.
func unchanged(t *testing.T, apply ...string) bool {
	t.Helper()
	var r applyResult
	lastJSON(t, must(t, apply...), &r)
	if r.Changed == nil || *r.Changed != 0 {
		t.Errorf("mortar %s: want changed 0, got %v", strings.Join(apply, " "), r.Changed)
		return false
	}
	return true
}

// killEvery is the number of actions after which each apply is killed. 100 keeps CI short, and
// make test-all has 20; MORTAR_TEST_KILL_EVERY=1 kills after every action.
func killEvery(t *testing.T) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("MORTAR_TEST_KILL_EVERY"), "100"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBrick deploys an nfs-ha brick, with an apply that is killed on the way, replaces a disk,
// crashes the active server under load and compares every acknowledged byte.
func TestBrick(t *testing.T) {
	spec := deploy(t, rackBrick{example: "nfs-ha", edit: brickSpec(t, false), killed: true, saved: "test"})
	replaceDisk(t, spec)
	crash(t, spec)
	unchanged(t, "apply", spec, "--yes", "--json", "--skip-fence-test")
}

// TestBrickWithCache is TestBrick with a cache of two SSDs, and with a server that boots as
// Debian does: see fencedBoot.
func TestBrickWithCache(t *testing.T) {
	spec := deploy(t, rackBrick{example: "nfs-ha", edit: brickSpec(t, true), killed: true, boot: "distribution=nfs1"})
	if _, code := mortar(t, "rack", "save", spec, "test"); code != 2 {
		t.Errorf("a rack with NVMe drives was saved: exit %d", code)
	}
	replaceDisk(t, spec)
	fencedBoot(t, spec, func() { crash(t, spec) })
	unchanged(t, "apply", spec, "--yes", "--json", "--skip-fence-test")
}

// crash freezes the active server under load. Every acknowledged byte must be there, and the
// report be made.
func crash(t *testing.T, spec string) {
	run := filepath.Join(filepath.Dir(spec), "run")
	must(t, "drill", "run", spec, "server-crash", "--how", "freeze", "--seconds", "5", "--after", "3", "--out", run)
	b, err := os.ReadFile(filepath.Join(run, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Verdict       string
		Acknowledged  int64  `json:"acknowledged_bytes"`
		Verified      int64  `json:"verified_bytes"`
		Lost          *int64 `json:"lost_bytes"`
		SpecSHA256    string `json:"spec_sha256"`
		MortarVersion string `json:"mortar_version"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if s.Verdict != "pass" || s.Lost == nil || *s.Lost != 0 || s.Acknowledged == 0 || s.Verified == 0 || s.SpecSHA256 == "" || s.MortarVersion == "" {
		t.Errorf("summary: %s", b)
	}
	must(t, "report", run)
	if fi, err := os.Stat(filepath.Join(run, "report.html")); err != nil || fi.Size() < 10_000 {
		t.Errorf("report.html: %v", err)
	}
}

// takeDown takes the rack down when the test ends, and looks for what is left of it.
func takeDown(t *testing.T, dir, spec string) {
	t.Cleanup(func() {
		if out, code := mortar(t, "rack", "down", spec); code != 0 {
			t.Errorf("rack down: exit %d\n%s", code, out)
		}
		leftovers(t, dir)
	})
}

// brickSpec gives the example disks of 512 MB, because replaceDisk waits until one is copied;
// cached: and SSDs that both servers reach.
func brickSpec(t *testing.T, cached bool) func(text string) string {
	change := [][2]string{{"size: 2GB", "size: 512MB"}, {"suite: trixie", "suite: " + cmp.Or(os.Getenv("MORTAR_TEST_SUITE"), "trixie")}}
	if cached {
		change = append(change, [2]string{"filesystem:\n", "cache:\n  mode: write-back\n  ssds:\n    - {serial: \"NV[01-02]\", size: 1GB}\n\nfilesystem:\n"})
	}
	return func(text string) string {
		for _, r := range change {
			if !strings.Contains(text, r[0]) {
				t.Fatalf("the example has no %q", r[0])
			}
			text = strings.ReplaceAll(text, r[0], r[1])
		}
		return text
	}
}

// TestInUse changes a brick in use and looks at its hardware; each level of fencing of one
// server is used, and apply runs while the cluster is stopped.
func TestInUse(t *testing.T) {
	spec := deploy(t, rackBrick{example: "nfs-ha"})
	must(t, "fence-test", spec, "--node", "nfs2")
	if out := must(t, "status", spec, "--all"); strings.Count(out, " proven ") != 2 {
		t.Error("status does not show the two levels of nfs2 as proven")
	}
	hardware(t, spec)
	exportsInPlace(t, spec)
	applyWhileStopped(t, spec)
}

// hardware heats a server, and loads a PDU until it could not carry both feeds: status names
// both, and neither once they are mended.
func hardware(t *testing.T, spec string) {
	look := func(want bool) {
		t.Helper()
		var out string
		for range 10 { // the BMC reads its sensors every two seconds
			out, _ = mortar(t, "status", spec, "--hardware")
			if strings.Contains(out, "Inlet Temp of nfs1: 43 degrees C") == want && strings.Contains(out, "pdu-a carries 11.5 A of 16 A, and all PDUs 18.5 A") == want {
				return
			}
		}
		t.Errorf("status does not show the hardware, want findings: %v\n%s", want, out)
	}
	must(t, "rack", "fault", spec, "sensor", "nfs1", "inlet", "43")
	must(t, "rack", "fault", spec, "pdu-load", "pdu-a", "95")
	must(t, "rack", "fault", spec, "pdu-load", "pdu-b", "50")
	look(true)
	must(t, "rack", "fault", spec, "sensor", "nfs1", "inlet", "24")
	must(t, "rack", "fault", spec, "pdu-load", "pdu-a", "0")
	must(t, "rack", "fault", spec, "pdu-load", "pdu-b", "0")
	look(false)
}

// replaceDisk takes a disk out of service, swaps it in its bay, and puts the new one in its
// place. Before that, mortar disk replace refuses to replace a disk that works.
func replaceDisk(t *testing.T, spec string) {
	if _, code := mortar(t, "disk", "replace", spec, "MA01", "--with", "ZX01", "--yes"); code != 2 {
		t.Errorf("a disk that works was to be replaced: exit %d", code)
	}
	must(t, "disk", "fail", spec, "MA01", "--yes")
	must(t, "rack", "fault", spec, "disk-out", "MA01")
	must(t, "rack", "fault", spec, "disk-blank", "MA01", "ZX01")
	out := must(t, "disk", "replace", spec, "MA01", "--with", "ZX01", "--yes", "--json")
	var done struct {
		Disk  string
		Spare bool
	}
	if lastJSON(t, out, &done); done.Disk != "ZX01" || !done.Spare {
		t.Errorf("replaced: %+v", done)
	}
	if text, err := os.ReadFile(spec); err != nil || strings.Contains(string(text), "failed:") || !strings.Contains(string(text), `{serial: "ZX01"`) {
		t.Errorf("%v\n%s", err, text)
	}
	unchanged(t, "apply", spec, "--yes", "--json", "--skip-fence-test")
}

// applyWhileStopped stops the cluster on both servers and applies. The cluster starts its
// service by itself on one server, and apply touches no storage.
func applyWhileStopped(t *testing.T, spec string) {
	t.Helper()
	servers := []string{"nfs1", "nfs2"}
	for _, s := range servers {
		must(t, "rack", "ssh", spec, s, "--", "systemctl", "stop", "pacemaker", "corosync")
	}
	out := must(t, "apply", spec, "--yes", "--json", "--skip-fence-test")
	for line := range strings.Lines(out) {
		var e struct{ Event, Stage, Host, Action string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == "action" && (e.Stage == "storage" || e.Stage == "release storage") {
			t.Errorf("apply on a stopped cluster: %s: %s", e.Host, e.Action)
		}
	}
	mounted := 0
	for _, s := range servers {
		if strings.Contains(must(t, "rack", "ssh", spec, s, "--", "cat", "/proc/mounts"), " /srv/home xfs ") {
			mounted++
		}
	}
	if mounted != 1 {
		t.Errorf("after apply the volume is mounted on %d servers", mounted)
	}
}

// exportsInPlace adds an export to a brick in use, changes its options and removes it; the
// applies that add it are killed after four actions. The service does not move, a client
// that writes gets no error, and each change takes effect at once.
func exportsInPlace(t *testing.T, spec string) {
	src, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	const first = "        options: [rw, sync, no_subtree_check, no_root_squash]\n"
	const host = "    public: 10.77.1.51\n"
	if !bytes.Contains(src, []byte(first)) || !bytes.Contains(src, []byte(host)) {
		t.Fatal("the spec of mortar init is another one")
	}
	apply := func(options string) {
		text := string(src)
		if options != "" {
			text = strings.Replace(text, first, first+"      - {path: /extra, clients: 10.77.1.0/24, options: ["+options+"]}\n", 1)
			text = strings.Replace(text, host, host+"    mounts: [{service: home, path: /mnt/home}, {service: home, path: /mnt/home-v3, version: '3'}, {service: home, export: /extra, path: /mnt/extra}]\n", 1)
		}
		// In one step: the client's mortar reads the spec meanwhile.
		if err := renameio.WriteFile(spec, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"apply", spec, "--yes", "--json", "--skip-fence-test"}
		if options == "" {
			if _, code := mortar(t, args...); code != 2 {
				t.Errorf("an export that clients may use was to be removed: exit %d", code)
			}
			args = append(args, "--unexport", "/extra")
		}
		if !strings.HasPrefix(options, "rw") {
			must(t, args...)
			return
		}
		for code := killed; code == killed; {
			if code = killedApply(t, 4, args...); code != 0 && code != killed {
				t.Fatalf("apply: exit %d", code)
			}
		}
	}
	client := func(command string) (string, int) { return mortar(t, "rack", "ssh", spec, "c1", "--", command) }
	wrote := make(chan int, 1)
	go func() {
		_, code := mortar(t, "rack", "ssh", spec, "c1", "--", "while [ ! -e /tmp/enough ]; do for d in /mnt/home /mnt/home-v3; do "+
			"date >> $d/exports-in-place && sync $d/exports-in-place || exit 1; done; done")
		wrote <- code
	}()
	apply("rw, no_root_squash")
	if _, code := client("touch /mnt/extra/file"); code != 0 {
		t.Error("the new export cannot be written to")
	}
	apply("ro")
	if _, code := client("touch /mnt/extra/other"); code == 0 {
		t.Error("an export that was made read-only is written to")
	}
	apply("")
	if _, code := client("ls /mnt/extra"); code == 0 {
		t.Error("an export that was removed is read")
	}
	client("umount -f /mnt/extra; touch /tmp/enough")
	if code := <-wrote; code != 0 {
		t.Errorf("a client that wrote meanwhile ended with %d", code)
	}
	fails, code := mortar(t, "rack", "ssh", spec, "nfs1", "--", "crm_mon --one-shot --failcounts")
	if code != 0 || strings.Contains(fails, "service-home: ") {
		t.Errorf("a monitor found a fault:\n%s", fails)
	}
}

// TestDrills runs every drill that a brick can have, and writes list, runs and page to
// out/drills. MORTAR_DRILL_BRICK=cache: of a brick with a cache, array: of one on a RAID array.
// MORTAR_DRILL_ARGS adds flags to mortar drill all.
func TestDrills(t *testing.T) {
	b, out := rackBrick{example: "nfs-ha", fenceTest: true, saved: "drills"}, "drills"
	switch of := os.Getenv("MORTAR_DRILL_BRICK"); of {
	case "":
	case "cache": // a rack with NVMe drives is not saved
		b.edit, b.saved, out = brickSpec(t, true), "", "drills-cache"
	case "array":
		b.example, b.scale, out = "nss2-ha", "1/1000", "drills-luns"
	default:
		t.Fatalf("MORTAR_DRILL_BRICK=%s: use cache or array", of)
	}
	drills(t, b, out)
}

// TestArrayBrick deploys a brick on a RAID array of a thousandth of its size, and crashes the
// active server. CI uses the example with the fewest LUNs.
func TestArrayBrick(t *testing.T) {
	drills(t, rackBrick{example: "nss2-ha", scale: "1/1000", saved: "test"}, "drills-array", "--only", "server-crash-freeze", "--seconds", "4", "--after", "3")
}

// TestTwoServices drills servers, links and paths of a brick with two services under load,
// into out/drills-xl.
func TestTwoServices(t *testing.T) {
	drills(t, rackBrick{example: "nfs-ha-xl", fenceTest: true, saved: "drills"}, "drills-xl", "--only",
		"server-crash,heartbeat-link,both-rings-cables,public-link,private-switch,path-one,controller,paths-all,failover,failback,standby")
}

// rackBrick describes how an example is deployed on a rack.
type rackBrick struct {
	example, scale string // scale "": full size
	fenceTest      bool   // takes minutes more
	killed         bool   // apply is killed on the way
	boot           string // of mortar rack up; "": the fast way
	lustre         string // directory of Lustre's packages
	// saved is the name under which the rack with the brick on it is saved. A rack that
	// this build of mortar has saved is restored, else it is built and saved; the test begins
	// from the restored rack in both cases. "": it is always built.
	saved string
	// edit changes the example; it may be nil.
	edit func(text string) string
	// hardware is the spec that describes the rack, if it has more than the brick; "": the
	// brick's.
	hardware string
	empty    bool // mortar rack up --empty-arrays: up configures them
	// up runs once the rack is up, before the first apply; it may be nil.
	up func(spec string)
}

// deploy builds a brick on a rack, and checks that a second apply changes nothing.
func deploy(t *testing.T, b rackBrick) (spec string) {
	dir := racktest.Dir(t)
	spec = filepath.Join(dir, "brick.yaml")
	text := must(t, "init", b.example)
	if b.edit != nil {
		text = b.edit(text)
	}
	write := func(text string) {
		if err := os.WriteFile(spec, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(cmp.Or(b.hardware, text))
	takeDown(t, dir, spec)
	up, apply := []string{"rack", "up", spec}, []string{"apply", spec, "--yes", "--json"}
	if b.scale != "" {
		up = append(up, "--scale", b.scale)
	}
	if b.lustre != "" {
		up = append(up, "--lustre", b.lustre)
	}
	if b.empty {
		up = append(up, "--empty-arrays")
	}
	if b.boot != "" {
		up = append(up, "--boot", b.boot)
	}
	if !b.fenceTest {
		apply = append(apply, "--skip-fence-test")
	}
	restore := []string{"rack", "restore", spec, b.saved}
	if b.saved != "" {
		if _, code := mortar(t, append(restore, "--dry-run")...); code == 0 {
			must(t, restore...)
			unchanged(t, apply...)
			return spec
		}
	}
	must(t, up...)
	if b.up != nil {
		b.up(spec)
	}
	write(text)
	if b.killed {
		applyKilled(t, apply...)
	} else {
		must(t, apply...)
	}
	if b.saved != "" {
		must(t, "rack", "save", spec, b.saved)
		must(t, restore...)
	}
	unchanged(t, apply...)
	return spec
}

// applyKilled kills an apply on the way until it has no more to do than fits between two
// kills; the last one finishes the job.
func applyKilled(t *testing.T, apply ...string) {
	must(t, "plan", apply[1])
	kills := 0
	for code := killed; code != 0; {
		if code = killedApply(t, killEvery(t), apply...); code == killed {
			if kills++; kills > 400 {
				t.Fatal("apply makes no progress: killed 400 times")
			}
		} else if code != 0 {
			t.Fatalf("apply after %d kills: exit %d", kills, code)
		}
	}
	if kills == 0 {
		t.Error("apply was never killed: it prints no actions, or too few")
	}
}

// drills deploys a brick and drills it.
func drills(t *testing.T, b rackBrick, name string, args ...string) {
	drillAll(t, deploy(t, b), name, args...)
}

// drillAll drills a brick and writes the list to out/NAME. Each drill must pass.
func drillAll(t *testing.T, spec, name string, args ...string) {
	t.Helper()
	out, err := filepath.Abs("../../out/" + name)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"drill", "all", spec, "--out", out}, args...)
	_, code := mortar(t, append(args, strings.Fields(os.Getenv("MORTAR_DRILL_ARGS"))...)...)
	src, err := os.ReadFile(filepath.Join(out, "summary.json"))
	if err != nil {
		t.Fatalf("exit %d, %v", code, err)
	}
	var list []struct {
		Drill, How, Verdict string
		Reasons             []string
		Lost                int64 `json:"lost_bytes"`
	}
	if err := json.Unmarshal(src, &list); err != nil || len(list) == 0 {
		t.Fatalf("the list: %.200s %v", src, err)
	}
	for _, e := range list {
		if e.Verdict != "pass" || e.Lost != 0 {
			t.Errorf("%s (%s): %s, %d bytes lost: %s", e.Drill, e.How, e.Verdict, e.Lost, strings.Join(e.Reasons, "; "))
		}
	}
	if code != 0 && !t.Failed() {
		t.Errorf("exit %d", code)
	}
	if fi, err := os.Stat(filepath.Join(out, "report.html")); err != nil || fi.Size() < 10_000 {
		t.Errorf("report.html: %v", err)
	}
}

// leftovers fails the test if a process or mount of the rack in dir is still there.
func leftovers(t *testing.T, dir string) {
	t.Helper()
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err == nil && bytes.Contains(b, []byte(dir)) && !bytes.Contains(b, []byte("rack.test")) {
			t.Errorf("left behind: process %s", bytes.ReplaceAll(b, []byte{0}, []byte(" ")))
		}
	}
	b, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte(dir)) {
		t.Errorf("left behind: a mount under %s", dir)
	}
}
