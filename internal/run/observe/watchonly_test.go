package observe

import (
	"testing"
	"time"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// An agent that may only watch answers the requests of status and watch for every
// kind of brick, and no others.
func TestMayWatch(t *testing.T) {
	for _, name := range []string{"nfs", "nfs-ha", "nfs-ha-xl", "nfs-dfc", "nss2-ha", "nss5.5", "lustre-brick", "lustre-small"} {
		b, err := examples.FS.ReadFile(name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(name+".yaml", b)
		if err != nil {
			t.Fatal(err)
		}
		d, err := design.Derive(s)
		if err != nil {
			t.Fatal(err)
		}
		reqs := requests(d, time.Minute)
		countTraffic(d, reqs)
		for i := range d.Arrays {
			for _, host := range d.Arrays[i].Servers {
				r := reqs[host]
				r.Run = append(r.Run, toolsFor(&d.Arrays[i])...)
				if err := r.MayWatch(); err != nil {
					t.Errorf("%s, %s: %v", name, host, err)
				}
			}
		}
		for _, kind := range []string{"nftables", "firewalld"} {
			d.Spec.Firewall = &spec.Firewall{Kind: kind}
			for _, server := range d.Servers() {
				if err := prepared.Request(d, server).MayWatch(); err != nil {
					t.Errorf("%s, %s, preparation: %v", name, server, err)
				}
			}
		}
		for host, r := range reqs {
			if err := r.MayWatch(); err != nil {
				t.Errorf("%s, %s: %v", name, host, err)
			}
		}
	}
	for _, r := range []gather.Request{
		{Files: []string{"/etc/shadow"}}, {Files: []string{"/etc/corosync/authkey"}}, {Files: []string{"/proc/1/environ"}}, {Files: []string{"/proc/kcore"}},
		{Files: []string{"/sys/block/../../etc/shadow"}}, {Files: []string{"/proc/mdstat\n/etc/shadow"}}, {Links: []string{"/proc/1/root/etc/*"}},
		{Files: []string{"/srv/home/../../etc/shadow/etab"}}, {Files: []string{"/**/etab"}},
		{Run: [][]string{{"crm_mon", "--output-as=html", "--output-to=/etc/cron.d/x"}}}, {Run: [][]string{{"cibadmin", "--query"}}}, {Run: [][]string{{"tail", "/etc/shadow"}}},
		{Run: [][]string{{"/usr/local/sbin/mortar", "host-cache", "stats", "/etc/shadow"}}}, {Run: [][]string{{"/tmp/x", "/cALL", "show", "all", "J", "nolog"}}},
		{Run: [][]string{{"SMcli", "-o", "/etc/cron.d/x", "-S", "-c", "show storageArray healthStatus;"}}},
		{Outlets: []gather.OutletAsk{{}}},
		{Plan: true},
	} {
		if err := r.MayWatch(); err == nil {
			t.Errorf("%+v is answered", r)
		}
	}
}
