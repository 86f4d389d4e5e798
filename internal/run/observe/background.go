package observe

import (
	"path"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// background warns of what a server's distribution does to the brick by itself, and apply
// has not ended.
func (v *view) background(c *Part, s *server) {
	files := s.host.Files
	bg := distro.Nearest(linux.ParseOSRelease(files["/etc/os-release"])).Background
	if _, arrays := v.storage().(mdStorage); arrays || v.d.Cached() != nil {
		for _, t := range bg.CheckTimers {
			enabled := false
			for l := range s.host.Links {
				enabled = enabled || strings.HasPrefix(l, linux.SystemdDir) && strings.HasSuffix(path.Dir(l), ".wants") && path.Base(l) == t
			}
			if enabled && s.host.Links[linux.SystemdDir+t] != "/dev/null" {
				c.find("checks", "checks-by-itself", with{"host": s.name, "what": t})
			}
		}
		if strings.Contains(files[bg.CheckCron], bg.CheckProgram) && bg.CheckCron != "" {
			c.find("checks", "checks-by-itself", with{"host": s.name, "what": "cron", "file": bg.CheckCron})
		}
	}
	if v.pair.HA == nil {
		return
	}
	if _, is := files[bg.Upgrader]; is && !strings.Contains(files[bg.UpgradeConf], bg.UpgradeText) {
		c.find("upgrades", "upgrades-by-itself", with{"host": s.name, "file": bg.Upgrader})
	}
	if _, is := files[bg.Restarter]; is && !strings.Contains(files[bg.RestartConf], bg.RestartText) {
		c.find("restarts", "restarts-by-itself", with{"host": s.name})
	}
}
