package spec

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// checker collects what is wrong, each with the place it stands at.
type checker struct {
	s     *Spec
	errs  Errors
	found int // also those beyond maxErrors

	public, private, management netip.Prefix
	addresses                   map[netip.Addr]string // who has it
	names                       map[string]string     // host name -> path
	versionsOK, servicesOK      bool                  // nfs.versions, the number of services
}

// validate checks every rule that the file alone can break, and fills the
// defaults that depend on other values.
func validate(s *Spec) Errors {
	c := &checker{s: s, addresses: map[netip.Addr]string{}, names: map[string]string{}}
	if !c.head() {
		return c.errs // without version and flavour nothing else can be judged
	}
	c.ssh()
	c.passwordCommand()
	c.networks()
	c.servers()
	c.power()
	c.hardware()
	c.lustre()
	c.services()
	c.nfs()
	c.clients()
	c.disks()
	c.filesystem()
	c.ha()
	preparation(c)
	firewall(c)
	if c.isHA() {
		collisions(c)
	}
	c.rack()
	if s.Networks.Management == nil {
		s.Networks.Management = new(s.Networks.Public)
	}
	return c.errs
}

// refuse reports an error if something is wrong.
func (c *checker) refuse(wrong bool, at, mend, format string, args ...any) {
	if wrong {
		c.errorf(at, mend, format, args...)
	}
}

// didYouMean proposes the word that a mistyped one most likely is, or says otherwise.
func didYouMean(word string, words []string, otherwise string) string {
	if near := Nearest(word, words); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

func (c *checker) errorf(at, mend, format string, args ...any) {
	if c.found++; len(c.errs) >= maxErrors {
		return
	}
	line, col := c.s.Pos(at)
	c.errs = append(c.errs, &Error{File: c.s.File, Line: line, Col: col, Msg: fmt.Sprintf(format, shortened(args)...), Mend: mend})
}

// split reports an error whose text is "what; how to mend it".
func (c *checker) split(at, prefix string, err error) {
	what, mend, _ := strings.Cut(err.Error(), "; ")
	c.errorf(at, mend, "%s", prefix+what)
}

// named checks the name of a thing, and says whether one of these has it already.
func (c *checker) named(at, what, name string, taken []string, form *regexp.Regexp, mend string) (twice bool) {
	switch article := "a"; {
	case !form.MatchString(name):
		if what == "array" {
			article = "an"
		}
		c.errorf(at, mend, "%q cannot name %s %s", name, article, what)
	case slices.Contains(taken, name):
		c.errorf(at, "give each "+what+" its own name", "%s %q is there twice", what, name)
		return true
	}
	return false
}

// at names the line of a path, for "first at line 12".
func (c *checker) at(p string) string {
	line, _ := c.s.Pos(p)
	return fmt.Sprintf("line %d", line)
}

// isHA: every flavour but nfs has pairs of servers.
func (c *checker) isHA() bool { return c.s.Flavour != NFS }

var (
	flavours = []string{string(NFS), string(NFSHA), string(NFSHAXL), string(Lustre)}
)

func (c *checker) head() bool {
	s := c.s
	c.refuse(s.APIVersion != APIVersion, "apiVersion", "write apiVersion: "+APIVersion, "this mortar reads %s, not %q", APIVersion, s.APIVersion)
	if !slices.Contains(flavours, string(s.Flavour)) {
		c.errorf("flavour", didYouMean(string(s.Flavour), flavours, "use "+oneOf(flavours)), "unknown flavour %q", s.Flavour)
	}
	c.refuse(!slices.Contains(Profiles, string(s.Profile)), "profile", "use "+oneOf(Profiles), "unknown profile %q", s.Profile)
	c.refuse(!re().brick.MatchString(s.Name), "name", "use a letter, then letters, digits and dashes, at most 15 in all", "%q cannot name a brick", s.Name)
	c.refuse(s.ID != "" && !re().brickID.MatchString(s.ID), "id", "use 8 to 32 small letters and digits, as `mortar init` prints them", "%q cannot be the ID of a brick", s.ID)
	return len(c.errs) == 0
}

func (c *checker) ssh() {
	s := &c.s.SSH
	c.refuse(!re().login.MatchString(s.User), "ssh.user", "use root, or a user whom sudo makes root without a password", "%q cannot be a login name", s.User)
	c.between("ssh.port", s.Port, 1, 65535, "")
	for _, f := range []struct{ at, v string }{{"ssh.identity", s.Identity}, {"ssh.known_hosts", s.KnownHosts}} {
		c.refuse(f.v != "" && !re().file.MatchString(f.v), f.at, "use letters, digits and . _ - / ~", "%q cannot be a file name here", f.v)
	}
}

func (c *checker) passwordCommand() {
	words := c.s.PasswordCommand
	switch named := slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "{}") }); {
	case len(words) == 0:
	case words[0] == "" || strings.Contains(words[0], "{}"):
		c.errorf("password_command", "write the program first, e.g. [pass, show, hpc/{}]", "%q cannot be a program", words[0])
	case !named:
		c.errorf("password_command", "write {} where the name of the secret's file belongs, e.g. [pass, show, hpc/{}]", "password_command would print the same for every secret")
	}
}

func (c *checker) between(at string, v, lo, hi int, unit string) bool {
	if v < lo || v > hi {
		key := at[strings.LastIndexAny(at, ".")+1:]
		c.errorf(at, fmt.Sprintf("choose %d to %d%s", lo, hi, unit), "%s is %d%s", key, v, unit)
		return false
	}
	return true
}

// networks parses the three networks; a broken one is left invalid and what
// lies in it is not checked any further.
func (c *checker) networks() {
	n := &c.s.Networks
	one := func(at string, nw *Network) netip.Prefix {
		p, err := netip.ParsePrefix(nw.CIDR)
		switch {
		case err != nil:
			c.errorf(at+".cidr", "write address/prefix, e.g. 10.20.0.0/16", "%q is not a network", nw.CIDR)
			return netip.Prefix{}
		case !p.Addr().Is4():
			c.errorf(at+".cidr", "use an IPv4 network", "%s is an IPv6 network, which this version does not build", nw.CIDR)
			return netip.Prefix{}
		case p.Masked() != p:
			c.errorf(at+".cidr", "write "+p.Masked().String(), "%s is an address in a network, not a network", nw.CIDR)
		case p.Bits() > 30 || p.Bits() < 8:
			c.errorf(at+".cidr", "use a prefix from /8 to /30", "a network of prefix /%d cannot be that of a brick", p.Bits())
			return netip.Prefix{}
		case noNetwork(p) != "":
			c.errorf(at+".cidr", "use a network of your site, e.g. 10.20.0.0/16", "network %s %s", nw.CIDR, noNetwork(p))
			return netip.Prefix{}
		}
		most := 9216
		if nw.Link == "infiniband" {
			most = 65520 // IPoIB in connected mode. Source: kernel, infiniband/ipoib
		}
		c.between(at+".mtu", nw.MTU, 576, most, "")
		c.refuse(nw.Link != "" && nw.Link != "ethernet" && nw.Link != "infiniband", at+".link", "use ethernet or infiniband", "unknown kind of link %q", nw.Link)
		c.refuse(nw.Interface != "" && !re().iface.MatchString(nw.Interface), at+".interface", "write it as `ip link` prints it, e.g. ib0", "%q is not an interface", nw.Interface)
		if nw.Speed != "" && !re().speed.MatchString(nw.Speed) {
			c.errorf(at+".speed", "write e.g. 10Gb/s or 100Gb/s", "%q is not a link speed", nw.Speed)
		} else if v, err := strconv.ParseFloat(strings.TrimRight(nw.Speed, "MGb/s"), 64); nw.Speed != "" && (err != nil || v > 10_000) {
			c.errorf(at+".speed", "write e.g. 10Gb/s or 100Gb/s", "no link has %s", nw.Speed)
		}
		return p.Masked()
	}
	c.public = one("networks.public", &n.Public)
	if n.Private != nil {
		c.private = one("networks.private", n.Private)
	} else if c.isHA() {
		c.errorf("networks", "add a private network: a switch of its own, or a cable between the servers", "the heartbeat of flavour %s would run over the public network alone: one failed switch would split the pair", c.s.Flavour)
	}
	if n.Management != nil {
		c.management = one("networks.management", n.Management)
	} else {
		c.management = c.public
	}
	overlap := func(a, b netip.Prefix, at, x, y, mend string) {
		c.refuse(a.IsValid() && b.IsValid() && a.Overlaps(b), at, mend, "the %s network %s overlaps the %s network %s", x, a, y, b)
	}
	overlap(c.private, c.public, "networks.private.cidr", "private", "public", "the heartbeat needs a network of its own: give it other addresses on another switch")
	if n.Management != nil {
		overlap(c.management, c.public, "networks.management.cidr", "management", "public", "give it addresses of its own, or leave it out to use the public one")
		overlap(c.management, c.private, "networks.management.cidr", "management", "private", "give it addresses of its own")
	}
}

// address checks that text is an address in network nw and that no host has it
// yet; "" is left to the caller.
func (c *checker) address(at, text string, nw netip.Prefix, nwName, owner string, shared ...string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		c.errorf(at, "write an IP address, e.g. "+example(nw), "%q is not an IP address", text)
		return a, false
	}
	if nw.IsValid() {
		if !nw.Contains(a) {
			c.errorf(at, fmt.Sprintf("choose an address in %s, or mend networks.%s.cidr", nw, nwName), "%s of %s is outside the %s network %s", a, owner, nwName, nw)
			return a, false
		}
		if a == nw.Addr() || a == broadcast(nw) {
			c.errorf(at, "choose an address between the first and the last", "%s is the network or broadcast address of %s", a, nw)
			return a, false
		}
	}
	if who, taken := c.addresses[a]; taken && !slices.Contains(shared, who) {
		c.errorf(at, "give each its own address", "address %s of %s is already that of %s", a, owner, who)
		return a, false
	}
	c.addresses[a] = owner
	return a, true
}

func example(nw netip.Prefix) string {
	if !nw.IsValid() {
		return "10.20.0.11"
	}
	return nw.Addr().Next().String()
}

func broadcast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b)
}

func (c *checker) host(at, name, key string) {
	if !re().host.MatchString(name) || len(name) > 63 {
		c.errorf(at+".name", "use letters, digits, dashes and dots, as `uname -n` prints it", "%q is not a host name", name)
	} else if first, dup := c.names[strings.ToLower(name)]; dup {
		c.errorf(at+".name", "give each host its own name", "host name %q is already taken at %s", name, c.at(first))
	} else {
		c.names[strings.ToLower(name)] = at + ".name"
	}
	hostName(c, at+".name", name)
	if key == "" {
		return
	}
	mend := "copy the first two words of /etc/ssh/ssh_host_ed25519_key.pub of that host"
	if strings.Contains(key, "PRIVATE KEY") {
		c.errorf(at+".host_key", mend+"; and make a new host key: this one is known now", "this is a private key")
		return
	}
	_, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(key))
	c.refuse(err != nil || len(options) > 0 || len(rest) > 0, at+".host_key", mend, "%q is not a public host key ('ssh-ed25519 AAAA…')", shorten(key))
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// shortened cuts long values of a message. A value of several words is a message of its own.
func shortened(args []any) []any {
	for i, a := range args {
		if s, ok := a.(string); ok && len(s) > 80 && !strings.Contains(s, " ") {
			args[i] = shorten(s)
		}
	}
	return args
}

func (c *checker) servers() {
	s := c.s
	want := 1
	if s.Flavour != NFS {
		want = 2
	}
	if s.Flavour != Lustre && len(s.Servers) != want {
		mend := "list one server, or choose flavour nfs-ha"
		if want == 2 {
			mend = "list the two servers that share the disks, or choose flavour nfs"
		}
		c.errorf("servers", mend, "flavour %s has %s, not %d", s.Flavour, Plural(want, "server"), len(s.Servers))
	}
	for i := range s.Servers {
		v := &s.Servers[i]
		at := fmt.Sprintf("servers[%d]", i)
		c.host(at, v.Name, v.HostKey)
		if s.Networks.Management == nil {
			// One network for both: the same address twice is the normal case.
			c.address(at+".public", v.Public, c.public, "public", "server "+v.Name)
			loginAddress(c, at+".address", v.Address, c.public, "public", "server "+v.Name, "server "+v.Name)
		} else {
			loginAddress(c, at+".address", v.Address, c.management, "management", "server "+v.Name)
			c.address(at+".public", v.Public, c.public, "public", "server "+v.Name)
		}
		switch {
		case v.Private != "" && s.Networks.Private == nil:
			if !c.isHA() { // said already, at networks
				c.errorf(at+".private", "add networks.private, or remove the address", "server %s has a private address, but there is no private network", v.Name)
			}
		case v.Private != "":
			c.address(at+".private", v.Private, c.private, "private", "server "+v.Name)
		case c.isHA() && s.Networks.Private != nil:
			c.errorf(at, "add private: with an address in "+c.s.Networks.Private.CIDR, "server %s has no private address: its heartbeat would run over the public network alone", v.Name)
		}
		c.refuse(v.Memory != 0 && (v.Memory < 256*MiB || v.Memory > 64*TiB), at+".memory", "choose 256MiB to 64TiB", "server %s has %s of memory", v.Name, v.Memory)
	}
}

// power checks PDUs, BMCs, outlets and feeds: what fencing rests on.
func (c *checker) power() {
	s := c.s
	pdus, dup, feeds := map[string]*PDU{}, false, map[string]string{}
	var names []string
	for i := range s.PDUs {
		p := &s.PDUs[i]
		at := fmt.Sprintf("pdus[%d]", i)
		dup = c.named(at+".name", "PDU", p.Name, names, re().word, "use letters, digits and dashes") || dup
		pdus[p.Name] = p
		names = append(names, p.Name)
		c.address(at+".address", p.Address, c.management, "management", "PDU "+p.Name)
		c.pduAccess(at, p)
		c.refuse(!re().word.MatchString(p.Feed), at+".feed", "name the power feed the PDU hangs on, e.g. A", "%q cannot name a power feed", p.Feed)
		oneCase(c, at+".feed", p.Feed, feeds)
	}
	outlets, devices := map[Outlet]string{}, map[string]string{} // by what they switch: the server
	for i := range s.Servers {
		v := &s.Servers[i]
		at := fmt.Sprintf("servers[%d]", i)
		if v.BMC != nil {
			b := v.BMC
			c.address(at+".bmc.address", b.Address, c.management, "management", "the BMC of "+v.Name)
			c.refuse(!re().bmcUser.MatchString(b.User), at+".bmc.user", "an IPMI user has 1 to 16 letters, digits or . _ @ -, and a program would take one that begins with - for an option", "%q is not an IPMI user", b.User)
			c.secretFile(at+".bmc.password_file", b.PasswordFile)
			c.between(at+".bmc.cipher", b.Cipher, 0, 17, "")
			c.refuse(b.Cipher == 0, at+".bmc.cipher", "use 3, or 17 where the BMC has it", "cipher suite 0 lets anybody switch the server off without a password")
			c.refuse(b.Privilege != "operator" && b.Privilege != "administrator", at+".bmc.privilege", "use operator or administrator", "%q is no privilege that may switch a server off", b.Privilege)
		}
		covered := map[string]bool{} // feeds with an outlet
		known := true
		for j, o := range v.Outlets {
			oat := fmt.Sprintf("%s.outlets[%d]", at, j)
			if pdus[o.PDU] == nil {
				if !dup { // then it is the other of the two that was meant
					c.errorf(oat+".pdu", didYouMean(o.PDU, names, "list it under pdus"), "there is no PDU %q", o.PDU)
				}
				known = false
				continue
			}
			c.between(oat+".outlet", o.Outlet, 1, 64, "")
			if who, taken := outlets[o]; taken {
				c.errorf(oat, "each supply has an outlet of its own: look at the cable", "outlet %d of PDU %s is already that of server %s: fencing one would cut the other", o.Outlet, o.PDU, who)
			}
			outlets[o] = v.Name
			covered[pdus[o.PDU].Feed] = true
		}
		fenceAgents(c, at, v, feeds, covered, devices)
		seen := map[string]bool{}
		for j, f := range v.Feeds {
			fat := fmt.Sprintf("%s.feeds[%d]", at, j)
			c.refuse(!re().word.MatchString(f), fat, "write e.g. feeds: [A, B]", "%q cannot name a power feed", f)
			oneCase(c, fat, f, feeds)
			c.refuse(seen[f], fat, "name each feed once", "feed %s of server %s is there twice", f, v.Name)
			seen[f] = true
			c.refuse(known && len(covered) > 0 && !covered[f], fat, "add the outlet of that supply", "server %s hangs on feed %s, but none of its outlets is on it: PDUs could not switch it off", v.Name, f)
		}
		if known && len(v.Feeds) > 0 {
			for f := range covered {
				c.refuse(!seen[f], at+".feeds", "mend feeds or outlets", "server %s has an outlet on feed %s, which is not among its feeds", v.Name, f)
			}
		}
		if known && len(v.Feeds) == 0 {
			for f := range covered {
				v.Feeds = append(v.Feeds, f)
			}
			sort.Strings(v.Feeds)
		}
		if !c.isHA() || !known {
			continue
		}
		const why = "a service may only start on one server after the other is surely off"
		switch {
		case !v.Controlled() && len(covered) == 0:
			c.errorf(at, "add its bmc, and its outlets on two PDUs", "server %s has no fence device: %s", v.Name, why)
		case len(covered) == 0:
			c.errorf(at+".bmc", "add outlets on PDUs as second level", "server %s has one level of fencing, its BMC, and that dies with the server's own power feed: then nothing could prove that the server is off", v.Name)
		case !v.Controlled():
			c.errorf(at+".outlets", "add its bmc as first level", "server %s has one level of fencing, PDU outlets, and a PDU dies with the power feed it hangs on: then nothing could prove that the server is off", v.Name)
		case len(covered) < 2:
			c.errorf(at+".outlets", "connect its two supplies to PDUs on two feeds", "all outlets of server %s are on power feed %s, which its BMC needs too: one failed feed takes the server and every way to fence it", v.Name, v.Feeds[0])
		}
	}
}

// pduAccess checks how a PDU is commanded.
func (c *checker) pduAccess(at string, p *PDU) {
	n := p.SNMP
	switch {
	case n == nil && p.CommunityFile == "":
		c.errorf(at, "add snmp: with a user of SNMPv3, or community_file: for a PDU that cannot do it", "nothing says how PDU %q is commanded", p.Name)
		return
	case n == nil:
		c.secretFile(at+".community_file", p.CommunityFile)
		return
	case p.CommunityFile != "":
		c.errorf(at+".community_file", "remove it, and the community from the PDU", "PDU %q has a user of SNMPv3 as well", p.Name)
	}
	// Source: RFC 3414, usmUserName: 1 to 32 octets.
	c.refuse(!re().snmpUser.MatchString(n.User), at+".snmp.user", "use 1 to 32 letters, digits or . _ @ -", "%q is not a user of SNMPv3", n.User)
	c.refuse(!slices.Contains([]string{"SHA", "SHA-256", "SHA-512"}, n.Auth), at+".snmp.auth", "use the strongest that the PDU knows: SHA, SHA-256 or SHA-512", "%q is not an authentication protocol that Mortar uses", n.Auth)
	c.refuse(!slices.Contains([]string{"AES", "AES-256"}, n.Privacy), at+".snmp.privacy", "use the stronger that the PDU knows: AES or AES-256", "%q is not an encryption that Mortar uses", n.Privacy)
	c.secretFile(at+".snmp.auth_file", n.AuthFile)
	c.secretFile(at+".snmp.privacy_file", n.PrivacyFile)
	c.refuse(n.AuthFile == n.PrivacyFile, at+".snmp.privacy_file", "use another pass phrase: who learns one must not have both", "the two pass phrases of PDU %q are in one file", p.Name)
}

// secretFile never prints what it was given: it may be the secret itself.
func (c *checker) secretFile(at, name string) {
	c.refuse(!re().file.MatchString(name), at, "name a file, e.g. secrets/bmc; the secret itself is never in the spec", "this cannot be a file name")
}

func (c *checker) systemPath(at, p, what string) bool {
	if !re().path.MatchString(p) || path.Clean(p) != p || len(p) > 200 {
		c.errorf(at, "write an absolute path of letters, digits and . _ -, e.g. /srv/home", "%q cannot be %s", p, what)
		return false
	}
	top := "/" + strings.SplitN(p[1:], "/", 2)[0]
	if slices.Contains([]string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var"}, top) || p == "/srv" || p == "/mnt" || p == "/opt" || p == "/home" && what != "a mount point" {
		c.errorf(at, "use a directory of its own, e.g. /srv/home", "%s belongs to the operating system and cannot be %s", p, what)
		return false
	}
	return true
}

func (c *checker) services() {
	s := c.s
	if s.Flavour == Lustre {
		c.servicesOK = true
		c.refuse(len(s.Services) > 0, "services", "remove them: lustre describes the one file system that is served", "flavour lustre has no services")
		return
	}
	want := 1
	if s.Flavour == NFSHAXL {
		want = 2
	}
	c.servicesOK = len(s.Services) == want
	if !c.servicesOK && !s.Given("services") {
		c.errorf("", "add it: "+docOf("Services"), "key %q is missing", "services")
		return
	}
	c.refuse(!c.servicesOK, "services", "for two services choose flavour nfs-ha-xl, for one nfs or nfs-ha", "flavour %s has %s, not %d", s.Flavour, Plural(want, "service"), len(s.Services))
	var names []string
	byPath, preferred := map[string]string{}, map[string]string{}
	for i := range s.Services {
		v := &s.Services[i]
		at := fmt.Sprintf("services[%d]", i)
		c.named(at+".name", "service", v.Name, names, re().service, "use a small letter, then letters, digits and dashes, at most 12 in all (the file system's label)")
		names = append(names, v.Name)
		if v.Server == "" && len(s.Servers) > 0 {
			v.Server = s.Servers[i%len(s.Servers)].Name
		}
		host := c.server(v.Server)
		if host == nil {
			c.unknownServer(at+".server", v.Server)
		} else if first, dup := preferred[v.Server]; dup && s.Flavour == NFSHAXL {
			c.errorf(at+".server", "let each server prefer one service", "server %s is preferred by service %s already: the other would stand idle", v.Server, first)
		}
		preferred[v.Server] = v.Name
		switch {
		case v.Address == "" && s.Flavour == NFS && host != nil:
			v.Address = host.Public
		case v.Address == "":
			c.errorf(at, "add address: a free address in "+c.public.String(), "service %s has no service address", v.Name)
		case s.Flavour == NFS && host != nil && v.Address == host.Public:
		default:
			c.address(at+".address", v.Address, c.public, "public", "service "+v.Name)
		}
		if v.Path == "" {
			v.Path = "/srv/" + v.Name
		}
		if re().service.MatchString(v.Name) && c.systemPath(at+".path", v.Path, "where a volume is mounted") {
			for other, name := range byPath {
				c.refuse(other == v.Path || within(v.Path, other) || within(other, v.Path), at+".path", "give each service a path of its own", "path %s of service %s and path %s of service %s lie in each other", v.Path, v.Name, other, name)
			}
		}
		byPath[v.Path] = v.Name
		c.exports(at, v)
	}
}

func within(p, dir string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

func (c *checker) server(name string) *Server {
	if i := slices.Index(c.s.serverNames(), name); i >= 0 {
		return &c.s.Servers[i]
	}
	return nil
}

func (s *Spec) serverNames() []string {
	return lists.Map(s.Servers, func(v Server) string { return v.Name })
}

func (c *checker) unknownServer(at, name string) {
	names := c.s.serverNames()
	c.errorf(at, didYouMean(name, names, "the servers are: "+strings.Join(names, ", ")), "there is no server %q", name)
}

func (c *checker) exports(at string, v *Service) {
	c.refuse(len(v.Exports) == 0, at+".exports", "add one: exports: [{clients: "+c.public.String()+"}]", "service %s exports nothing", v.Name)
	seen := map[string]string{}
	for i := range v.Exports {
		e := &v.Exports[i]
		eat := fmt.Sprintf("%s.exports[%d]", at, i)
		switch {
		case e.Path == "/":
			c.errorf(eat+".path", "export a directory below it, e.g. /data", "the root of the volume holds the NFS server's recovery state and cannot be exported")
		case !re().path.MatchString(e.Path) || path.Clean(e.Path) != e.Path || len(e.Path) > 200:
			c.errorf(eat+".path", "write it from the volume's root, of letters, digits and . _ -, e.g. /data", "%q cannot be exported", e.Path)
		case e.Path == "/.mortar" || within(e.Path, "/.mortar"):
			c.errorf(eat+".path", "export another directory", "%s holds the NFS server's recovery state and cannot be exported", e.Path)
		}
		world := c.exportClients(eat, e)
		key := e.Path + " " + e.Clients
		if first, dup := seen[key]; dup {
			c.errorf(eat, "remove one", "%s is exported to %s already at %s", e.Path, e.Clients, c.at(first))
		}
		seen[key] = eat
		for j := range v.Exports[:i] {
			c.refuse(e.overlaps(&v.Exports[j]), eat, "give both the same options, or write networks that do not overlap", "%s is exported to %s with other options than to %s, and clients in both would have either", e.Path, e.Clients, v.Exports[j].Clients)
		}
		c.exportOptions(eat, e, world)
	}
}

// exportOptions are those of exports(5) that a spec may name, each with what
// its value must be; nil: it has none. fsid is not among them: Mortar chooses
// it. Neither are refer and replicas: they send clients to other servers.
var exportOptions = map[string]func(value string) bool{
	"rw": nil, "ro": nil, "sync": nil, "async": nil, "wdelay": nil, "no_wdelay": nil,
	"subtree_check": nil, "no_subtree_check": nil, "root_squash": nil, "no_root_squash": nil, "all_squash": nil, "no_all_squash": nil,
	"anonuid": isID, "anongid": isID, "secure": nil, "insecure": nil, "hide": nil, "nohide": nil, "crossmnt": nil,
	"sec": listOf("sys", "krb5", "krb5i", "krb5p", "none"), "xprtsec": listOf("none", "tls", "mtls"),
	"mountpoint": func(v string) bool { return v == "" || re().path.MatchString(v) },
	"acl":        nil, "no_acl": nil, "auth_nlm": nil, "no_auth_nlm": nil, "secure_locks": nil, "insecure_locks": nil,
	"security_label": nil, "pnfs": nil, "no_pnfs": nil,
}

// listOf takes some of the words, with colons between them.
func listOf(words ...string) func(string) bool {
	return func(v string) bool {
		return !slices.ContainsFunc(strings.Split(v, ":"), func(w string) bool { return !slices.Contains(words, w) })
	}
}

// isID takes -2 for the user nobody, as people write it. exportfs cuts what has more than
// 32 bits: 4294967296 would be root. The last ID is none: the kernel refuses it.
func isID(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return s == "-2" || err == nil && n >= 0 && n < math.MaxUint32 && s[0] != '+' && s[0] != '-'
}

// exportValueMend says what an option's value must be.
var exportValueMend = map[string]string{
	"anonuid": "write a number, e.g. 65534",
	"anongid": "write a number, e.g. 65534",
	"sec":     "write sys, krb5, krb5i, krb5p or none, or some of these with colons between them, e.g. sec=krb5p:krb5i",
	"xprtsec": "write none, tls or mtls, or some of these with colons between them",
}

// exportOption checks one option by itself. The server's exportfs and its table
// see it unquoted, so no character with a meaning there may be in it.
func (c *checker) exportOption(at, option string) bool {
	name, value, valued := strings.Cut(option, "=")
	form, known := exportOptions[name]
	switch mend := "see exports(5)"; {
	case name == "fsid":
		c.errorf(at, "remove it", "fsid is chosen by Mortar: it must be the same on both servers and never change")
	case !known && !re().option.MatchString(option):
		c.errorf(at, "write one option per item, see exports(5)", "%q is not an export option", option)
	case !known:
		c.errorf(at, didYouMean(name, slices.Sorted(maps.Keys(exportOptions)), mend), "unknown export option %q", name)
	case form == nil && valued:
		c.errorf(at, "write "+name, "%q: this export option has no value", option)
	case form != nil && (valued && value == "" || !form(value) || repeats(strings.Split(value, ":"))):
		c.errorf(at, cmp.Or(exportValueMend[name], mend), "%q is not an export option: its value is wrong", option)
	default:
		return true
	}
	return false
}

func repeats(words []string) bool {
	words = slices.Sorted(slices.Values(words))
	return len(slices.Compact(slices.Clone(words))) < len(words)
}

// exportOptions checks an export's options; world: everybody may mount it.
func (c *checker) exportOptions(at string, e *Export, world bool) {
	has := map[string]bool{}
	for j, o := range e.Options {
		oat := fmt.Sprintf("%s.options[%d]", at, j)
		if !c.s.Given(oat) {
			oat = at
		}
		if !c.exportOption(oat, o) {
			continue
		}
		name, value, _ := strings.Cut(o, "=")
		switch {
		case (name == "anonuid" || name == "anongid") && strings.Trim(value, "0") == "" && world:
			c.errorf(oat, "write 65534, or name the network of your nodes in clients", "%s to %s makes anybody root of the file system, as no_root_squash would", o, e.Clients)
		case name == "async" && c.isHA():
			c.errorf(oat, "use sync: a write-back cache or SSDs make it fast, not a promise the server cannot keep", "async in an HA brick loses acknowledged writes at failover")
		case name == "no_root_squash" && world:
			c.errorf(oat, "name the network of your nodes in clients, or use root_squash", "no_root_squash to %s makes root of any machine root of the file system", e.Clients)
		case has[name]:
			c.errorf(oat, "remove one", "export option %q is there twice", name)
		}
		has[name] = true
	}
	for _, pair := range [][2]string{{"rw", "ro"}, {"sync", "async"}, {"root_squash", "no_root_squash"}, {"all_squash", "no_all_squash"},
		{"subtree_check", "no_subtree_check"}, {"secure", "insecure"}, {"wdelay", "no_wdelay"}, {"hide", "nohide"}, {"acl", "no_acl"}, {"pnfs", "no_pnfs"},
		{"auth_nlm", "no_auth_nlm"}, {"secure_locks", "insecure_locks"}} {
		c.refuse(has[pair[0]] && has[pair[1]], at+".options", "keep one of them", "export options %s and %s contradict each other", pair[0], pair[1])
	}
}

// exportClients checks who may mount, and says whether that is the world.
func (c *checker) exportClients(at string, e *Export) (world bool) {
	if strings.Contains(e.Clients, "/") {
		p, err := netip.ParsePrefix(e.Clients)
		switch {
		case err != nil || !p.Addr().Is4():
			c.errorf(at+".clients", "write address/prefix, e.g. 10.20.0.0/16", "%q is not a network", e.Clients)
		case p.Masked() != p:
			c.errorf(at+".clients", "write "+p.Masked().String(), "%s is an address in a network, not a network", e.Clients)
		}
		return err == nil && p.Bits() < 8
	}
	if strings.ContainsAny(e.Clients, "0123456789") && strings.ContainsAny(e.Clients, "*?") && numeric(e.Clients, "*?") {
		c.errorf(at+".clients", "write a network, e.g. "+c.public.String(), "%q matches no client: exports(5) compares patterns with host names, not with addresses", e.Clients)
		return true
	}
	c.refuse(!re().client.MatchString(e.Clients), at+".clients", "write a network as 10.20.0.0/16, an address or a host name, see exports(5)", "%q names no clients", e.Clients)
	return strings.ContainsAny(e.Clients, "*?")
}

// mayMount says whether a client's address is within an export's clients;
// names cannot be judged here and count as yes.
func mayMount(e *Export, a netip.Addr) bool {
	if p, err := netip.ParsePrefix(e.Clients); err == nil {
		return p.Contains(a)
	}
	if b, err := netip.ParseAddr(e.Clients); err == nil {
		return a == b
	}
	return true
}

func (c *checker) mount(v *Client, m *Mount, at string, used map[string]bool, pub netip.Addr, pubOK bool) {
	var sv *Service
	var names []string
	for k := range c.s.Services {
		names = append(names, c.s.Services[k].Name)
		if c.s.Services[k].Name == m.Service {
			sv = &c.s.Services[k]
		}
	}
	if sv == nil && c.servicesOK {
		c.errorf(at+".service", didYouMean(m.Service, names, "the services are: "+strings.Join(names, ", ")), "there is no service %q", m.Service)
	} else if sv != nil && len(sv.Exports) > 0 {
		if m.Export == "" {
			m.Export = sv.Exports[0].Path
		}
		var paths []string
		found, may := false, false
		for k := range sv.Exports {
			paths = append(paths, sv.Exports[k].Path)
			if sv.Exports[k].Path == m.Export {
				found = true
				may = may || !pubOK || mayMount(&sv.Exports[k], pub)
			}
		}
		if !found {
			c.errorf(at+".export", "its exports are: "+strings.Join(paths, ", "), "service %s does not export %q", sv.Name, m.Export)
		} else if !may {
			c.errorf(at, "widen the export's clients", "client %s (%s) may not mount %s of service %s", v.Name, pub, m.Export, sv.Name)
		}
	}
	if c.systemPath(at+".path", m.Path, "a mount point") {
		c.refuse(used[m.Path], at+".path", "mount each at a place of its own", "two mounts of client %s at %s", v.Name, m.Path)
		for other := range used {
			c.refuse(within(m.Path, other) || within(other, m.Path), at+".path", "mount each at a place of its own", "mounts %s and %s of client %s lie in each other: while the outer one hangs, no program reaches the inner one", min(m.Path, other), max(m.Path, other), v.Name)
		}
		used[m.Path] = true
	}
	if !slices.Contains(versions, m.Version) {
		c.errorf(at+".version", "use "+oneOf(versions), "NFS version %q is not served", m.Version)
	} else if c.versionsOK && !slices.Contains(c.s.NFS.Versions, m.Version) {
		c.errorf(at+".version", "add it to nfs.versions, or use "+oneOf(c.s.NFS.Versions), "NFS version %s is not among those served (nfs.versions)", m.Version)
	}
	c.transport(at+".transport", m.Transport)
	c.refuse(m.RDMA(&c.s.NFS) && !c.s.NFS.RDMA(), at+".transport", "set nfs.transport to rdma: TCP stays there for the other mounts", "client %s is to mount over RDMA, which the servers do not serve", v.Name)
	for j, o := range m.Options {
		oat := fmt.Sprintf("%s.options[%d]", at, j)
		switch name, _, _ := strings.Cut(o, "="); {
		case !re().option.MatchString(o):
			c.errorf(oat, "write one option per item, see nfs(5)", "%q is not a mount option", o)
		case name == "soft" || name == "softerr":
			c.errorf(oat, "remove it: hard is used", "a %s mount gives programs I/O errors during a failover and loses their data", name)
		case name == "vers" || name == "nfsvers":
			c.errorf(oat, "use the key version", "the NFS version is not set among the options")
		case name == "proto" || name == TCP || name == "udp" || name == RDMA:
			c.errorf(oat, "use the key transport", "the transport is not set among the options")
		case name == "minorversion":
			c.errorf(oat, "use the key version", "the NFS version is not set among the options")
		default:
			c.mountOption(oat, o, "NFS", "nfs(5)", nfsMount)
		}
	}
}

var versions = []string{"3", "4.1", "4.2"}

func (c *checker) transport(at, v string) {
	c.refuse(v != "" && v != TCP && v != RDMA, at, "use tcp or rdma", "unknown transport %q", v)
}

func (c *checker) nfs() {
	n := &c.s.NFS
	c.between("nfs.threads", n.Threads, 1, 8192, "") // NFSD_MAXSERVS in the kernel's fs/nfsd/nfssvc.c
	c.transport("nfs.transport", n.Transport)
	c.refuse(len(n.Versions) == 0, "nfs.versions", "use versions: [3, 4.1, 4.2]", "no NFS version is served")
	seen := map[string]bool{}
	c.versionsOK = true
	for i, v := range n.Versions {
		at := fmt.Sprintf("nfs.versions[%d]", i)
		if !slices.Contains(versions, v) {
			mend := "use " + oneOf(versions)
			if v == "4" || v == "4.0" {
				mend += "; 4.0 has no RECLAIM_COMPLETE, so each failover would wait for the whole grace period"
			}
			c.versionsOK = false
			c.errorf(at, mend, "NFS version %q is not served", v)
		} else if seen[v] {
			c.errorf(at, "remove one", "NFS version %s is there twice", v)
		}
		seen[v] = true
	}
	c.versionsOK = c.versionsOK && len(n.Versions) > 0
	lo, why := 10, "" // nfsd(7): nfsv4leasetime
	if c.isHA() {
		lo, why = 30, ": in HA a shorter lease makes clients lose their locks during a failover"
	}
	leaseOK := n.Lease >= lo && n.Lease <= 3600
	c.refuse(!leaseOK, "nfs.lease", fmt.Sprintf("choose %d to 3600 seconds", lo), "lease is %d s%s", n.Lease, why)
	if n.Grace < 10 || n.Grace > 3600 {
		c.errorf("nfs.grace", "choose 10 to 3600 seconds", "grace is %d s", n.Grace)
	} else if leaseOK && n.Grace < n.Lease {
		if c.s.Given("nfs.grace") {
			c.errorf("nfs.grace", "make it at least as long", "grace (%d s) is shorter than the lease (%d s): clients that renew late could not reclaim their locks", n.Grace, n.Lease)
		} else {
			n.Grace = n.Lease
		}
	}
}

func (c *checker) filesystem() {
	f := &c.s.Filesystem
	if c.s.Flavour == Lustre {
		c.refuse(c.s.Given("filesystem"), "filesystem", "remove it: Lustre's targets are ldiskfs", "flavour lustre has no file system of its own choice")
		return
	}
	c.refuse(f.Type != "xfs", "filesystem.type", "use xfs", "file system %q is not built", f.Type)
	for i, o := range f.Mount {
		at := fmt.Sprintf("filesystem.mount[%d]", i)
		switch name, _, _ := strings.Cut(o, "="); {
		case !re().option.MatchString(o):
			c.errorf(at, "write one option per item, see xfs(5)", "%q is not a mount option", o)
		case name == "sunit" || name == "swidth" || name == "norecovery" || name == "nouuid":
			c.errorf(at, "remove it", "mount option %s would override what the file system was made with", name)
		default:
			c.mountOption(at, o, "XFS", "xfs(5)", xfsMount)
		}
	}
}

func (c *checker) ha() {
	s := c.s
	if !c.isHA() {
		c.refuse(s.HA != nil && s.Flavour == NFS, "ha", "remove it, or choose flavour nfs-ha", "flavour nfs has one server and no cluster")
		return
	}
	if s.HA == nil {
		s.HA = &HA{Token: 1000, Failback: "manual", FenceTestDays: 200, Reservations: "on"}
	}
	// A Linux client renews its lease at two thirds of it (kernel, fs/nfs/nfs4renewd.c). A
	// server that freezes for less than the token goes on without a takeover and a grace period.
	if lease := s.NFS.Lease; c.between("ha.token_ms", s.HA.Token, 500, 60000, " ms") && s.Flavour != Lustre && s.Profile != Stock && lease >= 30 && lease <= 3600 && s.HA.Token > lease*1000/3 {
		c.errorf("ha.token_ms", fmt.Sprintf("choose at most %d ms, a third of the lease, or a longer nfs.lease (and nfs.grace)", lease*1000/3),
			"token_ms is %d ms, and the lease %d s: a server that freezes for almost the token wakes to expired leases, and its clients lose their locks without a grace period", s.HA.Token, lease)
	}
	c.between("ha.fence_test_days", s.HA.FenceTestDays, 1, 3650, " days")
	c.refuse(s.HA.Failback != "manual" && s.HA.Failback != "auto", "ha.failback", "use manual or auto", "failback is %q", s.HA.Failback)
	switch bare := s.Flavour == Lustre || slices.ContainsFunc(s.Sets(), func(set Set) bool { return set.Storage.Volume == "device" }); {
	case s.HA.Reservations == "on":
	case s.HA.Reservations != "off":
		c.errorf("ha.reservations", "use on or off", "reservations is %q", s.HA.Reservations)
	case bare && len(s.Arrays) > 0:
		c.errorf("ha.reservations", "remove it", "reservations is off: nothing else keeps two servers from writing to a LUN without a volume group")
	}
}

func (c *checker) rack() {
	r := &c.s.Rack
	c.refuse(!slices.Contains(distro.Suites(), r.Suite), "rack.suite", "use "+strings.Join(distro.Suites(), " or "), "%q is not a Debian release the rack can boot", r.Suite)
	c.refuse(r.Mirror != "" && !re().mirror.MatchString(r.Mirror), "rack.mirror", "write a URL as in sources.list", "%q is not a mirror's address", r.Mirror)
	c.refuse(r.IOPS < 0 || r.IOPS > 10_000_000, "rack.iops", "choose 0 (no throttle) or more", "iops is %d", r.IOPS)
	switch {
	case r.RDMA == "off":
	case r.RDMA != "on":
		c.errorf("rack.rdma", "use on or off", "rdma is %q", r.RDMA)
	case !c.s.SoftRoCE():
		c.errorf("rack.rdma", "remove it, or write lustre.lnet: o2ib", "nothing of this brick uses RDMA")
	}
}

// Plural counts things: "1 disk", "2 disks".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
