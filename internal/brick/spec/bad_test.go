package spec

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// bad is every slip we know of: a name, and edits of testdata/base.yaml. What
// is said about each stands in testdata/bad.txt; read its diff after -update.
var bad = []struct {
	name  string
	edits []string // old, new, old, new …
}{
	// The file as such.
	{"empty file", []string{"*", ""}},
	{"only comments", []string{"*", "# nothing\n"}},
	{"not a mapping", []string{"*", "- a\n- b\n"}},
	{"broken YAML", []string{"name: brick1", "name: [brick1"}},
	{"deep nesting", []string{"*", strings.Repeat("[", 5000)}},
	{"tab as indent", []string{"  private:\n    cidr", "  private:\n\tcidr"}},
	{"bad indent", []string{"    private: 10.2.0.11", "   private: 10.2.0.11"}},
	{"key twice", []string{"name: brick1", "name: brick1\nname: brick2"}},
	{"two documents", []string{"wipe: [MA01]", "---\nname: second\n"}},
	{"anchor", []string{"name: brick1", "name: &n brick1"}},
	{"alias", []string{"cidr: 10.2.0.0/24", "cidr: *n"}},
	{"merge key", []string{"ha:\n", "ha:\n  <<: {a: b}\n"}},
	{"tag", []string{"name: brick1", "name: !!str brick1"}},
	// Keys and types.
	{"unknown key at top", []string{"servers:", "server:"}},
	{"unknown key, near one", []string{"    address: 10.3.0.11", "    adress: 10.3.0.11"}},
	{"unknown key, none near", []string{"token_ms: 3000", "quorum_device: x"}},
	{"key one level too high", []string{"storage:\n  raid:\n    level: 6", "storage:\n  level: 6\n  raid:"}},
	{"key one level too deep", []string{"ha:\n  token_ms: 3000", "ha:\n  token_ms: 3000\n  wipe: [MA01]", "\nwipe: [MA01]\n", "\n"}},
	{"missing key", []string{"    public: 10.1.0.11\n", ""}},
	{"no value", []string{"cidr: 10.2.0.0/24", "cidr:"}},
	{"text for number", []string{"threads: 256", "threads: many"}},
	{"fraction for number", []string{"threads: 256", "threads: 25.6"}},
	{"huge number", []string{"threads: 256", "threads: 99999999999999999999"}},
	{"large number", []string{"threads: 256", "threads: 99999999999"}},
	{"hugely negative number", []string{"threads: 256", "threads: -99999999999"}},
	{"hex number", []string{"threads: 256", "threads: 0x100"}},
	{"list for text", []string{"name: brick1", "name: [brick1]"}},
	{"text for list", []string{"feeds: [A, B]", "feeds: A, B"}},
	{"text for list of mappings", []string{"wipe: [MA01]", "wipe: MA01", "  - {name: p1, address: 10.3.0.31, feed: A, community_file: secrets/p1}\n  - {name: p2, address: 10.3.0.32, feed: B, community_file: secrets/p2}", "  p1"}},
	{"mapping for list", []string{"      - {pdu: p1, outlet: 1}\n      - {pdu: p2, outlet: 1}", "      {pdu: p1, outlet: 1}"}},
	{"bool for text", []string{"name: brick1", "name: true"}},
	{"list for mapping", []string{"ha:\n  token_ms: 3000", "ha: [token_ms]"}},
	{"size without unit", []string{"memory: 256GiB", "memory: 256"}},
	{"size with ambiguous unit", []string{"memory: 256GiB", "memory: 256G"}},
	{"size with unknown unit", []string{"chunk: 128KiB", "chunk: 128KBit"}},
	{"size not a number", []string{"memory: 256GiB", "memory: lots"}},
	{"size too large", []string{"memory: 256GiB", "memory: 999999999PB"}},
	{"several at once", []string{"threads: 256", "threads: many", "feeds: [A, B]", "feds: [A, B]", "memory: 256GiB", "memory: 256"}},
	// Head.
	{"other version", []string{"mortar/v1", "mortar/v2"}},
	{"unknown flavour", []string{"flavour: nfs-ha", "flavour: nfs_ha"}},
	{"bad brick name", []string{"name: brick1", "name: my brick"}},
	{"long brick name", []string{"name: brick1", "name: brick-number-one-of-many"}},
	{"not a login name", []string{"networks:\n", "ssh: {user: a b}\nnetworks:\n"}},
	{"one password for all", []string{"networks:\n", "password_command: [pass, show, hpc]\nnetworks:\n"}},
	{"password command without a program", []string{"networks:\n", "password_command: ['{}']\nnetworks:\n"}},
	{"port out of range", []string{"networks:\n", "ssh: {port: 70000}\nnetworks:\n"}},
	// Networks and addresses.
	{"bad CIDR", []string{"10.2.0.0/24", "10.2.0.0"}},
	{"host bits in CIDR", []string{"10.2.0.0/24", "10.2.0.1/24"}},
	{"IPv6", []string{"10.2.0.0/24", "fd00::/64"}},
	{"tiny network", []string{"10.2.0.0/24", "10.2.0.0/31"}},
	{"bad speed", []string{"100Gb/s", "fast"}},
	{"networks overlap", []string{"cidr: 10.2.0.0/24", "cidr: 10.1.7.0/24", "private: 10.2.0.11", "private: 10.1.7.11", "private: 10.2.0.12", "private: 10.1.7.12"}},
	{"heartbeat on public alone", []string{"  private:\n    cidr: 10.2.0.0/24\n", "", "    private: 10.2.0.11\n", "", "    private: 10.2.0.12\n", ""}},
	{"server without private address", []string{"    private: 10.2.0.12\n", ""}},
	{"name as address of a BMC", []string{"address: 10.3.0.21", "address: s1-bmc.example.org"}},
	{"name as public address", []string{"public: 10.1.0.11", "public: s1.example.org"}},
	{"slip in an address", []string{"address: 10.3.0.11", "address: 10.3.0.1l"}},
	{"localhost as address", []string{"address: 10.3.0.11", "address: localhost"}},
	{"no address, no name", []string{"address: 10.3.0.11", "address: root@s1"}},
	{"addresses swapped", []string{"address: 10.3.0.11", "address: s2", "address: 10.3.0.12", "address: S1"}},
	{"one name for two servers", []string{"address: 10.3.0.11", "address: s1.example.org", "address: 10.3.0.12", "address: S1.example.org"}},
	{"address outside network", []string{"private: 10.2.0.12", "private: 10.9.0.12"}},
	{"network address", []string{"private: 10.2.0.12", "private: 10.2.0.0"}},
	{"broadcast address", []string{"private: 10.2.0.12", "private: 10.2.0.255"}},
	{"duplicate host", []string{"name: s2", "name: s1"}},
	{"client named as server", []string{"name: c1", "name: S1"}},
	{"duplicate address", []string{"public: 10.1.0.12", "public: 10.1.0.11"}},
	{"bad host name", []string{"name: s2", "name: s_2"}},
	{"bad host key", []string{"    public: 10.1.0.11\n", "    public: 10.1.0.11\n    host_key: AAAAC3NzaC1lZDI1NTE5\n"}},
	{"private host key", []string{"    public: 10.1.0.11\n", "    public: 10.1.0.11\n    host_key: '-----BEGIN OPENSSH PRIVATE KEY-----'\n"}},
	{"three servers in a pair", []string{"pdus:\n", "  - {name: s3, address: 10.3.0.13, public: 10.1.0.13, private: 10.2.0.13, bmc: {address: 10.3.0.23, user: admin, password_file: f}, outlets: [{pdu: p1, outlet: 3}, {pdu: p2, outlet: 3}]}\npdus:\n"}},
	{"absurd memory", []string{"256GiB", "1MiB"}},
	// Fencing.
	{"a BMC user like an option", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n", "    bmc:\n      address: 10.3.0.22\n      user: -I\n"}},
	{"no fencing", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n    outlets:\n      - {pdu: p1, outlet: 2}\n      - {pdu: p2, outlet: 2}\n", ""}},
	{"BMC alone", []string{"    outlets:\n      - {pdu: p1, outlet: 2}\n      - {pdu: p2, outlet: 2}\n", ""}},
	{"outlets alone", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", ""}},
	{"both outlets on one PDU", []string{"{pdu: p2, outlet: 2}", "{pdu: p1, outlet: 3}"}},
	{"both PDUs on one feed", []string{"feed: B", "feed: A", "    feeds: [A, B]\n", ""}},
	{"one outlet", []string{"      - {pdu: p2, outlet: 2}\n", ""}},
	{"outlet of another server", []string{"{pdu: p2, outlet: 2}", "{pdu: p2, outlet: 1}"}},
	{"unknown PDU", []string{"{pdu: p2, outlet: 2}", "{pdu: p3, outlet: 2}"}},
	{"outlet zero", []string{"{pdu: p2, outlet: 2}", "{pdu: p2, outlet: 0}"}},
	{"feed without outlet", []string{"feeds: [A, B]", "feeds: [A, B, C]"}},
	{"outlet without feed", []string{"feeds: [A, B]", "feeds: [A]"}},
	{"duplicate PDU", []string{"name: p2", "name: p1"}},
	{"secret in the spec", []string{"password_file: secrets/bmc-s1", "password_file: 'my secret!'"}},
	{"a privilege that switches nothing", []string{"      password_file: secrets/bmc-s1\n", "      password_file: secrets/bmc-s1\n      privilege: user\n"}},
	{"two PDUs, one device", []string{"name: p2, address", "name: pdu-p1, address", "pdu: p2, outlet: 1", "pdu: pdu-p1, outlet: 1", "pdu: p2, outlet: 2", "pdu: pdu-p1, outlet: 2"}},
	{"a PDU named like a part of another", []string{"name: p2, address", "name: p1-params, address", "pdu: p2, outlet: 1", "pdu: p1-params, outlet: 1", "pdu: p2, outlet: 2", "pdu: p1-params, outlet: 2"}},
	{"a server named like a PDU's device", []string{"name: s2\n", "name: pdu-p1\n"}},
	{"a fence agent that cuts no power", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_scsi}]\n"}},
	{"no fence agent", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: redfish}]\n"}},
	{"a fence agent's password", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_redfish, options: {ip: 10.3.0.22, password: x}}]\n"}},
	{"a fence agent's program", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_redfish, options: {password_script: /tmp/x, pcmk_host_list: s1, method: cycle}}]\n"}},
	{"a fence agent's options as a list", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_redfish, options: [ip]}]\n"}},
	{"fence agents of one feed alone", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_eaton_snmp, options: {ip: 10.3.0.41}, feed: A}]\n"}},
	{"a fence agent that knows by the network alone", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_crosslink}]\n"}},
	{"a fence agent's other secrets", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_ipmilan, options: {ip: 10.3.0.22, hexadecimal_kg: '31', privlvl: operator}}, {agent: fence_pve, options: {apikey: x, key_file: /root/x}}]\n"}},
	{"a server that counts as off when it is missing", []string{"    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_virsh, options: {ip: 10.3.0.22, missing_as_off: '1'}}]\n"}},
	{"an agent named like the BMC", []string{"      password_file: secrets/bmc-s1\n", "      password_file: secrets/bmc-s1\n    fencing: [{agent: fence_bmc}]\n"}},
	{"an agent named like a part of the server's device", []string{"      password_file: secrets/bmc-s1\n", "      password_file: secrets/bmc-s1\n    fencing: [{agent: fence_params}]\n"}},
	{"one fence device for both servers", []string{"      password_file: secrets/bmc-s1\n", "      password_file: secrets/bmc-s1\n    fencing: [{agent: fence_redfish, options: {ip: 10.3.0.23}}]\n", "    bmc:\n      address: 10.3.0.22\n      user: admin\n      password_file: secrets/bmc-s2\n", "    fencing: [{agent: fence_redfish, options: {ip: 10.3.0.23}}]\n"}},
	{"a server named like an agent of another", []string{"      password_file: secrets/bmc-s1\n", "      password_file: secrets/bmc-s1\n    fencing: [{agent: fence_redfish, options: {ip: 10.3.0.23}}]\n", "name: s2\n", "name: s1-redfish\n"}},
	{"IPMI cipher 0", []string{"      password_file: secrets/bmc-s1\n", "      password_file: secrets/bmc-s1\n      cipher: 0\n"}},
	{"a journal of an earlier version", []string{"  raid:\n    level: 6", "  journal: {ssds: [{serial: 'J[1-2]', size: 400GB}]}\n  raid:\n    level: 6"}},
	// Disks.
	{"device name", []string{"serial: MB12", "serial: /dev/sda"}},
	{"device name, short", []string{"serial: MB12", "serial: sdb"}},
	{"multipath name", []string{"serial: MB12", "serial: /dev/mapper/mpatha"}},
	{"duplicate serial", []string{"serial: MB12", "serial: MA07"}},
	{"duplicate range", []string{"MB[01-11]", "MA[01-12]", "      - serial: MB12\n        wwn: \"5000c500a1b2c3d4\"\n        size: 12TB\n", ""}},
	{"overlapping range", []string{"MB[01-11]", "MA[07-17]"}},
	{"serial with space", []string{"serial: MB12", "serial: MB 12"}},
	{"backward range", []string{"MA[01-12]", "MA[12-01]"}},
	{"range of two widths", []string{"MA[01-12]", "MA[1-12]"}},
	{"endless range", []string{"MA[01-12]", "MA[00001-99999]"}},
	{"duplicate enclosure", []string{"name: E2", "name: E1"}},
	{"more disks than bays", []string{"bays: 12", "bays: 11"}},
	{"mixed sizes", []string{"\"MB[01-11]\", size: 12TB", "\"MB[01-11]\", size: 10TB"}},
	{"mixed sectors", []string{"\"MB[01-11]\", size: 12TB", "\"MB[01-11]\", size: 12TB, sector: 4096", "\"MA[01-12]\", size: 12TB", "\"MA[01-12]\", size: 12TB, sector: 512"}},
	{"odd sectors", []string{"\"MB[01-11]\", size: 12TB", "\"MB[01-11]\", size: 12TB, sector: 4KiB"}},
	{"sectors of no disk", []string{"\"MB[01-11]\", size: 12TB", "\"MB[01-11]\", size: 12TB, sector: 520"}},
	{"mixed types", []string{"\"MB[01-11]\", size: 12TB", "\"MB[01-11]\", size: 12TB, type: ssd"}},
	{"unknown disk type", []string{"\"MB[01-11]\", size: 12TB", "\"MB[01-11]\", size: 12TB, type: nlsas"}},
	{"disk of no size", []string{"        size: 12TB", "        size: 0TB"}},
	{"negative size", []string{"        size: 12TB", "        size: -12TB"}},
	{"bad WWN", []string{"5000c500a1b2c3d4", "5000c500"}},
	{"WWN of a range", []string{"\"MB[01-11]\", size: 12TB", "\"MB[01-11]\", size: 12TB, wwn: '5000c500a1b2c3d5'"}},
	{"no enclosures", []string{"enclosures:\n  - name: E1\n    bays: 12\n    disks:\n      - {serial: \"MA[01-12]\", size: 12TB}\n  - name: E2\n    disks:\n      - {serial: \"MB[01-11]\", size: 12TB}\n      - serial: MB12\n        wwn: \"5000c500a1b2c3d4\"\n        size: 12TB\n", "enclosures: []\n"}},
	{"PDU without a way to command it", []string{"feed: A, community_file: secrets/p1}", "feed: A}"}},
	{"PDU with two ways", []string{"feed: A, community_file: secrets/p1}", "feed: A, community_file: secrets/p1, snmp: {user: f, auth_file: a, privacy_file: p}}"}},
	{"SNMPv3 without a user", []string{"feed: A, community_file: secrets/p1}", "feed: A, snmp: {auth_file: a, privacy_file: p}}"}},
	{"SNMPv3 with a bad user", []string{"feed: A, community_file: secrets/p1}", "feed: A, snmp: {user: a b, auth_file: a, privacy_file: p}}"}},
	{"SNMPv3 with MD5", []string{"feed: A, community_file: secrets/p1}", "feed: A, snmp: {user: f, auth: MD5, auth_file: a, privacy_file: p}}"}},
	{"SNMPv3 with DES", []string{"feed: A, community_file: secrets/p1}", "feed: A, snmp: {user: f, auth_file: a, privacy: DES, privacy_file: p}}"}},
	{"SNMPv3 with one pass phrase", []string{"feed: A, community_file: secrets/p1}", "feed: A, snmp: {user: f, auth_file: a, privacy_file: a}}"}},
	{"SNMPv3 with a pass phrase in the spec", []string{"feed: A, community_file: secrets/p1}", "feed: A, snmp: {user: f, auth_file: 'my pass', privacy_file: p}}"}},
	{"wipe of unknown serial", []string{"wipe: [MA01]", "wipe: [MA011]"}},
	{"wipe of a range", []string{"wipe: [MA01]", "wipe: ['MA[01-12]']"}},
	{"wipe of a device", []string{"wipe: [MA01]", "wipe: [/dev/sda]"}},
	// RAID.
	{"width does not fit", []string{"data: 9", "data: 8"}},
	{"too few disks", []string{"data: 9", "data: 24"}},
	{"left over, one", []string{"data: 9", "data: 10", "spares: 2", "spares: 11"}},
	{"groups do not fit", []string{"data: 9", "data: 9\n    groups: 3"}},
	{"zero groups", []string{"data: 9", "data: 9\n    groups: 0"}},
	{"a slow disk dropped, perhaps", []string{"storage:\n", "storage:\n  drop_slow_disks: yes\n"}},
	{"a slow disk of an array dropped", []string{"storage:\n", "storage:\n  kind: array\n  model: MD3200\n  drop_slow_disks: on\n"}},
	{"a slow mirror dropped", []string{"storage:\n", "storage:\n  drop_slow_disks: on\n", "level: 6", "level: 10"}},
	{"a slow disk dropped without a cluster", []string{"storage:\n", "storage:\n  drop_slow_disks: on\n", "flavour: nfs-ha\n", "flavour: nfs\n"}},
	{"RAID 5", []string{"level: 6", "level: 5"}},
	{"RAID 7", []string{"level: 6", "level: 7"}},
	{"parity 3", []string{"data: 9", "data: 9\n    parity: 3"}},
	{"negative spares", []string{"spares: 2", "spares: -2"}},
	{"absurd data", []string{"data: 9", "data: 1000000"}},
	{"odd chunk", []string{"chunk: 128KiB", "chunk: 100kB"}},
	{"unknown storage", []string{"storage:\n", "storage:\n  kind: ceph\n"}},
	// NFS, services, exports.
	{"file system", []string{"nfs:\n", "filesystem: {type: zfs}\nnfs:\n"}},
	{"short lease in HA", []string{"lease: 30", "lease: 10"}},
	{"grace shorter than lease", []string{"lease: 30", "lease: 60\n  grace: 30"}},
	{"NFS version", []string{"lease: 30", "versions: [2, 3, 4]"}},
	{"unknown transport", []string{"threads: 256", "threads: 256\n  transport: udp"}},
	{"mount over RDMA that is not served", []string{"path: /mnt/home}", "path: /mnt/home, transport: rdma}"}},
	{"transport among the options", []string{"path: /mnt/home}", "path: /mnt/home, options: [proto=rdma]}"}},
	{"no threads", []string{"threads: 256", "threads: 0"}},
	{"async in HA", []string{"[rw, sync, no_subtree_check]", "[rw, async]"}},
	{"no_root_squash to the world", []string{"clients: 10.1.0.0/16", "clients: '*'", "[rw, sync, no_subtree_check]", "[rw, no_root_squash]"}},
	{"no_root_squash to 0/0", []string{"clients: 10.1.0.0/16", "clients: 0.0.0.0/0", "[rw, sync, no_subtree_check]", "[rw, no_root_squash]"}},
	{"unknown export option", []string{"[rw, sync, no_subtree_check]", "[rw, no_rootsquash]"}},
	{"contradicting options", []string{"[rw, sync, no_subtree_check]", "[rw, ro]"}},
	{"rights in a security flavour", []string{"[rw, sync, no_subtree_check]", "[rw, 'sec=sys) *(rw,no_root_squash']"}},
	{"unknown security flavour", []string{"[rw, sync, no_subtree_check]", "[rw, sec=krb5x]"}},
	{"security flavours with a comma", []string{"[rw, sync, no_subtree_check]", "[rw, 'sec=krb5,sys']"}},
	{"no security flavour", []string{"[rw, sync, no_subtree_check]", "[rw, sec]"}},
	{"security flavour twice", []string{"[rw, sync, no_subtree_check]", "[rw, sec=sys:krb5:sys]"}},
	{"rights in another option", []string{"[rw, sync, no_subtree_check]", "[rw, 'anongid=1) *(rw', 'mountpoint=/a b', 'rw=x', 'xprtsec=tls,rw', refer=/x@h, replicas=/x@h]"}},
	{"ID of nobody", []string{"[rw, sync, no_subtree_check]", "[rw, anonuid=nobody, anongid=]"}},
	{"ID of root in disguise", []string{"[rw, sync, no_subtree_check]", "[rw, anonuid=4294967296, anongid=-4294967296]"}},
	{"ID that is none", []string{"[rw, sync, no_subtree_check]", "[rw, anonuid=4294967295, anongid=-1]"}},
	{"colon in clients", []string{"clients: 10.1.0.0/16", "clients: 'host:b'"}},
	{"own fsid", []string{"[rw, sync, no_subtree_check]", "[rw, fsid=0]"}},
	{"export of the root", []string{"      - clients: 10.1.0.0/16\n", "      - clients: 10.1.0.0/16\n        path: /\n"}},
	{"export out of the volume", []string{"      - clients: 10.1.0.0/16\n", "      - clients: 10.1.0.0/16\n        path: /../etc\n"}},
	{"export twice", []string{"ha:\n", "      - clients: 10.1.0.0/16\nha:\n"}},
	{"export to nobody", []string{"clients: 10.1.0.0/16", "clients: 10.1.0.1/16"}},
	{"no exports", []string{"    exports:\n      - clients: 10.1.0.0/16\n        options: [rw, sync, no_subtree_check]\n", "    exports: []\n"}},
	{"service address outside", []string{"address: 10.1.0.100", "address: 10.7.0.100"}},
	{"service address of a host", []string{"address: 10.1.0.100", "address: 10.1.0.11"}},
	{"no service address", []string{"    address: 10.1.0.100\n", ""}},
	{"unknown server", []string{"    address: 10.1.0.100\n", "    address: 10.1.0.100\n    server: s3\n"}},
	{"two services in nfs-ha", []string{"ha:\n", "  - {name: work, address: 10.1.0.101, exports: [{clients: 10.1.0.0/16}]}\nha:\n"}},
	{"two services with one address", []string{"flavour: nfs-ha", "flavour: nfs-ha-xl", "ha:\n", "  - {name: work, address: 10.1.0.100, exports: [{clients: 10.1.0.0/16}]}\nha:\n", "  - name: E1\n", "  - name: E1\n    service: home\n", "  - name: E2\n", "  - name: E2\n    service: work\n", "data: 9", "data: 9\n    parity: 2"}},
	{"two services, whose disks", []string{"flavour: nfs-ha", "flavour: nfs-ha-xl", "ha:\n", "  - {name: work, address: 10.1.0.101, exports: [{clients: 10.1.0.0/16}]}\nha:\n"}},
	{"path of the system", []string{"    address: 10.1.0.100\n", "    address: 10.1.0.100\n    path: /etc\n"}},
	{"bad service name", []string{"name: home", "name: Home Directories", "service: home", "service: Home Directories"}},
	// Clients and the rest.
	{"client outside the exports", []string{"clients: 10.1.0.0/16", "clients: 10.1.9.0/24"}},
	{"client range over a server", []string{"name: c1", "name: 's[2-3]'"}},
	{"client range over a server's address", []string{"name: c1", "name: 'c[001-400]'", "public: 10.1.0.51", "public: 10.1.0.5"}},
	{"client range out of the network", []string{"name: c1", "name: 'c[1-9]'", "public: 10.1.0.51", "public: 10.1.255.250"}},
	{"client range of host names", []string{"name: c1", "name: 'c[1-9]'", "address: 10.1.0.51", "address: c1.example"}},
	{"client range that runs backwards", []string{"name: c1", "name: 'c[9-1]'"}},
	{"10,001 clients in a range", []string{"name: c1", "name: 'c[00001-10001]'"}},
	{"10,001 clients with those counted", []string{"clients:\n", "clients:\n  - count: 10000\n"}},
	{"10,001 counted", []string{"clients:\n", "clients:\n  - count: 10001\n"}},
	{"no clients counted", []string{"clients:\n", "clients:\n  - count: 0\n"}},
	{"a name for those counted", []string{"name: c1", "name: c1\n    count: 5"}},
	{"neither a client nor a number", []string{"clients:\n", "clients:\n  - load: true\n"}},
	{"load as text", []string{"name: c1", "name: c1\n    load: 'yes'"}},
	{"mount of unknown service", []string{"service: home", "service: hom"}},
	{"mount over the system", []string{"/mnt/home", "/usr"}},
	{"version not served", []string{"lease: 30", "versions: ['3']"}},
	{"soft mount", []string{"path: /mnt/home}", "path: /mnt/home, options: [soft]}"}},
	{"short token", []string{"token_ms: 3000", "token_ms: 5"}},
	{"failback", []string{"token_ms: 3000", "failback: sometimes"}},
	{"a fence test that is never due", []string{"token_ms: 3000", "fence_test_days: 0"}},
	{"unknown suite", []string{"wipe: [MA01]", "rack: {suite: sid}"}},
	{"negative iops", []string{"wipe: [MA01]", "rack: {iops: -1}"}},
	// What a site writes by habit.
	{"feeds that differ in case", []string{"feeds: [A, B]", "feeds: [a, B]"}},
	{"PDUs on feeds that differ in case", []string{"feed: B", "feed: a", "    feeds: [A, B]\n", ""}},
	{"everybody is root by ID", []string{"clients: 10.1.0.0/16", "clients: '*'", "[rw, sync, no_subtree_check]", "[rw, all_squash, anonuid=0, anongid=00]"}},
	{"number with a leading zero", []string{"{pdu: p2, outlet: 2}", "{pdu: p2, outlet: 010}", "threads: 256", "threads: '0256'"}},
	{"mount options of another file system", []string{"nfs:\n", "filesystem: {mount: [noatme, data=writeback]}\nnfs:\n", "path: /mnt/home}", "path: /mnt/home, options: [cache=none, rsiz=8]}"}},
	{"mount options that undo the design", []string{"nfs:\n", "filesystem: {mount: [ro, remount, logdev=/dev/x, loop]}\nnfs:\n", "path: /mnt/home}", "path: /mnt/home, options: [nolock, local_lock=all, remount, minorversion=0]}"}},
	{"mount in a mount", []string{"path: /mnt/home}", "path: /mnt/home}\n      - {service: home, path: /mnt/home/v3, version: '3'}"}},
	{"token beyond the lease", []string{"token_ms: 3000", "token_ms: 20000"}},
	{"multicast network", []string{"cidr: 10.2.0.0/24", "cidr: 239.1.0.0/24"}},
	{"loopback network", []string{"cidr: 10.2.0.0/24", "cidr: 127.0.0.0/24"}},
	{"link-local network", []string{"cidr: 10.2.0.0/24", "cidr: 169.254.0.0/16"}},
	{"server named localhost", []string{"name: s1", "name: localhost"}},
	{"server named by a number", []string{"name: s2", "name: 12"}},
	{"address pattern for clients", []string{"clients: 10.1.0.0/16", "clients: 10.77.1.*"}},
	{"exported twice with other rights", []string{"ha:\n", "      - {clients: 10.1.0.0/24, options: [ro]}\nha:\n"}},
	{"a switch as a bool", []string{"storage:\n", "storage:\n  drop_slow_disks: true\n"}},
	{"numbers for a range", []string{"serial: MB12", "serial: MB[01,02,03]"}},
	{"unclosed double quote", []string{"name: brick1", "name: \"brick1"}},
	{"unclosed single quote", []string{"name: brick1", "name: 'brick1"}},
	{"UTF-16", []string{"*", "\xff\xfea\x00p\x00i\x00"}},
	{"YAML directive", []string{"apiVersion", "%YAML 1.1\n---\napiVersion"}},
	{"typographic quotes", []string{"name: brick1", "name: “brick1”"}},
	{"long values", []string{"name: brick1", "name: " + strings.Repeat("b", 500), "serial: MB12", "serial: " + strings.Repeat("S", 500), "memory: 256GiB", "memory: " + strings.Repeat("m", 500)}},
	{"a long serial", []string{"serial: MB12", "serial: " + strings.Repeat("S", 500)}},
	{"a long address", []string{"cidr: 10.2.0.0/24", "cidr: " + strings.Repeat("1", 500)}},
	{"cluster of one", []string{"flavour: nfs-ha", "flavour: nfs"}},
	// Preparation of servers, and their firewalls.
	{"logical processor true", []string{"wipe: [MA01]", "wipe: [MA01]\npreparation: {logical_processor: true}"}},
	{"preparation, each key", []string{"wipe: [MA01]", "wipe: [MA01]\npreparation: {logical_processor: no-ht, sub_numa: '2', flow_control: rx, power_profile: performace, pool_mode: numa, swap: 1MiB, mirror_spares: 9, versions: {bios: latest}}"}},
	{"preparation, unknown key", []string{"wipe: [MA01]", "wipe: [MA01]\npreparation: {swaps: 4GiB}"}},
	{"firewall without kind", []string{"wipe: [MA01]", "wipe: [MA01]\nfirewall: {chains: [inet filter input]}"}},
	{"firewall of old", []string{"wipe: [MA01]", "wipe: [MA01]\nfirewall: {kind: iptables}"}},
	{"firewall, near one", []string{"wipe: [MA01]", "wipe: [MA01]\nfirewall: {kind: firewald}"}},
	{"firewall, chains", []string{"wipe: [MA01]", "wipe: [MA01]\nfirewall: {kind: nftables, chains: [input, inet filter input, inet filter input, netdev filter ingress, 'inet filter input; flush ruleset']}"}},
	{"firewall, no chains", []string{"wipe: [MA01]", "wipe: [MA01]\nfirewall: {kind: nftables, chains: []}"}},
	{"firewalld with chains", []string{"wipe: [MA01]", "wipe: [MA01]\nfirewall: {kind: firewalld, chains: [inet filter input]}"}},
	{"firewall of profile stock", []string{"wipe: [MA01]", "wipe: [MA01]\nfirewall: {kind: nftables}\nprofile: stock"}},
}

func edit(t *testing.T, base string, edits []string) string {
	t.Helper()
	for i := 0; i < len(edits); i += 2 {
		if edits[i] == "*" {
			base = edits[i+1]
			continue
		}
		if !strings.Contains(base, edits[i]) {
			t.Fatalf("base.yaml has no %q", edits[i])
		}
		base = strings.Replace(base, edits[i], edits[i+1], 1)
	}
	return base
}

func TestBad(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("brick.yaml", base); err != nil {
		t.Fatalf("base.yaml must be good:\n%v", err)
	}
	var b strings.Builder
	for _, c := range bad {
		_, err := Parse("brick.yaml", []byte(edit(t, string(base), c.edits)))
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, e := range err.(Errors) {
			if e.Line < 1 || e.Col < 1 || e.Msg == "" {
				t.Errorf("%s: no position or message: %#v", c.name, e)
			}
		}
		fmt.Fprintf(&b, "%s\n%v\n\n", c.name, err)
	}
	golden(t, "testdata/bad.txt", b.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", file, diff)
	}
}
