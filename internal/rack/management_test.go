package rack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/rack/array"
	"github.com/mortarhpc/mortar/internal/rack/configure"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/run/raid"
)

// stateOf is the firmware's output for whole groups with their original disks; change
// replaces lines.
func stateOf(c *hw.Config, change ...string) string {
	var b strings.Builder
	a := c.Arrays()[0].Array
	for i, g := range a.Groups {
		fmt.Fprintf(&b, "group %d clean 0 idle none\nin %d", i, i)
		for _, m := range g.Members {
			fmt.Fprintf(&b, " %d", slices.IndexFunc(a.Disks, func(d hw.Disk) bool { return d.Name == m }))
		}
		b.WriteByte('\n')
	}
	return strings.NewReplacer(change...).Replace(b.String())
}

// The rack's management interface answers mortar status as an ME4 does: certificate,
// login, controllers, groups, disks and spares.
func TestManagement(t *testing.T) {
	c := arrayConfig(t)
	e := c.Arrays()[0]
	m := e.Array.Management
	if m == nil || m.User != "monitor" || len(m.Addresses) != 2 || !filepath.IsAbs(m.PasswordFile) {
		t.Fatalf("%+v", m)
	}
	r := &rack{cfg: &c, dir: t.TempDir()}
	prints, err := certificates(r, e)
	if err != nil || len(prints) != 2 || prints[0] == prints[1] {
		t.Fatalf("%v %v", prints, err)
	}
	if again, err := certificates(r, e); err != nil || !slices.Equal(again, prints) {
		t.Errorf("%v %v", again, err)
	}
	if st, err := os.Stat(managementCert(r.dir, e.Name, 0)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	cert, err := tls.LoadX509KeyPair(managementCert(r.dir, e.Name, 0), managementCert(r.dir, e.Name, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		h      hw.Hardware
		said   string
		want   []string // items that are not good
		spares int
	}{
		{"whole", hw.Hardware{}, stateOf(&c), nil, 4},
		{"a disk is out, a spare takes its place", hw.Hardware{DisksOut: map[string]bool{"e1-01": true}},
			stateOf(&c, "group 0 clean 0 idle none\nin 0 0 ", "group 0 clean 1 recover 300 / 1000\nin 0 80 "),
			[]string{"disk group nss7-r0 (RAID6, 10 disks) is fault tolerant with a disk down: The disk group is reconstructing, and rebuilds 30%"}, 3},
		{"two disks are out", hw.Hardware{}, stateOf(&c, "group 3 clean 0 idle", "group 3 clean 2 idle"),
			[]string{"disk group nss7-r3 (RAID6, 10 disks) is critical: degraded, a further failure may lose data: 2 disks are missing"}, 4},
		{"a controller is out", hw.Hardware{ModulesOut: map[string]bool{hw.ModuleKey(e.Name, 1): true}}, stateOf(&c),
			[]string{"controller A has failed over: The partner controller is down", "controller B is not installed: The controller is not installed"}, 4},
	} {
		api := &array.ManagementAPI{User: "monitor", Password: "pass", Ask: func(context.Context) (array.ME4Objects, error) { return array.ME4(e, &x.h, x.said), nil }}
		s := httptest.NewUnstartedServer(api)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		s.StartTLS()
		ask := &raid.ME4{Addresses: []string{s.Listener.Addr().String()}, Certificates: prints, User: "monitor", Password: "pass"}
		h, err := ask.Ask(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		var got []string
		for _, i := range h.Items {
			text := i.Text
			if i.Percent != nil {
				text += fmt.Sprintf(" %g%%", *i.Percent)
			}
			if i.Level != health.OK {
				got = append(got, text)
			}
		}
		if !slices.Equal(got, x.want) || *h.Spares != x.spares || h.Levels["nss7-r0"] != 6 {
			t.Errorf("%s: %q, want %q; %d spares", x.name, got, x.want, *h.Spares)
		}
		ask.Password = "other"
		if _, err := ask.Ask(t.Context()); err == nil {
			t.Errorf("%s: another password", x.name)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/show/disks", nil))
		if w.Code != http.StatusForbidden {
			t.Errorf("without a session: %d %s", w.Code, w.Body)
		}
		s.Close()
	}
}

// The program SMcli of a rack's servers asks an MD3 as Dell's does: the first controller that
// answers. mortar status reads the answers.
func TestSMcli(t *testing.T) {
	s := parsed(t, "nss2-ha")
	made, _, err := configure.Array(t.Context(), s, hw.Storage{Name: "nss2", Servers: []string{"nss1", "nss2"}, Paths: 2}, nss2Script(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := hw.FromSpec(s, made)
	if err != nil {
		t.Fatal(err)
	}
	e := c.Arrays()[0]
	if m := e.Array.Management; m == nil || !m.SMcli || len(m.Addresses) != 2 || slices.Contains(c.SecretFiles(), &m.PasswordFile) {
		t.Fatalf("%+v", m)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var h hw.Hardware
	said := stateOf(&c)
	var mu sync.Mutex // of both
	go func() {
		_ = array.ServeSMcli(l, func(command string) string {
			mu.Lock()
			defer mu.Unlock()
			return array.SMcli(e, &h, said, command)
		})
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	program := strings.ReplaceAll(array.SMcliProgram, fmt.Sprint(array.SMcliPort), port)
	ask := func(words ...string) (string, error) {
		out, err := exec.Command("bash", append([]string{"-c", program, "SMcli"}, words...)...).CombinedOutput()
		return string(out), err
	}
	for _, x := range []struct {
		h    hw.Hardware
		said string
		want []string // items
	}{
		{hw.Hardware{}, stateOf(&c), []string{"the array says that it is optimal"}},
		{hw.Hardware{}, stateOf(&c, "group 1 clean 0 idle none", "group 1 clean 1 recover 3 / 10"), []string{"the array mends itself"}},
		{hw.Hardware{DisksOut: map[string]bool{e.Array.Disks[0].Name: true}, ModulesOut: map[string]bool{hw.ModuleKey(e.Name, 1): true}}, stateOf(&c, "group 1 clean 0 idle none", "group 1 clean 1 idle none"),
			[]string{"the array reports: Offline RAID Controller Module (RAID controller module in slot 1)", "the array reports: Degraded Virtual Disk (Disk group nss2-r1)", "the array reports: Removed Physical Disk (Physical disk at enclosure.slot 0.0)"}},
	} {
		mu.Lock()
		h, said = x.h, x.said
		mu.Unlock()
		argv := raid.SMcli([]string{"127.0.0.2", "127.0.0.1"}) // nothing answers at the first
		out, err := ask(argv[1:]...)
		answer := raid.FromSMcli(out, "", "nss1")
		if err != nil || answer.Health == nil {
			t.Fatalf("%v %s %+v", err, out, answer)
		}
		var got []string
		for _, i := range answer.Health.Items {
			got = append(got, i.Text)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%q, want %q\n%s", got, x.want, out)
		}
	}
	if out, err := ask("127.0.0.2", "-c", "show storageArray healthStatus;"); err == nil {
		t.Error(out)
	}
	if out, _ := ask("127.0.0.1", "-c", "delete everything;"); !strings.Contains(out, "SMcli failed") {
		t.Error(out)
	}
}

// perccli on a rack's server tells what the scripts made of its cards, and mortar status
// reads it.
func TestPerccli(t *testing.T) {
	s := parsed(t, "nss5.5")
	var cards []string
	for _, name := range []string{"perc1", "perc2"} {
		b, err := os.ReadFile(filepath.Join("..", "brick", "array", "testdata", "nss5.5-perc2.txt"))
		if err != nil {
			t.Fatal(err)
		}
		script := string(b)
		if name == "perc1" {
			script = strings.NewReplacer("/c2", "/c1", "lun1", "lun0").Replace(script)
		}
		made, _, err := configure.Array(t.Context(), s, hw.Storage{Name: name, Servers: []string{"nss1"}, Paths: 1}, script)
		if err != nil {
			t.Fatal(err)
		}
		cards = append(cards, made.Card)
	}
	out, err := exec.Command("bash", append([]string{"-c", array.Perccli("/cALL show all J nolog", cards)}, raid.PERC("PERC-H810")[1]...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	h, err := raid.ParsePERC(string(out), 2)
	if err != nil || *h.Disks != 24 || *h.Spares != 0 || h.Levels["nss5-lun1"] != 60 || len(h.Unread) != 0 {
		t.Fatalf("%v %+v\n%s", err, h, out)
	}
	for _, i := range h.Items {
		if i.Level != health.OK {
			t.Errorf("%+v", i)
		}
	}
	if out, err := exec.Command("bash", "-c", array.Perccli("/cALL show all J", cards), "perccli2", "/c1", "delete").CombinedOutput(); err == nil {
		t.Errorf("%s", out)
	}
}

// nss2Script is the printed script of nss2-ha.
func nss2Script(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "brick", "array", "testdata", "nss2-ha-nss2.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
