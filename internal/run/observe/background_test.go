package observe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

func TestUnequalServers(t *testing.T) {
	d := theDesign(t)
	f := healthy(t, d)
	f.Hosts["nfs1"].Host.Files["/etc/os-release"] = "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"
	f.Hosts["nfs2"].Host.Files["/etc/os-release"] = "ID=debian\nVERSION_ID=\"13\"\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n"
	want := "warning: nfs1 runs Debian GNU/Linux 12, and nfs2 Debian GNU/Linux 13: a takeover between the two is not what was proven"
	if got := complaints(Judge(d, f)); !slices.Contains(got, want) {
		t.Errorf("%q", got)
	}
}

// status warns of what the distribution does to the brick by itself, until apply ends it.
func TestBackground(t *testing.T) {
	d := theDesign(t)
	bg := distro.Default().Background
	const cron = "57 0 * * 0 root if [ -x /usr/share/mdadm/checkarray ]; then /usr/share/mdadm/checkarray --cron --all --idle --quiet; fi\n"
	for _, tc := range []struct {
		name  string
		files map[string]string // those below systemdDir are links, with what they lead to
		want  string
	}{
		{"a host without any of it", nil, ""},
		{"a timer that is not enabled", map[string]string{"/lib/systemd/system/mdcheck_start.timer": "[Timer]"}, ""},
		{"Debian 13", map[string]string{"/etc/systemd/system/mdmonitor.service.wants/mdcheck_start.timer": "/usr/lib/systemd/system/mdcheck_start.timer"}, "mdcheck_start.timer of nfs1 has the kernel check the brick's arrays"},
		{"a changed unit", map[string]string{"/etc/systemd/system/timers.target.wants/mdcheck_start.timer": "/usr/lib/systemd/system/mdcheck_start.timer", "/etc/systemd/system/mdcheck_start.timer": "/etc/systemd/system/mdcheck_start.timer"}, "mdcheck_start.timer of nfs1"},
		{"masked", map[string]string{"/etc/systemd/system/mdmonitor.service.wants/mdcheck_start.timer": "/usr/lib/systemd/system/mdcheck_start.timer", "/etc/systemd/system/mdcheck_start.timer": "/dev/null"}, ""},
		{"Debian 12", map[string]string{bg.CheckCron: cron}, "cron of nfs1 has the kernel check"},
		{"cron after apply", map[string]string{bg.CheckCron: "# Written by mortar apply\n"}, ""},
		{"upgrades", map[string]string{bg.Upgrader: "x"}, "nfs1 upgrades the packages of the cluster by itself"},
		{"upgrades, changed", map[string]string{bg.Upgrader: "x", bg.UpgradeConf: "# empty\n"}, "nfs1 upgrades the packages"},
		{"upgrades after apply", map[string]string{bg.Upgrader: "x", bg.UpgradeConf: "# Header\n" + bg.UpgradeText}, ""},
		{"restarts", map[string]string{bg.Restarter: "x"}, "nfs1 may restart Corosync"},
		{"restarts after apply", map[string]string{bg.Restarter: "x", bg.RestartConf: "# Header\n" + bg.RestartText}, ""},
	} {
		f := healthy(t, d)
		for p, text := range tc.files {
			if h := f.Hosts["nfs1"].Host; strings.HasPrefix(p, linux.SystemdDir) {
				h.Links[p] = text
			} else {
				h.Files[p] = text
			}
		}
		var got []string
		Judge(d, f).Each(func(p *Part) {
			if p.Level == Warning && strings.HasSuffix(p.Mend, " ends that") {
				got = append(got, p.Text)
			}
		})
		if (tc.want == "") != (len(got) == 0) || tc.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tc.want)) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	asked := requests(d, time.Second)["nfs1"]
	for _, l := range []string{"/etc/systemd/system/mdcheck_start.timer", "/etc/systemd/system/*.wants/mdcheck_start.timer"} {
		if !slices.Contains(asked.Links, l) {
			t.Errorf("%s is not read", l)
		}
	}
	for _, f := range []string{bg.CheckCron, bg.Upgrader, bg.RestartConf} {
		if !slices.Contains(asked.Files, f) {
			t.Errorf("%s is not read", f)
		}
	}
	if err := asked.MayWatch(); err != nil {
		t.Error(err)
	}
}

// The servers of a brick on an array may check the arrays of their systems.
func TestBackgroundWithoutArrays(t *testing.T) {
	for name, want := range map[string]int{"nfs-ha": 1, "nss2-ha": 0} {
		d := designOf(t, name)
		v, p := &view{d: d, pair: &d.Pairs[0]}, &Part{}
		v.background(p, &server{name: "s1", host: &gather.Host{Links: map[string]string{
			linux.SystemdDir + "mdmonitor.service.wants/mdcheck_start.timer": "/usr/lib/systemd/system/mdcheck_start.timer"}}})
		if len(p.Parts) != want {
			t.Errorf("%s: %d warnings, want %d", name, len(p.Parts), want)
		}
	}
}
