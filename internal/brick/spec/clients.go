package spec

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
)

// MaxClients is how many clients a brick may have. The state of NFS has room for 14,000 (package
// serve/nfs), and nfsd for three times their connections: 20,000, one each for NFSv4 and NFSv3.
const MaxClients = 10_000

// maxThreads is how many nfsd threads are the default at most. A thread keeps about a MiB for
// the largest request.
const maxThreads = 1024

// defaultThreads is the number of nfsd threads of a spec that names none.
func (s *Spec) defaultThreads() int {
	most := maxThreads
	for _, v := range s.Servers {
		if v.Memory > 0 { // one server may have all services
			most = min(most, int(v.Memory/(16*MiB))/max(1, len(s.Services)))
		}
	}
	return max(s.NFS.Threads, min(2*s.nodes, most))
}

// clients checks the clients, and puts those of a range in its place.
func (c *checker) clients() {
	s := c.s
	var all []Client
	for i := range s.Clients {
		v := s.Clients[i]
		v.at = fmt.Sprintf("clients[%d]", i)
		group, ok := clientsOf(c, v)
		if s.nodes += max(v.Count, len(group)); s.nodes > MaxClients {
			c.errorf(v.at, "give some of them another brick", "with these the brick has %d clients; at most %d are possible", s.nodes, MaxClients)
			break
		}
		for k := range group {
			if found := c.found; ok && !oneClient(c, &group[k], len(group) > 1) && found < c.found {
				break // the others of the range have the same fault
			}
		}
		all = append(all, group...)
	}
	s.Clients = all
	if !s.Given("nfs.threads") {
		s.NFS.Threads = s.defaultThreads()
	}
}

// clientsOf lists the clients of an entry: one, those of its range, or none that has a name.
// ok is false after an error.
func clientsOf(c *checker, v Client) (all []Client, ok bool) {
	found := c.found
	if c.s.Given(v.at + ".count") {
		c.refuse(v.Name+v.Address+v.HostKey+v.Public != "" || v.Memory != 0 || v.Mounts != nil || v.Load, v.at+".count", "write count alone; of clients that Mortar mounts on, write a range: name: c[001-400]", "count is for nodes that Mortar does not log in to, which have no other key")
		c.refuse(v.Count < 1, v.at+".count", fmt.Sprintf("choose 1 to %d", MaxClients), "count is %d", v.Count)
		return nil, false
	}
	for _, k := range [][2]string{{"name", v.Name}, {"address", v.Address}, {"public", v.Public}} {
		c.refuse(k[1] == "" && !c.s.Given(v.at+"."+k[0]), v.at, "add it; or write count: 400 for nodes that are only counted", "key %q is missing in client", k[0])
	}
	m := re().ranges.FindStringSubmatch(v.Name)
	if m == nil || found < c.found {
		return []Client{v}, found == c.found
	}
	names, err := expand(m, MaxClients, "clients")
	if err != nil {
		c.split(v.at+".name", "", err)
		return nil, false
	}
	address, err := netip.ParseAddr(v.Address)
	if err != nil {
		c.errorf(v.at+".address", "write the IP address of the first one, or list the clients one by one", "the addresses of a range count up from an IP address, which %q is not", v.Address)
		return nil, false
	}
	public, _ := netip.ParseAddr(v.Public) // what is none fails with the first client
	for i, name := range names {
		one := v
		one.Name = name
		if i > 0 && public.IsValid() {
			address, public = address.Next(), public.Next()
			one.Address, one.Public = address.String(), public.String()
		}
		all = append(all, one)
	}
	return all, true
}

// oneClient checks a client; one of a range as far as the first fault, which it reports by false.
func oneClient(c *checker, v *Client, ranged bool) bool {
	s, found := c.s, c.found
	c.host(v.at, v.Name, v.HostKey)
	if ranged && found < c.found {
		return false
	}
	pub, ok := c.address(v.at+".public", v.Public, c.public, "public", "client "+v.Name)
	if ranged && !ok {
		return false
	}
	nw, nwName := c.management, "management"
	if a, err := netip.ParseAddr(v.Address); err == nil && c.public.IsValid() && c.public.Contains(a) {
		nw, nwName = c.public, "public" // compute nodes are often reached over the network they mount by
	}
	loginAddress(c, v.at+".address", v.Address, nw, nwName, "client "+v.Name, "client "+v.Name)
	c.refuse(v.Memory != 0 && (v.Memory < 256*MiB || v.Memory > 64*TiB), v.at+".memory", "choose 256MiB to 64TiB", "client %s has %s of memory", v.Name, v.Memory)
	if s.Flavour == Lustre {
		c.refuse(len(v.Mounts) > 0, v.at+".mounts", "remove them: every client mounts the file system at lustre.mount", "clients of a Lustre file system have no NFS mounts")
		return found == c.found
	}
	used := map[string]bool{}
	for j := range v.Mounts {
		c.mount(v, &v.Mounts[j], fmt.Sprintf("%s.mounts[%d]", v.at, j), used, pub, ok)
	}
	if len(v.Mounts) == 0 && ok {
		for k := range s.Services {
			sv := &s.Services[k]
			if len(sv.Exports) > 0 && !mayMount(&sv.Exports[0], pub) {
				c.errorf(v.at+".public", "widen services.exports.clients, or give the client an address in it", "client %s (%s) may not mount %s of service %s, which is exported to %s", v.Name, pub, sv.Exports[0].Path, sv.Name, sv.Exports[0].Clients)
			}
		}
	}
	return found == c.found
}

// Groups are the words that Select takes for several hosts.
var Groups = []string{"servers", "clients", "load"}

// Select lists the servers and clients that words name: a host, a range of hosts, or one of
// Groups. Its error names the first word that names no host.
func (s *Spec) Select(words []string) (map[string]bool, error) {
	hosts, known := map[string][]string{}, slices.Clone(Groups)
	for _, v := range s.Servers {
		hosts["servers"] = append(hosts["servers"], v.Name)
	}
	for _, v := range s.Clients {
		hosts["clients"] = append(hosts["clients"], v.Name)
		if v.Load {
			hosts["load"] = append(hosts["load"], v.Name)
		}
	}
	for _, name := range slices.Concat(hosts["servers"], hosts["clients"]) {
		hosts[name], known = []string{name}, append(known, name) // a host comes before a group of its name
	}
	out := map[string]bool{}
	for _, w := range words {
		names := []string{w}
		if m := re().ranges.FindStringSubmatch(w); m != nil {
			var err error
			if names, err = expand(m, MaxClients, "hosts"); err != nil {
				return nil, err
			}
		}
		for _, n := range names {
			switch {
			case len(hosts[n]) > 0:
			case slices.Contains(Groups, n):
				return nil, fmt.Errorf("%s: group %s has no host; name hosts, or another group", s.File, n)
			default:
				return nil, fmt.Errorf("%s: no host or group is named %q; %s", s.File, n, didYouMean(n, known, "name hosts, ranges of them such as c[001-040], "+oneOf(Groups)))
			}
			for _, h := range hosts[n] {
				out[h] = true
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no host is named; name hosts, ranges of them such as c[001-040], %s", s.File, oneOf(Groups))
	}
	return out, nil
}

// Ranges writes names, in their order, in as few words: c01, c02 and c03 as c[01-03].
func Ranges(names []string) []string {
	var out []string
	number := regexp.MustCompile(`^(.*?)([0-9]{1,9})([^0-9]*)$`)
	for i := 0; i < len(names); {
		end := i + 1
		m := number.FindStringSubmatch(names[i])
		if m != nil {
			at, _ := strconv.Atoi(m[2])
			for end < len(names) && names[end] == fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), at+end-i, m[3]) && len(names[end]) == len(names[i]) {
				end++
			}
			if end > i+1 {
				out = append(out, fmt.Sprintf("%s[%s-%0*d]%s", m[1], m[2], len(m[2]), at+end-i-1, m[3]))
				i = end
				continue
			}
		}
		out = append(out, names[i])
		i = end
	}
	return out
}
