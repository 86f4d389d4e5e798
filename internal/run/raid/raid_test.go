package raid

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/test/field"
)

// said lists the items that are not good, one per line.
func said(h *Health) string {
	var b strings.Builder
	for _, i := range h.Items {
		if i.Level == health.OK {
			continue
		}
		fmt.Fprintf(&b, "%s %s %s", i.Level, i.Kind, i.Text)
		if i.Percent != nil {
			fmt.Fprintf(&b, " %g%%", *i.Percent)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// me4Server is a fake management controller: it answers with lists of objects, each
// with a status.
func me4Server(t *testing.T, user, password string, change func(show map[string][]map[string]any)) *httptest.Server {
	t.Helper()
	sum := sha256.Sum256([]byte(user + "_" + password))
	show := map[string][]map[string]any{}
	for _, id := range []string{"A", "B"} {
		show["controllers"] = append(show["controllers"], map[string]any{
			"controller-id": id, "status": "Operational", "status-numeric": 0, "health": "OK", "health-numeric": 0, "health-reason": "",
			"failed-over": "No", "fail-over-reason": "Not applicable", "write-policy": "write-back", "redundancy-status": "Redundant", "disks": 84,
		})
	}
	for _, n := range []string{"r0", "r1"} {
		show["disk-groups"] = append(show["disk-groups"], map[string]any{
			"name": n, "raidtype": "RAID6", "diskcount": 10, "sparecount": 0, "status": "FTOL", "status-numeric": 0, "chunksize": "128k",
			"owner": "A", "current-job": "", "current-job-completion": "", "health": "OK", "health-numeric": 0, "health-reason": "",
		})
	}
	for i := range 21 {
		usage := "LINEAR POOL"
		if i == 20 {
			usage = "GLOBAL SP"
		}
		show["drives"] = append(show["drives"], map[string]any{
			"location": fmt.Sprint("0.", i), "slot": i, "serial-number": fmt.Sprint("S", i), "usage": usage, "health": "OK", "health-numeric": 0, "health-reason": "",
		})
	}
	if change != nil {
		change(show)
	}
	status := func(kind, text string, code int) []map[string]any {
		return []map[string]any{{"object-name": "status", "response-type": kind, "response": text, "return-code": code}}
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		doc := map[string]any{}
		what, isShow := strings.CutPrefix(r.URL.Path, "/api/show/")
		switch {
		case r.Header.Get("dataType") != "json":
			t.Errorf("%s: wants XML", r.URL.Path)
		case r.URL.Path == "/api/login/"+hex.EncodeToString(sum[:]):
			doc["status"] = status("Success", "key-of-session", 1)
		case strings.HasPrefix(r.URL.Path, "/api/login/"):
			doc["status"] = status("Error", "Authentication Unsuccessful", 2)
		case r.Header.Get("sessionKey") != "key-of-session":
			w.WriteHeader(http.StatusForbidden)
			return
		case isShow:
			key := map[string]string{"disks": "drives"}[what]
			if key == "" {
				key = what
			}
			doc[key], doc["status"] = show[key], status("Success", "Command completed successfully.", 0)
		default:
			doc["status"] = status("Success", "", 0)
		}
		if err := json.NewEncoder(w).Encode(doc); err != nil {
			t.Error(err)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that refuse its certificate
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func fingerprint(s *httptest.Server) string {
	sum := sha256.Sum256(s.TLS.Certificates[0].Certificate[0])
	return hex.EncodeToString(sum[:])
}

func TestME4(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(map[string][]map[string]any)
		want   string
		spares int
	}{
		{"well", nil, "", 1},
		{"a group that rebuilds", func(s map[string][]map[string]any) {
			g := s["disk-groups"][1]
			g["status"], g["health"], g["health-reason"] = "FTDN", "Degraded", "The disk group is reconstructing."
			g["current-job"], g["current-job-completion"] = "RCON", "12%"
			s["drives"] = s["drives"][1:]
			s["drives"][19]["usage"] = "LINEAR POOL"
		}, "warning group disk group r1 (RAID6, 10 disks) is fault tolerant with a disk down: The disk group is reconstructing, and rebuilds 12%\n", 0},
		{"a group that has lost all redundancy", func(s map[string][]map[string]any) { s["disk-groups"][0]["status"] = "CRIT" },
			"fault group disk group r0 (RAID6, 10 disks) is critical: degraded, a further failure may lose data\n", 1},
		{"a disk that failed", func(s map[string][]map[string]any) {
			k := s["drives"][3]
			k["usage"], k["health"], k["health-reason"] = "FAILED", "Fault", "The disk failed."
		}, "fault disk disk S3 in slot 0.3 is fault (failed): The disk failed\n", 1},
		{"a controller that is down", func(s map[string][]map[string]any) {
			k := s["controllers"][1]
			k["status"], k["health"] = "Down", "Fault"
			s["controllers"][0]["write-policy"] = "write-through"
		}, "warning cache cache of controller A: write-through, and write-back is configured: writes are slow\nfault controller controller B is down\n", 1},
	} {
		s := me4Server(t, "look", "secret", c.change)
		m := &ME4{Addresses: []string{s.Listener.Addr().String()}, Certificates: []string{fingerprint(s)}, User: "look", Password: "secret"}
		h, err := m.Ask(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := said(h); got != c.want || *h.Spares != c.spares || h.Levels["r0"] != 6 {
			t.Errorf("%s:\n%s, want\n%s(%d spares, %v)", c.name, got, c.want, *h.Spares, h.Levels)
		}
	}
}

// A server whose certificate the spec does not list gets no password. Ask reports a
// silent second controller. No error contains the password.
func TestME4Refuses(t *testing.T) {
	s := me4Server(t, "look", "secret", nil)
	address := s.Listener.Addr().String()
	m := &ME4{Addresses: []string{address}, User: "look", Password: "secret"}
	_, err := m.Ask(t.Context())
	var unpinned *UnpinnedError
	if !errors.As(err, &unpinned) || unpinned.Fingerprint != fingerprint(s) {
		t.Errorf("%v", err)
	}
	colons := strings.TrimRight(strings.ToUpper(fingerprint(s)[:2])+":"+fingerprint(s)[2:], ":")
	m.Certificates = []string{colons}
	m.Addresses = []string{"127.0.0.1:1", address}
	h, err := m.Ask(t.Context())
	if err != nil || !strings.Contains(said(h), "127.0.0.1:1") {
		t.Errorf("%v %v", h, err)
	}
	m.Password = "guessed"
	if _, err = m.Ask(t.Context()); err == nil {
		t.Errorf("%v", err)
	}
	for _, no := range []string{"guessed", "login/"} {
		if strings.Contains(err.Error(), no) {
			t.Errorf("%q in %v", no, err)
		}
	}
	plain := httptest.NewTLSServer(http.NotFoundHandler())
	defer plain.Close()
	m.Addresses, m.Certificates = []string{plain.Listener.Addr().String()}, []string{fingerprint(plain)}
	var status statusError
	if _, err = m.Ask(t.Context()); !errors.As(err, &status) || status != http.StatusNotFound || strings.Contains(err.Error(), "login/") {
		t.Errorf("%v", err)
	}
	if plain.TLS.MinVersion > tls.VersionTLS12 {
		t.Error("the test serves no TLS 1.2, as an ME4 does")
	}
}

func TestAskME4(t *testing.T) {
	s := me4Server(t, "look", "secret", nil)
	a := &design.Array{Family: "me4", Name: "nss7"}
	full := spec.Array{Name: "nss7", Management: []string{"10.22.0.41"}, User: "look", PasswordFile: "f", Certificates: []string{fingerprint(s)}}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.Listener.Addr().String())
	}
	for name, c := range map[string]struct {
		change func(*spec.Array)
		secret error
		why    string // a value in the reason why it was not asked
	}{
		"all there":   {func(*spec.Array) {}, nil, ""},
		"no address":  {func(x *spec.Array) { x.Management = nil }, nil, ""},
		"no password": {func(x *spec.Array) { x.PasswordFile = "" }, nil, ""},
		"no file":     {func(*spec.Array) {}, errors.New("f: no such file"), "f: no such file"},
		"not pinned":  {func(x *spec.Array) { x.Certificates = nil }, nil, fingerprint(s)},
	} {
		x := full
		c.change(&x)
		got := Ask(t.Context(), a, &x, func(string) ([]byte, error) { return []byte("secret\n"), c.secret }, dial)
		if asked := name == "all there"; (got.Health != nil) != asked || (got.NotAsked == "") != asked || got.Err != "" || !strings.Contains(got.NotAsked, c.why) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestSMcli(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Storage array health status = optimal.\n", ""},
		{"Storage array health status = fixing.                    \nThe following failures have been found:\nFailed physical disk\nStorage array: nss4\nComponent reporting problem: Physical Disk in slot 1\n  Status: Failed\n\nDegraded Virtual Disk\nStorage array: nss4\n  Disk group: 1\n    RAID level: 6\n    Status: Degraded\n",
			"fault array the array reports: Failed physical disk (Physical Disk in slot 1)\nfault array the array reports: Degraded Virtual Disk (1)\nwarning array the array mends itself\n"},
		{"The following failures have been found:\r\nVolume - Hot Spare In Use\r\nStorage array: nss4\r\nVolume group: 4\r\n", "fault array the array reports: Volume - Hot Spare In Use (4)\n"},
		{"The following failures have been found:\nLost Redundancy\nComponent reporting problem:\n  Status: Failed\n", "fault array the array reports: Lost Redundancy\n"},
		{"Storage array health status = needs attention.\n", "fault array the array's health is needs attention\n"},
	} {
		h := ParseSMcli(c.text)
		if h == nil || said(h) != c.want {
			t.Errorf("%q: %+v, want %q", c.text, h, c.want)
		}
	}
	if h := ParseSMcli("SMcli failed: could not connect\n"); h != nil {
		t.Errorf("%+v", h)
	}
	if a := FromSMcli("", "The host could not be found", "nss1"); a.Health != nil || !strings.Contains(a.Err, "The host could not be found") {
		t.Errorf("%+v", a)
	}
}

// perc is an answer of perccli with the given values.
func perc(bbu, vd, cache, battery, disk string) string {
	return fmt.Sprintf(`{"Controllers":[
 {"Command Status":{"CLI Version":"007.1616","Controller":0,"Status":"Success","Description":"None"},"Response Data":{"Basics":{"Model":"PERC H730"}}},
 {"Command Status":{"Controller":1,"Status":"Success","Description":"None"},"Response Data":{
  "Basics":{"Controller":1,"Model":"PERC H810 Adapter"},"Status":{"Controller Status":"Optimal","Memory Correctable Errors":0,"BBU Status":%s},
  "VD LIST":[{"DG/VD":"0/0","TYPE":"RAID60","State":%q,"Access":"RW","Cache":%q,"Size":"54.5 TB","Name":"nss5-lun0"}],
  "PD LIST":[{"EID:Slt":"32:0","DID":0,"State":"Onln","DG":0},{"EID:Slt":"32:1","DID":1,"State":%q,"DG":0},{"EID:Slt":"32:2","DID":2,"State":"GHS","DG":"-"}],
  "BBU_Info":[{"Model":"BBU","State":%q,"RetentionTime":"0 hour(s)","Temp":"34C"}]}}]}`, bbu, vd, cache, disk, battery)
}

func TestPERC(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"well", perc("0", "Optl", "RWBD", "Optimal", "Onln"), ""},
		{"a learn cycle is due", perc("4096", "Optl", "RWBD", "Optimal", "Onln"), ""},
		{"write-through", perc("0", "Optl", "NRWTD", "Optimal", "Onln"), "warning cache virtual disk nss5-lun0: write-through (NRWTD), and the design has write-back: writes are slow\n"},
		{"always write-back", perc("0", "Optl", "RAWBD", "Optimal", "Onln"), "fault cache virtual disk nss5-lun0: write-back also without a battery (RAWBD): a loss of power loses data\n"},
		{"a dead battery", perc("64", "Optl", "RWBD", "Failed", "Onln"), "fault cache battery BBU of controller 1 is failed (34C)\nwarning cache virtual disk nss5-lun0: write-back is configured (RWBD), and the controller writes through as long as its battery is not well\n"},
		{"bits of the battery", perc("64", "Optl", "RWBD", "Optimal", "Onln"), "fault cache battery BBU of controller 1 is optimal (34C)\nwarning cache virtual disk nss5-lun0: write-back is configured (RWBD), and the controller writes through as long as its battery is not well\n"},
		{"a disk that failed", perc("0", "Pdgd", "RWBD", "Optimal", "Rbld"), "warning LUN virtual disk nss5-lun0 (RAID60) is partially degraded: a disk is missing\nwarning disk the disk in enclosure:slot 32:1 is being rebuilt\n"},
		{"no battery at all", strings.ReplaceAll(perc(`"NA"`, "Optl", "RWTD", "Optimal", "Onln"), "BBU_Info", "None"), "warning cache controller 1 has no battery and no CacheVault: writes wait for the disks\nwarning cache virtual disk nss5-lun0: write-through (RWTD), and the design has write-back: writes are slow\n"},
	} {
		h, err := ParsePERC(c.text, 1)
		if err != nil || said(h) != c.want || *h.Spares != 1 || h.Levels["nss5-lun0"] != 60 {
			t.Errorf("%s: %v\n%s, want\n%s%+v", c.name, err, said(h), c.want, h)
		}
	}
	for _, text := range []string{"", "{}", perc("0", "Optl", "RWBD", "Optimal", "Onln")} {
		if _, err := ParsePERC(text, 2); err == nil {
			t.Errorf("controller 2 in %.20q", text)
		}
	}
}

var update = flag.Bool("update", false, "rewrite testdata/field")

func TestField(t *testing.T) {
	field.Check(t, "perc", *update, func(text string) string {
		h, err := ParsePERC(text, 0)
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprintf("%d disks, %d spares\n%s%s", *h.Disks, *h.Spares, said(h), h.Unread)
	})
	field.Check(t, "me4", *update, func(text string) string {
		var r me4Reply
		unread, err := health.JSON(text, &r)
		if err != nil {
			return "error: " + err.Error()
		}
		r.unread = unread
		h := r.health()
		return fmt.Sprintf("%d disks, %d spares\n%s%s", *h.Disks, *h.Spares, said(h), h.Unread)
	})
	field.Check(t, "smcli", *update, func(text string) string {
		h := ParseSMcli(text)
		if h == nil {
			return "no answer"
		}
		return said(h) + h.Unread.String()
	})
}

// An ME4's words that are in no manual, and one odd record.
func TestME4Odd(t *testing.T) {
	s := me4Server(t, "look", "secret", func(show map[string][]map[string]any) {
		for _, parts := range show { // without the numbers beside the words
			for _, p := range parts {
				delete(p, "status-numeric")
				delete(p, "health-numeric")
			}
		}
		show["controllers"][0]["status"] = "Dreaming"
		show["controllers"][1]["health"] = "Glowing"
		show["disk-groups"][0]["status"] = "ODD"
		show["drives"][2]["usage"] = "LENT"
		show["drives"][3]["health"] = 7
		show["drives"][4]["serial-number"] = map[string]any{"x": 1}
	})
	m := &ME4{Addresses: []string{s.Listener.Addr().String()}, Certificates: []string{fingerprint(s)}, User: "look", Password: "secret"}
	h, err := m.Ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := `unknown controller controller A is dreaming
unknown controller controller B is operational
unknown group disk group r0 (RAID6, 10 disks) is in state ODD, which is not known here
unknown disk disk S2 in slot 0.2 is ok (lent)
unknown disk disk S3 in slot 0.3 is 7 (linear pool)
`
	if got := said(h); got != want || *h.Disks != 21 || len(h.Unread) != 1 || !strings.Contains(h.Raw["show controllers"], `"Dreaming"`) || len(h.Raw) != 3 {
		t.Errorf("%s%v", got, h)
	}
}

// A word that the tables lack is never good, costs nothing else, and text before the data
// changes nothing.
func FuzzAnswers(f *testing.F) {
	f.Add(perc("0", "Optl", "RWBD", "Optimal", "Onln"), "Warped")
	f.Add("Storage array health status = optimal.\n", "")
	for _, name := range []string{"perc", "smcli", "me4"} {
		for _, c := range field.Cases(f, name) {
			f.Add(c.Input, "Dgrd")
		}
	}
	f.Fuzz(func(t *testing.T, text, word string) {
		if h := ParseSMcli(text); h != nil && len(h.Items)+len(h.Unread) == 0 {
			t.Errorf("%q is without a finding", text)
		}
		h, err := ParsePERC(text, 0)
		if again, errAgain := ParsePERC(field.Banner+text, 0); (errAgain == nil) != (err == nil) || err == nil && !reflect.DeepEqual(h, again) {
			t.Errorf("under a banner %+v, %v; else %+v, %v", again, errAgain, h, err)
		}
		var r, again me4Reply
		if _, err := health.JSON(text, &r); err == nil {
			h := r.health()
			if _, err := health.JSON(field.Banner+text, &again); err != nil || !reflect.DeepEqual(h, again.health()) {
				t.Errorf("under a banner %+v, %v; else %+v", again, err, h)
			}
			if len(h.Items) < len(r.Controllers)+len(r.Groups) || *h.Disks != len(r.Drives) {
				t.Errorf("%+v lacks parts of %+v", h, r)
			}
		}
		odd := me4Reply{}
		_, err = health.JSON(`{"drives":[{"location":"0.1","health":`+strconv.Quote(word)+`,"usage":"VIRTUAL POOL"}]}`, &odd)
		if _, known := me4Health[word]; err == nil && !known && len(odd.Drives) > 0 && odd.Drives[0].Health == word && len(odd.health().Items) == 0 {
			t.Errorf("a disk whose health is %q is good", word)
		}
		for _, c := range []percController{
			{Physical: []percDisk{{Place: "1:1", State: word}}}, {Physical: []percDisk{{Place: "1:1", State: "Onln", Group: word}}},
		} {
			_, known := percDisks[word]
			bad := slices.ContainsFunc(c.health(0).Items, func(i Item) bool { return i.Kind == "disk" && i.Level > health.OK })
			if !bad && !known && !group.MatchString(word) {
				t.Errorf("%q is good: %+v", word, c)
			}
		}
	})
}
