package gather

import (
	"net"
	"os"
	"slices"
	"strconv"
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
	// Mbits is the speed of the link in Mbit/s; 0 if the driver does not know it, as
	// that of a virtual machine.
	Mbits int `json:"mbits,omitempty"`
	// Errors are frames that were damaged or lost on the wire since the host has
	// started.
	Errors int64 `json:"errors,omitempty"`
}

// Has reports whether an interface has an address.
func (l Link) Has(address string) bool { return hasAddress(l.Addresses, address) }

// hasAddress looks for an address without prefix length among some with.
func hasAddress(all []string, address string) bool {
	return slices.ContainsFunc(all, func(a string) bool { return strings.HasPrefix(a, address+"/") })
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
		l := Link{Name: i.Name, MTU: i.MTU, Mbits: int(max(0, netNumber(i.Name, "speed")))}
		for _, kind := range []string{"rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"} {
			l.Errors += max(0, netNumber(i.Name, "statistics/"+kind))
		}
		for _, a := range as {
			l.Addresses = append(l.Addresses, a.String())
		}
		out = append(out, l)
	}
	return out
}

// netNumber reads a number that the kernel shows of an interface, -1 if it shows none.
//
// Source: kernel, Documentation/ABI/testing/sysfs-class-net and -net-statistics
func netNumber(name, file string) int64 {
	b, err := os.ReadFile("/sys/class/net/" + name + "/" + file)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
