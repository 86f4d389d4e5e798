package prepared

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

func brick(t *testing.T, name, more string) *design.Design {
	t.Helper()
	b, err := examples.FS.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", append(b, "\n"+more+"\n"...))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func told(files map[string]string) *gather.Host {
	h := &gather.Host{Files: map[string]string{kernelFile: "6.12.43+deb13-amd64\n", builtFile: "#1 SMP PREEMPT_DYNAMIC Debian 6.12.43-1 (2025-08-27)\n"}, Run: map[string]gather.RunResult{}}
	maps.Copy(h.Files, files)
	return h
}

func said(all []Finding) string {
	var b strings.Builder
	for _, f := range all {
		b.WriteString(map[Kind]string{Differs: "differs", Untold: "untold", Bad: "bad"}[f.Kind] + " " + f.What + ": " + f.Have + " / " + f.Want + "\n")
	}
	return b.String()
}

const wholePreparation = "preparation: {logical_processor: off, sub_numa: on, power_profile: performance, flow_control: on, pool_mode: pernode, swap: 4GiB, mirror_spares: 1}"

// two is a server of two sockets with a NUMA node each, set up as the spec has it but for BIOS.
var two = map[string]string{
	smtActive: "1\n",
	"/sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n", "/sys/devices/system/cpu/cpu1/topology/physical_package_id": "1\n",
	"/sys/devices/system/node/node0/cpulist": "0\n", "/sys/devices/system/node/node1/cpulist": "1\n", "/sys/devices/system/node/node2/cpulist": "\n",
	"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n", "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
	"/sys/module/sunrpc/parameters/pool_mode": "pernode\n",
	"/proc/swaps":                     "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/var/lib/mortar/swap                    file\t\t4194300\t\t0\t\t-2\n",
	"/sys/block/md0/md/level":         "raid1\n",
	"/sys/block/md0/md/uuid":          "c0ffee00:11112222:33334444:55556666\n",
	"/sys/block/md0/md/dev-sda/state": "in_sync\n", "/sys/block/md0/md/dev-sda/slot": "0\n",
	"/sys/block/md0/md/dev-sdb/state": "spare\n", "/sys/block/md0/md/dev-sdb/slot": "1\n", // being rebuilt
	"/sys/block/md0/md/dev-sdc/state": "spare\n", "/sys/block/md0/md/dev-sdc/slot": "none\n",
}

func TestExpectations(t *testing.T) {
	d := brick(t, "nfs-ha", wholePreparation)
	h := told(two)
	h.NetLinks = []gather.Link{{Name: "eth0", Addresses: []string{"10.77.1.11/24"}, Pause: "rx"}}
	if diff := cmp.Diff(`differs logical processor (two threads on each core): on / off
differs sub-NUMA clusters: off / on
differs the governor of the processors' clock: performance and powersave / performance
differs flow control of the public interface: rx / on
`, said(Judge(d, "nfs1", h))); diff != "" {
		t.Error(diff)
	}
	// A virtual machine has no BIOS of its own; what apply makes is looked at there, too.
	vm := told(map[string]string{"/sys/bus/virtio/devices/virtio0/device": "0x0001\n", "/proc/swaps": "Filename Type Size Used Priority\n", "/sys/module/sunrpc/parameters/pool_mode": "global\n"})
	if diff := cmp.Diff(`differs sunrpc.pool_mode: global / pernode
differs swap, in MiB: 0 / 4095 or more
untold the number of hot spares of the system's mirror:  / 1
`, said(Judge(d, "nfs1", vm))); diff != "" {
		t.Error(diff)
	}
	for _, f := range Judge(d, "nfs1", told(nil)) {
		if f.Kind != Untold || f.Mend != "" || f.Why == "" || f.Source == "" {
			t.Errorf("of a host that tells nothing: %+v", f)
		}
	}
	if all := Judge(brick(t, "nfs-ha", ""), "nfs1", told(nil)); len(all) != 0 {
		t.Errorf("nothing is wanted: %v", all)
	}
	if text := Judge(d, "nfs1", vm)[1].String(); text != "swap, in MiB is 0, not 4095 or more: xfs_repair of a large volume may need more than memory [xfs_repair(8); paper NFS+DFC, 2.4.2]; `mortar apply`" {
		t.Error(text)
	}
}

// Cards are compared slot by slot. A card of eight lanes in a slot of sixteen has all it can.
func TestCards(t *testing.T) {
	d := brick(t, "nss7.4-ha", "")
	d.Spec.Preparation = nil
	server := d.Spec.Servers[0]
	files := map[string]string{}
	put := func(slot, address, class, width, max, speed, maxSpeed, node string) {
		files["/sys/bus/pci/slots/"+slot+"/address"] = address + "\n"
		for name, v := range map[string]string{"class": class, "current_link_width": width, "max_link_width": max, "current_link_speed": speed, "max_link_speed": maxSpeed, "numa_node": node} {
			files["/sys/bus/pci/devices/"+address+".0/"+name] = v + "\n"
		}
	}
	put("1", "0000:3b:00", "0x010700", "8", "8", "8.0 GT/s PCIe", "8.0 GT/s PCIe", "0")
	put("2", "0000:5e:00", "0x010700", "4", "8", "8.0 GT/s PCIe", "8.0 GT/s PCIe", "0")
	put("8", "0000:af:00", "0x020700", "16", "16", "2.5 GT/s PCIe", "16.0 GT/s PCIe", "-1")
	if diff := cmp.Diff("differs slot 2's width: x4 / x8\ndiffers slot 8's speed: PCI Express 1 / PCI Express 3\n", said(Judge(d, server.Name, told(files)))); diff != "" {
		t.Error(diff)
	}
	put("2", "0000:5e:00", "0x020000", "8", "8", "8.0 GT/s PCIe", "8.0 GT/s PCIe", "0")
	put("8", "0000:af:00", "0x020700", "16", "16", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "0")
	delete(files, "/sys/bus/pci/slots/1/address")
	got := said(Judge(d, server.Name, told(files)))
	for _, line := range []string{"untold slot 1's card:  / sas-hba", "differs slot 2's card: nic / sas-hba", "differs slot 8's NUMA node: 0 / 1"} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

func TestKnownBad(t *testing.T) {
	h := told(map[string]string{
		builtFile:                      "#1 SMP PREEMPT_DYNAMIC Debian 6.1.64-1 (2023-11-30)\n",
		"/sys/block/sda/device/vendor": "HP      \n", "/sys/block/sda/device/model": "MO0400JFFCF     \n", "/sys/block/sda/device/rev": "HPD5\n",
		"/sys/block/sdb/device/vendor": "HP      \n", "/sys/block/sdb/device/model": "MO0400JFFCF     \n", "/sys/block/sdb/device/rev": "HPD8\n",
		"/sys/class/scsi_host/host2/board_name": "SAS9300-8e\n", "/sys/class/scsi_host/host2/version_fw": "16.00.10.00\n", "/sys/class/scsi_host/host2/proc_name": "mpt3sas\n",
		"/sys/module/mpt3sas/version": "43.100.00.00\n",
	})
	h.NetLinks = []gather.Link{{Driver: "mlx5_core", Firmware: "22.36.1010 (DEL0000000004)"}}
	h.Run["dpkg-query -W -f ${Package} ${Version}\\n corosync pacemaker fence-agents-ipmilan fence-agents-apc-snmp resource-agents nfs-kernel-server mdadm lvm2 xfsprogs multipath-tools"] =
		gather.RunResult{Output: resource.Output{Stdout: "pacemaker 2.1.3-1\nlvm2 2.03.31-2\nresource-agents 1:4.16.0-3\n", Code: 1}}
	if diff := cmp.Diff(`bad disk HP MO0400JFFCF: HPD5 / HPD8
bad hba SAS9300-8e: 16.00.10.00 / 16.00.12.00
bad kernel: 6.1.64-1 / 6.1.66
bad pacemaker: 2.1.3-1 / 2.1.4
`, said(Judge(brick(t, "nfs-ha", ""), "nfs1", h))); diff != "" {
		t.Error(diff)
	}
	if n := len(Versions(h)); n != 9 {
		t.Errorf("%d versions: %v", n, Versions(h))
	}
}

// The versions that the spec wants are the least. A name that no part has is answered with those that there are.
func TestWantedVersions(t *testing.T) {
	d := brick(t, "nfs-ha", `preparation: {versions: {bios: 2.10.2, bmc: "6.10", "disk DELL MD32xx": "0784", kernel: 6.12.9, lvm: "2.03"}}`)
	h := told(map[string]string{
		biosFile: "2.9.4\n", strings.ReplaceAll(bmcFile, "*", "0"): "6.9\n",
		"/sys/block/sda/device/vendor": "DELL    \n", "/sys/block/sda/device/model": "MD32xx          \n", "/sys/block/sda/device/rev": "0770\n",
		"/sys/block/sdb/device/vendor": "DELL    \n", "/sys/block/sdb/device/model": "MD32xx          \n", "/sys/block/sdb/device/rev": "0784\n",
	})
	all := Judge(d, "nfs1", h)
	if diff := cmp.Diff(`differs the version of bios: 2.9.4 / 2.10.2 or later
differs the version of bmc: 6.9 / 6.10 or later
differs the version of disk DELL MD32xx: 0770 / 0784 or later
untold the version of lvm:  / 2.03 or later
`, said(all)); diff != "" {
		t.Fatal(diff)
	}
	if !strings.Contains(all[3].Why, "bios, bmc, disk DELL MD32xx, kernel") {
		t.Errorf("it does not say which versions it tells: %s", all[3].Why)
	}
}

func TestOlder(t *testing.T) {
	for _, x := range [][2]string{
		{"6.1.64-1", "6.1.66"}, {"3.10.0-957.el7.x86_64", "3.10.0-957.5.1"}, {"2.02.180-10.el7", "7:2.02.180-10.el7_6.2"}, {"6.3", "6.3.5"}, {"6.3.4", "6.30"},
		{"HPD7", "HPD8"}, {"16.00.10.00", "16.00.12.00"}, {"2.1.3", "2.1.10"}, {"", "1"},
	} {
		if !older(x[0], x[1]) || older(x[1], x[0]) || older(x[0], x[0]) {
			t.Errorf("%s is not older than %s, or the other way round", x[0], x[1])
		}
	}
	for _, k := range knownBad {
		if !older(k.from, k.fixed) || k.harm == "" || k.source == "" {
			t.Errorf("%+v", k)
		}
	}
}

// The ruleset is of a real host. Its second table drops what the first one accepts.
func TestFirewall(t *testing.T) {
	rules, err := os.ReadFile("testdata/ruleset.json")
	if err != nil {
		t.Fatal(err)
	}
	d := brick(t, "nfs-ha", "firewall: {kind: nftables}")
	h := told(nil)
	h.Run["nft -j list ruleset"] = gather.RunResult{Output: resource.Output{Stdout: string(rules)}}
	h.Run["rpcinfo -p"] = gather.RunResult{Output: resource.Output{Stdout: "   program vers proto   port  service\n    100000    4   tcp    111  portmapper\n    100005    3   tcp  20048  mountd\n    100005    3   udp  20048  mountd\n    100021    4   tcp  41233  nlockmgr\n    100021    3   tcp  41233  nlockmgr\n"}}
	if diff := cmp.Diff(`differs its firewall: shut / open for the brick
differs chain ip site input: one that drops / one that lets the brick in
differs the port of RPC program 100021: 41233 / 32767
`, said(Judge(d, "nfs1", h))); diff != "" {
		t.Error(diff)
	}
	d = brick(t, "nfs-ha", "firewall: {kind: nftables, chains: [inet filter input, ip site input]}")
	if all := Judge(d, "nfs1", h); len(all) != 2 || !all[0].ByApply {
		t.Errorf("both chains are named: %s", said(all))
	}
	h.Run["nft -j list ruleset"] = gather.RunResult{Err: "nft: not found"}
	if all := Judge(d, "nfs1", h); all[0].Kind != Untold {
		t.Errorf("%v", all)
	}
	d = brick(t, "nfs-ha", "firewall: {kind: firewalld}")
	w := Firewall(d, "nfs1")
	h.Run[strings.Join(w.RichCommand(), " ")] = gather.RunResult{Output: resource.Output{Stdout: strings.Join(w.Rich(), "\n") + "\n"}}
	if all := Judge(d, "nfs1", h); len(all) != 1 {
		t.Errorf("firewalld has all: %s", said(all))
	}
	lustre := brick(t, "lustre-small", "firewall: {kind: nftables, clients: true}")
	for _, name := range append(lustre.Servers(), lustre.Spec.ClientNames()...) {
		if f := Firewall(lustre, name); f.Kind != "nftables" || f.Doors[0].Ports[0] != 988 {
			t.Errorf("%s of a Lustre brick: %+v", name, f)
		}
	}
	if all := Judge(lustre, lustre.Servers()[0], h); len(all) != 3 {
		t.Errorf("a Lustre brick: %s", said(all))
	}
	if f := Firewall(d, "c1"); f.Kind != "" || len(f.Doors) != 0 {
		t.Errorf("a client whose firewall is left alone: %+v", f)
	}
	if f := Firewall(brick(t, "nfs-ha", "firewall: {kind: nftables, clients: true}"), "c1"); f.Kind != "nftables" || !slices.Equal(f.Doors[0].From, []string{"10.77.1.100", "10.77.1.11", "10.77.1.12"}) {
		t.Errorf("a client: %+v", f)
	}
}
