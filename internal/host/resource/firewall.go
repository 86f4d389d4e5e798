package resource

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Firewall opens ports of a brick in the firewall that the site has on a host. It adds one
// object of the brick's own, and changes and flushes none of the site's: with nftables a chain
// in the table of each of Chains, and one jump to it at the head of that chain; with firewalld
// a policy.
//
// A chain of its own in a table of its own would open nothing: what it accepts goes on to
// the site's chain, which drops it. Source: nft(8), accept.
type Firewall struct {
	Brick  string
	Kind   string   // nftables or firewalld; "": what an earlier apply has opened is closed
	Chains []string // of nftables: family, table and name
	Doors  []Door
}

// Door is what is let in.
type Door struct {
	What  string
	Proto string
	Ports []int
	From  []string // none: from anywhere
}

func (f *Firewall) Identity() (kind, id string) { return "firewall", f.Brick }

// Diff compares the files that come into force with the site's firewall, and what is in force.
func (f *Firewall) Diff(sys Look) ([]Action, error) {
	var as []Action
	for _, part := range []func(Look) ([]Action, error){f.nftables, f.firewalld} {
		more, err := part(sys)
		if err != nil {
			return nil, err
		}
		as = append(as, more...)
	}
	return as, nil
}

// Packages are those of the firewall, which have its name in all distributions.
func (f *Firewall) Packages() []string { return strings.Fields(f.Kind) }

func (f *Firewall) own() string    { return "mortar-" + f.Brick }
func (f *Firewall) script() string { return "/etc/mortar/firewall-" + f.Brick + ".nft" }

// tag is the comment of each rule, by which the rules are known to be the wanted ones.
func (f *Firewall) tag() string {
	return fmt.Sprintf("mortar %x", sha256.Sum256([]byte(fmt.Sprint(f.Doors))))[:len("mortar ")+12]
}

func (f *Firewall) nftables(sys Look) ([]Action, error) {
	on := f.Kind == "nftables"
	if !on && !sys.Exists(f.script()) {
		return nil, nil
	}
	var live []*linux.NFTChain
	if out, installed := sys.Command(linux.NFTCommand...); installed {
		sys.Succeeded(out, linux.NFTCommand...)
		var err error
		if live, err = linux.ParseNFT(out.Stdout); err != nil {
			return nil, err
		}
		for _, want := range f.Chains {
			if on && !slices.ContainsFunc(live, func(c *linux.NFTChain) bool { return c.Path() == want }) {
				return nil, Refuse("firewall-chain-gone", With{"chain": want})
			}
		}
	}
	// The site's rules come by nftables.service, and each load of them flushes ours.
	const unit = "nftables.service"
	load := "-/usr/sbin/nft -f " + f.script()
	as := reloaded(sys, unit, sys.Want(
		&TextFile{Path: f.script(), Content: []byte(Header + f.change(nil)), Absent: !on, Why: "ports of the brick"},
		&TextFile{Path: linux.SystemdDir + unit + ".d/" + f.own() + ".conf", Absent: !on, Why: "each load of the site's rules flushes the brick's: they are added again",
			Content: []byte(Header + "[Service]\nExecStartPost=" + load + "\nExecReload=" + load + "\n")},
	))
	if text := f.change(live); text != "" {
		title := "open the brick's ports in nftables"
		if !on {
			title = "close the brick's ports in nftables"
		}
		as = append(as, Action{Title: title, Cmd: []string{"nft", "-f", "-"}, Stdin: []byte(text)})
	}
	return as, nil
}

// Shut says what is missing of the wanted rules in a ruleset, "" if nothing is.
func (f *Firewall) Shut(live []*linux.NFTChain) string {
	if f.change(live) == "" {
		return ""
	}
	return "the chain " + f.own() + " or the jump to it is not as apply has made it"
}

// Barriers are other chains of a ruleset that drop what the wanted rules accept, unless they have
// rules of their own for it, and those through which answers do not go out.
func (f *Firewall) Barriers(live []*linux.NFTChain) (in, out []string) {
	for _, c := range live {
		switch {
		case slices.Contains(f.Chains, c.Path()):
		case c.Closed("ingress", "prerouting", "input"):
			in = append(in, c.Path())
		case c.Closed("output", "postrouting"):
			out = append(out, c.Path())
		}
	}
	return in, out
}

// change is a script of nft that makes the wanted chains and jumps out of a ruleset, "" if
// they are there. nft carries it out in full or not at all.
func (f *Firewall) change(live []*linux.NFTChain) string {
	chains := f.Chains
	if f.Kind != "nftables" {
		chains = nil
	}
	tables := map[string]bool{} // family and table: there is a chain of the brick to be
	for _, c := range chains {
		tables[c[:strings.LastIndex(c, " ")]] = true
	}
	have, jumps := map[string]*linux.NFTChain{}, map[string][]int{}
	for _, c := range live {
		if c.Name == f.own() {
			have[c.Family+" "+c.Table] = c
		}
		for _, r := range c.Rules {
			if r.Jump == f.own() {
				jumps[c.Path()] = append(jumps[c.Path()], r.Handle)
			}
		}
	}
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(jumps)) {
		for i, h := range jumps[path] {
			if i > 0 || !slices.Contains(chains, path) {
				fmt.Fprintf(&b, "delete rule %s handle %d\n", path, h)
			}
		}
	}
	for _, t := range slices.Sorted(maps.Keys(have)) {
		if !tables[t] {
			fmt.Fprintf(&b, "flush chain %[1]s %[2]s\ndelete chain %[1]s %[2]s\n", t, f.own())
		}
	}
	for _, t := range slices.Sorted(maps.Keys(tables)) {
		if c := have[t]; c == nil || len(c.Rules) != len(f.Doors) || slices.ContainsFunc(c.Rules, func(r linux.NFTRule) bool { return r.Comment != f.tag() }) {
			b.WriteString(f.rules(t + " " + f.own()))
		}
	}
	for _, c := range chains {
		if jumps[c] == nil {
			fmt.Fprintf(&b, "insert rule %s jump %s comment \"mortar\"\n", c, f.own())
		}
	}
	return b.String()
}

// rules fills the brick's chain.
func (f *Firewall) rules(chain string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "add chain %[1]s\nflush chain %[1]s\n", chain)
	for _, d := range f.Doors {
		from := ""
		if len(d.From) > 0 {
			from = "ip saddr { " + strings.Join(d.From, ", ") + " } "
		}
		fmt.Fprintf(&b, "# %s\nadd rule %s %s%s dport { %s } accept comment \"%s\"\n", d.What, chain, from, d.Proto, strings.Join(d.ports(), ", "), f.tag())
	}
	return b.String()
}

func (d Door) ports() []string {
	return lists.Map(d.Ports, strconv.Itoa)
}

// policy is what firewalld calls the brick's policy: it takes at most 17 letters.
func (f *Firewall) policy() string { return "m-" + f.Brick }

// Rich are the wanted rules as firewall-cmd prints them, sorted.
// Source: firewalld.richlanguage(5).
func (f *Firewall) Rich() []string {
	var out []string
	f.eachDoor(func(from, proto, port string) {
		out = append(out, fmt.Sprintf(`rule family="ipv4"%s port port="%s" protocol="%s" accept`, strings.TrimSuffix(` source address="`+from+`"`, ` source address=""`), port, proto))
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// HasRich says whether what RichCommand prints is the wanted rules, in any order.
func (f *Firewall) HasRich(printed string) bool {
	have := strings.Split(strings.TrimSpace(printed), "\n")
	slices.Sort(have)
	return slices.Equal(have, f.Rich())
}

func (f *Firewall) eachDoor(do func(from, proto, port string)) {
	for _, d := range f.Doors {
		from := d.From
		if len(from) == 0 {
			from = []string{""}
		}
		for _, a := range from {
			for _, p := range d.ports() {
				do(a, d.Proto, p)
			}
		}
	}
}

// RichCommand prints the rules of the brick's policy that are in force.
func (f *Firewall) RichCommand() []string {
	return []string{"firewall-cmd", "--policy=" + f.policy(), "--list-rich-rules"}
}

func (f *Firewall) firewalld(sys Look) ([]Action, error) {
	on, file := f.Kind == "firewalld", "/etc/firewalld/policies/"+f.policy()+".xml"
	if !on && !sys.Exists(file) {
		return nil, nil
	}
	// A negative priority: the policy is asked before the site's zones. Source: firewalld.policies(5)
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<policy priority=\"-100\" target=\"CONTINUE\">\n  <short>" + f.own() + "</short>\n" +
		"  <description>Written by mortar apply; changes here are lost.</description>\n  <ingress-zone name=\"ANY\"/>\n  <egress-zone name=\"HOST\"/>\n")
	f.eachDoor(func(from, proto, port string) {
		b.WriteString(`  <rule family="ipv4">`)
		if from != "" {
			b.WriteString(`<source address="` + from + `"/>`)
		}
		b.WriteString(`<port port="` + port + `" protocol="` + proto + `"/><accept/></rule>` + "\n")
	})
	b.WriteString("</policy>\n")
	out, installed := sys.Command(f.RichCommand()...)
	const invalidPolicy = 140 // it has none of the name. Source: firewall-cmd(1), exit codes
	if installed && out.Code != 0 && out.Code != invalidPolicy {
		return nil, Refuse("firewalld-silent", With{"exit": out.Code, "stderr": strings.TrimSpace(out.Stderr)})
	}
	as := sys.Want(&TextFile{Path: file, Content: []byte(b.String()), Absent: !on, Why: "ports of the brick"})
	if gone := out.Code != 0; len(as) > 0 || on && (gone || !f.HasRich(out.Stdout)) || !on && !gone {
		as = append(as, Action{Title: "reload firewalld", Cmd: []string{"firewall-cmd", "--reload"},
			Why: "it reads the file; what the site has changed in the running firewall only, without --permanent, is lost"})
	}
	return as, nil
}
