package hw

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// Memory in MiB of nodes for which the spec has none.
const (
	serverMiB = 1280
	clientMiB = 768
)

// namesRefused refuses host names as addresses.
func namesRefused(s *spec.Spec) error {
	refused := &tool.RefusedError{}
	check := func(at, address string) {
		if _, err := netip.ParseAddr(address); err != nil {
			line, col := s.Pos(at + ".address")
			refused.Problems = append(refused.Problems, fmt.Sprintf("%s:%d:%d: a virtual rack needs an IP address, not the host name %s", s.File, line, col, address))
		}
	}
	for i, v := range s.Servers {
		check(fmt.Sprintf("servers[%d]", i), v.Address)
	}
	for i, v := range s.Clients {
		check(fmt.Sprintf("clients[%d]", i), v.Address)
	}
	if len(refused.Problems) > 0 {
		return refused
	}
	return nil
}

// enclosurePrefix keeps the names of enclosures apart from those of nodes.
const enclosurePrefix = "enc-"

// Storage is a RAID array: its cables, and what has been configured on its disks, which
// the spec lists. Package configure makes groups, spares and LUNs of the array's scripts.
type Storage struct {
	Name    string
	Family  string   // of its model: see spec.ArrayModel
	Servers []string // servers cabled to the array
	Paths   int      // paths from each server
	Groups  []StorageGroup
	Spares  []string // serial numbers
	LUNs    []StorageLUN
	// Scripts are what configured the array, in order.
	Scripts []string
	// Card is what a RAID card's tool prints of it, as JSON.
	Card string
}

// StorageGroup is a RAID group, its disks by serial number in RAID order.
type StorageGroup struct {
	Name    string
	Level   int
	Chunk   int64 // bytes
	Bytes   int64 // for LUNs; 0: what the LUNs have
	Serials []string
}

// StorageLUN is a LUN that the array exports to its servers.
type StorageLUN struct {
	Name, Group        string
	Number, Controller int
	WWN                string // empty: derived from the name
	// In bytes. Offset is the LUN's place in its group. Chunk and FullStripe are the
	// geometry that a LUN of a PERC reports.
	Bytes, Offset, Chunk, FullStripe int64
	Unmirrored                       bool // its write cache
	// Servers that see the LUN; empty: all that are cabled to the array.
	Servers []string
}

// FromSpec returns the virtual hardware for a spec: the same servers, addresses,
// disks by serial and WWN, BMCs, PDUs and outlets as the real hardware. A RAID array
// has its disks, and what has been configured on them. Of a RAID card inside a server
// (PERC) the rack has only the LUNs. FromSpec is pure. spec.Parse has checked the spec's addresses.
// FromSpec refuses a host name as an address.
func FromSpec(s *spec.Spec, arrays ...Storage) (Config, error) {
	c := Config{Name: s.Name, Suite: s.Rack.Suite, Mirror: s.Rack.Mirror, RDMA: s.SoftRoCE()}
	mgmt := s.Networks.Management
	if mgmt == nil {
		mgmt = &s.Networks.Public
	}
	if err := namesRefused(s); err != nil {
		return c, err
	}
	used := usedAddresses(s)
	admin, err := freeAddress(mgmt.CIDR, used)
	if err != nil {
		return c, err
	}
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

	for _, a := range arrays {
		if err := c.addArray(s, a); err != nil {
			return c, err
		}
	}
	if err := c.addEnclosures(s); err != nil {
		return c, err
	}
	if err := c.addSSDs(s); err != nil {
		return c, err
	}

	base, err := filepath.Abs(filepath.Dir(s.File))
	if err != nil {
		return c, err
	}
	secret := func(file string) string {
		if filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(base, file)
	}
	c.addManagement(s, secret)
	c.addPDUs(s, secret)
	for _, v := range s.Servers {
		n := Node{Name: v.Name, Role: RoleServer, MemoryMiB: cmp.Or(int(v.Memory>>20), serverMiB)}
		n.addNICs(s, mgmt, v.Public, v.Private, v.Address)
		if b := v.BMC; b != nil {
			n.BMC = &BMC{Address: netip.MustParseAddr(b.Address), User: b.User, Privilege: b.Privilege, PasswordFile: secret(b.PasswordFile)}
		}
		for _, o := range v.Outlets {
			n.Feeds = append(n.Feeds, Feed(o))
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, cl := range s.Clients {
		// The rack reaches its nodes over the management network, so a client without
		// an address there gets one.
		if mgmt.CIDR != s.Networks.Public.CIDR && cl.Address == cl.Public {
			a, err := freeAddress(mgmt.CIDR, used)
			if err != nil {
				return c, err
			}
			cl.Address = a.Addr().String()
		}
		n := Node{Name: cl.Name, Role: RoleClient, MemoryMiB: cmp.Or(int(cl.Memory>>20), clientMiB)}
		n.addNICs(s, mgmt, cl.Public, "", cl.Address)
		c.Nodes = append(c.Nodes, n)
	}
	c.SetMACs()
	return c, c.Check()
}

// addEnclosures adds the enclosures of disks that the servers see.
func (c *Config) addEnclosures(s *spec.Spec) error {
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
		disks, drives, err := disksOf(e, int64(s.Rack.IOPS))
		if err != nil {
			return err
		}
		c.SSDs = append(c.SSDs, drives...)
		enc.Disks = disks
		if len(enc.Disks) > 0 {
			c.Enclosures = append(c.Enclosures, enc)
		}
	}
	return nil
}

// addPDUs adds the PDUs with the paths of their secrets.
func (c *Config) addPDUs(s *spec.Spec, secret func(string) string) {
	for _, p := range s.PDUs {
		pdu := PDU{Name: p.Name, Address: netip.MustParseAddr(p.Address), Outlets: outletsOf(s, p.Name)}
		if n := p.SNMP; n != nil {
			pdu.SNMP = &SNMP{User: n.User, Auth: n.Auth, AuthFile: secret(n.AuthFile), Privacy: n.Privacy, PrivacyFile: secret(n.PrivacyFile)}
		} else {
			pdu.CommunityFile = secret(p.CommunityFile)
		}
		c.PDUs = append(c.PDUs, pdu)
	}
}

// SetMACs derives the MAC addresses from the places of nodes and interfaces. 52:54:00 is
// QEMU's own prefix.
func (c *Config) SetMACs() {
	for i := range c.Nodes {
		for j := range c.Nodes[i].NICs {
			c.Nodes[i].NICs[j].MAC = fmt.Sprintf("52:54:00:4d:%02x:%02x", j+1, i+1)
		}
	}
}

// addSSDs adds the SSDs of the cache. All are NVMe drives, independent of the spec's type; every server reaches those that are inside none.
func (c *Config) addSSDs(s *spec.Spec) error {
	if s.Cache == nil {
		return nil
	}
	for _, l := range s.Cache.SSDs {
		serials, err := l.Serials()
		if err != nil {
			return err
		}
		for _, serial := range serials {
			c.SSDs = append(c.SSDs, Disk{
				Name: fmt.Sprintf("ssd-%02d", len(c.SSDs)+1), Serial: serial, Bytes: int64(l.Size) / 512 * 512, SSD: true, Node: l.Server,
			})
		}
	}
	return nil
}

// inquiry has the SCSI inquiry data of a LUN of each family: vendor, product,
// revision, and the company's digits of its WWN.
//
// Sources: multipath.conf(5) hwtable; the WWNs of arrays in the field.
var inquiry = map[string]struct{ vendor, product, revision, company string }{
	"md3":     {"DELL", "MD32xx", "0784", "90b11c"},
	"me4":     {"DellEMC", "ME4", "G280", "00c0ff"},
	"me5":     {"DellEMC", "ME5", "0001", "00c0ff"},
	"perc":    {"DELL", "PERC", "", ""},
	"eseries": {"NETAPP", "INF-01-00", "0872", "00a098"},
}

func (c *Config) addArray(s *spec.Spec, a Storage) error {
	who, ok := inquiry[a.Family]
	if !ok {
		return tool.Refuse("array %s: the rack knows no array of family %q", a.Name, a.Family)
	}
	e := Enclosure{Name: enclosurePrefix + strings.ToLower(a.Name), Servers: a.Servers, Paths: a.Paths, Card: a.Card}
	digits := 16
	if a.Family != "perc" {
		digits = 32
		box, err := arrayFrom(s, a)
		if err != nil {
			return err
		}
		box.Vendor, box.Product, box.Revision = who.vendor, who.product, who.revision
		e.Array = box
	}
	used := map[string]int64{} // of each group
	wwns := map[int]string{}   // by number
	for _, l := range a.LUNs {
		disk := Disk{
			Name: strings.ToLower(l.Name), WWN: strings.ToLower(l.WWN), Vendor: who.vendor, Product: who.product,
			Bytes: l.Bytes / 512 * 512, Chunk: l.Chunk, FullStripe: l.FullStripe,
		}
		switch {
		case disk.WWN != "" && len(disk.WWN) != digits:
			return tool.Refuse("LUN %s: arrays.wwns says %s: in the rack a LUN of %s has a WWN of %d digits: leave wwns out for it", l.Name, l.WWN, a.Name, digits)
		case disk.WWN == "" && e.Array != nil:
			disk.WWN = "6" + who.company + Hashed("mortar LUN " + c.Name + " " + l.Name)[:25]
		case disk.WWN == "":
			disk.WWN = WWNOf(c.Name + " " + l.Name)
		}
		disk.Serial = disk.WWN
		if e.Array != nil {
			disk.LUN = &LUNPlace{Number: l.Number, Group: l.Group, Offset: l.Offset / 512 * 512, Controller: l.Controller, Unmirrored: l.Unmirrored, Servers: l.Servers}
			used[l.Group] = max(used[l.Group], disk.LUN.Offset+disk.Bytes)
		}
		e.Disks = append(e.Disks, disk)
		wwns[l.Number] = disk.WWN
	}
	for _, n := range slices.Sorted(maps.Keys(wwns)) {
		if c.WWNs == nil {
			c.WWNs = map[string][]string{}
		}
		c.WWNs[a.Name] = append(c.WWNs[a.Name], wwns[n])
	}
	for i := range e.groups() {
		e.Array.Groups[i].fit(max(used[e.Array.Groups[i].Name], a.Groups[i].Bytes))
	}
	c.Enclosures = append(c.Enclosures, e)
	return nil
}

// SetArray replaces what is configured on an array. Its disks and cables stay.
func (c *Config) SetArray(s *spec.Spec, a Storage) error {
	old, err := c.Enclosure(c.EnclosureName(a.Name))
	if err != nil {
		return err
	}
	one := Config{Name: c.Name}
	if err := one.addArray(s, a); err != nil {
		return err
	}
	now := one.Enclosures[0]
	now.Array.Management = old.Array.Management
	*old = now
	SetValue(&c.WWNs, a.Name, one.WWNs[a.Name])
	return c.Check()
}

// addManagement adds the management interface of an MD3, and of an ME4 for which the spec
// has a user.
func (c *Config) addManagement(s *spec.Spec, secret func(string) string) {
	for _, a := range s.Arrays {
		e, err := c.Enclosure(enclosurePrefix + strings.ToLower(a.Name))
		if err != nil || e.Array == nil || len(a.Management) == 0 {
			continue
		}
		m := &Management{Array: a.Name, User: a.User}
		switch model, _ := spec.ModelOf(a.Model); {
		case model.Family == "md3":
			m.SMcli = true
		case a.PasswordFile == "":
			continue
		default:
			m.PasswordFile = secret(a.PasswordFile)
		}
		for _, text := range a.Management {
			m.Addresses = append(m.Addresses, netip.MustParseAddr(text))
		}
		e.Array.Management = m
	}
}

// arrayFrom returns an array with its disks and groups.
func arrayFrom(s *spec.Spec, a Storage) (*Array, error) {
	box := &Array{}
	named := map[string]string{} // by serial number
	for _, e := range s.Enclosures {
		if e.Array != a.Name {
			continue
		}
		disks, _, err := disksOf(e, int64(s.Rack.IOPS))
		if err != nil {
			return nil, err
		}
		for _, k := range disks {
			k.Bytes = int64(spec.DiskBytes(spec.Bytes(k.Bytes))) + metadataBytes
			k.WWN = ""
			named[k.Serial] = k.Name
			box.Disks = append(box.Disks, k)
		}
	}
	for _, g := range a.Groups {
		group := RAIDGroup{Name: g.Name, Level: g.Level, Chunk: g.Chunk}
		for _, serial := range g.Serials {
			group.Members = append(group.Members, named[serial])
		}
		box.Groups = append(box.Groups, group)
	}
	for _, serial := range a.Spares {
		box.Spares = append(box.Spares, named[serial])
	}
	box.Scripts = a.Scripts
	return box, nil
}

// groups of an array; none of an enclosure.
func (e *Enclosure) groups() []RAIDGroup {
	if e.Array == nil {
		return nil
	}
	return e.Array.Groups
}

func (g *RAIDGroup) fit(bytes int64) {
	stripe := int64(g.data()) * g.Chunk
	g.MemberBytes = (bytes + stripe - 1) / stripe * g.Chunk
}

// disksOf returns the disks of an enclosure of the spec by bay, rotating ones with
// their speed, and separately its NVMe drives.
func disksOf(e spec.Enclosure, iops int64) (disks, drives []Disk, err error) {
	bay := 0
	for _, l := range e.Disks {
		serials, err := l.Serials()
		if err != nil {
			return nil, nil, err
		}
		for _, serial := range serials {
			bay++
			d := Disk{
				Name: fmt.Sprintf("%s-%02d", strings.ToLower(e.Name), bay), Serial: serial, WWN: strings.ToLower(l.WWN),
				Vendor: "MORTAR", Product: "VDISK", Bytes: int64(l.Size) / 512 * 512,
				SSD: l.Type == "ssd" || l.Type == "nvme",
			}
			if d.WWN == "" {
				d.WWN = WWNOf(serial)
			}
			if l.Type == "nvme" {
				drives = append(drives, d)
				continue
			}
			if !d.SSD {
				d.IOPS = iops
			}
			disks = append(disks, d)
		}
	}
	return disks, drives, nil
}

// addNICs gives the node its interfaces: public, private if it has one, and
// management unless that is the public network.
func (n *Node) addNICs(s *spec.Spec, mgmt *spec.Network, public, private, address string) {
	add := func(network, cidr, addr string) {
		at := netip.PrefixFrom(netip.MustParseAddr(addr), netip.MustParsePrefix(cidr).Bits())
		n.NICs = append(n.NICs, NIC{Network: network, Address: at})
	}
	add("public", s.Networks.Public.CIDR, public)
	if private != "" && s.Networks.Private != nil {
		add("private", s.Networks.Private.CIDR, private)
	}
	if mgmt.CIDR != s.Networks.Public.CIDR {
		add("management", mgmt.CIDR, address)
	}
}

// GiveSASPorts gives the servers of a spec that has none the SAS addresses of their HBAs
// in the rack, by which arrays know servers.
func GiveSASPorts(s *spec.Spec) {
	for i := range s.Servers {
		if v := &s.Servers[i]; len(v.SASPorts) == 0 {
			for port := range 2 * HBAs {
				v.SASPorts = append(v.SASPorts, "500605b"+Hashed(fmt.Sprintf("mortar port %s %d", v.Name, port))[:9])
			}
		}
	}
}

// WWNOf derives a WWN (NAA 5) from a serial number, for a disk whose WWN the spec
// does not have. It is the same for every host.
func WWNOf(serial string) string {
	return "5000c5" + Hashed("mortar disk " + serial)[:10]
}

// Hashed is a text's digest in hexadecimal.
func Hashed(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
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

// usedAddresses returns every address that the spec assigns.
func usedAddresses(s *spec.Spec) map[netip.Addr]bool {
	all := lists.Flat(s.Arrays, func(a spec.Array) []string { return a.Management })
	for _, v := range s.Servers {
		all = append(all, v.Address, v.Public, v.Private)
		if v.BMC != nil {
			all = append(all, v.BMC.Address)
		}
	}
	for _, p := range s.PDUs {
		all = append(all, p.Address)
	}
	for _, v := range s.Services {
		all = append(all, v.Address)
	}
	for _, v := range s.Clients {
		all = append(all, v.Address, v.Public)
	}
	used := map[netip.Addr]bool{}
	for _, a := range all {
		if a != "" {
			used[netip.MustParseAddr(a)] = true
		}
	}
	return used
}

// freeAddress returns the first unused host address of a network, which is used then.
func freeAddress(cidr string, used map[netip.Addr]bool) (netip.Prefix, error) {
	p := netip.MustParsePrefix(cidr)
	for a := p.Addr().Next(); p.Contains(a); a = a.Next() {
		if !used[a] {
			used[a] = true
			return netip.PrefixFrom(a, p.Bits()), nil
		}
	}
	return netip.Prefix{}, tool.Refuse("management network %s has no address left", cidr)
}
