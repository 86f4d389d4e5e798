package prepared

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Firewall is what is open on a host of a brick. Without a kind it is what is closed again.
func Firewall(d *design.Design, host string) *resource.Firewall {
	f := &resource.Firewall{Brick: d.Name}
	w := d.Spec.Firewall
	if w == nil || !w.Clients && !slices.Contains(d.Servers(), host) {
		return f
	}
	for _, o := range design.Openings(d, host) {
		f.Doors = append(f.Doors, resource.Door(o))
	}
	if len(f.Doors) > 0 {
		f.Kind, f.Chains = w.Kind, w.Chains
	}
	return f
}

const nftSource = "nft(8), accept; docs/security.md"

// firewall judges what of the brick's rules is in force, and what stands in their way.
func (f facts) firewall(server string) (out []Finding) {
	w := Firewall(f.d, server)
	add := func(kind Kind, what, have, want, why, mend string, byApply bool) {
		out = append(out, Finding{kind, what, have, want, why, nftSource, mend, byApply})
	}
	const whole, mend = "the brick's rules", "`mortar apply {spec}`; a site's rules that were loaded by hand flush the brick's: load them by `systemctl reload nftables`"
	switch w.Kind {
	case "":
		return nil
	case "nftables":
		res := f.Run[strings.Join(linux.NFTCommand, " ")]
		live, err := linux.ParseNFT(res.Stdout)
		if err != nil || res.Err != "" || res.Code != 0 {
			add(Untold, "its firewall", "", "open for the brick", "nft has no answer that can be read", "", true)
			break
		}
		if shut := w.Shut(live); shut != "" {
			add(Differs, "its firewall", "shut", "open for the brick", shut, mend, true)
		}
		in, outward := w.Barriers(live)
		for _, c := range in {
			add(Differs, "chain "+c, "one that drops", "one that lets the brick in", "a packet that "+whole+" accept comes to this chain all the same", "name it under firewall.chains, or see that it accepts the ports itself and needs no rule of Mortar", false)
		}
		for _, c := range outward {
			add(Differs, "chain "+c, "one that drops", "one that lets answers out", "Mortar opens ports to the host only", "accept established connections and the servers' own there", false)
		}
	case "firewalld":
		res := f.Run[strings.Join(w.RichCommand(), " ")]
		if res.Err != "" || res.Code != 0 || !w.HasRich(res.Stdout) {
			add(Differs, "its firewall", "shut", "open for the brick", "firewalld does not have "+whole, "`mortar apply {spec}`", true)
		}
	}
	return append(out, f.ports()...)
}

// ports compares where the daemons of NFSv3 are with where a firewall lets clients in.
func (f facts) ports() (out []Finding) {
	have := linux.ParseRPC(f.Run[strings.Join(linux.RPCCommand, " ")].Stdout)
	for _, program := range slices.Sorted(maps.Keys(have)) {
		want, fixed := design.FixedPorts(f.d)[program]
		if at := strings.Join(have[program], " and "); fixed && at != strconv.Itoa(want) {
			out = append(out, Finding{Differs, "the port of RPC program " + program, at, strconv.Itoa(want), "it was started before the port was fixed, and the firewall does not let clients in there", nftSource,
				"move the service away (`mortar failover {spec}`); on a single server `systemctl restart rpc-statd nfs-server`", false})
		}
	}
	return out
}
