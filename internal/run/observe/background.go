package observe

import (
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// systemdDir has the units that are masked, links to /dev/null, and the links by which
// units are enabled.
const systemdDir = "/etc/systemd/system/"

// background returns the files, and the patterns of links, that tell what distributions do by
// themselves.
func background() (files, links []string) {
	for _, d := range distro.All() {
		bg := d.Background
		for _, t := range bg.CheckTimers {
			links = append(links, systemdDir+t, systemdDir+"*.wants/"+t)
		}
		files = append(files, bg.CheckCron, bg.Upgrader, bg.UpgradeConf, bg.Restarter, bg.RestartConf)
	}
	return distinct(files), distinct(links)
}

// distinct sorts words and drops the empty ones.
func distinct(words []string) []string {
	slices.Sort(words)
	return slices.DeleteFunc(slices.Compact(words), func(w string) bool { return w == "" })
}

// background warns of what a server's distribution does to the brick by itself, and apply
// has not ended.
func (v *view) background(c *Part, s *server) {
	files := s.host.Files
	bg := distro.Nearest(linux.ParseOSRelease(files["/etc/os-release"])).Background
	add := func(what, format string, a ...any) {
		c.add(Warning, what, format, a...).Mend = "`mortar apply " + v.d.Spec.File + "` ends that"
	}
	if _, arrays := v.storage().(mdStorage); arrays || v.d.Cached() != nil {
		for _, t := range bg.CheckTimers {
			enabled := false
			for l := range s.host.Links {
				enabled = enabled || strings.HasPrefix(l, systemdDir) && strings.HasSuffix(path.Dir(l), ".wants") && path.Base(l) == t
			}
			if enabled && s.host.Links[systemdDir+t] != "/dev/null" {
				add("checks", "%s of %s has the kernel check the brick's arrays, degraded ones too", t, s.name)
			}
		}
		if strings.Contains(files[bg.CheckCron], bg.CheckProgram) && bg.CheckCron != "" {
			add("checks", "cron of %s has the kernel check the brick's arrays (%s), degraded ones too", s.name, bg.CheckCron)
		}
	}
	if v.pair.HA == nil {
		return
	}
	if _, is := files[bg.Upgrader]; is && !strings.Contains(files[bg.UpgradeConf], bg.UpgradeText) {
		add("upgrades", "%s upgrades the packages of the cluster by itself (%s)", s.name, bg.Upgrader)
	}
	if _, is := files[bg.Restarter]; is && !strings.Contains(files[bg.RestartConf], bg.RestartText) {
		add("restarts", "%s may restart Corosync and Pacemaker by itself (needrestart)", s.name)
	}
}
