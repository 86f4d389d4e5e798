package gather

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/lists"
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
	// With NICs: the driver, the firmware of the card, and whether the interface sends and heeds
	// pause frames (on, off, rx, tx). "": the driver does not tell.
	Driver   string `json:"driver,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Pause    string `json:"pause,omitempty"`
}

// Has reports whether an interface has an address.
func (l Link) Has(address string) bool { return hasAddress(l.Addresses, address) }

// hasAddress looks for an address without prefix length among some with.
func hasAddress(all []string, address string) bool {
	return slices.ContainsFunc(all, func(a string) bool { return strings.HasPrefix(a, address+"/") })
}

func interfaceAddresses() []string {
	return lists.Flat(links(), func(l Link) []string { return l.Addresses })
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

// hostLinks are the links of the host, with what their drivers say if that is asked for.
func hostLinks(drivers bool) []Link {
	all := links()
	for i := 0; drivers && i < len(all); i++ {
		all[i].askDriver()
	}
	return all
}

// askDriver asks the driver of an interface. Source: kernel, include/uapi/linux/ethtool.h
func (l *Link) askDriver() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if v, err := unix.IoctlGetEthtoolDrvinfo(fd, l.Name); err == nil {
		l.Driver, l.Firmware = unix.ByteSliceToString(v.Driver[:]), unix.ByteSliceToString(v.Fw_version[:])
	}
	pause := struct{ cmd, autoneg, rx, tx uint32 }{cmd: unix.ETHTOOL_GPAUSEPARAM}
	ask := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [unix.IFNAMSIZ]byte // the kernel's union is longer than a pointer
	}{data: unsafe.Pointer(&pause)}
	copy(ask.name[:unix.IFNAMSIZ-1], l.Name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ask))); errno == 0 {
		l.Pause = map[[2]bool]string{{true, true}: "on", {false, false}: "off", {true, false}: "rx", {false, true}: "tx"}[[2]bool{pause.rx != 0, pause.tx != 0}]
	}
}
