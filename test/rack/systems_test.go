//go:build rack

package rack_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/test/racktest"
)

// systemScale is the divisor of an example's disk sizes, where it is not a thousand.
var systemScale = map[string]string{
	// Their disks are small or few.
	"nfs": "1/1", "nfs-ha": "1/1", "nfs-ha-xl": "1/1",
	// md writes zeroes to a JBOD's disks and syncs them; LUNs of an array need neither.
	"jbod-ha": "1/4000", "nvme-ha": "1/20000", "lustre-small": "1/10000",
}

// built is one example's entry in out/systems/summary.json.
type built struct {
	System             string   `json:"system"`
	Built              bool     `json:"built"`
	ChangedSecondApply *int     `json:"changed_second_apply"`
	DrillVerdict       string   `json:"drill_verdict"` // pass, fail, refused; "" if the run did not reach the drill
	Longest            *float64 `json:"longest_stall_seconds"`
	Lost               *int64   `json:"lost_bytes"`
	Seconds            float64  `json:"seconds"`

	Scale   string    `json:"scale"` // of the disks
	Drill   string    `json:"drill"` // the drill and its variant
	Error   string    `json:"error"` // what ended the run early
	Started time.Time `json:"started"`
	Load    float64   `json:"load"` // this machine's load average over a minute before the run, which shows whether something else ran

	dir, spec string
	began     time.Time
}

// TestSystems builds every example in turn: rack up, apply, a second apply, a server's crash
// under load, rack down. A failed example records its error, and the next one follows. SYSTEMS
// chooses examples; the entries of others stay. LUSTRE is the directory of Lustre's packages.
func TestSystems(t *testing.T) {
	names, known := strings.Fields(os.Getenv("SYSTEMS")), exampleNames(t)
	if len(names) == 0 {
		names = known
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			t.Fatalf("SYSTEMS: there is no example %q; use %s", n, strings.Join(known, ", "))
		}
	}
	out, err := filepath.Abs("../../out/systems")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { buildSystem(t, out, name) })
	}
	fmt.Println("=== " + filepath.Join(out, "summary.json"))
}

func exampleNames(t *testing.T) []string {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return files
}

func buildSystem(t *testing.T, out, name string) {
	now := time.Now()
	b := &built{System: name, Scale: "1/1000", Started: now.UTC().Truncate(time.Second), dir: filepath.Join(out, name), began: now}
	if s := systemScale[name]; s != "" {
		b.Scale = s
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &b.Load) // proc_loadavg(5): its first field is a number
	}
	b.spec = filepath.Join(b.dir, "brick.yaml")
	t.Cleanup(func() { b.save(t, filepath.Join(out, "summary.json")) })
	text := b.mortar(t, "init", name)
	s, err := spec.Parse(b.spec, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	up := []string{"rack", "up", b.spec, "--scale", b.Scale}
	if s.Flavour == spec.Lustre {
		dir := os.Getenv("LUSTRE")
		if dir == "" {
			b.Error = "not built: give the directory of Lustre's Debian packages, make systems LUSTRE=DIR"
			return
		}
		up = append(up, "--lustre", dir)
	}
	// A killed run may have left its directory.
	if _, err := os.Stat(filepath.Join(b.dir, ".mortar")); err == nil {
		b.mortar(t, "rack", "down", b.spec)
	}
	if err := errors.Join(os.RemoveAll(b.dir), os.MkdirAll(b.dir, 0o755), os.WriteFile(b.spec, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	racktest.Cover(t, b.dir)
	t.Cleanup(func() {
		if t.Failed() {
			b.evidence(s)
		}
		if _, msg, code := b.run("rack", "down", b.spec); code != 0 {
			b.fail(t, "rack down: "+msg)
		}
		leftovers(t, b.dir)
	})
	b.mortar(t, up...)
	b.mortar(t, "apply", b.spec, "--yes", "--skip-fence-test")
	b.Built = true
	var r applyResult
	lastJSON(t, b.mortar(t, "apply", b.spec, "--yes", "--json", "--skip-fence-test"), &r)
	if b.ChangedSecondApply = r.Changed; r.Changed == nil || *r.Changed != 0 {
		b.fail(t, "the second apply changed something")
	}
	how := "freeze"
	if s.Flavour == spec.NFS {
		how = "power"
	}
	b.drill(t, how, loaded(s))
	if b.DrillVerdict != "pass" {
		t.Errorf("%s: %s", b.Drill, b.DrillVerdict)
	}
}

// loaded returns the first service that a client mounts, of a brick with several: a drill
// needs load. "" lets the drill choose.
func loaded(s *spec.Spec) string {
	if len(s.Services) < 2 {
		return ""
	}
	for _, c := range s.Clients {
		for _, m := range c.Mounts {
			return m.Service
		}
	}
	return ""
}

// drill crashes the active server under load. A server of a pair freezes, so that only fencing
// makes the takeover safe. Nothing fences a single server, and a frozen one would resume as if
// nothing had happened; so it loses its power, and clients wait until it has booted.
func (b *built) drill(t *testing.T, how, service string) {
	b.Drill = "server-crash --how " + how
	dir := filepath.Join(b.dir, "drill")
	args := []string{"drill", "run", b.spec, "server-crash", "--how", how, "--out", dir}
	if service != "" {
		args = append(args, "--service", service)
	}
	if b.System == "lustre-rack" {
		// Thirteen machines share two processors: the first run's client had reconnected
		// to the MDT after 5 min 19 s.
		args = append(args, "--within", "900")
	}
	_, msg, code := b.run(args...)
	if code == 2 {
		b.DrillVerdict = "refused"
		b.fail(t, msg)
		return
	}
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		b.fail(t, msg)
		return
	}
	var s struct {
		Verdict string
		Reasons []string
		Longest *float64 `json:"longest_stall_seconds"`
		Lost    *int64   `json:"lost_bytes"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	b.DrillVerdict, b.Longest, b.Lost = s.Verdict, s.Longest, s.Lost
	if len(s.Reasons) > 0 {
		b.fail(t, strings.Join(s.Reasons, "; "))
	}
	b.mortar(t, "report", dir)
}

// run runs mortar and logs its output. An error has the last lines of stderr.
func (b *built) run(args ...string) (stdout, message string, code int) {
	fmt.Printf("=== %s $ mortar %s\n", b.System, strings.Join(args, " "))
	start := time.Now()
	cmd := exec.Command("../../bin/mortar", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stdout), io.MultiWriter(&errs, os.Stdout)
	err := cmd.Run()
	if code = cmd.ProcessState.ExitCode(); err != nil && code == 0 {
		code = -1
	}
	fmt.Printf("=== %s exit %d after %.1f s\n", b.System, code, time.Since(start).Seconds())
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	return out.String(), strings.Join(lines[max(0, len(lines)-3):], " "), code
}

// mortar runs the binary and ends the example's run if it fails.
func (b *built) mortar(t *testing.T, args ...string) string {
	t.Helper()
	out, msg, code := b.run(args...)
	if code != 0 {
		b.fail(t, fmt.Sprintf("mortar %s: exit %s: %s", strings.Join(args, " "), strconv.Itoa(code), msg))
		t.FailNow()
	}
	return out
}

// evidence logs the servers' state before the rack goes down.
func (b *built) evidence(s *spec.Spec) {
	for _, v := range s.Servers {
		b.run("rack", "ssh", b.spec, v.Name, "--", "uptime; timeout 20 crm_mon -1rf; timeout 20 multipath -ll | head -20; journalctl -b -p notice -n 60 --no-pager")
	}
}

// fail also records the error in the entry.
func (b *built) fail(t *testing.T, text string) {
	t.Helper()
	t.Error(text)
	text = strings.ReplaceAll(text, b.dir+"/", "") // the list is published without this machine's paths
	if b.Error != "" {
		text = b.Error + "; " + text
	}
	b.Error = text
}

// save writes the entry into the list, in place of an earlier one.
func (b *built) save(t *testing.T, file string) {
	b.Seconds = float64(int(10*time.Since(b.began).Seconds())) / 10
	var list []json.RawMessage
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	name := func(m json.RawMessage) string {
		var e struct{ System string }
		_ = json.Unmarshal(m, &e) // an entry that cannot be parsed sorts first
		return e.System
	}
	list = slices.DeleteFunc(list, func(m json.RawMessage) bool { return name(m) == b.System })
	mine, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, mine)
	slices.SortFunc(list, func(x, y json.RawMessage) int { return strings.Compare(name(x), name(y)) })
	text, err := json.MarshalIndent(list, "", "  ")
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, append(text, '\n'), 0o644)); err != nil {
		t.Fatal(err)
	}
}
