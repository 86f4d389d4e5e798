//go:build rack

package rack_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/test/racktest"
)

// arrayRack is a rack with one array and two servers cabled to it.
type arrayRack struct {
	t    *testing.T
	spec string
	wwn  string // of LUN 0
}

func (a *arrayRack) fault(words ...string) {
	a.t.Helper()
	must(a.t, append([]string{"rack", "fault", a.spec}, words...)...)
}

func (a *arrayRack) on(node, script string) (string, int) {
	a.t.Helper()
	return mortar(a.t, "rack", "ssh", a.spec, node, "--", script)
}

func (a *arrayRack) mustOn(node, script string) string {
	a.t.Helper()
	out, code := a.on(node, script)
	if code != 0 {
		a.t.Fatalf("%s: exit %d: %s\n%s", node, code, script, out)
	}
	return out
}

// until repeats a command until its output is as wanted: emulated servers are slow.
func (a *arrayRack) until(what string, ask func() string, want string) {
	a.t.Helper()
	got := ""
	for deadline := time.Now().Add(4 * time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Second) {
		if got = strings.TrimSpace(ask()); got == want {
			return
		}
	}
	a.t.Errorf("%s: %q, want %q", what, got, want)
}

type arrayStatus struct {
	Arrays []struct {
		Power          string
		ControllersOut []int    `json:"controllers_out"`
		DisksOut       []string `json:"disks_out"`
		Groups         []struct {
			Name, State string
			Missing     int
		}
		LUNs []struct {
			Name, WWN, Group string
			Owner, Preferred int
		}
	}
	Disks []struct {
		Name  string
		Bytes int64
	}
}

func (a *arrayRack) status() arrayStatus {
	a.t.Helper()
	var s arrayStatus
	if err := json.Unmarshal([]byte(must(a.t, "rack", "status", a.spec, "--json")), &s); err != nil {
		a.t.Fatal(err)
	}
	return s
}

// configured has the rack's array execute a script, which ends with a code.
func configured(t *testing.T, spec, array, script string, want int) {
	t.Helper()
	out, code := mortarTo(t, func(cmd *exec.Cmd) io.Writer { cmd.Stdin = strings.NewReader(script); return io.Discard }, "rack", "array", spec, array)
	if code != want {
		t.Errorf("rack array: exit %d, want %d\n%s", code, want, out)
	}
}

const (
	// lun0 sets $p to a server's paths to LUN 0 in order of target ports: sdX sdY …
	lun0 = `p=; for d in /sys/block/sd*; do [ "$(cat $d/device/wwid)" = naa.WWN ] && p="$p ${d##*/}"; done; `
	// try repeats what a path refuses once, after a login or a change of states.
	try = `try() { for i in 1 2 3 4 5; do "$@" > /tmp/try 2>&1 && return 0; sleep 1; done; cat /tmp/try; return 1; }; `
)

func (a *arrayRack) lun0(script string) string {
	return strings.ReplaceAll(lun0+try+script, "WWN", a.wwn)
}

// states lists the ALUA states of LUN 0's target port groups, as one path of a server reports
// them: 0 optimized, 1 non-optimized, 3 unavailable.
func (a *arrayRack) states(node string) string {
	out, _ := a.on(node, a.lun0(`set -- $p; sg_rtpg --decode /dev/$1 | awk '/access state/ { gsub(/0x0/, "", $8); printf "%s ", $8 }'`))
	return out
}

// paths counts a server's paths to the array's LUNs.
func (a *arrayRack) paths(node string) string {
	out, _ := a.on(node, `grep -l DellEMC /sys/block/sd*/device/vendor 2> /dev/null | wc -l`)
	return out
}

// TestArray tests the array of nss7.4-ha on a rack: LUNs, paths and states as designed,
// reservations from both servers, and each of its faults and their repair.
func TestArray(t *testing.T) {
	dir := racktest.Dir(t)
	a := &arrayRack{t: t, spec: filepath.Join(dir, "brick.yaml")}
	if err := os.WriteFile(a.spec, []byte(must(t, "init", "nss7.4-ha")), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, code := mortar(t, "rack", "down", a.spec); code != 0 {
			t.Errorf("rack down: exit %d\n%s", code, out)
		}
		leftovers(t, dir)
	})
	must(t, "rack", "up", a.spec, "--scale", "1/1000", "--empty-arrays")
	if out, code := mortar(t, "array", "verify", a.spec); code != 1 || !strings.Contains(out, "0 of 16 LUNs found") {
		t.Errorf("array verify of an empty array: exit %d\n%s", code, out)
	}
	script := must(t, "array", "script", a.spec, "nss7")
	configured(t, a.spec, "nss7", strings.Replace(script, "disks 0.0,", "disks 0.84,", 1), 2)
	configured(t, a.spec, "nss7", script, 0)
	configured(t, a.spec, "nss7", script, 2) // what it makes is there
	must(t, "array", "verify", a.spec)
	s := a.status()
	if len(s.Arrays) != 1 || len(s.Arrays[0].Groups) != 8 || len(s.Arrays[0].LUNs) != 8 {
		t.Fatalf("%+v", s)
	}
	a.wwn = s.Arrays[0].LUNs[0].WWN
	for i, l := range s.Arrays[0].LUNs {
		if l.Owner != i%2 {
			t.Errorf("controller %d owns %s", l.Owner, l.Name)
		}
	}

	for _, n := range []string{"nss1", "nss2"} {
		a.until(n+"'s paths", func() string { return a.paths(n) }, "32")
		want := fmt.Sprintf("DellEMC ME4 %d %d %d\n", s.Disks[0].Bytes/512, 128<<10, 8*128<<10)
		out := a.mustOn(n, a.lun0(`set -- $p; cd /sys/block/$1; echo $(cat device/vendor device/model size queue/minimum_io_size queue/optimal_io_size)`))
		if out != want {
			t.Errorf("%s: LUN 0 is %q, want %q", n, out, want)
		}
		if got := a.states(n); got != "0 1 " {
			t.Errorf("%s: states %q", n, got)
		}
	}
	a.multipath()
	a.reservations()
	a.controllers()
	a.diskOfGroup(s.Arrays[0].Groups[0].Name)
	a.slow()
	a.missingAfterBoot()
	a.power()
}

// multipath builds a map of LUN 0 with one priority group for each controller.
func (a *arrayRack) multipath() {
	a.t.Helper()
	a.mustOn("nss1", `printf 'defaults {\n user_friendly_names no\n find_multipaths greedy\n}\noverrides {\n no_path_retry 30\n}\n' > /etc/multipath.conf
		modprobe dm-multipath && systemctl start multipathd`)
	a.until("maps with two groups of two paths", func() string {
		out, _ := a.on("nss1", `multipath -ll 2> /dev/null | grep -c -e prio=50 -e prio=10; multipath -ll 2> /dev/null | grep -c 'active ready'`)
		return strings.Join(strings.Fields(out), " ")
	}, "16 32")
}

// write writes to LUN 0 through the first of a server's optimized paths, and returns the
// result.
func (a *arrayRack) write(node string) string {
	_, code := a.on(node, a.lun0(`for d in $p; do dd if=/dev/zero of=/dev/$d bs=4k count=1 seek=100 oflag=direct status=none || exit 1; done`))
	if code != 0 {
		return "refused"
	}
	return "written"
}

func (a *arrayRack) register(node, key string) {
	a.t.Helper()
	a.mustOn(node, a.lun0(`for d in $p; do try sg_persist --out --register-ignore --param-sark=`+key+` /dev/$d || exit 1; done`))
}

// reservations checks who may write: the holder writes over each of its paths, a server
// without a key does not, and a preempted server no longer does.
func (a *arrayRack) reservations() {
	a.t.Helper()
	expect := func(node, want string) {
		a.t.Helper()
		if got := a.write(node); got != want {
			a.t.Errorf("%s: %s, want %s", node, got, want)
		}
	}
	a.register("nss1", "0x11")
	a.mustOn("nss1", a.lun0(`set -- $p; try sg_persist --out --reserve --param-rk=0x11 --prout-type=7 /dev/$1`))
	if out := a.mustOn("nss2", a.lun0(`set -- $p; sg_persist --in --read-keys /dev/$1`)); strings.Count(out, "0x11") != 4 {
		a.t.Errorf("want a registration for each of four paths:\n%s", out)
	}
	expect("nss1", "written")
	expect("nss2", "refused")
	// After a session ends and comes back the array treats it as the same initiator, the
	// holder's too.
	a.fault("lun-out", "nss1", "nss7-lun0")
	a.fault("lun-in", "nss1", "nss7-lun0")
	a.until("nss1's paths", func() string { return a.paths("nss1") }, "32")
	expect("nss1", "written")
	a.register("nss2", "0x22")
	a.mustOn("nss2", a.lun0(`set -- $p; try sg_persist --out --preempt-abort --param-rk=0x22 --param-sark=0x11 --prout-type=7 /dev/$1`))
	expect("nss1", "refused")
	expect("nss2", "written")
	a.mustOn("nss2", a.lun0(`set -- $p; try sg_persist --out --clear --param-rk=0x22 /dev/$1`))
	expect("nss1", "written")
}

// controllers crashes and restores one controller, and has the other hand over its LUNs by
// command. I/O through the map goes on.
func (a *arrayRack) controllers() {
	a.t.Helper()
	writer := make(chan int, 1)
	go func() {
		_, code := a.on("nss1", `while [ ! -e /tmp/enough ]; do dd if=/dev/zero of=/dev/mapper/3`+a.wwn+` bs=64k count=16 oflag=direct status=none || exit 1; done`)
		writer <- code
	}()
	a.fault("module-out", "nss7", "0")
	for _, n := range []string{"nss1", "nss2"} {
		a.until(n+"'s paths", func() string { return a.paths(n) }, "16")
		a.until(n+"'s states", func() string { return a.states(n) }, "3 0")
	}
	if s := a.status().Arrays[0]; s.LUNs[0].Owner != 1 || fmt.Sprint(s.ControllersOut) != "[0]" {
		a.t.Errorf("%+v", s)
	}
	a.fault("module-in", "nss7", "0")
	a.until("nss1's paths", func() string { return a.paths("nss1") }, "32")
	a.until("nss1's states", func() string { return a.states("nss1") }, "0 1")
	a.fault("controller-failover", "nss7", "0")
	a.until("nss1's states", func() string { return a.states("nss1") }, "1 0")
	a.until("nss1's paths", func() string { return a.paths("nss1") }, "32")
	a.fault("controller-failback", "nss7", "0")
	a.until("nss1's states", func() string { return a.states("nss1") }, "0 1")
	if out := a.mustOn("nss1", `dmesg | grep -c 'Asymmetric access state changed' || true`); strings.TrimSpace(out) == "0" {
		a.t.Error("the kernel was not told of a change of states")
	}
	a.mustOn("nss1", "touch /tmp/enough")
	if code := <-writer; code != 0 {
		a.t.Errorf("who wrote meanwhile ended with %d", code)
	}
	a.mustOn("nss1", "systemctl stop multipathd.socket multipathd; multipath -F || true")
}

// diskOfGroup pulls a disk of a group: a spare replaces it and the LUN stays.
func (a *arrayRack) diskOfGroup(group string) {
	a.t.Helper()
	a.fault("disk-out", "E1N01")
	s := a.status().Arrays[0]
	if g := s.Groups[0]; g.Name != group || g.State != "rebuilding" || g.Missing != 1 || fmt.Sprint(s.DisksOut) != "[E1N01]" {
		a.t.Errorf("%+v", s)
	}
	if got := a.write("nss1"); got != "written" {
		a.t.Errorf("a LUN whose group lacks a disk: %s", got)
	}
	a.fault("disk-in", "E1N01")
	if s := a.status().Arrays[0]; len(s.DisksOut) != 0 || s.Groups[0].State != "rebuilding" {
		a.t.Errorf("%+v", s)
	}
}

// slow delays each answer of one LUN; the others answer at once.
func (a *arrayRack) slow() {
	a.t.Helper()
	took := func() float64 {
		out := a.mustOn("nss1", a.lun0(`set -- $p; read a b < /proc/uptime; dd if=/dev/$1 of=/dev/null bs=4k count=4 iflag=direct status=none; read c b < /proc/uptime; echo $a $c`))
		f := strings.Fields(out)
		from, _ := strconv.ParseFloat(f[0], 64)
		to, _ := strconv.ParseFloat(f[1], 64)
		return to - from
	}
	a.fault("lun-slow", "nss7-lun0", "1500")
	if s := took(); s < 6 {
		a.t.Errorf("four reads of a slow LUN took %.1f s, want 6 at least", s)
	}
	a.fault("lun-slow", "nss7-lun0", "0")
	if s := took(); s > 5 {
		a.t.Errorf("four reads of a LUN that is slow no more took %.1f s", s)
	}
}

// missingAfterBoot hides a LUN from a server that is powered off.
func (a *arrayRack) missingAfterBoot() {
	a.t.Helper()
	a.fault("kill", "nss2")
	a.fault("lun-out", "nss2", "nss7-lun3")
	a.fault("poweron", "nss2")
	a.until("paths of nss2 without a LUN", func() string { return a.paths("nss2") }, "28")
	a.fault("lun-in", "nss2", "nss7-lun3")
	a.until("nss2's paths", func() string { return a.paths("nss2") }, "32")
}

// power cuts the array's power and restores it: its data is intact, and its group goes on
// rebuilding.
func (a *arrayRack) power() {
	a.t.Helper()
	a.mustOn("nss1", a.lun0(`set -- $p; echo before | dd of=/dev/$1 bs=4k count=1 seek=200 conv=sync oflag=direct status=none`))
	a.fault("array-off", "nss7")
	for _, n := range []string{"nss1", "nss2"} {
		a.until(n+"'s paths", func() string { return a.paths(n) }, "0")
	}
	if s := a.status().Arrays[0]; s.Power != "off" || s.Groups[0].State != "unknown" {
		a.t.Errorf("%+v", s)
	}
	a.fault("array-on", "nss7")
	a.until("nss1's paths", func() string { return a.paths("nss1") }, "32")
	if out := a.mustOn("nss1", a.lun0(`set -- $p; dd if=/dev/$1 bs=4k count=1 skip=200 iflag=direct status=none | head -c 6`)); out != "before" {
		a.t.Errorf("what was written before: %q", out)
	}
	if s := a.status().Arrays[0]; s.Power != "on" || s.Groups[0].State != "rebuilding" || s.Groups[1].State != "optimal" {
		a.t.Errorf("%+v", s)
	}
}
