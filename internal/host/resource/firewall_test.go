package resource

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/netns"
)

// nftHost is a host on paper whose nftables is real, in a network namespace.
type nftHost struct {
	*Paper
	space string
}

func (h *nftHost) Query(ctx context.Context, argv ...string) (out Output, err error) {
	if argv[0] != "nft" {
		return h.Paper.Query(ctx, argv...)
	}
	return h.run(argv, "")
}

func (h *nftHost) run(argv []string, stdin string) (out Output, err error) {
	err = netns.Do(h.space, func() error {
		var stdout, stderr bytes.Buffer
		c := exec.Command(argv[0], argv[1:]...)
		c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &stdout, &stderr
		err := c.Run()
		out = Output{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
		return err
	})
	return out, err
}

// apply carries the actions out, and wants no more to be left.
func (h *nftHost) apply(t *testing.T, f *Firewall) {
	t.Helper()
	for _, a := range diff(t, f, h) {
		switch {
		case a.File != nil && a.File.Remove:
			delete(h.Files, a.File.Path)
		case a.File != nil:
			h.Files[a.File.Path] = string(a.File.Content)
		case a.Cmd[0] == "nft":
			if out, err := h.run(a.Cmd, string(a.Stdin)); err != nil {
				t.Fatalf("%v: %v\n%s\n%s", a.Cmd, err, out.Stderr, a.Stdin)
			}
		}
	}
	if as := diff(t, f, h); len(as) > 0 {
		t.Errorf("not converged:\n%s", show(as))
	}
}

func (h *nftHost) ruleset(t *testing.T) string {
	t.Helper()
	out, err := h.run([]string{"nft", "list", "ruleset"}, "")
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout
}

const siteRules = `flush ruleset
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		tcp dport 22 accept
	}
	chain forward { type filter hook forward priority filter; policy drop; }
}
table ip other {
	set bad { type ipv4_addr; elements = { 192.0.2.1 }; }
	chain input { type filter hook input priority 10; ip saddr @bad drop; }
}
`

// The real nftables lets in what the doors name, from whom they name; all else is as the site had it.
func TestFirewallNFTables(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: a network namespace with rules of its own cannot be made")
		return
	}
	space := fmt.Sprintf("mortar-test-%d", os.Getpid())
	if err := netns.Make(space); err != nil {
		t.Fatal(err)
	}
	defer netns.Remove(space)
	h := &nftHost{&Paper{Files: map[string]string{}, Outputs: map[string]Output{"systemctl show --property=NeedDaemonReload": {Stdout: "no\n"}}}, space}
	load := func(rules string) {
		t.Helper()
		if out, err := h.run([]string{"nft", "-f", "-"}, rules); err != nil {
			t.Fatal(err, out.Stderr)
		}
	}
	f := &Firewall{Brick: "brick-1", Kind: "nftables", Chains: []string{"inet filter input"}, Doors: []Door{{"NFS", "tcp", []int{111, 2049}, []string{"127.0.0.2/31", "10.1.0.0/16", "10.0.0.0/8"}}}}
	refused(t, f, h, "firewall-chain-gone", "chain", "inet filter input")

	load(siteRules)
	before := h.ruleset(t)
	if open := h.opens(t, "127.0.0.2", 2049); open {
		t.Error("the site's firewall lets in what it should drop")
	}
	h.apply(t, f)
	for _, c := range []struct {
		from string
		port int
		open bool
	}{{"127.0.0.2", 2049, true}, {"127.0.0.3", 111, true}, {"127.0.0.4", 2049, false}, {"127.0.0.2", 2050, false}, {"127.0.0.4", 22, true}} {
		if open := h.opens(t, c.from, c.port); open != c.open {
			t.Errorf("port %d from %s: %v\n%s", c.port, c.from, open, h.ruleset(t))
		}
	}
	// What the site's service does: it loads its rules, and after them the brick's.
	load(siteRules)
	load(h.Files[f.script()])
	if as := diff(t, f, h); len(as) > 0 || !h.opens(t, "127.0.0.2", 2049) {
		t.Errorf("after a reload: %s", show(as))
	}
	// Someone loads the rules by hand, or changes a rule.
	load(siteRules)
	h.apply(t, f)
	load("add rule inet filter mortar-brick-1 accept\ninsert rule inet filter input jump mortar-brick-1")
	h.apply(t, f)
	if n := strings.Count(h.ruleset(t), "jump mortar-brick-1"); n != 1 || h.opens(t, "127.0.0.4", 2049) {
		t.Errorf("%d jumps, or open to all\n%s", n, h.ruleset(t))
	}
	f.Doors[0].Ports = []int{2049}
	h.apply(t, f)
	if h.opens(t, "127.0.0.2", 111) {
		t.Error("a port that is closed stays open")
	}
	// Another table that drops is not ours to change.
	f.Chains = append(f.Chains, "ip other input")
	h.apply(t, f)
	f.Chains, f.Kind, f.Doors = nil, "", nil
	h.apply(t, f)
	if after := h.ruleset(t); after != before || len(h.Files) != 0 {
		t.Errorf("the site had\n%s\nand has, after the brick's ports were closed,\n%s\n%v", before, after, h.Files)
	}
}

// opens says whether a connection from an address to a port comes about.
func (h *nftHost) opens(t *testing.T, from string, port int) (open bool) {
	t.Helper()
	err := netns.Do(h.space, func() error {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		defer l.Close()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 300 * time.Millisecond}
		c, err := d.Dial("tcp4", l.Addr().String())
		if err == nil {
			c.Close()
		}
		open = err == nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// firewalld gets a policy of the brick's own, which is compared with what is in force.
func TestFirewalld(t *testing.T) {
	f := &Firewall{Brick: "brick1", Kind: "firewalld", Doors: []Door{{"NFS", "tcp", []int{2049}, []string{"10.1.0.0/16"}}, {"any", "udp", []int{111}, nil}}}
	list := strings.Join(f.RichCommand(), " ")
	h := &Paper{Files: map[string]string{}, Outputs: map[string]Output{list: {Code: 140}}}
	as := diff(t, f, h)
	if len(as) != 2 || as[0].File.Path != "/etc/firewalld/policies/m-brick1.xml" || as[1].Cmd[1] != "--reload" {
		t.Fatal(show(as))
	}
	h.Files[as[0].File.Path] = string(as[0].File.Content)
	if as := diff(t, f, h); len(as) != 1 {
		t.Errorf("killed before the reload: %s", show(as))
	}
	h.Outputs[list] = Output{Stdout: "rule family=\"ipv4\" port port=\"111\" protocol=\"udp\" accept\nrule family=\"ipv4\" source address=\"10.1.0.0/16\" port port=\"2049\" protocol=\"tcp\" accept\n"}
	if as := diff(t, f, h); len(as) != 0 {
		t.Errorf("in force: %s", show(as))
	}
	h.Outputs[list] = Output{Code: 252}
	refused(t, f, h, "firewalld-silent", "exit", "252")
	f.Kind, f.Doors = "", nil
	h.Outputs[list] = Output{}
	if as := diff(t, f, h); len(as) != 2 || !as[0].File.Remove {
		t.Errorf("closed: %s", show(as))
	}
}
