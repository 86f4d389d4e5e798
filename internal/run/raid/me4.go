package raid

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// ME4 is the management of an ME4, with one address for each controller. Either
// controller answers for both.
//
// Source: Dell EMC PowerVault ME4 Series Storage System CLI Reference Guide,
// "Scripting guidelines" and "API basetype properties".
type ME4 struct {
	Addresses []string
	// Certificates are the accepted SHA-256 fingerprints of the controllers'
	// certificates, in hex. Without a match Ask sends no password.
	Certificates []string
	User         string
	Password     string
	Dial         Dial
}

// me4Time bounds one request. An ME4's management controller is slow: its guide lets
// scripts wait for many seconds.
const me4Time = 15 * time.Second

// me4Most is the maximum size of an answer in bytes: 336 disks have 2 kB each.
const me4Most = 8 << 20

// UnpinnedError is the error for a certificate that the spec does not list.
type UnpinnedError struct{ Fingerprint string }

func (e *UnpinnedError) Error() string {
	return "arrays.certificates of the spec does not list its certificate, with fingerprint " + e.Fingerprint + ": the password was not sent"
}

// Ask asks one controller after the other until one answers. It only connects to the
// others, to find a dead one.
func (m *ME4) Ask(ctx context.Context) (*Health, error) {
	var h *Health
	var errs []error
	type silent struct {
		address string
		err     error
	}
	var others []silent
	for _, address := range m.Addresses {
		c := m.client(address)
		var err error
		if h == nil {
			h, err = c.ask(ctx, m.User, m.Password)
		} else {
			err = c.reach(ctx)
		}
		c.http.CloseIdleConnections()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", address, err))
			others = append(others, silent{address, err})
		}
	}
	if h == nil {
		return nil, errors.Join(errs...)
	}
	for _, o := range others {
		h.add("controller", "management at "+o.address, health.Warning, "the management at %s does not answer: %v", o.address, o.err).Mend =
			"look at that controller and its management cable; the array's other controller answers"
	}
	return h, nil
}

// me4Client is a session with one controller.
type me4Client struct {
	http    *http.Client
	base    string
	address string
	key     string
}

func (m *ME4) client(address string) *me4Client {
	dial := m.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &me4Client{address: address, base: "https://" + address, http: &http.Client{Timeout: me4Time, Transport: &http.Transport{
		DialContext: dial,
		TLSClientConfig: &tls.Config{
			// The certificate is self-signed, so no authority vouches for it:
			// VerifyConnection compares its fingerprint with those of the spec.
			InsecureSkipVerify: true,
			VerifyConnection:   m.verify,
		},
	}}}
}

func (m *ME4) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("it shows no certificate")
	}
	got := fmt.Sprintf("%x", sha256.Sum256(s.PeerCertificates[0].Raw))
	for _, want := range m.Certificates {
		if Fingerprint(want) == got {
			return nil
		}
	}
	return &UnpinnedError{got}
}

// Fingerprint normalizes a fingerprint to lower-case hex digits without colons.
func Fingerprint(s string) string {
	return strings.TrimPrefix(strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), ":", "")), "sha256")
}

// reach checks that the controller answers HTTPS.
func (c *me4Client) reach(ctx context.Context) error {
	_, err := c.get(ctx, "/")
	var status statusError
	if errors.As(err, &status) {
		return nil // any status is an answer
	}
	return err
}

type statusError int

func (e statusError) Error() string { return fmt.Sprintf("HTTP status %d", int(e)) }

func (c *me4Client) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("dataType", "json")
	if c.key != "" {
		req.Header.Set("sessionKey", c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var unpinned *UnpinnedError
		if errors.As(err, &unpinned) {
			return nil, unpinned
		}
		// The error's text contains the URL, and that of a login contains the
		// password's hash.
		for errors.Unwrap(err) != nil {
			err = errors.Unwrap(err)
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, me4Most))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = statusError(resp.StatusCode)
	}
	return body, err
}

// ask logs in, asks and logs out.
func (c *me4Client) ask(ctx context.Context, user, password string) (*Health, error) {
	body, err := c.get(ctx, "/api/login/"+fmt.Sprintf("%x", sha256.Sum256([]byte(user+"_"+password))))
	if err != nil {
		return nil, err
	}
	var login me4Reply
	if _, err := health.JSON(string(body), &login); err != nil || len(login.Status) == 0 {
		return nil, fmt.Errorf("login: no answer of a management controller: %.80q", body)
	}
	if login.Status[0].Type != "Success" {
		return nil, fmt.Errorf("login of user %s: %s", user, cmp.Or(login.Status[0].Response, "refused"))
	}
	c.key = login.Status[0].Response
	defer func() { _, _ = c.get(context.WithoutCancel(ctx), "/api/exit") }() // without it the session ends after half an hour
	var all me4Reply
	raw := map[string]string{}
	for _, what := range []string{"controllers", "disk-groups", "disks"} {
		body, err := c.get(ctx, "/api/show/"+what)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", what, err)
		}
		raw["show "+what] = string(body)
		all.Status = nil
		unread, err := health.JSON(string(body), &all)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", what, err)
		}
		all.unread = append(all.unread, unread...)
		if len(all.Status) == 0 || all.Status[0].Code != 0 {
			return nil, fmt.Errorf("show %s: %s", what, all.said())
		}
	}
	h := all.health()
	h.Raw = raw
	h.How = "management controller " + c.address + ", user " + user + ", certificate as arrays.certificates has it"
	return h, nil
}

// me4Reply has the properties of the answers that this package uses.
type me4Reply struct {
	Status []struct {
		Type     string `json:"response-type"`
		Response string `json:"response"`
		Code     int    `json:"return-code"`
	} `json:"status"`
	Controllers []struct {
		ID     string `json:"controller-id"`
		Status string `json:"status"`
		State  *int   `json:"status-numeric"`
		Health string `json:"health"`
		Grade  *int   `json:"health-numeric"`
		Reason string `json:"health-reason"`
		Advice string `json:"health-recommendation"`
		Failed string `json:"failed-over"`
		Why    string `json:"fail-over-reason"`
		Policy string `json:"write-policy"`
	} `json:"controllers"`
	Groups []struct {
		Name     string `json:"name"`
		Level    string `json:"raidtype"`
		Disks    int    `json:"diskcount"`
		Status   string `json:"status"`
		Job      string `json:"current-job"`
		Progress string `json:"current-job-completion"`
		Health   string `json:"health"`
		Grade    *int   `json:"health-numeric"`
		Reason   string `json:"health-reason"`
		Advice   string `json:"health-recommendation"`
	} `json:"disk-groups"`
	Drives []struct {
		Place  string `json:"location"`
		Serial string `json:"serial-number"`
		Usage  string `json:"usage"`
		Health string `json:"health"`
		Grade  *int   `json:"health-numeric"`
		Reason string `json:"health-reason"`
		Advice string `json:"health-recommendation"`
	} `json:"drives"`
	unread health.Unread
}

func (r *me4Reply) said() string {
	if len(r.Status) == 0 {
		return "no status in the answer"
	}
	return r.Status[0].Response
}

// me4Health has an array's own words for health. N/A is for parts that are absent on
// purpose.
var me4Health = map[string]health.Level{"OK": health.OK, "N/A": health.OK, "": health.OK, "Degraded": health.Warning, "Fault": health.Fault}

// me4Grades are the numbers of me4Health, and me4States those of a controller's states. The words
// are in the language of the user who asks.
//
// Source: ME4 CLI Reference Guide, API basetype properties; hp_msa_fan of Checkmk's tests
var (
	me4Grades = map[int]health.Level{0: health.OK, 1: health.Warning, 2: health.Fault, 3: health.Unknown, 4: health.OK}
	me4States = map[int]string{0: "Operational", 1: "Down", 2: "Not Installed"}
)

// me4Grade is the level of a word for health, or of its number where the word is another language's.
func me4Grade(word string, number *int) health.Level {
	l, known := me4Health[word]
	if !known && number != nil {
		l, known = me4Grades[*number]
	}
	if !known {
		return health.Unknown
	}
	return l
}

// me4Usage has the uses of disks.
//
// Source: ME4 CLI Reference Guide, API basetype properties, drives
var me4Usage = map[string]health.Level{"LINEAR POOL": health.OK, "VIRTUAL POOL": health.OK, "GLOBAL SP": health.OK, "DEDICATED SP": health.OK,
	"AVAIL": health.OK, "UPDATING": health.Warning, "SPUN DOWN": health.OK, "VDISK": health.OK, "VDISK SP": health.OK, "": health.OK,
	"FAILED": health.Fault, "LEFTOVR": health.Fault, "UNUSABLE": health.Fault}

// me4Group has the states of disk groups with their meaning and level.
var me4Group = map[string]struct {
	text  string
	level health.Level
}{
	"FTOL": {"fault tolerant", health.OK},
	"FTDN": {"fault tolerant with a disk down", health.Warning},
	"CRIT": {"critical: degraded, a further failure may lose data", health.Fault},
	"DGRD": {"degraded", health.Fault},
	"OFFL": {"offline", health.Fault},
	"QTCR": {"quarantined, critical", health.Fault},
	"QTDN": {"quarantined with a disk down", health.Fault},
	"QTOF": {"quarantined, offline", health.Fault},
	"STOP": {"stopped", health.Fault},
	"UP":   {"up", health.OK},
}

func (r *me4Reply) health() *Health {
	h := &Health{Levels: map[string]int{}, Unread: r.unread}
	for _, c := range r.Controllers {
		level := me4Grade(c.Health, c.Grade)
		state := c.Status
		if c.State != nil && !slices.Contains(slices.Collect(maps.Values(me4States)), state) {
			state = cmp.Or(me4States[*c.State], state)
		}
		switch state {
		case "Operational":
		case "Down", "Not Installed":
			level = health.Fault
		default:
			level = max(level, health.Unknown)
		}
		i := h.add("controller", c.ID, level, "%s", reason("controller "+c.ID+" is "+strings.ToLower(cmp.Or(c.Status, "in no state")), c.Reason))
		i.Mend = c.Advice
		if c.Failed != "" && c.Failed != "No" {
			h.add("controller", c.ID, health.Warning, "%s", reason("controller "+c.ID+" has failed over", c.Why)).Mend = "look at why; the array gives LUNs back by itself once the controller is well"
		}
		switch c.Policy {
		case "":
		case "write-back":
			h.add("cache", c.ID, health.OK, "cache of controller %s: write-back", c.ID)
		default:
			h.add("cache", c.ID, health.Warning, "cache of controller %s: %s, and write-back is configured: writes are slow", c.ID, c.Policy).Mend = "look at the controller's capacitor pack and compact flash, and at its partner (`show controllers`)"
		}
	}
	for _, g := range r.Groups {
		s, known := me4Group[g.Status]
		if !known {
			s.text, s.level = "in state "+cmp.Or(g.Status, "(none)")+", which is not known here", health.Unknown
		}
		if l := me4Grade(g.Health, g.Grade); l != health.Warning { // degraded: the status says how far
			s.level = max(s.level, l)
		}
		h.Levels[g.Name] = levelOf(g.Level)
		i := h.add("group", g.Name, s.level, "%s", reason(fmt.Sprintf("disk group %s (%s, %d disks) is %s", g.Name, g.Level, g.Disks, s.text), g.Reason))
		i.Mend = g.Advice
		if g.Job == "RCON" {
			i.Percent = percentOf(g.Progress)
			i.Level = max(i.Level, health.Warning)
			i.Text += ", and rebuilds"
		}
	}
	spares, disks := 0, len(r.Drives)
	for _, k := range r.Drives {
		level := max(me4Grade(k.Health, k.Grade), health.Grade(me4Usage, k.Usage))
		if k.Usage == "GLOBAL SP" || k.Usage == "DEDICATED SP" {
			spares++
		}
		if level != health.OK {
			h.add("disk", k.Place, level, "%s", reason(fmt.Sprintf("disk %s in slot %s is %s (%s)", k.Serial, k.Place, strings.ToLower(k.Health), strings.ToLower(k.Usage)), k.Reason)).Mend = cmp.Or(k.Advice, "replace the disk")
		}
	}
	h.Spares, h.Disks = &spares, &disks
	return h
}
