package linux

import (
	"encoding/json"
	"fmt"
	"slices"
)

// NFTCommand prints the ruleset that ParseNFT reads. Source: libnftables-json(5).
var NFTCommand = []string{"nft", "-j", "list", "ruleset"}

// NFTChain is a chain of nftables.
type NFTChain struct {
	Family, Table, Name string
	Hook                string // "": only jumps reach it
	Rules               []NFTRule
	policy              string
}

// NFTRule is as much of a rule as decides about packets to ports that it may not know.
type NFTRule struct {
	Handle  int
	Comment string
	Jump    string // chain that every packet goes to; "": none
	Drops   bool   // it drops or rejects every packet
}

func (c *NFTChain) Path() string { return c.Family + " " + c.Table + " " + c.Name }

// Closed says whether the chain sees packets of a hook and drops those that no rule of it
// accepts. What another chain has accepted is dropped there all the same.
// Source: nft(8), accept: "packets … may still be dropped by a later base chain".
func (c *NFTChain) Closed(hooks ...string) bool {
	return slices.Contains(hooks, c.Hook) && (c.policy == "drop" || slices.ContainsFunc(c.Rules, func(r NFTRule) bool { return r.Drops }))
}

// ParseNFT reads a ruleset: its chains in order, each with its rules.
func ParseNFT(text string) ([]*NFTChain, error) {
	var doc struct {
		Nftables []struct {
			Chain *struct{ Family, Table, Name, Hook, Policy string }
			Rule  *struct {
				Family, Table, Chain, Comment string
				Handle                        int
				Expr                          []map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("ruleset of nftables: %w", err)
	}
	var all []*NFTChain
	for _, x := range doc.Nftables {
		if c := x.Chain; c != nil {
			all = append(all, &NFTChain{Family: c.Family, Table: c.Table, Name: c.Name, Hook: c.Hook, policy: c.Policy})
		}
		if x.Rule == nil {
			continue
		}
		r := NFTRule{Handle: x.Rule.Handle, Comment: x.Rule.Comment}
		r.decide(x.Rule.Expr)
		for _, c := range all {
			if c.Family == x.Rule.Family && c.Table == x.Rule.Table && c.Name == x.Rule.Chain {
				c.Rules = append(c.Rules, r)
			}
		}
	}
	return all, nil
}

// decide reads what a rule does with every packet: nothing in front of its verdict compares.
func (r *NFTRule) decide(expr []map[string]json.RawMessage) {
	for _, e := range expr {
		for kind, raw := range e {
			switch kind {
			case "counter", "log":
				continue
			case "jump":
				var to struct{ Target string }
				_ = json.Unmarshal(raw, &to) // another form is no jump of ours
				r.Jump = to.Target
			case "drop", "reject":
				r.Drops = true
			}
			return
		}
	}
}
