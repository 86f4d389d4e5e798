package resource

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// attacks are commands that a list by prefixes, or by some of the arguments, would let pass.
// getopt_long(3) takes the abbreviation of a long option, and joined short options.
var attacks = [][]string{
	{"journalctl", "--rot"},
	{"journalctl", "--vac=1"},
	{"journalctl", "--cursor-fi=/etc/cron.d/x", "-n", "1"},
	{"journalctl", "--cursor-fi", "/etc/cron.d/x"},
	{"journalctl", "--flu"},
	{"journalctl", "--update-c", "--root=/tmp"},
	{"journalctl", "--fil=/etc/shadow"},
	{"journalctl", "-D", "/root"},
	slices.Concat(journal.Argv(nil, "-n", "1", "--until=@1"), []string{"--rotate"}),
	slices.Concat(journal.Argv(nil, "-n", "1", "--until=@1"), []string{"--", "--rotate"}),
	journal.Argv([]string{"--rotate"}, "-n", "1", "--until=@1"),
	{"nft", "-j", "list", "ruleset", "-f", "/x"},
	{"firewall-cmd", "--policy=x", "--list-rich-rules", "--remove-rich-rule=x"},
	{"ip", "-js", "-bat", "/x", "link", "show"},
	{"ip", "netns", "show", "exec", "x", "reboot"},
	{"dmsetup", "table", "--showkeys"},
	{"dmsetup", "status", "--target", "multipath", "--noflush"},
	{"lvm", "pvs", "--config", "global{x=1}"},
	{"lvm", "vgs", "--foreign", "--reportformat", "json", "-o", "vg_name,vg_systemid", "--config",
		`global{system_id_source="lvmlocal"} local{system_id="a"} activation{x="b"}`, "--devices", "/dev/sda"},
	{"lvm", "vgs", "--foreign", "--reportformat", "json", "-o", "vg_name,vg_systemid", "--devices", "/dev/../etc/passwd"},
	{"mdadm", "--examine", "--zero-superblock", "/dev/sda"},
	{"mdadm", "--detail", "--stop", "/dev/md0"},
	{"mdadm", "--detail", "/dev/md/../../etc/x"},
	{"sfdisk", "--json", "--delete", "/dev/sda"},
	{"wipefs", "--no-act", "--json", "--all", "/dev/sda"},
	{"wipefs", "--no-act", "--json", "-a", "/dev/sda"},
	{"xfs_io", "-r", "-c", "fiemap -v", "-c", "shell reboot", "/x"},
	{"xfs_db", "-r", "-c", "sb 0", "-c", "print inprogress", "-x", "/dev/sda"},
	{"xfs_quota", "-x", "-c", "report -u -N -b -i", "-c limit"},
	{"debugfs", "-c", "-R", "ls -p /\nrdump / /x", "/dev/md/r0"},
	{"debugfs", "-c", "-R", "ls |sh", "/dev/md/r0"},
	{"tunefs.lustre", "--dryrun", "--writeconf"},
	{"systemctl", "show", "--property=Id,Names,LoadState,ActiveState,UnitFileState,Job", "--root=/x"},
	{"systemctl", "is-active", "-Hattacker"},
	{"apt-get", "-s", "dist-upgrade", "-oAPT::Get::Simulate=false"},
	{"apt-get", "-s", "-o", "APT::Update::Pre-Invoke::=reboot", "update"},
	{"dpkg-query", "--admindir=/x", "-W"},
	{"rpm", "-q", "--eval", "%(reboot)"},
	{"rpm", "-qa", "--pipe", "sh"},
	{"cibadmin", "--query", "--delete"},
	{"corosync-cfgtool", "-s", "-R"},
	{"corosync-cmapctl", "-g", "x", "-s", "y"},
	{"crm_mon", "--one-shot", "--output-as=xml", "--output-to=/etc/x"},
	{"fence_ipmilan", "--action=status", "--ac=off"},
	{"fence_ipmilan", "--ip=10.0.0.1", "--username=u", "--password-script=/tmp/x", "--cipher=3", "--privlvl=operator", "--action=status", "--ipmitool-path=/tmp/x"},
	{"/usr/bin/env", "SNMPCONFPATH=/x", "/usr/bin/snmpget", "-Lf", "/etc/x", "10.0.0.1:161", "1.3"},
	{"/usr/bin/env", "SNMPCONFPATH=/../x", "/usr/bin/snmpget", "-Oqv", "10.0.0.1:161", "1.3"},
	{"ipmitool", "raw", "chassis", "power", "status"},
	{"ipmitool", "exec", "/x", "sel", "info"},
	{"ping", "-f", "10.0.0.1"},
	{"tail", "--follow=name", "/x"},
	{"ls", "--color=always", "/x"},
	{"ls", "-d", "/var/log/journal", "/root"},
	{"readlink", "-e", "/sys/../etc"},
	{"df", "--output=avail", "-B1", "-a"},
	{"lctl", "get_param", "-n", "x"},
	{"lctl", "--device", "MGS", "llog_print", "params", "--raw"},
	{"lfs", "find", "/mnt", "--ost", "1", "--type", "f", "--print0", "-delete"},
	{"lfs", "df", "-N", "--output=source", "--yaml"},
	{"lctl"},
	{"lctl", "set_param", "debug=0"},
	{"lctl", "--device", "MGS", "llog_cancel", "params", "3"},
	{"lctl", "--device", "home-OST0000", "abort_recovery"},
	{"lfs", "setstripe", "-c", "1", "/mnt"},
	{"tunefs.lustre", "--dryrun", "--erase-params", "/dev/md/r0"},
	{"tunefs.lustre", "--writeconf", "/dev/md/r0"},
	{"debugfs", "-c", "-R", "rm /x", "/dev/md/r0"},
	{"lnetctl", "net", "del", "--net", "tcp"},
	{"lnetctl", "net", "show", "--backup"},
	{"SMcli", "-f", "/x", "-S", "-c", "show storageArray healthStatus;"},
	{"SMcli", "10.0.0.1", "-o", "/x", "-S", "-c", "show storageArray healthStatus;"},
	{"perccli64", "/cALL", "show", "all", "J", "logfile=/etc/x"},
	{"smartctl", "--json", "--all", "--smart=off"},
	{"sg_ses", "--readonly", "--page=es", "-HHH", "--set=fault"},
	{"/usr/local/sbin/mortar", "host-cache", "on", "/x", "--verbose"},
	{"/usr/local/sbin/mortar", "host-cache", "off", "/etc/mortar/cache-home.json"},
	{"pgrep", "-x", "--pidfile=/x"},
	{"blkid", "--probe", "--output", "export", "-w", "/x"},
	{"blkid", "--probe\x00--output", "export", "/dev/sda"},
	{"losetup", "--noheadings", "--output", "NAME", "--associated", "--detach-all"},
	{"reboot"},
	{""},
	nil,
}

func TestReadOnlyRefuses(t *testing.T) {
	for _, argv := range attacks {
		if ReadOnly(argv) == nil {
			t.Errorf("%q passes", argv)
		}
	}
}

// queries are what the code asks hosts, one for each form at least. TestEveryFormIsTried
// holds that. What tests of other packages ask passes ReadOnly too, in package hosttest.
func queries() [][]string {
	fields := strings.Fields
	out := [][]string{
		fields("blkid --probe --output export /dev/home/home"),
		fields("cibadmin --query"),
		fields("corosync-cfgtool -s"),
		fields("corosync-cmapctl -g runtime.votequorum.wait_for_all_status"),
		fields("crm_mon --one-shot --output-as=xml"),
		{"debugfs", "-c", "-R", "ls -p /", "/dev/md/r0"},
		fields(MortarCommand + " version --json"),
		fields(MortarCommand + " ocf validate-all --config /etc/mortar/service-home.json"),
		fields("pgrep --runstates T -x rpc.mountd"),
		fields("df --output=avail -B1 /srv/home"),
		fields("df --block-size=1 --output=target,size,avail,itotal,iavail / /boot /var/lib"),
		fields("dmsetup status --target multipath"),
		fields("dmsetup table /dev/home/home"),
		fields("fence_ipmilan --ip=10.0.0.1 --username=mortar --password-script=/etc/mortar/fence/nfs1.sh --cipher=17 --privlvl=operator --action=status --lanplus"),
		fields("fence_ipmilan --ip=10.0.0.1 --username=mortar --password-script=/etc/mortar/fence/nfs1.sh --cipher=17 --privlvl=operator --action=status"),
		fields("fence_redfish -o metadata"),
		fields("/usr/bin/env SNMPCONFPATH=/etc/mortar/fence /usr/bin/snmpget -Oqv 10.0.0.9:161 1.3.6.1.4.1 1.3.6.1.4.2"),
		fields("firewall-cmd --policy=m-brick1 --list-rich-rules"),
		linux.NFTCommand,
		linux.RPCCommand,
		fields("systemctl show --property=NeedDaemonReload --value nftables.service"),
		fields("ip -json address show"),
		fields("ip -json address show up"),
		fields("ip -o addr show to 10.0.0.1"),
		fields("ip -n mortar-home -o addr show to 10.0.0.9"),
		fields("ipmitool -I lanplus -N 2 -R 1 -H 10.0.0.1 -U mortar -f /etc/mortar/fence/nfs1 -C 17 -L operator chassis power status"),
		fields("ipmitool -c -I lanplus -H 10.0.0.1 -U mortar -f /etc/mortar/fence/nfs1 -C 17 -L operator sdr elist"),
		fields("ipmitool -c sel info"),
		fields("ipmitool -c sel elist last 1"),
		fields("ipmitool lan print"),
		journal.Argv(journal.Idents, "--priority=info", "-n", "200000", "--since=@1795000000", "--until=@1795000001"),
		journal.Argv(journal.Idents, "--priority=info", "-n", "200000", "--since=@1795000000"),
		journal.Argv(nil, "-n", "1", "--until=@1795000000"),
		journal.Argv(journal.DrillIdents, "-b", "-f", "-n", "0"),
		fields("journalctl --no-pager --output cat --identifier pacemaker-fenced --since @1795000000"),
		{"journalctl", "--output=json", "--output-fields=MESSAGE", "--since=2 hours ago", "--lines=2000", "--grep=bcache|md/raid[01]"},
		fields("lctl dl"),
		fields("lctl get_param obdfilter.*.recovery_status mdt.*.recovery_status"),
		fields("lctl pool_list small"),
		fields("lctl pool_list small.flash"),
		fields("lctl --device MGS llog_print params"),
		fields("lfs df -N --output=source /mnt/small"),
		fields("lfs df -N --output=source,size,used,avail,itotal,iused /mnt/small"),
		fields("lfs fid2path --link 0 /mnt/small [0x200000404:0x1:0x0]"),
		fields("lfs find /mnt/small --ost 3 --type f --print0"),
		fields("lfs getstripe --directory --yaml /mnt/small"),
		fields("lfs getstripe --stripe-index /mnt/small/a/0"),
		fields("lnetctl net show"),
		fields("losetup --noheadings --output NAME --associated /run/mortar/held"),
		fields("ls -d /var/log/journal"),
		fields("ls -d /mnt/small/"),
		fields("ls -U -d /sys/devices/pci0000:00/0000:00:05.0/remove /sys/devices/pci0000:00/remove"),
		fields("ls /run/mortar"),
		fields("mdadm --detail /dev/md/r0"),
		fields("mdadm --detail --export /dev/md/r0"),
		fields("mdadm --examine /dev/disk/by-id/wwn-0x5000c56fea133486 /dev/sda"),
		fields("perccli64 /cALL show all J nolog"),
		{"SMcli", "10.0.0.1", "10.0.0.2", "-S", "-c", "show storageArray healthStatus;"},
		fields("/usr/local/sbin/mortar host-cache stats /etc/mortar/cache-home.json"),
		fields("/usr/local/sbin/mortar host-cache stats --smart=true /etc/mortar/cache-home.json"),
		fields("/usr/local/sbin/mortar host-cache on /etc/mortar/cache-home.json"),
		{"/usr/local/sbin/mortar", "host-cache", "needs", `{"vg":"home", "mode":"writeback"}`},
		fields("pgrep -x rpc.mountd"),
		fields("ping -n -c 1 -W 1 10.0.0.1"),
		fields("ping -n -q -c 2 -W 2 fd00::1"),
		fields("readlink -e /dev/md/r0"),
		fields("sfdisk --json /dev/sda"),
		fields("sg_ses --readonly --page=cf -HHH /dev/sg7"),
		fields("smartctl --json --all /dev/sda"),
		fields("systemctl show --property=Id,Names,LoadState,ActiveState,UnitFileState,Job pacemaker.service corosync.service"),
		fields("systemctl is-enabled pacemaker.service"),
		slices.Concat(fields("systemctl is-active"), timeUnits),
		fields("tail -n +1 -F /run/mortar/ocf-home.log"),
		fields("tail -n 0 -F /run/mortar/ocf-home.log"),
		fields("tunefs.lustre --dryrun /dev/md/r0"),
		fields("wipefs --no-act --json /dev/sda /dev/sdb"),
		{"xfs_db", "-r", "-c", "sb 0", "-c", "print inprogress", "/dev/home/home"},
		fields("xfs_info /srv/home"),
		{"xfs_io", "-r", "-c", "fiemap -v", "/srv/home/a file"},
		{"xfs_quota", "-x", "-c", "report -u -N -b -i", "/srv/home"},
	}
	for _, p := range []string{"storcli64", "/opt/MegaRAID/perccli/perccli64", "/opt/MegaRAID/storcli/storcli64"} {
		out = append(out, []string{p, "/cALL", "show", "all", "J", "nolog"})
	}
	for _, p := range []string{"perccli2", "/opt/MegaRAID/perccli2/perccli2"} {
		out = append(out, []string{p, "/cALL", "show", "all", "J"})
	}
	for _, columns := range []string{"pv_name,vg_name", "pv_name,vg_name,vg_systemid"} {
		out = append(out, append([]string{"lvm", "pvs", "--foreign", "--reportformat", "json", "-o", columns}, LVMArgs("", []string{"/dev/md/r0", "/dev/mapper/a-b"})...))
	}
	for _, columns := range []string{"vg_name,vg_missing_pv_count", "vg_name,vg_free_count", "vg_name,vg_systemid"} {
		out = append(out, append([]string{"lvm", "vgs", "--foreign", "--reportformat", "json", "-o", columns}, LVMArgs("mortar-apply", []string{"/dev/md/r0"})...))
	}
	out = append(out, append([]string{"lvm", "lvs", "--foreign", "--reportformat", "json", "-o", "lv_name,vg_name"}, LVMArgs("a", []string{"/dev/md/r0"})...))
	for _, d := range distro.All() {
		out = append(out, d.Manager.Pending, d.Manager.Held, slices.Concat(d.Manager.Versions, d.Packages.Report), slices.Concat(d.Manager.Versions, d.Packages.LustreHeld))
		out = append(out, slices.Concat(d.Manager.Candidate, []string{"pacemaker", "corosync", "nfs-kernel-server"}))
	}
	return out
}

func TestReadOnlyPasses(t *testing.T) {
	for _, argv := range queries() {
		if err := ReadOnly(argv); err != nil {
			t.Errorf("%q: %v", argv, err)
		}
	}
}

// A form that no command needs is a hole.
func TestEveryFormIsTried(t *testing.T) {
	for _, f := range forms {
		re := regexp.MustCompile(`\A` + patternOf(f) + `\z`)
		if !slices.ContainsFunc(queries(), func(argv []string) bool { return re.MatchString("\x00" + strings.Join(argv, "\x00")) }) {
			t.Errorf("no query has the form %q", f)
		}
	}
}

// FuzzReadOnly changes commands that may run, as one would who wants a program to do more
// than read. Whatever still passes has only options that a form of the program has in full,
// each no more often than the form, and no path that leaves its folder.
func FuzzReadOnly(f *testing.F) {
	all := queries()
	for i := range all {
		f.Add(i, 0, 0, "")
	}
	for i, argv := range attacks {
		f.Add(i, 7, 0, strings.Join(argv, "\x01"))
	}
	for _, text := range []string{"--rot", "--cursor-fi=/etc/x", "--", "-", "/dev/../x", "/x/./y", "a,b", "\x00--rotate", "\n", "--output-to=/x", "-w"} {
		for how := range 7 {
			f.Add(len(text), how, how, text)
		}
	}
	f.Fuzz(func(t *testing.T, which, how, at int, text string) {
		argv := slices.Clone(all[int(uint(which)%uint(len(all)))])
		i := 1 + int(uint(at)%uint(max(1, len(argv)-1)))
		switch i = min(i, len(argv)-1); how {
		case 1:
			argv = append(argv, text)
		case 2:
			argv = slices.Insert(argv, i, text)
		case 3: // an abbreviation
			argv[i] = argv[i][:len(argv[i])*9/10] + text
		case 4: // joined
			argv[i] += text
		case 5:
			argv[i] = text
		case 6: // an option apart from its value
			if name, value, ok := strings.Cut(argv[i], "="); ok {
				argv = slices.Replace(argv, i, i+1, name, value)
			}
		case 7:
			argv = strings.Split(text, "\x01")
		}
		if ReadOnly(argv) != nil {
			return
		}
		fits := func(form []string) bool {
			free := optionsOf(form)
			for _, a := range argv {
				j := slices.IndexFunc(free, func(o string) bool {
					name, _, open := strings.Cut(o, "<")
					return a == o || open && strings.HasPrefix(a, name)
				})
				if j >= 0 && !slices.Contains(form, "]...") {
					free = slices.Delete(free, j, j+1)
				}
				if strings.HasPrefix(a, "-") && j < 0 {
					return false
				}
			}
			return form[0] == argv[0] || form[0] == "<fence>" && strings.HasPrefix(argv[0], "fence_")
		}
		if !slices.ContainsFunc(forms, fits) {
			t.Errorf("%q passes: no form has these options", argv)
		}
		for _, a := range argv[1:] {
			if strings.HasPrefix(a, "--since=") || strings.HasPrefix(a, "--grep=") || strings.HasPrefix(a, "{") {
				continue // words of the administrator
			}
			paths := []string{a}
			if argv[0] == "lvm" {
				paths = strings.Split(a, ",")
			}
			for _, p := range paths {
				if _, v, ok := strings.Cut(p, "="); ok {
					p = v
				}
				if p = strings.TrimSuffix(p, "/"); strings.HasPrefix(p, "/") && path.Clean(p) != p {
					t.Errorf("%q passes, with the path %s", argv, p)
				}
			}
		}
	})
}

// optionsOf are the arguments of a form that begin with a dash.
func optionsOf(form []string) []string {
	return slices.DeleteFunc(slices.Clone(form), func(a string) bool { return !strings.HasPrefix(a, "-") })
}
