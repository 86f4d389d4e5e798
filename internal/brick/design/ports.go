package design

import (
	"net/netip"
	"slices"
	"strings"
)

// Ports that no program asks the kernel for: a firewall between clients and servers can name
// them. They are below those that the kernel hands out (32768 and up, ip(7)), so no other program
// has one when a service starts.
const (
	mountdPort  = 20048 // registered with IANA
	statdPort   = 32765
	statdOut    = 32766 // statd calls from there
	lockdPort   = 32767
	rpcbindPort = 111
	nfsPort     = 2049
	lnetPort    = 988
	// Corosync's knet has a port for each link. Source: corosync 3, totemconfig.c (ip_port).
	corosyncPort = 5405
)

// FixedPorts are those of NFSv3 behind the firewall of a host, by the number of the program.
// A service with a network of its own is behind none. Source: rpc(5).
func FixedPorts(d *Design) map[string]int {
	if s := d.Services()[0]; s.NFS == nil || s.Namespace != "" {
		return nil
	}
	return map[string]int{"100005": mountdPort, "100024": statdPort, "100021": lockdPort}
}

// Opening is what a host lets in, so that the brick works.
type Opening struct {
	What  string   `json:"what"`
	Proto string   `json:"proto"` // tcp or udp
	Ports []int    `json:"ports"`
	From  []string `json:"from"` // networks and addresses; none: from anywhere
}

// Openings are what a server lets in; of a client, where NFSv3 calls back.
// SSH, by which Mortar comes, is the site's. RDMA passes by firewalls of hosts.
func Openings(d *Design, host string) []Opening {
	nlm := slices.Contains(d.Spec.NFS.Versions, "3") && d.Lustre == nil
	if !slices.Contains(d.Servers(), host) {
		var from []string
		for _, s := range d.Spec.Servers {
			from = append(from, s.Public)
		}
		for _, s := range d.Services() {
			if s.NFS != nil {
				from = append(from, s.Address)
			}
		}
		switch from = widest(from); {
		case d.Lustre != nil:
			return []Opening{{"Lustre's servers", "tcp", []int{lnetPort}, from}}
		case nlm:
			return []Opening{
				{"NFSv3 locks granted, and servers that come back", "tcp", []int{rpcbindPort, statdPort, lockdPort}, from},
				{"NFSv3 locks granted, and servers that come back", "udp", []int{rpcbindPort, statdPort, lockdPort}, from},
			}
		}
		return nil
	}
	p := d.PairWith(host)
	var out []Opening
	if d.Lustre != nil {
		out = append(out, Opening{"Lustre", "tcp", []int{lnetPort}, []string{d.Spec.Networks.Public.CIDR}})
	} else {
		var from []string
		for i := range p.Services {
			for _, e := range p.Services[i].Exports {
				from = append(from, e.Clients)
			}
		}
		for i, c := range from {
			_, network := netip.ParsePrefix(c)
			_, address := netip.ParseAddr(c)
			switch {
			case network == nil || address == nil:
			case strings.ContainsAny(c, "*?"):
				from[i] = "0.0.0.0/0"
			default: // a name, of a host on the clients' network
				from[i] = d.Spec.Networks.Public.CIDR
			}
		}
		from = widest(from)
		out = append(out, Opening{"NFS", "tcp", []int{nfsPort}, from})
		if nlm {
			out = append(out, Opening{"NFSv3: rpcbind, mountd, statd, lockd", "tcp", []int{rpcbindPort, mountdPort, statdPort, lockdPort}, from},
				Opening{"NFSv3: rpcbind, statd, lockd", "udp", []int{rpcbindPort, statdPort, lockdPort}, from})
		}
	}
	if p.HA != nil {
		for ring := range p.HA.Nodes[0].Rings {
			o := Opening{"Corosync", "udp", []int{corosyncPort + ring}, nil}
			for _, n := range p.HA.Nodes {
				if n.Name != host {
					o.From = append(o.From, n.Rings[ring])
				}
			}
			out = append(out, o)
		}
	}
	return out
}

// widest are networks and addresses, sorted, each once. None: the world.
func widest(all []string) []string {
	slices.Sort(all)
	if slices.ContainsFunc(all, func(s string) bool { return strings.HasSuffix(s, "/0") }) {
		return nil
	}
	return slices.Compact(all)
}
