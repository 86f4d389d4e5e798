package spec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// preparation refuses what no server can be.
func preparation(c *checker) {
	p := c.s.Preparation
	if p == nil {
		return
	}
	onOff := []string{"on", "off"}
	for _, k := range []struct {
		key, have string
		words     []string
	}{
		{"logical_processor", string(p.LogicalProcessor), onOff},
		{"sub_numa", string(p.SubNUMA), onOff},
		{"flow_control", string(p.FlowControl), onOff},
		{"power_profile", p.PowerProfile, []string{"performance", "powersave", "schedutil", "ondemand"}}, // kernel: admin-guide/pm/cpufreq
		{"pool_mode", p.PoolMode, []string{"global", "percpu", "pernode", "auto"}},                       // kernel: admin-guide/kernel-parameters, sunrpc.pool_mode
	} {
		at := "preparation." + k.key
		c.refuse(k.have != "" && !slices.Contains(k.words, k.have), at, didYouMean(k.have, k.words, "use "+oneOf(k.words)), "%s is %q", k.key, k.have)
	}
	c.refuse(p.PoolMode != "" && c.s.Flavour == Lustre, "preparation.pool_mode", "remove it", "pool_mode is of nfsd, which a Lustre brick does not run")
	c.refuse(p.Swap != 0 && (p.Swap < 64*MiB || p.Swap > 4*TiB), "preparation.swap", "choose 64MiB to 4TiB, or remove it", "swap is %s", p.Swap.Binary())
	for _, name := range slices.Sorted(maps.Keys(p.Versions)) {
		c.refuse(!strings.ContainsAny(p.Versions[name], "0123456789"), "preparation.versions."+name, "write the least version that is good", "%q is no version of %s", p.Versions[name], name)
	}
	c.between("preparation.mirror_spares", p.MirrorSpares, 0, 8, "")
}

// chainForm is a chain of nftables as `nft list chain` takes it. Only these families see packets
// to the host. Source: nft(8).
var chainForm = regexp.MustCompile(`^(inet|ip) [A-Za-z][A-Za-z0-9_./\\-]{0,62} [A-Za-z][A-Za-z0-9_./\\-]{0,62}$`)

// firewall refuses chains that nft would not take.
func firewall(c *checker) {
	f := c.s.Firewall
	if f == nil {
		return
	}
	kinds := []string{"nftables", "firewalld"}
	c.refuse(!slices.Contains(kinds, f.Kind), "firewall.kind", didYouMean(f.Kind, kinds, "use "+oneOf(kinds)), "unknown firewall %q", f.Kind)
	c.refuse(c.s.Profile == Stock, "firewall", "remove it, or use profile: tuned", "the ports of profile stock change with each start: no rule can open them")
	switch {
	case f.Kind == "firewalld":
		c.refuse(c.s.Given("firewall.chains"), "firewall.chains", "remove it", "firewalld has no chains of its own choice")
		f.Chains = nil
	case len(f.Chains) == 0 && c.s.Given("firewall.chains"):
		c.errorf("firewall.chains", "leave it out for inet filter input, or name the chain that drops", "no chain is named")
	case len(f.Chains) == 0:
		f.Chains = []string{"inet filter input"}
	}
	for i, chain := range f.Chains {
		at := fmt.Sprintf("firewall.chains[%d]", i)
		c.refuse(!chainForm.MatchString(chain), at, "write family, table and name, e.g. inet filter input; `nft list ruleset` prints them", "%q is no chain that sees packets to a host", chain)
		c.refuse(slices.Contains(f.Chains[:i], chain), at, "remove one", "chain %s is there twice", chain)
	}
}
