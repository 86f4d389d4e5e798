package spec

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// badSystems are slips in the systems of the papers: each must give exactly
// one message, with its place. The messages stand in
// testdata/bad-systems.txt.
var badSystems = []struct {
	name, example string
	edits         []string
}{
	// Geometry.
	{"disks left over", "nss4-ha-144", []string{"data: 10", "data: 9"}},
	{"disks left over on an array", "nss5.5", []string{"level: 60, data: 10", "level: 6, data: 14"}},
	{"wider than there are disks", "nss7.4-ha", []string{"data: 8, spares: 4, chunk: 128KiB", "data: 28, chunk: 128KiB"}},
	{"wider than the array can", "nss7.4-ha", []string{"data: 8, spares: 4", "data: 19, spares: 0"}},
	{"a level the array has not", "nss4-ha-144", []string{"level: 6", "level: 60"}},
	{"a chunk the array has not", "nss4-ha-144", []string{"chunk: 512KiB", "chunk: 1MiB"}},
	{"mixed sizes in a group", "nss4-ha-144", []string{`"E2N[01-12]", size: 3TB`, `"E2N[01-12]", size: 4TB`}},
	{"mixed types in a group", "nvme-ha", []string{`"BN[01-12]", size: 15360GB, type: nvme`, `"BN[01-12]", size: 15360GB, type: ssd`}},
	{"negative data disks", "nss4-ha-144", []string{"data: 10", "data: -10"}},
	{"absurd number of spares", "nss7.4-ha", []string{"spares: 4", "spares: 4000"}},
	{"negative spares", "nss7.4-ha", []string{"spares: 4", "spares: -4"}},
	{"a disk of no size", "nss4-ha-144", []string{`"E2N[01-12]", size: 3TB`, `"E2N[01-12]", size: 0TB`}},
	{"negative per_enclosure", "lustre-brick", []string{"per_enclosure: 2", "per_enclosure: -1"}},
	{"one span", "nfs-dfc", []string{`  - {name: E2, bays: 12, model: MD1200, disks: [{serial: "E2N[01-12]", size: 3TB, type: nl-sas, rpm: 7200}]}` + "\n", "",
		`  - {name: E3, bays: 12, model: MD1200, disks: [{serial: "E3N[01-12]", size: 3TB, type: nl-sas, rpm: 7200}]}` + "\n", "",
		`  - {name: E4, bays: 12, model: MD1200, disks: [{serial: "E4N[01-12]", size: 3TB, type: nl-sas, rpm: 7200}]}` + "\n", ""}},
	// Arrays.
	{"unknown array model", "nss4-ha-144", []string{"model: MD3200, management", "model: MD3201, management"}},
	{"unknown array model, in storage", "nss4-ha-144", []string{"  kind: array\n  model: MD3200", "  kind: array\n  model: VNX"}},
	{"another model in storage", "nss4-ha-144", []string{"  kind: array\n  model: MD3200", "  kind: array\n  model: ME4084"}},
	{"which array", "nss4-ha-144", []string{"arrays:\n  - {name: nss4, model: MD3200, management: [10.22.0.41, 10.22.0.42]}\n", "", "  kind: array\n  model: MD3200\n", "  kind: array\n"}},
	{"a cache mirrored, perhaps", "nss4-ha-144", []string{"storage:\n", "storage:\n  write_cache_mirroring: yes\n"}},
	{"a cache mirrored, true", "nss4-ha-144", []string{"storage:\n", "storage:\n  write_cache_mirroring: true\n"}},
	{"a cache not mirrored on an ME4", "nss7.4-ha", []string{"storage:\n", "storage:\n  write_cache_mirroring: off\n"}},
	{"a cache not mirrored on a PERC", "nss5.5", []string{"storage:\n", "storage:\n  write_cache_mirroring: off\n"}},
	{"a cache not mirrored on JBODs", "nfs", []string{"storage:\n", "storage:\n  write_cache_mirroring: off\n"}},
	{"array twice", "nss5.5", []string{"{name: perc2,", "{name: perc1,"}},
	{"an enclosure of no array", "nss5.5", []string{"array: perc2, disks: [{serial: \"E3N", "disks: [{serial: \"E3N"}},
	{"an enclosure of an unknown array", "nss5.5", []string{"array: perc2, disks: [{serial: \"E3N", "array: perc3, disks: [{serial: \"E3N"}},
	{"an array without enclosures", "nss5.5", []string{"enclosures:\n", "  - {name: perc3, model: PERC-H810, controller: 3}\nenclosures:\n"}},
	{"unequal arrays", "nss5.5", []string{"array: perc2, disks: [{serial: \"E3N", "array: perc1, disks: [{serial: \"E3N"}},
	{"a controller in one of two servers", "nss4-ha-144", []string{"model: MD3200, management: [10.22.0.41, 10.22.0.42]", "model: PERC-H810"}},
	{"array on JBODs", "nss4-ha-144", []string{"  kind: array\n  model: MD3200\n", ""}},
	{"too many enclosures", "nss4-ha-288", []string{"storage:\n", `  - {name: E9, bays: 12, disks: [{serial: "E9N[01-12]", size: 3TB, type: nl-sas, rpm: 7200}]}` + "\nstorage:\n"}},
	{"too many bays", "nss4-ha-144", []string{`{name: E1, bays: 12, model: MD3200, disks: [{serial: "E1N[01-12]"`, `{name: E1, bays: 24, model: MD3200, disks: [{serial: "E1N[01-24]"`}},
	{"bad WWN of a LUN", "nss4-ha-144", []string{"management: [10.22.0.41, 10.22.0.42]", "wwns: [abc]"}},
	{"WWN of a LUN twice", "nss4-ha-144", []string{"management: [10.22.0.41, 10.22.0.42]", `wwns: ["600a0b80000000000000000000000001", "600A0B80000000000000000000000001"]`}},
	{"WWN of a LUN in two arrays", "nss-ha-xl", []string{"management: [10.22.0.41, 10.22.0.42]", `wwns: ["600a0b80000000000000000000000001"]`, "management: [10.22.0.43, 10.22.0.44]", `wwns: ["600a0b80000000000000000000000001"]`}},
	{"address of an array outside", "nss4-ha-144", []string{"management: [10.22.0.41, 10.22.0.42]", "management: [10.9.0.41]"}},
	{"volume: device on JBODs", "nfs", []string{"storage:\n", "storage:\n  volume: device\n"}},
	{"volume: device with a cache", "nfs-dfc", []string{"storage:\n", "storage:\n  volume: device\n"}},
	{"volume: device with two LUNs", "nss5.5", []string{"storage:\n", "storage:\n  volume: device\n"}},
	{"volume: device in HA", "nss4-ha-144", []string{"storage:\n", "storage:\n  volume: device\n"}},
	{"absurd link speed", "nss4-ha-144", []string{"speed: 56Gb/s", "speed: 560000000000Gb/s"}},
	// Servers.
	{"three servers in a pair", "nss4-ha-144", []string{"pdus:", `  - {name: nss3, address: 10.22.0.13, public: 10.20.0.13, private: 10.21.0.13, bmc: {address: 10.22.0.103, user: m, password_file: s}, outlets: [{pdu: pdu-a, outlet: 3}, {pdu: pdu-b, outlet: 3}]}` + "\npdus:"}},
	{"bad SAS address", "nss4-ha-144", []string{"500605b000010001", "500605b0000"}},
	{"SAS address twice", "nss4-ha-144", []string{"500605b000020001", "500605b000010001"}},
	{"unknown card", "nss4-ha-144", []string{"kind: hca", "kind: gpu"}},
	{"two cards in a slot", "nss4-ha-144", []string{"slot: 2, kind: hca", "slot: 1, kind: hca"}},
	{"three lanes", "nss4-ha-144", []string{"lanes: 16, node: 0}, {slot: 3", "lanes: 3, node: 0}, {slot: 3"}},
	{"no cores", "nss4-ha-144", []string{"cores: 8", "cores: 0"}},
	{"unknown kind of link", "nss4-ha-144", []string{"link: infiniband", "link: ethernet2", ", mtu: 65520", ""}},
	{"MTU of InfiniBand on Ethernet", "nss4-ha-144", []string{"link: infiniband", "link: ethernet"}},
	// XL.
	{"two services with one address", "nss-ha-xl", []string{"address: 10.20.0.101", "address: 10.20.0.100"}},
	{"two services on one server", "nss-ha-xl", []string{"server: nss2", "server: nss1"}},
	{"one service in XL", "nss-ha-xl", []string{"  - name: scratch\n    address: 10.20.0.101\n    server: nss2\n    path: /srv/scratch\n    exports:\n      - clients: 10.20.0.0/16\n        options: [rw, sync, no_subtree_check, no_root_squash]\n", ""}},
	// Cache.
	{"write-back with one SSD", "nfs-dfc", []string{"    - {serial: SSD02, size: 350GB, type: nvme}\n", ""}},
	{"an SSD too small for metadata", "nfs-dfc", []string{"serial: SSD02, size: 350GB", "serial: SSD02, size: 600MB"}},
	{"an SSD far too small for metadata", "nfs-dfc", []string{"serial: SSD02, size: 350GB", "serial: SSD02, size: 64MB"}},
	{"an SSD inside a server that is not there", "nfs-dfc", []string{"serial: SSD02,", "serial: SSD02, server: nss2,"}},
	{"write-back inside one of two servers", "nss4-ha-144", []string{"ha: {", "cache: {ssds: [{serial: 'S[1-2]', size: 400GB, server: nss1}], mode: write-back}\nha: {"}},
	{"a disk of an enclosure inside a server", "nss4-ha-144", []string{"type: nl-sas", "type: nl-sas, server: nss1"}},
	{"five SSDs", "nfs-dfc", []string{"SSD02", "'SSD0[2-5]'"}},
	{"the same SSD twice", "nfs-dfc", []string{"SSD02", "SSD01"}},
	{"a cache of slow disks", "nfs-dfc", []string{"{serial: SSD02, size: 350GB, type: nvme}", "{serial: SSD02, size: 350GB, type: sas}"}},
	{"unknown cache mode", "nfs-dfc", []string{"mode: write-back", "mode: writeback"}},
	{"negative bypass", "nfs-dfc", []string{"sequential_bypass: 1MiB", "sequential_bypass: 2GiB"}},
	// Lustre.
	{"no lustre section", "lustre-brick", []string{"lustre:\n", "lusty:\n"}},
	{"lustre in NFS", "nss4-ha-144", []string{"ha: {", "lustre: {fsname: x, modules: []}\nha: {"}},
	{"Lustre from nowhere", "lustre-brick", []string{"fsname: testfs", "fsname: testfs\n  packages: {}"}},
	{"Lustre from two places", "lustre-brick", []string{"fsname: testfs", "fsname: testfs\n  packages: {directory: lp, repository: https://x ./}"}},
	{"a directory with a key", "lustre-brick", []string{"fsname: testfs", "fsname: testfs\n  packages: {directory: lp, key: k}"}},
	{"a directory with a blank", "lustre-brick", []string{"fsname: testfs", "fsname: testfs\n  packages: {directory: l p}"}},
	{"a repository without a suite", "lustre-brick", []string{"fsname: testfs", "fsname: testfs\n  packages: {repository: https://x, key: k}"}},
	{"a repository without a key", "lustre-brick", []string{"fsname: testfs", "fsname: testfs\n  packages: {repository: https://x ./}"}},
	{"long fsname", "lustre-brick", []string{"fsname: testfs", "fsname: scratchspace"}},
	{"a target with one server", "lustre-brick", []string{"servers: [oss01, oss02]", "servers: [oss01]"}},
	{"three servers in a module", "lustre-brick", []string{"servers: [oss01, oss02]", "servers: [oss01, oss02, oss01]"}},
	{"a server in two modules", "lustre-rack", []string{"servers: [oss03, oss04]", "servers: [oss03, oss02]"}},
	{"an unknown server", "lustre-brick", []string{"servers: [oss01, oss02]", "servers: [oss01, oss2]"}},
	{"no mds", "lustre-small", []string{"role: mds", "role: oss", "level: 10, data: 2", "level: 6, data: 2"}},
	{"two groups for an MDT", "lustre-small", []string{"level: 10, data: 2", "level: 10, data: 1"}},
	{"an odd number of OSTs", "lustre-small", []string{"level: 6, data: 2, spares: 2", "level: 6, data: 6, spares: 2", "per_enclosure: 2", "per_enclosure: 4"}},
	{"two mds", "lustre-small", []string{"role: oss", "role: mds", "level: 6, data: 2, spares: 2, chunk: 512KiB, per_enclosure: 2", "level: 10, data: 4, spares: 2"}},
	{"metadata on parity", "lustre-small", []string{"level: 10, data: 2, spares: 2, chunk: 64KiB", "level: 6, data: 2, spares: 2, chunk: 64KiB"}},
	{"unknown role", "lustre-small", []string{"role: oss", "role: ost"}},
	{"enclosure of no module", "lustre-small", []string{"module: oss, disks: [{serial: \"OA", "disks: [{serial: \"OA"}},
	{"enclosure of an unknown module", "lustre-small", []string{"module: oss, disks: [{serial: \"OA", "module: osss, disks: [{serial: \"OA"}},
	{"services in Lustre", "lustre-small", []string{"ha: {", "services: [{name: x, exports: []}]\nha: {"}},
	{"storage in Lustre", "lustre-small", []string{"ha: {", "storage: {raid: {level: 6, data: 2}}\nha: {"}},
	{"no interface", "lustre-small", []string{"interface: ens1f0, ", ""}},
	{"unknown driver", "lustre-small", []string{"lnet: tcp", "lnet: gni"}},
	{"stripes over more OSTs than there are", "lustre-small", []string{"stripe_count: 1", "stripe_count: 3"}},
	{"negative stripes", "lustre-small", []string{"stripe_count: 1", "stripe_count: -2"}},
	{"odd stripe size", "lustre-small", []string{"stripe_size: 1MiB", "stripe_size: 100kB"}},
	{"pool of OSTs that are not there", "lustre-small", []string{"osts: [0-1]", "osts: [0-5]"}},
	{"pool backwards", "lustre-small", []string{"osts: [0-1]", "osts: [1-0]"}},
	{"pool twice", "lustre-rack", []string{"name: brick2", "name: brick1"}},
	{"bad parameter", "lustre-brick", []string{"osc.*.max_dirty_mb=256", "max dirty"}},
	{"Lustre without fencing", "lustre-small", []string{"    outlets: [{pdu: pdu-a, outlet: 3}, {pdu: pdu-b, outlet: 3}]\n", ""}},
	{"filesystem in Lustre", "lustre-small", []string{"ha: {", "filesystem: {type: xfs}\nha: {"}},
	{"mounts in Lustre", "lustre-small", []string{"public: 10.20.1.1}", "public: 10.20.1.1, mounts: [{service: x, path: /mnt/x}]}"}},
}

func TestBadSystems(t *testing.T) {
	var b strings.Builder
	for _, c := range badSystems {
		src, err := fs.ReadFile(examples.FS, c.example+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(c.example+".yaml", []byte(edit(t, string(src), c.edits)))
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		errs := err.(Errors)
		for _, e := range errs {
			if e.Line < 1 || e.Col < 1 || e.Msg == "" || e.Mend == "" {
				t.Errorf("%s: no position, message or way out: %#v", c.name, e)
			}
		}
		if len(errs) != 1 {
			t.Errorf("%s: %d messages:\n%v", c.name, len(errs), err)
		}
		fmt.Fprintf(&b, "%s\n%v\n\n", c.name, err)
	}
	golden(t, "testdata/bad-systems.txt", b.String())
}

// A setting of all of Lustre has a name without a dot, as lctl get_param prints it.
func TestLustreParams(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "lustre-brick.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"at_max=600", "osd-ldiskfs.*OST*.read_cache_enable=1"} {
		if _, err := Parse("lustre-brick.yaml", []byte(edit(t, string(src), []string{"osc.*.max_dirty_mb=256", p}))); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}
