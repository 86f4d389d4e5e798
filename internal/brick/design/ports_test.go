package design

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What each host lets in, and the page that lists the ports for a site's own firewall.
func TestOpenings(t *testing.T) {
	show := func(d *Design, host string) string {
		var b strings.Builder
		for _, o := range Openings(d, host) {
			fmt.Fprintf(&b, "%s %v from %v\n", o.Proto, o.Ports, o.From)
		}
		return b.String()
	}
	nfs, named := example(t, "nfs-ha"), example(t, "nfs-ha")
	named.Pairs[0].Services[0].Exports[0].Clients = "*.example.org"
	v4 := example(t, "nfs")
	v4.Spec.NFS.Versions = []string{"4.1"}
	for _, c := range []struct {
		d          *Design
		host, want string
	}{
		{nfs, "nfs1", "tcp [2049] from [10.77.1.0/24]\ntcp [111 20048 32765 32767] from [10.77.1.0/24]\nudp [111 32765 32767] from [10.77.1.0/24]\nudp [5405] from [10.77.2.12]\nudp [5406] from [10.77.1.12]\n"},
		{nfs, "c1", "tcp [111 32765 32767] from [10.77.1.100 10.77.1.11 10.77.1.12]\nudp [111 32765 32767] from [10.77.1.100 10.77.1.11 10.77.1.12]\n"},
		{named, "nfs2", "tcp [2049] from []\ntcp [111 20048 32765 32767] from []\nudp [111 32765 32767] from []\nudp [5405] from [10.77.2.11]\nudp [5406] from [10.77.1.11]\n"},
		{v4, "nfs1", "tcp [2049] from [10.77.1.0/24]\n"},
		{v4, "c1", ""},
		{example(t, "lustre-small"), "c1", "tcp [988] from [10.20.0.11 10.20.0.12 10.20.0.13 10.20.0.14]\n"},
	} {
		if diff := cmp.Diff(c.want, show(c.d, c.host)); diff != "" {
			t.Errorf("%s of %s:\n%s", c.host, c.d.Flavour, diff)
		}
	}
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{rpcbindPort, nfsPort, mountdPort, statdPort, lockdPort, lnetPort, corosyncPort, corosyncPort + 1} {
		if !strings.Contains(string(page), fmt.Sprint(port)) {
			t.Errorf("docs/security.md does not list port %d", port)
		}
	}
}
