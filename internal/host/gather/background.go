package gather

import (
	"slices"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Background returns the files, and the patterns of links, that tell what distributions do by
// themselves.
func Background() (files, links []string) {
	for _, d := range distro.All() {
		bg := d.Background
		for _, t := range bg.CheckTimers {
			links = append(links, linux.SystemdDir+t, linux.SystemdDir+"*.wants/"+t)
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
