package observe

import (
	"net"
	"os"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/netns"
)

// addresses lists the addresses of the interfaces that are up, of the host and of
// the services' namespaces.
func addresses() []string {
	out := interfaceAddresses()
	names, err := os.ReadDir(netns.Dir)
	if err != nil {
		return out // no namespace exists
	}
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), "mortar-") {
			continue
		}
		var in []string
		// A namespace that vanishes meanwhile has no addresses.
		if netns.Do(n.Name(), func() error { in = interfaceAddresses(); return nil }) == nil {
			out = append(out, in...)
		}
	}
	return out
}

// Link is a network interface that is up.
type Link struct {
	Name      string   `json:"name"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses"` // with prefix length
}

func interfaceAddresses() []string {
	var out []string
	for _, l := range links() {
		out = append(out, l.Addresses...)
	}
	return out
}

// links returns the interfaces of this thread's network namespace that are up,
// except lo.
func links() []Link {
	var out []Link
	ifs, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range ifs {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		as, err := i.Addrs()
		if err != nil {
			continue
		}
		l := Link{Name: i.Name, MTU: i.MTU}
		for _, a := range as {
			l.Addresses = append(l.Addresses, a.String())
		}
		out = append(out, l)
	}
	return out
}
