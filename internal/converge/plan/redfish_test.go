package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/fence"
	"github.com/mortarhpc/mortar/test/example"
)

// redfish is a service for one computer, as the agent uses it.
//
// Source: DMTF DSP0266, and fence_redfish of fence-agents 4.12
type redfish struct {
	mu       sync.Mutex
	password string
	power    string // On or Off
	stuck    bool   // it accepts a reset, and does nothing
	resets   []string
}

func (r *redfish) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const system = "/redfish/v1/Systems/1"
	at := strings.TrimSuffix(q.URL.Path, "/")
	if _, p, _ := q.BasicAuth(); p != r.password && at != "/redfish/v1" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	link := func(to string) map[string]string { return map[string]string{"@odata.id": to} }
	switch q.Method + " " + at {
	case "GET /redfish/v1":
		reply(map[string]any{"Systems": link("/redfish/v1/Systems")})
	case "GET /redfish/v1/Systems":
		reply(map[string]any{"Members": []any{link(system)}})
	case "GET " + system:
		reply(map[string]any{"PowerState": r.power, "Actions": map[string]any{"#ComputerSystem.Reset": map[string]string{"target": system + "/Actions/ComputerSystem.Reset"}}})
	case "POST " + system + "/Actions/ComputerSystem.Reset":
		var body struct{ ResetType string }
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.resets = append(r.resets, body.ResetType)
		if !r.stuck {
			r.power = map[string]string{"ForceOff": "Off", "On": "On"}[body.ResetType]
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// The distribution's fence_redfish switches a computer with what a plan makes of the spec:
// parameters from the cluster's configuration, and the password by its script. Its own
// metadata decide which options it may have.
func TestRedfish(t *testing.T) {
	bmc := &redfish{password: "secret of redfish-nfs1", power: "On"}
	s := httptest.NewUnstartedServer(bmc)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in := strings.NewReplacer(secretsDir, dir)
	id, params := "fence-nfs1-redfish", map[string]string{}
	for _, st := range redfishSteps(t, fmt.Sprintf("ip: %s, ipport: %s, username: mortar, ssl_insecure: '1'", host, port)) {
		switch r := st.Resource.(type) {
		case *resource.CIB:
			c, err := linux.ParseCIB([]byte("<cib>" + r.Configuration + "</cib>"))
			if err != nil {
				t.Fatal(err)
			}
			if _, params, err = fence.Params(c, id); err != nil {
				t.Fatal(err)
			}
		case *resource.TextFile:
			if st.Host == "nfs2" && strings.Contains(r.Path, id) {
				if err := os.WriteFile(in.Replace(r.Path), []byte(in.Replace(string(r.Content))), os.FileMode(max(r.Mode, 0o600))); err != nil {
					t.Fatal(err)
				}
			}
		case *resource.FenceAgent:
			if r.Agent == "fence_redfish" {
				if as, err := resource.Observe(t.Context(), agent.HostSys{}, r.Diff); err != nil || len(as) > 0 {
					t.Errorf("%v, %v", as, err)
				}
			}
		}
	}
	for name, v := range params {
		params[name] = in.Replace(v)
	}
	for _, c := range []struct {
		action        string
		code          int
		power, resets string
	}{
		{"status", 0, "On", ""}, {"monitor", 0, "On", ""}, {"off", 0, "Off", "ForceOff"}, {"status", 2, "Off", ""}, {"on", 0, "On", "On"}, {"reboot", 0, "On", "ForceOff On"},
		{"stuck off", 1, "On", "ForceOff"}, {"refused off", 1, "On", ""},
	} {
		how, action, special := strings.Cut(c.action, " ")
		if !special {
			action = how
		}
		bmc.mu.Lock()
		bmc.resets, bmc.stuck = nil, how == "stuck"
		if how == "refused" {
			bmc.password = "another"
		}
		bmc.mu.Unlock()
		params["power_timeout"] = "2"
		cmd, err := fence.Command("fence_redfish", action, params)
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.Run(t.Context())
		if resets := strings.Join(bmc.resets, " "); err != nil || out.Code != c.code || bmc.power != c.power || resets != c.resets {
			t.Errorf("%s: code %d, power %s, resets %q, %v: %s", c.action, out.Code, bmc.power, resets, err, out.Stderr)
		}
		if strings.Contains(out.Stderr, "secret of") {
			t.Errorf("%s: %s", c.action, out.Stderr)
		}
	}
	for _, st := range redfishSteps(t, "ip: 10.77.3.21, system: '1'") {
		if r, is := st.Resource.(*resource.FenceAgent); is && r.Agent == "fence_redfish" {
			if _, err := resource.Observe(t.Context(), agent.HostSys{}, r.Diff); err == nil || !strings.Contains(err.Error(), `fence_redfish has no option "system"; use one of those: action, `) {
				t.Errorf("an option that the agent lacks: %v", err)
			}
		}
	}
}

// redfishSteps is the plan of a pair whose first server has a Redfish service in place of IPMI.
func redfishSteps(t *testing.T, options string) []Step {
	t.Helper()
	text, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bmc := regexp.MustCompile(`(?m)^    bmc:.*\n(      .*\n)+`).FindString(string(text))
	d := example.Design(t, "nfs-ha.yaml", bmc, "    fencing:\n      - {agent: fence_redfish, options: {"+options+"}, secrets: {password: secrets/redfish-nfs1}}\n")
	steps, err := Desired(d, Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}
