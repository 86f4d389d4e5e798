package spec

import (
	"net/netip"
	"slices"
	"strings"
)

// Rules for what a site writes by habit: values that other programs take, and that do
// something else here than they say.

// noNetworks are ranges in which no host of a brick can have its address.
// Source: IANA IPv4 Special-Purpose Address Registry.
var noNetworks = [][2]string{
	{"0.0.0.0/8", "stands for no address"}, {"127.0.0.0/8", "is loopback, which no other host reaches"},
	{"169.254.0.0/16", "is link-local, whose addresses change"}, {"224.0.0.0/4", "is multicast, which no host has"}, {"240.0.0.0/4", "is reserved"},
}

// noNetwork says why a network cannot be that of a brick, or "".
func noNetwork(p netip.Prefix) string {
	for _, n := range noNetworks {
		if netip.MustParsePrefix(n[0]).Overlaps(p) {
			return n[1]
		}
	}
	return ""
}

// numeric says whether text is made like an address: digits and dots, and jokers.
func numeric(text, jokers string) bool { return strings.Trim(text, "0123456789."+jokers) == "" }

// hostName refuses names that programs take for something else.
func hostName(c *checker, at, name string) {
	switch low := strings.ToLower(name); {
	case low == "localhost" || strings.HasPrefix(low, "localhost."):
		c.errorf(at, "write the name that `uname -n` prints", "host name %q means each host itself: the partner and Corosync would reach the wrong one", name)
	case name != "" && numeric(name, ""):
		c.errorf(at, "give the host a name with a letter", "host name %q is a number, which programs take for an address", name)
	}
}

// loginAddress checks the address that SSH goes to: one in network nw, or a host name,
// which no other host has. Nothing that a takeover needs uses it.
func loginAddress(c *checker, at, text string, nw netip.Prefix, nwName, owner string, shared ...string) {
	low := strings.ToLower(text)
	// The last label of a name in DNS has a letter (RFC 3696, section 2), and 10.1.0.1l is a slip.
	dot := strings.LastIndexByte(low, '.')
	if _, err := netip.ParseAddr(text); err != nil && !numeric(text, "") && !re().host.MatchString(text) {
		c.errorf(at, "write an IP address, e.g. "+example(nw)+", or a host name", "%q is neither an IP address nor a host name", text)
		return
	}
	if !re().host.MatchString(text) || len(text) > 253 || numeric(low[dot+1:], "") || dot > 0 && numeric(low[:dot], "") {
		c.address(at, text, nw, nwName, owner, shared...)
		return
	}
	hostName(c, at, text)
	if other, known := c.names[low]; known && other != strings.TrimSuffix(at, "address")+"name" {
		c.errorf(at, "write that of "+owner, "address %s of %s is the name of another host, at %s", text, owner, c.at(other))
		return
	}
	if first, dup := c.names["SSH to "+low]; dup {
		c.errorf(at, "give each its own address", "address %s of %s is already there at %s", text, owner, c.at(first))
		return
	}
	c.names["SSH to "+low] = at
}

// IPs are a server's IP addresses on the brick's networks, each once. A host name is no
// evidence about a server: it is left out.
func (s *Spec) IPs(server string) []string {
	var out []string
	for _, v := range s.Servers {
		for _, a := range []string{v.Address, v.Public, v.Private} {
			if _, err := netip.ParseAddr(a); v.Name == server && err == nil && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// oneCase refuses a feed that differs in case only from another one: as two feeds they
// would pass for two supplies that fail independently.
func oneCase(c *checker, at, feed string, feeds map[string]string) {
	low := strings.ToLower(feed)
	if first, known := feeds[low]; known && first != feed {
		c.errorf(at, "write both in one way, or give a second feed another name", "power feeds %q and %q differ in case only: fencing would count one feed as two", feed, first)
		return
	}
	feeds[low] = feed
}

// overlaps says whether one export's networks overlap, with other rights, those of an
// earlier export of its directory. exports(5) sets the order of kinds of clients, not
// that of two networks.
func (e *Export) overlaps(other *Export) bool {
	a, errA := netip.ParsePrefix(e.Clients)
	b, errB := netip.ParsePrefix(other.Clients)
	mine, its := slices.Sorted(slices.Values(e.Options)), slices.Sorted(slices.Values(other.Options))
	return e.Path == other.Path && errA == nil && errB == nil && a != b && a.Overlaps(b) && !slices.Equal(mine, its)
}

// genericMount are options that mount(8) takes for every file system.
const genericMount = ` rw async sync dirsync atime noatime relatime norelatime strictatime nostrictatime diratime nodiratime lazytime nolazytime
	dev nodev suid nosuid exec noexec mand nomand iversion noiversion silent loud defaults context fscontext defcontext rootcontext seclabel _netdev nofail auto noauto nouser group owner user users`

// xfsMount are the options of xfs(5), removed ones too: the design leaves those out and
// says so. Source: xfs(5); kernel, fs/xfs/xfs_super.c.
const xfsMount = ` allocsize attr2 noattr2 barrier nobarrier dax delaylog nodelaylog discard nodiscard grpid bsdgroups nogrpid sysvgroups filestreams ikeep noikeep
	inode32 inode64 largeio nolargeio lifetime nolifetime logbufs logbsize max_atomic_write noalign noquota quota uquota usrquota uqnoenforce qnoenforce
	gquota grpquota gqnoenforce pquota prjquota pqnoenforce swalloc wsync`

// nfsMount are the options of nfs(5) without those of version and transport.
const nfsMount = ` ro hard intr nointr softreval nosoftreval timeo retrans rsize wsize ac noac acregmin acregmax acdirmin acdirmax actimeo bg fg nconnect
	max_connect rdirplus nordirplus retry sec sharecache nosharecache resvport noresvport lookupcache fsc nofsc sloppy xprtsec cert_serial privkey_serial
	trunkdiscovery notrunkdiscovery port mountport mountproto mounthost mountvers namlen lock cto nocto acl noacl posix noposix clientaddr migration nomigration bsize`

// undoes has options that a mount program takes, and that undo what the design rests on.
var undoes = map[string]string{
	"remount": "changes a mount that is there: the file system would not be mounted",
	"bind":    "mounts a directory, not a file system", "rbind": "mounts a directory, not a file system",
	"loop":   "mounts a file, not the volume",
	"nolock": "keeps locks on the client: two clients would have the same lock", "local_lock": "keeps locks on the client: two clients would have the same lock",
	"logdev": "puts the journal on a device that does not move with the service", "rtdev": "puts data on a device that does not move with the service",
}

// mountOption refuses an option that the file system does not know or that undoes the design.
func (c *checker) mountOption(at, option, fs, page, known string) {
	name, _, _ := strings.Cut(option, "=")
	all := strings.Fields(known + genericMount)
	switch why := undoes[name]; {
	case name == "ro" && !slices.Contains(all, name):
		c.errorf(at, "remove it; an export with the option ro is read only for clients", "mount option ro keeps the NFS server from writing its recovery state")
	case why != "":
		c.errorf(at, "remove it", "mount option %s %s", name, why)
	case !slices.Contains(all, name) && !strings.HasPrefix(name, "x-"):
		c.errorf(at, didYouMean(name, all, "see "+page), "%s has no mount option %q: the mount would fail", fs, name)
	}
}
