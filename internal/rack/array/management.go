package array

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// NewCertificate returns a self-signed certificate, as arrays have, with its key, in
// PEM.
func NewCertificate(name string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...), nil
}

// AliveListener accepts connections only while its controller is alive.
type AliveListener struct {
	net.Listener
	Alive func() bool
}

func (l AliveListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.Alive() {
			return conn, err
		}
		conn.Close()
	}
}

// ME4Objects are the API's lists of objects, by name.
type ME4Objects map[string][]map[string]any

// ManagementAPI is the API. A session's key is derived from the password, so both
// controllers accept it, even after a restart of this process.
type ManagementAPI struct {
	User, Password string
	Ask            func(context.Context) (ME4Objects, error)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (m *ManagementAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	key := hw.Hashed("session " + m.User + "_" + m.Password)[:32]
	reply := func(doc map[string]any, kind, text string, code int) {
		if doc == nil {
			doc = map[string]any{}
		}
		doc["status"] = []map[string]any{{"object-name": "status", "response-type": kind, "response": text, "return-code": code}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc) // fails only if the client has gone
	}
	what, show := strings.CutPrefix(req.URL.Path, "/api/show/")
	login, isLogin := strings.CutPrefix(req.URL.Path, "/api/login/")
	switch {
	case isLogin && same(login, hw.Hashed(m.User+"_"+m.Password)):
		reply(nil, "Success", key, 1)
	case isLogin:
		reply(nil, "Error", "Authentication Unsuccessful", 2)
	case !same(req.Header.Get("sessionKey"), key):
		w.WriteHeader(http.StatusForbidden)
	case show:
		list := map[string]string{"disks": "drives"}[what]
		if list == "" {
			list = what
		}
		all, err := m.Ask(req.Context())
		switch {
		case err != nil:
			reply(nil, "Error", err.Error(), -10001)
		case all[list] == nil:
			reply(nil, "Error", "The command was not recognized.", -10028)
		default:
			reply(map[string]any{list: all[list]}, "Success", "Command completed successfully.", 0)
		}
	default:
		reply(nil, "Success", "", 0)
	}
}

// ME4 makes the objects from the firmware's output. As on an ME4, a disk out of its
// slot is not listed.
func ME4(e *hw.Enclosure, h *hw.Hardware, said string) ME4Objects {
	out := ME4Objects{"controllers": {}, "disk-groups": {}, "drives": {}}
	for c, name := range []string{"A", "B"} {
		k := map[string]any{"object-name": "controllers", "controller-id": name, "status": "Operational", "health": "OK", "health-reason": "",
			"failed-over": "No", "fail-over-reason": "Not applicable", "write-policy": "write-back", "redundancy-status": "Redundant"}
		switch {
		case h.ModulesOut[hw.ModuleKey(e.Name, c)]:
			k["status"], k["health"], k["health-reason"] = "Not Installed", "Fault", "The controller is not installed."
			k["redundancy-status"] = "Down"
		case h.ModulesOut[hw.ModuleKey(e.Name, 1-c)]:
			k["failed-over"], k["fail-over-reason"], k["redundancy-status"] = "Yes", "The partner controller is down.", "Operational but not redundant"
		}
		out["controllers"] = append(out["controllers"], k)
	}
	group := map[string]string{} // by serial number of the disk
	for i, g := range Groups(e.Array, said) {
		for _, serial := range g.Members {
			group[serial] = g.Name
		}
		status, health := me4Status(&e.Array.Groups[i], g)
		k := map[string]any{"object-name": "disk-group", "name": g.Name, "raidtype": fmt.Sprintf("RAID%d", e.Array.Groups[i].Level),
			"diskcount": len(e.Array.Groups[i].Members), "chunksize": fmt.Sprintf("%dk", e.Array.Groups[i].Chunk>>10), "storage-type": "Linear",
			"status": status, "current-job": "", "current-job-completion": "", "health": health, "health-reason": ""}
		switch g.State {
		case "rebuilding":
			k["current-job"], k["current-job-completion"] = "RCON", fmt.Sprintf("%.0f%%", g.Percent)
			k["health-reason"] = "The disk group is reconstructing."
		case "degraded", "failed":
			k["health-reason"] = fmt.Sprintf("%d disks are missing.", g.Missing)
		}
		out["disk-groups"] = append(out["disk-groups"], k)
	}
	assigned := e.Array.Assigned()
	for i, d := range e.Array.Disks {
		usage := "AVAIL"
		switch {
		case h.DisksOut[d.Name]:
			continue
		case group[d.Serial] != "":
			usage = "LINEAR POOL"
		case slices.Contains(assigned, i):
			usage = "GLOBAL SP"
		}
		out["drives"] = append(out["drives"], map[string]any{"object-name": "drive", "location": slotName(e, i), "serial-number": d.Serial, "usage": usage,
			"disk-group": group[d.Serial], "status": "Up", "health": "OK", "health-reason": ""})
	}
	return out
}

// me4Status is a group's state and health as an ME4 reports it, by the redundancy left.
func me4Status(group *hw.RAIDGroup, g GroupStatus) (status, health string) {
	switch {
	case g.State == "failed":
		return "OFFL", "Fault"
	case g.State == "unknown":
		return "UNKN", "Unknown"
	case g.Missing == 0:
		return "FTOL", "OK"
	case group.Level == 6 && g.Missing == 1:
		return "FTDN", "Degraded"
	}
	return "CRIT", "Degraded"
}

// slotName is a disk's place: the number of its enclosure and of its slot there, both
// from 0.
func slotName(e *hw.Enclosure, i int) string {
	var shelves []string
	slot := 0
	for k := range e.Array.Disks[:i+1] {
		name := e.Array.Disks[k].Name
		shelf := name[:max(0, strings.LastIndexByte(name, '-'))]
		if !slices.Contains(shelves, shelf) {
			shelves, slot = append(shelves, shelf), -1
		}
		slot++
	}
	return fmt.Sprintf("%d.%d", len(shelves)-1, slot)
}
