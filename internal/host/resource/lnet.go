package resource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// LNet is Lustre's network on a node: the option of its kernel module, and
// what is up.
type LNet struct {
	Networks string // as the module takes them: "tcp(eth1)", "o2ib(ib0),tcp1(eth1,eth2)"
	// Address is the host's own on the first network. The interface that has it is used, whatever its
	// name is on this host.
	Address string `json:",omitempty"`
}

// lnetConf is where the option stands.
const lnetConf = "/etc/modprobe.d/lustre.conf"

func (l *LNet) Identity() (kind, id string) { return "lnet", l.Networks }

// Diff compares the option, and what lnetctl shows.
//
// The module takes the option when it is loaded, and `lnetctl lnet configure`
// brings those networks up only with --all. Without it, and so after Lustre's
// own unit lnet.service, nothing but the loopback network is up. Seen with
// Lustre 2.17.57; source: lnetctl(8).
func (l *LNet) Diff(sys Look) ([]Action, error) {
	want, err := parseNetworks(l.Networks)
	if err != nil {
		return nil, err
	}
	networks := l.Networks
	if l.Address != "" {
		networks = l.onAddress(sys, want)
	}
	as := sys.Want(&TextFile{Path: lnetConf, Content: []byte(Header +
		"# The interface Lustre speaks through. Source: Lustre Operations Manual, 9\n" +
		"options lnet networks=\"" + networks + "\"\n")})
	if !sys.Exists("/sys/module/lnet") {
		return append(as,
			Action{Title: "load lnet", Cmd: []string{"modprobe", "lnet"}},
			Action{Title: "bring LNet up: " + networks, Cmd: []string{"lnetctl", "lnet", "configure", "--all"}}), nil
	}
	running, up := lnetUp(sys)
	if !running {
		as = append(as, Action{Title: "start LNet", Cmd: []string{"lnetctl", "lnet", "configure"}})
	}
	for _, w := range want {
		more, err := w.bringUp(up)
		if err != nil {
			return nil, err
		}
		as = append(as, more...)
	}
	return as, nil
}

// onAddress puts the interface that has the host's address in the place of the first network's.
func (l *LNet) onAddress(sys Look, want []lnetwork) string {
	all := sys.Links()
	if all == nil {
		return l.Networks // a plan without hosts
	}
	link, ok := linux.LinkWith(all, l.Address)
	if !ok {
		sys.Check(Refuse("lnet-no-address", With{"address": l.Address, "network": want[0].name}))
	}
	want[0].interfaces = []string{link.Name}
	words := lists.Map(want, lnetwork.String)
	return strings.Join(words, ",")
}

// String is the network as the module takes it.
func (w lnetwork) String() string {
	if len(w.interfaces) == 0 {
		return w.name
	}
	return w.name + "(" + strings.Join(w.interfaces, ",") + ")"
}

// bringUp compares a network with those that are up.
func (w lnetwork) bringUp(up []lnetwork) ([]Action, error) {
	i := slices.IndexFunc(up, func(n lnetwork) bool { return n.name == w.name })
	switch {
	case i >= 0 && (len(w.interfaces) == 0 || SameSet(w.interfaces, up[i].interfaces)):
		return nil, nil
	case i >= 0:
		return nil, Refuse("lnet-other-interface", With{"network": w.name, "interfaces": up[i].interfaces, "want": w.interfaces})
	}
	argv := []string{"lnetctl", "net", "add", "--net", w.name}
	if len(w.interfaces) > 0 {
		argv = append(argv, "--if", strings.Join(w.interfaces, ","))
	}
	return []Action{{Title: "bring LNet network " + w.name + " up", Cmd: argv}}, nil
}

// lnetwork is one network of LNet.
type lnetwork struct {
	name       string
	interfaces []string
}

// parseNetworks reads the module's option.
// Source: lustre-release, lnet/lnet/config.c, lnet_parse_networks.
func parseNetworks(s string) ([]lnetwork, error) {
	bad := fmt.Errorf("LNet networks %q: want network(interface), for example tcp(eth1)", s)
	var out []lnetwork
	for s != "" {
		end := strings.IndexAny(s, ",(")
		n := lnetwork{}
		switch {
		case end < 0:
			n.name, s = s, ""
		case s[end] == ',':
			n.name, s = s[:end], s[end+1:]
		default:
			inside, rest, ok := strings.Cut(s[end+1:], ")")
			if !ok || rest != "" && rest[0] != ',' || inside == "" {
				return nil, bad
			}
			n.name, n.interfaces, s = s[:end], strings.Split(inside, ","), strings.TrimPrefix(rest, ",")
		}
		if n.name = plainNet(n.name); n.name == "" {
			return nil, bad
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, bad
	}
	return out, nil
}

// plainNet gives a network the name that lnetctl shows: tcp0 is tcp.
func plainNet(name string) string {
	name = strings.TrimSpace(name)
	if base := strings.TrimSuffix(name, "0"); base != name && strings.TrimRight(base, "0123456789") == base {
		return base
	}
	return name
}

// lnetUp asks which networks are up, the loopback one left out. LNet is loaded.
func lnetUp(sys Look) (running bool, up []lnetwork) {
	argv := []string{"lnetctl", "net", "show"}
	out, installed := sys.Command(argv...)
	if !installed || out.Code != 0 && strings.Contains(out.Stderr, "LNet stack down") {
		return false, nil
	}
	sys.Succeeded(out, argv...)
	up, err := parseLNet(out.Stdout)
	sys.Check(err)
	return true, up
}

// parseLNet reads `lnetctl net show`.
func parseLNet(s string) ([]lnetwork, error) {
	var doc struct {
		Net []struct {
			Type string `yaml:"net type"`
			NIs  []struct {
				Interfaces map[string]string `yaml:"interfaces"`
			} `yaml:"local NI(s)"`
		} `yaml:"net"`
	}
	if err := yaml.Unmarshal([]byte(health.Body(s, "net:\n")), &doc); err != nil {
		return nil, fmt.Errorf("lnetctl net show: %w", err)
	}
	var out []lnetwork
	for _, n := range doc.Net {
		if n.Type == "lo" {
			continue
		}
		w := lnetwork{name: plainNet(n.Type)}
		for _, i := range n.NIs {
			for _, name := range i.Interfaces {
				w.interfaces = append(w.interfaces, name)
			}
		}
		out = append(out, w)
	}
	return out, nil
}
