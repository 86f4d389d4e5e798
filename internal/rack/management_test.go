package rack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/rack/array"
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
		if _, err := ask.Ask(t.Context()); err == nil || !strings.Contains(err.Error(), "Authentication Unsuccessful") {
			t.Errorf("%s: another password: %v", x.name, err)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/show/disks", nil))
		if w.Code != http.StatusForbidden {
			t.Errorf("without a session: %d %s", w.Code, w.Body)
		}
		s.Close()
	}
}
