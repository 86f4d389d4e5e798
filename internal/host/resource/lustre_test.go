package resource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseNetworks(t *testing.T) {
	for in, want := range map[string][]lnetwork{
		"tcp(eth1)":                 {{"tcp", []string{"eth1"}}},
		"tcp0(eth1)":                {{"tcp", []string{"eth1"}}},
		"o2ib(ib0),tcp10(eth1,en2)": {{"o2ib", []string{"ib0"}}, {"tcp10", []string{"eth1", "en2"}}},
		"tcp":                       {{"tcp", nil}},
	} {
		got, err := parseNetworks(in)
		if d := cmp.Diff(want, got, cmp.AllowUnexported(lnetwork{})); err != nil || d != "" {
			t.Errorf("%s: %v %s", in, err, d)
		}
	}
	for _, in := range []string{"", "tcp(", "tcp()", "(eth0)", "tcp(eth0)x"} {
		if got, err := parseNetworks(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func lnetHost(t *testing.T) *Paper {
	t.Helper()
	return &Paper{
		Files:   map[string]string{lnetConf: Header + "# The interface Lustre speaks through. Source: Lustre Operations Manual, 9\noptions lnet networks=\"tcp(eth1)\"\n", "/sys/module/lnet/refcnt": "3\n"},
		Outputs: map[string]Output{"lnetctl net show": recorded(t, "lnetctl-up")},
	}
}

func TestLNet(t *testing.T) {
	l := &LNet{Networks: "tcp(eth1)"}
	wantShow(t, diff(t, l, &Paper{}), "write /etc/modprobe.d/lustre.conf 0644\nmodprobe lnet\nlnetctl lnet configure --all")
	sys := lnetHost(t)
	if as := diff(t, l, sys); len(as) != 0 {
		t.Errorf("a second apply would change: %s", show(as))
	}
	refused(t, &LNet{Networks: "tcp(eth0)"}, sys, "lnet-other-interface", "network", "tcp", "interfaces", "eth1", "want", "eth0")

	wantShow(t, diff(t, &LNet{Networks: "tcp(eth1),tcp1(eth2)"}, sys), "write /etc/modprobe.d/lustre.conf 0644\nlnetctl net add --net tcp1 --if eth2")

	// The interface is the one with the host's address, whatever its name.
	const links = `[{"ifname":"lo","mtu":65536,"addr_info":[{"local":"127.0.0.1"}]},{"ifname":"eth1","mtu":1500,"addr_info":[{"local":"10.20.0.13"}]}]`
	sys.Outputs["ip -json address show"] = Output{Stdout: links}
	if as := diff(t, &LNet{Networks: "tcp(ens1f0)", Address: "10.20.0.13"}, sys); len(as) != 0 {
		t.Errorf("eth1 has the address: %s", show(as))
	}
	refused(t, &LNet{Networks: "tcp(ens1f0)", Address: "10.20.0.99"}, sys, "lnet-no-address", "address", "10.20.0.99")

	// Nothing is up but the loopback network: lnet.service of Lustre leaves it so.
	sys.Outputs["lnetctl net show"] = recorded(t, "lnetctl-loopback")
	wantShow(t, diff(t, l, sys), "lnetctl net add --net tcp --if eth1")
	sys.Outputs["lnetctl net show"] = Output{Code: 234, Stderr: recorded(t, "lnetctl-down-stderr").Stdout}
	wantShow(t, diff(t, l, sys), "lnetctl lnet configure\nlnetctl net add --net tcp --if eth1")
	sys.Outputs["lnetctl net show"] = Output{Code: 234, Stderr: "Writer error: failed to resolve Netlink family id\n"}
	if as, err := Diff(t.Context(), sys, l); err == nil || !strings.Contains(err.Error(), "exit code 234: Writer error") {
		t.Errorf("lnetctl that fails: %v, %v", as, err)
	}
}

// mgs is a host on which the MGS runs.
func mgs(t *testing.T) *Paper {
	t.Helper()
	return &Paper{Files: map[string]string{mgsDir + "/uuid": "MGS\n"}, Outputs: map[string]Output{
		"lctl --device MGS llog_print params": recorded(t, "llog-params"),
		"lctl get_param timeout":              {Stdout: "timeout=20\n"},
		"lctl get_param osc.*.max_dirty_mb":   recorded(t, "get_param-osc"),
		"lctl pool_list home":                 recorded(t, "pool-list"),
		"lctl pool_list home.flash":           recorded(t, "pool-list-flash"),
	}}
}

func TestLustreParam(t *testing.T) {
	sys := mgs(t)
	for _, p := range []*LustreParam{{Name: "timeout", Value: "20"}, {Name: "osc.*.max_dirty_mb", Value: "256"}} {
		if as := diff(t, p, sys); len(as) != 0 {
			t.Errorf("a second apply would change %s: %s", p.Name, show(as))
		}
	}
	wantShow(t, diff(t, &LustreParam{Name: "timeout", Value: "30"}, sys), "lctl set_param -P timeout=30")
	wantShow(t, diff(t, &LustreParam{Name: "at_min", Value: "5"}, sys), "lctl set_param -P at_min=5")
	none := mgs(t)
	none.Outputs["lctl --device MGS llog_print params"] = Output{Code: 2, Stderr: "params: OBD_IOC_LLOG_PRINT failed: No such file or directory\n"}
	wantShow(t, diff(t, &LustreParam{Name: "timeout", Value: "20"}, none), "lctl set_param -P timeout=20")

	// A server that is no client has none, and that is fine.
	sys.Outputs["lctl get_param osc.*.max_dirty_mb"] = Output{Code: 2, Stderr: "error: get_param: param_path 'osc/*/max_dirty_mb': No such file or directory\n"}
	if as := diff(t, &LustreParam{Name: "osc.*.max_dirty_mb", Value: "256"}, sys); len(as) != 0 {
		t.Errorf("a server without such a device: %s", show(as))
	}
	// Words are kept as given.
	if as := diff(t, &LustreParam{Name: "jobid_name", Value: "%e.%u"}, sys); len(as) != 0 {
		t.Errorf("a second apply would change jobid_name: %s", show(as))
	}

	sys.Outputs["lctl get_param timeout"] = Output{Stdout: "timeout=100\n"}
	as := diff(t, &LustreParam{Name: "timeout", Value: "20"}, sys)
	wantShow(t, as, "lctl set_param timeout=20")
	if as[0].Why != "timeout is 100" {
		t.Errorf("why: %q", as[0].Why)
	}

	home := &LustreParam{Name: "timeout", Value: "20", Home: true}
	wantShow(t, diff(t, home, &Paper{}), "lctl set_param -P timeout=20")
	for name, as := range map[string][]Action{
		"the partner, before the cluster runs": diff(t, &LustreParam{Name: "timeout", Value: "20"}, &Paper{}),
		"its home, while the partner has it":   diff(t, home, otherNode),
	} {
		if len(as) != 0 {
			t.Errorf("%s: %s", name, show(as))
		}
	}
}

func TestLustrePool(t *testing.T) {
	sys := mgs(t)
	p := &LustrePool{FSName: "home", Name: "flash", OSTs: []int{0, 1}}
	if as := diff(t, p, sys); len(as) != 0 {
		t.Errorf("a second apply would change: %s", show(as))
	}
	wantShow(t, diff(t, &LustrePool{FSName: "home", Name: "flash", OSTs: []int{1, 10}}, sys),
		"lctl pool_add home.flash home-OST000a\nlctl pool_remove home.flash home-OST0000")
	wantShow(t, diff(t, &LustrePool{FSName: "home", Name: "disk", OSTs: []int{0, 1}}, sys),
		"lctl pool_new home.disk\nlctl pool_add home.disk home-OST0000 home-OST0001")
	p.Home = true
	wantShow(t, diff(t, p, &Paper{}), "lctl pool_new home.flash\nlctl pool_add home.flash home-OST0000 home-OST0001")
	if as := diff(t, p, otherNode); len(as) != 0 {
		t.Errorf("its home, while the partner has it: %s", show(as))
	}
	// An apply that was cut short before the OSS is taken up.
	early := mgs(t)
	early.Outputs["lctl pool_list home"] = Output{Code: 12}
	wantShow(t, diff(t, &LustrePool{FSName: "home", Name: "flash", OSTs: []int{0}}, early), "lctl pool_new home.flash\nlctl pool_add home.flash home-OST0000")
}

func TestLustreStriping(t *testing.T) {
	l := &LustreStriping{Path: "/mnt/home", Count: 2, Size: 4 << 20, Pool: "flash"}
	set := "lfs setstripe --stripe-count 2 --stripe-size 4194304 --pool flash /mnt/home"
	sys := &Paper{Files: map[string]string{"/proc/self/mounts": ""}}
	wantShow(t, diff(t, l, sys), set)
	sys.Files["/proc/self/mounts"] = recorded(t, "mounts-client").Stdout
	sys.Outputs = map[string]Output{"lfs getstripe --directory --yaml /mnt/home": recorded(t, "getstripe-default")}
	wantShow(t, diff(t, l, sys), set)
	sys.Outputs = map[string]Output{"lfs getstripe --directory --yaml /mnt/home": recorded(t, "getstripe-set")}
	if as := diff(t, l, sys); len(as) != 0 {
		t.Errorf("a second apply would change: %s", show(as))
	}
	// A pool goes only with the whole default.
	wantShow(t, diff(t, &LustreStriping{Path: "/mnt/home", Count: 2, Size: 4 << 20}, sys),
		"lfs setstripe --delete /mnt/home\nlfs setstripe --stripe-count 2 --stripe-size 4194304 /mnt/home")
}

// recorded is what a tool of Lustre 2.17.57 printed.
func recorded(t *testing.T, name string) Output {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/lustre-2.17.57", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return Output{Stdout: string(b)}
}

var otherNode = &Paper{Files: map[string]string{"/sys/fs/cgroup/cluster.slice/pacemaker.service/cgroup.procs": "812\n"}}
