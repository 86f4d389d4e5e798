package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

func (c *checker) lustre() {
	s := c.s
	if s.Flavour != Lustre {
		c.refuse(s.Lustre != nil, "lustre", "remove it, or choose flavour lustre", "flavour %s has no Lustre file system", s.Flavour)
		return
	}
	l := s.Lustre
	if l == nil {
		c.errorf("", "add it: "+docOf("Lustre"), "key %q is missing", "lustre")
		return
	}
	c.refuse(!re().fsname.MatchString(l.FSName), "lustre.fsname", "use 1 to 8 letters and digits", "%q cannot name a Lustre file system", l.FSName)
	switch {
	case l.LNET != "tcp" && l.LNET != "o2ib":
		c.errorf("lustre.lnet", "use tcp, or o2ib on InfiniBand or RoCE", "unknown network driver %q", l.LNET)
	case s.Networks.Public.Interface == "":
		c.errorf("networks.public", "add interface: as `ip link` prints it on the servers, e.g. ib0", "LNET must be told an interface")
	}
	if l.Mount == "" {
		l.Mount = "/" + l.FSName
	}
	if re().fsname.MatchString(l.FSName) {
		c.systemPath("lustre.mount", l.Mount, "a mount point")
	}
	c.refuse(l.StripeSize < 64*KiB || l.StripeSize%(64*KiB) != 0 || l.StripeSize >= 4*GiB, "lustre.stripe_size", "choose a multiple of 64KiB below 4GiB, e.g. 1MiB", "stripe_size is %s", l.StripeSize)
	c.lustrePackages(l.Packages)
	c.modules()
	for i, p := range l.Params {
		at := fmt.Sprintf("lustre.params[%d]", i)
		c.refuse(!re().param.MatchString(p), at, "write name=value, e.g. osc.*.max_dirty_mb=512", "%q is not a setting of Lustre", p)
	}
}

// LustrePackages is where Lustre's packages come from; nil if they are installed already, or not wanted.
func (s *Spec) LustrePackages() *LustrePackages {
	if s.Lustre == nil {
		return nil
	}
	return s.Lustre.Packages
}

// lustrePackages checks that one source is named.
func (c *checker) lustrePackages(p *LustrePackages) {
	const at = "lustre.packages"
	switch {
	case p == nil:
	case (p.Directory == "") == (p.Repository == ""):
		c.errorf(at, "name one: a directory of packages, or an apt repository with its key", "directory is %q and repository is %q", p.Directory, p.Repository)
	case p.Directory != "" && p.Key != "":
		c.errorf(at+".key", "remove it", "a directory of packages has no key")
	case p.Directory != "" && !re().file.MatchString(p.Directory):
		c.errorf(at+".directory", "use letters, digits and ._/~@+-", "%q cannot be a directory of packages", p.Directory)
	case p.Repository != "" && !re().repository.MatchString(p.Repository):
		c.errorf(at+".repository", "write address, suite and components as in sources.list(5), e.g. https://lustre.example.org/debian ./", "%q is no apt repository", p.Repository)
	case p.Repository != "" && !re().file.MatchString(p.Key):
		c.errorf(at, "add key: the file with the OpenPGP key that it is signed with", "repository %s has no key", p.Repository)
	}
}

func (c *checker) modules() {
	l := c.s.Lustre
	in := map[string]string{}
	var names []string
	mds, oss := 0, 0
	before := c.found
	for i := range l.Modules {
		m := &l.Modules[i]
		at := fmt.Sprintf("lustre.modules[%d]", i)
		c.named(at+".name", "module", m.Name, names, re().service, "use a small letter, then letters, digits and dashes, at most 12 in all")
		names = append(names, m.Name)
		switch m.Role {
		case "mds":
			if mds++; mds == 2 {
				c.errorf(at+".role", "keep one: more metadata targets (DNE) are not designed", "there are two mds modules")
			}
			c.refuse(m.Storage.RAID.Level == 6 || m.Storage.RAID.Level == 60, at+".storage.raid.level", "use level: 10", "metadata is small random writes, each of which would read and write parity on RAID %d", m.Storage.RAID.Level)
		case "oss":
			oss++
		default:
			c.errorf(at+".role", "use mds or oss", "unknown role %q", m.Role)
		}
		c.refuse(len(m.Servers) != 2, at+".servers", "name the two servers that reach its disks: a target with one server dies with it", "module %s has %s, not 2", m.Name, Plural(len(m.Servers), "server"))
		if len(m.Servers) != 2 {
			continue
		}
		for j, v := range m.Servers {
			sat := fmt.Sprintf("%s.servers[%d]", at, j)
			switch first, taken := in[v]; {
			case c.server(v) == nil:
				c.unknownServer(sat, v)
			case taken && first == m.Name:
				c.errorf(sat, "name the other one", "server %s is there twice", v)
			case taken:
				c.errorf(sat, "a server belongs to one module", "server %s is in module %s already", v, first)
			}
			in[v] = m.Name
		}
		// Extents of LVM's or XFS's are no matter here; ldiskfs is told its stripe in 4 KiB blocks.
		c.refuse(m.Role == "oss" && m.Storage.RAID.Level == 10, at+".storage.raid.level", "use level: 6", "an OST on RAID 10 would give half of the disks to mirrors")
	}
	if c.found > before {
		return // what is missing may be meant by what is wrong
	}
	for i, v := range c.s.Servers {
		c.refuse(in[v.Name] == "", fmt.Sprintf("servers[%d]", i), "add it to one, or remove it", "server %s is in no module", v.Name)
	}
	c.refuse(mds == 0, "lustre.modules", "add one with role: mds", "there is no mds module")
	c.refuse(oss == 0, "lustre.modules", "add one with role: oss", "there is no oss module")
}

// osts checks pools and striping, once the number of OSTs is known.
func (c *layout) osts() {
	l := c.s.Lustre
	n := 0
	for i := range l.Modules {
		if m := &l.Modules[i]; m.Role == "oss" {
			n += m.Storage.RAID.Groups
		}
	}
	if n == 0 || !slices.ContainsFunc(l.Modules, func(m Module) bool { return m.Role == "mds" }) {
		return // said already
	}
	for i := range l.Modules {
		at := fmt.Sprintf("lustre.modules[%d].storage.raid.data", i)
		switch m := &l.Modules[i]; {
		case m.Role == "mds" && m.Storage.RAID.Groups != 1:
			c.errorf(at, "choose data so that all disks but the spares are one group", "the MDT lies on one RAID group, and these disks make %d", m.Storage.RAID.Groups)
		case m.Role == "oss" && m.Storage.RAID.Groups%2 != 0:
			c.errorf(at, "choose data so that the disks make an even number of groups: each is an OST, and half of them are at home on each server", "module %s has %s for two servers", m.Name, Plural(m.Storage.RAID.Groups, "OST"))
			return // what follows counts on them
		}
	}
	c.refuse(l.StripeCount < -1 || l.StripeCount == 0 || l.StripeCount > n, "lustre.stripe_count", fmt.Sprintf("choose 1 to %d, or -1 for all", n), "stripe_count is %d, and there are %s", l.StripeCount, Plural(n, "OST"))
	var names []string
	for i := range l.Pools {
		p := &l.Pools[i]
		at := fmt.Sprintf("lustre.pools[%d]", i)
		c.named(at+".name", "pool", p.Name, names, re().pool, "use at most 15 letters, digits, - and _")
		names = append(names, p.Name)
		c.refuse(len(p.OSTs) == 0, at+".osts", "list indices, e.g. [0-5]", "pool %s has no OSTs", p.Name)
		for j := range p.OSTs {
			if _, err := p.indices(j, n); err != nil {
				c.split(fmt.Sprintf("%s.osts[%d]", at, j), "", err)
			}
		}
	}
}

// indices of one entry of a pool with n OSTs in the file system.
func (p *OSTPool) indices(j, n int) ([]int, error) {
	from, to, isRange := strings.Cut(p.OSTs[j], "-")
	a, err := strconv.Atoi(from)
	b := a
	if isRange && err == nil {
		b, err = strconv.Atoi(to)
	}
	switch {
	case err != nil || a < 0:
		return nil, fmt.Errorf("%q is no index or range of OSTs; write e.g. 3 or 0-5", p.OSTs[j])
	case b < a:
		return nil, fmt.Errorf("range %s runs backwards; write the smaller number first", p.OSTs[j])
	case b >= n:
		return nil, fmt.Errorf("there is no OST %d; the indices are 0 to %d", b, n-1)
	}
	var out []int
	for i := a; i <= b; i++ {
		out = append(out, i)
	}
	return out, nil
}

// Indices lists the OSTs of a pool, of n in the file system.
func (p *OSTPool) Indices(n int) []int {
	var out []int
	for j := range p.OSTs {
		list, err := p.indices(j, n)
		if err != nil {
			continue // Parse has refused it
		}
		for _, i := range list {
			if !slices.Contains(out, i) {
				out = append(out, i)
			}
		}
	}
	slices.Sort(out)
	return out
}

// enclosureModule finds the module of an enclosure; "" if that is not clear.
func (c *layout) enclosureModule(e *Enclosure, at string) string {
	l := c.s.Lustre
	c.refuse(e.Service != "", at+".service", "write module:", "flavour lustre has no services")
	if l == nil {
		return ""
	}
	names := lists.Map(l.Modules, func(m Module) string { return m.Name })
	switch {
	case e.Module == "" && len(names) > 0:
		c.errorf(at, "add module: one of "+oneOf(names), "enclosure %s says of no module", e.Name)
	case !slices.Contains(names, e.Module) && len(names) > 0:
		c.errorf(at+".module", didYouMean(e.Module, names, "the modules are: "+strings.Join(names, ", ")), "there is no module %q", e.Module)
		return ""
	}
	return e.Module
}

// NamesPool says whether Lustre takes a name for a pool of OSTs.
//
// Source: lctl-pool_new(8)
func NamesPool(name string) bool { return re().pool.MatchString(name) }
