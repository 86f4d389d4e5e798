package observe

import (
	"net"
	"os"
	"strings"

	"github.com/mortarhpc/mortar/internal/netns"
)

// addresses lists the addresses of the host's interfaces that are up, and of
// those in namespaces of services.
func addresses() []string {
	out := interfaceAddresses()
	names, err := os.ReadDir(netns.Dir)
	if err != nil {
		return out // no namespace was ever made
	}
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), "mortar-") {
			continue
		}
		var in []string
		// One that ends meanwhile has none.
		if netns.Do(n.Name(), func() error { in = interfaceAddresses(); return nil }) == nil {
			out = append(out, in...)
		}
	}
	return out
}

func interfaceAddresses() []string {
	var out []string
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
		for _, a := range as {
			out = append(out, a.String())
		}
	}
	return out
}
