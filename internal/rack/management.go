package rack

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/array"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

const managementPort = 443

// managementCert is the file with a controller's certificate and key.
func managementCert(dir, array string, controller int) string {
	return filepath.Join(dir, "nodes", array, fmt.Sprintf("management-%d.pem", controller))
}

// certificates makes missing certificates of an array's controllers, and returns the
// fingerprints of all (SHA-256, hex).
func certificates(r *rack, e *hw.Enclosure) ([]string, error) {
	var out []string
	if e.Array.Management == nil {
		return nil, nil
	}
	for c := range e.Array.Management.Addresses {
		file := managementCert(r.dir, e.Name, c)
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			if text, err = array.NewCertificate(e.Name); err == nil {
				err = tool.WriteNew(file, text)
			}
		}
		if err != nil {
			return nil, err
		}
		block, _ := pem.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("%s: no certificate; take the rack down and up again", file)
		}
		out = append(out, fmt.Sprintf("%x", sha256.Sum256(block.Bytes)))
	}
	return out, nil
}

// managementAddresses adds the addresses of an array's controllers, or removes them.
func managementAddresses(ctx context.Context, r *rack, e *hw.Enclosure, on bool) error {
	if e.Array.Management == nil {
		return nil
	}
	for _, a := range e.Array.Management.Addresses {
		if err := r.hostAddress(ctx, a, on); err != nil {
			return err
		}
	}
	return nil
}

// serveManagement serves one controller's interface until its listener fails.
func serveManagement(r *rack, e *hw.Enclosure, controller int, password string) error {
	m := e.Array.Management
	cert, err := tls.LoadX509KeyPair(managementCert(r.dir, e.Name, controller), managementCert(r.dir, e.Name, controller))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(m.Addresses[controller].String(), strconv.Itoa(managementPort)))
	if err != nil {
		return err
	}
	s := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // of clients that refuse the certificate
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}},
		Handler:           &array.ManagementAPI{User: m.User, Password: password, Ask: func(ctx context.Context) (array.ME4Objects, error) { return me4(ctx, r, e) }},
	}
	return s.ServeTLS(alive(l, r, e, controller), "", "")
}

// alive is the listener of a controller, which takes no connection while the controller is out.
func alive(l net.Listener, r *rack, e *hw.Enclosure, controller int) net.Listener {
	return array.AliveListener{Listener: l, Alive: func() bool {
		h, err := loadHardware(r.dir)
		return err == nil && !h.ModulesOut[hw.ModuleKey(e.Name, controller)]
	}}
}

// me4 returns the state of an array as objects of an ME4.
func me4(ctx context.Context, r *rack, e *hw.Enclosure) (array.ME4Objects, error) {
	e, h, said, err := arrayNow(ctx, r, e)
	if err != nil {
		return nil, err
	}
	return array.ME4(e, h, said), nil
}

// arrayNow returns an array as it is configured now, the hardware, and the output of the
// firmware's function state.
func arrayNow(ctx context.Context, r *rack, e *hw.Enclosure) (*hw.Enclosure, *hw.Hardware, string, error) {
	now, err := openRack(r.dir) // a script may have configured the array since
	if err != nil {
		return nil, nil, "", err
	}
	if e, err = now.cfg.Enclosure(e.Name); err != nil {
		return nil, nil, "", err
	}
	h, err := loadHardware(r.dir)
	if err != nil {
		return nil, nil, "", err
	}
	said, err := arrayCommand(ctx, r, e, "state")
	return e, h, said, err
}

// serveSMcli answers the program SMcli of the rack's servers, at one controller.
func serveSMcli(ctx context.Context, r *rack, e *hw.Enclosure, controller int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(e.Array.Management.Addresses[controller].String(), strconv.Itoa(array.SMcliPort)))
	if err != nil {
		return err
	}
	return array.ServeSMcli(alive(l, r, e, controller), func(command string) string {
		ctx, cancel := context.WithTimeout(ctx, hw.ArrayTime)
		defer cancel()
		e, h, said, err := arrayNow(ctx, r, e)
		if err != nil {
			return "The storage array does not answer: " + err.Error() + "\n"
		}
		return array.SMcli(e, h, said, command)
	})
}
