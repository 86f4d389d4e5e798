package gather

import (
	"slices"

	"github.com/mortarhpc/mortar/internal/base/distro"
)

// SystemdDir has the units that are masked, links to /dev/null, and the links by which
// units are enabled.
const SystemdDir = "/etc/systemd/system/"

// Background returns the files, and the patterns of links, that tell what distributions do by
// themselves.
func Background() (files, links []string) {
	for _, d := range distro.All() {
		bg := d.Background
		for _, t := range bg.CheckTimers {
			links = append(links, SystemdDir+t, SystemdDir+"*.wants/"+t)
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
