package rack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// enclosurePrefix keeps the names of enclosures apart from those of nodes.
const enclosurePrefix = "enc-"

// LUN is what a RAID array shows to its servers: a disk to them.
type LUN struct {
	Name, Array string
	Servers     []string // that are cabled to the array
	Paths       int      // from each of them
	Product     string   // of the SCSI inquiry
	WWN         string   // empty: one is made of the name
	// In bytes. Chunk and FullStripe are what it tells of its geometry.
	Bytes, Chunk, FullStripe int64
}

// FromSpec gives the virtual hardware a spec asks for: the same servers,
// addresses, disks by serial and WWN, BMCs, PDUs and outlets as the real
// hardware it stands for. A RAID array is there as the LUNs it is to have,
// which follow from the design; its disks are not. It is pure.
func FromSpec(s *spec.Spec, luns ...LUN) (Config, error) {
	c := Config{Name: s.Name, Suite: s.Rack.Suite, Mirror: s.Rack.Mirror}
	mgmt := s.Networks.Management
	if mgmt == nil {
		mgmt = &s.Networks.Public
	}
	used, err := usedAddresses(s)
	if err != nil {
		return c, err
	}
	admin, err := freeAddress(mgmt.CIDR, used)
	if err != nil {
		return c, err
	}
	used[admin.Addr()] = true
	public := Network{Name: "public", MTU: s.Networks.Public.MTU}
	if mgmt.CIDR == s.Networks.Public.CIDR {
		public.Admin = admin
	}
	c.Networks = append(c.Networks, public)
	if p := s.Networks.Private; p != nil {
		c.Networks = append(c.Networks, Network{Name: "private", MTU: p.MTU})
	}
	if !public.Admin.IsValid() {
		c.Networks = append(c.Networks, Network{Name: "management", Admin: admin, MTU: mgmt.MTU})
	}

	if err := c.addLUNs(luns); err != nil {
		return c, err
	}
	for _, e := range s.Enclosures {
		if e.Array != "" {
			continue // the array has them
		}
		name := strings.ToLower(e.Name)
		enc := Enclosure{Name: enclosurePrefix + name}
		for _, set := range s.Sets() {
			if set.Name == e.Set() && len(set.Servers) < len(s.Servers) {
				enc.Servers = set.Servers
			}
		}
		bay := 0
		for _, l := range e.Disks {
			serials, err := l.Serials()
			if err != nil {
				return c, err
			}
			for _, serial := range serials {
				bay++
				d := Disk{
					Name: fmt.Sprintf("%s-%02d", name, bay), Serial: serial, WWN: strings.ToLower(l.WWN),
					Vendor: "MORTAR", Product: "VDISK", Bytes: int64(l.Size) / 512 * 512,
					SSD: l.Type == "ssd" || l.Type == "nvme",
				}
				if d.WWN == "" {
					d.WWN = wwnOf(serial)
				}
				if l.Type == "nvme" {
					c.SSDs = append(c.SSDs, d)
					continue
				}
				if !d.SSD {
					d.IOPS = int64(s.Rack.IOPS)
				}
				enc.Disks = append(enc.Disks, d)
			}
		}
		if len(enc.Disks) > 0 {
			c.Enclosures = append(c.Enclosures, enc)
		}
	}

	if s.Cache != nil {
		// Whatever their type: the rack's solid state disks are NVMe drives.
		for _, l := range s.Cache.SSDs {
			serials, err := l.Serials()
			if err != nil {
				return c, err
			}
			for _, serial := range serials {
				c.SSDs = append(c.SSDs, Disk{
					Name: fmt.Sprintf("ssd-%02d", len(c.SSDs)+1), Serial: serial, Bytes: int64(l.Size) / 512 * 512, SSD: true, Node: l.Server,
				})
			}
		}
	}

	base := filepath.Dir(s.File)
	secret := func(file string) (string, error) {
		if filepath.IsAbs(file) {
			return file, nil
		}
		return filepath.Abs(filepath.Join(base, file))
	}
	for _, p := range s.PDUs {
		addr, err := netip.ParseAddr(p.Address)
		if err != nil {
			return c, refuse("pdu %s: %v", p.Name, err)
		}
		pdu := PDU{Name: p.Name, Address: addr, Outlets: outletsOf(s, p.Name)}
		if n := p.SNMP; n != nil {
			pdu.SNMP = &SNMP{User: n.User, Auth: n.Auth, Privacy: n.Privacy}
			pdu.SNMP.AuthFile, err = secret(n.AuthFile)
			if err == nil {
				pdu.SNMP.PrivacyFile, err = secret(n.PrivacyFile)
			}
		} else {
			pdu.CommunityFile, err = secret(p.CommunityFile)
		}
		if err != nil {
			return c, err
		}
		c.PDUs = append(c.PDUs, pdu)
	}

	for _, v := range s.Servers {
		n := Node{Name: v.Name, Role: RoleServer, MemoryMiB: int(v.Memory >> 20)}
		if err := n.addNICs(s, mgmt, v.Public, v.Private, v.Address); err != nil {
			return c, err
		}
		if b := v.BMC; b != nil {
			addr, err := netip.ParseAddr(b.Address)
			if err != nil {
				return c, refuse("bmc of %s: %v", v.Name, err)
			}
			file, err := secret(b.PasswordFile)
			if err != nil {
				return c, err
			}
			n.BMC = &BMC{Address: addr, User: b.User, PasswordFile: file}
		}
		for _, o := range v.Outlets {
			n.Feeds = append(n.Feeds, Feed(o))
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, cl := range s.Clients {
		// The rack reaches its nodes on the management network, so a client that
		// has no place there in the spec gets one.
		if mgmt.CIDR != s.Networks.Public.CIDR && cl.Address == cl.Public {
			a, err := freeAddress(mgmt.CIDR, used)
			if err != nil {
				return c, err
			}
			used[a.Addr()] = true
			cl.Address = a.Addr().String()
		}
		n := Node{Name: cl.Name, Role: RoleClient, MemoryMiB: int(cl.Memory >> 20)}
		if err := n.addNICs(s, mgmt, cl.Public, "", cl.Address); err != nil {
			return c, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	c = c.WithDefaults()
	return c, c.Validate()
}

// addLUNs makes an enclosure of each array.
func (c *Config) addLUNs(luns []LUN) error {
	for _, l := range luns {
		name := enclosurePrefix + strings.ToLower(l.Array)
		if n := len(c.Enclosures); n == 0 || c.Enclosures[n-1].Name != name {
			c.Enclosures = append(c.Enclosures, Enclosure{Name: name, Servers: l.Servers, Paths: l.Paths})
		}
		d := Disk{
			Name: strings.ToLower(l.Name), WWN: strings.ToLower(l.WWN), Vendor: "MORTAR", Product: l.Product,
			Bytes: l.Bytes / 512 * 512, Chunk: l.Chunk, FullStripe: l.FullStripe,
		}
		if d.WWN == "" {
			d.WWN = wwnOf(c.Name + " " + l.Name)
		}
		if len(d.WWN) != 16 {
			return refuse("LUN %s: a virtual disk has a WWN of 16 digits, and arrays.wwns says %s: leave wwns out for the rack", l.Name, l.WWN)
		}
		d.Serial = d.WWN
		e := &c.Enclosures[len(c.Enclosures)-1]
		e.Disks = append(e.Disks, d)
	}
	return nil
}

// addNICs gives the node its interfaces: public, private if it has one, and
// management unless that is the public network.
func (n *Node) addNICs(s *spec.Spec, mgmt *spec.Network, public, private, address string) error {
	add := func(network, cidr, addr string) error {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return refuse("network %s: %v", network, err)
		}
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return refuse("%s address of %s: %v", network, n.Name, err)
		}
		n.NICs = append(n.NICs, NIC{Network: network, Address: netip.PrefixFrom(a, p.Bits())})
		return nil
	}
	if err := add("public", s.Networks.Public.CIDR, public); err != nil {
		return err
	}
	if private != "" && s.Networks.Private != nil {
		if err := add("private", s.Networks.Private.CIDR, private); err != nil {
			return err
		}
	}
	if mgmt.CIDR != s.Networks.Public.CIDR {
		return add("management", mgmt.CIDR, address)
	}
	return nil
}

// wwnOf makes an NAA 5 name of a serial number: the same for every host, as
// on a real disk whose WWN the spec leaves out.
func wwnOf(serial string) string {
	h := sha256.Sum256([]byte("mortar disk " + serial))
	return "5000c5" + hex.EncodeToString(h[:5])
}

// outletsOf is the number of outlets of a virtual PDU: 8, or as many as the
// spec's highest outlet number.
func outletsOf(s *spec.Spec, pdu string) int {
	n := 8
	for _, v := range s.Servers {
		for _, o := range v.Outlets {
			if o.PDU == pdu {
				n = max(n, o.Outlet)
			}
		}
	}
	return n
}

// usedAddresses lists every address the spec gives to something.
func usedAddresses(s *spec.Spec) (map[netip.Addr]bool, error) {
	used := map[netip.Addr]bool{}
	add := func(list ...string) error {
		for _, a := range list {
			if a == "" {
				continue
			}
			p, err := netip.ParseAddr(a)
			if err != nil {
				return refuse("address %s: %v", strconv.Quote(a), err)
			}
			used[p] = true
		}
		return nil
	}
	for _, v := range s.Servers {
		if err := add(v.Address, v.Public, v.Private); err != nil {
			return nil, err
		}
		if v.BMC != nil {
			if err := add(v.BMC.Address); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range s.PDUs {
		if err := add(p.Address); err != nil {
			return nil, err
		}
	}
	for _, v := range s.Services {
		if err := add(v.Address); err != nil {
			return nil, err
		}
	}
	for _, v := range s.Clients {
		if err := add(v.Address, v.Public); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// freeAddress is the first host address of a network that nothing uses: the
// administrator's own in the rack.
func freeAddress(cidr string, used map[netip.Addr]bool) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return netip.Prefix{}, refuse("management network: %v", err)
	}
	for a := p.Masked().Addr().Next(); p.Contains(a); a = a.Next() {
		if !used[a] {
			return netip.PrefixFrom(a, p.Bits()), nil
		}
	}
	return netip.Prefix{}, refuse("management network %s has no address left", cidr)
}
