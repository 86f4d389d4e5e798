package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

func TestInput(t *testing.T) {
	got, err := Input("status", map[string]string{"ip": "10.0.0.1", "community": "s3 cret=", "pcmk_host_map": "a:1", "port": "2"})
	if want := "community=s3 cret=\nip=10.0.0.1\nport=2\naction=status\n"; err != nil || string(got) != want {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []map[string]string{{"action": "off"}, {"option": "off"}, {"ip": "1\naction=off"}, {"a\naction": "off"}} {
		if got, err := Input("status", bad); err == nil {
			t.Errorf("%v is passed on: %q", bad, got)
		}
	}
}

const fenceCIB = `<cib><configuration><resources>
<primitive id="service-home" class="ocf" type="service"/>
<primitive id="fence-s1-bmc" class="stonith" type="fence_ipmilan"/>
<primitive id="fence-pdu-b" class="stonith" type="fence_apc_snmp"/>
<primitive id="fence-pdu-a" class="stonith" type="fence_apc_snmp"><instance_attributes id="x">
<nvpair id="a" name="community" value="hunter2"/><nvpair id="b" name="ip" value="10.77.3.31"/></instance_attributes></primitive>
</resources></configuration></cib>`

func TestParams(t *testing.T) {
	c, err := linux.ParseCIB([]byte(fenceCIB))
	if err != nil {
		t.Fatal(err)
	}
	name, params, err := Params(c, "fence-pdu-a")
	if diff := cmp.Diff(map[string]string{"community": "hunter2", "ip": "10.77.3.31"}, params); err != nil || name != "fence_apc_snmp" || diff != "" {
		t.Error(name, err, diff)
	}
	for _, id := range []string{"fence-pdu-c", "service-home"} {
		if _, _, err := Params(c, id); err == nil {
			t.Errorf("%s is a fence device", id)
		}
	}
	// The output of fence_apc_snmp 4.16 for a dead PDU.
	text := Said("2026-11-22 18:11:58,882 ERROR: Returned 1: Timeout: No Response from 10.77.3.39:161 (hunter2)\n\n\n2026-11-22 18:11:58,914 ERROR: Please use '-h' for usage\n", 1, params)
	if text != "Returned 1: Timeout: No Response from 10.77.3.39:161 (…)" {
		t.Errorf("%q", text)
	}
}

// answer is how an agent does one action: after so long, with an error or none.
type answer struct {
	after time.Duration
	err   error
}

// bench is a server's fence devices, by ID and action; without an answer a device is dead.
type bench struct {
	answers map[string]answer
	mu      sync.Mutex
	calls   []string // "1.0 fence-pdu-a off", and "… cut off" of one that was killed
	begun   time.Time
	powered map[string]string // the last confirmed action of each device
}

func (b *bench) agent(t *testing.T, levels string) *agent {
	b.begun, b.powered = time.Now(), map[string]string{}
	return &agent{server: "s1", levels: levels, readCIB: func(string) ([]byte, error) { return []byte(fenceCIB), nil }, run: t.TempDir(), hedge: hedge, log: t.Logf, use: b.use}
}

func (b *bench) use(ctx context.Context, d device, action string) (int, error) {
	a, ok := b.answers[d.id+" "+action]
	if !ok {
		a = answer{after: time.Hour}
	}
	id := d.id
	if p := d.params["port"]; p != "" {
		id += "=" + p
	}
	note := func(what string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.calls = append(b.calls, fmt.Sprintf("%.0f %s %s%s", time.Since(b.begun).Seconds(), id, action, what))
	}
	select {
	case <-time.After(a.after):
		if note(""); a.err == nil {
			b.mu.Lock()
			b.powered[d.id] = action
			b.mu.Unlock()
		}
		return 0, a.err
	case <-ctx.Done():
		note(" cut off")
		return 0, context.Cause(ctx)
	}
}

const testLevels = "fence-s1-bmc;fence-pdu-a=1,fence-pdu-b=2"

// Off is what an independent level has confirmed, of all its feeds, and nothing else.
func TestOff(t *testing.T) {
	bad := errors.New("refused")
	s := time.Second
	for _, tt := range []struct {
		name    string
		answers map[string]answer
		code    int
		calls   []string // sorted
		back    string   // the levels that bring the power back
	}{
		{"a healthy BMC", map[string]answer{"fence-s1-bmc off": {s, nil}}, 0, []string{"1 fence-s1-bmc off"}, "fence-s1-bmc"},
		{"a dead BMC", map[string]answer{"fence-pdu-a off": {s, nil}, "fence-pdu-b off": {2 * s, nil}}, 0,
			[]string{"3 fence-pdu-a=1 off", "4 fence-pdu-b=2 off", "4 fence-s1-bmc off cut off"}, testLevels},
		{"a BMC that refuses", map[string]answer{"fence-s1-bmc off": {s, bad}, "fence-pdu-a off": {s, nil}, "fence-pdu-b off": {s, nil}}, 0,
			[]string{"1 fence-s1-bmc off", "2 fence-pdu-a=1 off", "2 fence-pdu-b=2 off"}, testLevels},
		{"a late BMC, outlets half done", map[string]answer{"fence-s1-bmc off": {4 * s, nil}, "fence-pdu-a off": {s, nil}}, 0,
			[]string{"3 fence-pdu-a=1 off", "4 fence-pdu-b=2 off cut off", "4 fence-s1-bmc off"}, testLevels},
		{"one feed is not off", map[string]answer{"fence-pdu-a off": {s, nil}, "fence-pdu-b off": {s, bad}}, 1,
			[]string{"3 fence-pdu-a=1 off", "3 fence-pdu-b=2 off", "30 fence-s1-bmc off cut off"}, ""},
		{"one feed does not answer", map[string]answer{"fence-s1-bmc off": {s, bad}, "fence-pdu-a off": {s, nil}}, 1,
			[]string{"1 fence-s1-bmc off", "2 fence-pdu-a=1 off", "30 fence-pdu-b=2 off cut off"}, ""},
		{"all dead", nil, 1, []string{"30 fence-pdu-a=1 off cut off", "30 fence-pdu-b=2 off cut off", "30 fence-s1-bmc off cut off"}, ""},
	} {
		for _, action := range []string{"off", "reboot"} {
			t.Run(tt.name+", "+action, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &bench{answers: tt.answers}
					a := b.agent(t, testLevels)
					a.action = action
					back := ""
					a.background = func(_ *os.File, n *agent) error { back = n.levels; return nil }
					code, err := a.do(t.Context(), nil)
					if code != tt.code || (err != nil) != (code != 0) {
						t.Errorf("%d %v, want %d", code, err, tt.code)
					}
					slices.Sort(b.calls)
					if diff := cmp.Diff(tt.calls, b.calls); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					if want := map[string]string{"reboot": tt.back}[action]; back != want {
						t.Errorf("brings back %q, want %q", back, want)
					}
				})
			})
		}
	}
}

// Outlets come before the BMC, which needs their power, and a level that fails is tried
// again: a dead PDU keeps the BMC from nothing.
func TestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{answers: map[string]answer{"fence-pdu-a on": {time.Second, nil}, "fence-pdu-b on": {time.Second, errors.New("no answer")}, "fence-s1-bmc on": {time.Second, nil}}}
		a := b.agent(t, testLevels)
		a.action = back
		if code, err := a.do(t.Context(), nil); code != 1 || err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("%d %v", code, err)
		}
		if b.powered["fence-s1-bmc"] != "on" || b.powered["fence-pdu-a"] != "on" || len(b.calls) < 20 || b.calls[2] != "7 fence-s1-bmc on" {
			t.Errorf("%q", b.calls)
		}
	})
}

// Whatever switches the server on after an earlier fencing is ended before it is
// switched off again.
func TestTakeEndsEarlier(t *testing.T) {
	a := (&bench{}).agent(t, testLevels)
	f, err := os.Create(filepath.Join(a.run, "fence-s1.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := flock.Try(f); !ok || err != nil {
		t.Fatal(err)
	}
	earlier := exec.Command("sleep", "1000")
	earlier.ExtraFiles = []*os.File{f}
	if err := earlier.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(strconv.Itoa(earlier.Process.Pid) + "\n"); err != nil {
		t.Fatal(err)
	}
	f.Close() // the process still has the lock
	got, err := a.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	_ = earlier.Wait()
	if w, ok := earlier.ProcessState.Sys().(syscall.WaitStatus); !ok || w.Signal() != syscall.SIGTERM {
		t.Errorf("%v", earlier.ProcessState)
	}
	if fi, err := got.Stat(); err != nil || fi.Size() != 0 {
		t.Errorf("%v %v: the lock still names a process", fi, err)
	}
}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		args []string
		in   string
		want agent
	}{
		{nil, "nodename=s1\nserver=s1\nlevels=a;b=1,c=2\naction=off\n", agent{action: "off", server: "s1", levels: "a;b=1,c=2"}},
		{nil, "server=s1\n", agent{action: "reboot", server: "s1"}},
		{[]string{"-o", "metadata"}, "", agent{action: "metadata"}},
		{[]string{"--action=back", "--server=s1", "--levels=a"}, "", agent{action: "back", server: "s1", levels: "a"}},
	} {
		var got agent
		got.read(tt.args, strings.NewReader(tt.in))
		if got.action != tt.want.action || got.server != tt.want.server || got.levels != tt.want.levels {
			t.Errorf("%q %q: %+v", tt.args, tt.in, got)
		}
	}
}
