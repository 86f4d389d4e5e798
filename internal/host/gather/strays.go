package gather

import (
	"path/filepath"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Stray is a device that belongs to a running array but is not in it, for example a
// disk that was out of its slot and is back.
type Stray struct {
	Dev   string `json:"dev"`   // vdb, sda2
	Array string `json:"array"` // md0
}

// strays finds stray devices, by the properties that udev has read from them.
func strays(sys resource.Sys) []Stray {
	host := resource.Tree{Sys: sys}
	arrays, _ := linux.MDArrays(host) // ignore arrays that cannot be read
	if len(arrays) == 0 {
		return nil
	}
	in := map[string]bool{}
	for _, a := range arrays {
		members, _ := linux.MDMembers(host, a.Dev)
		for _, m := range members {
			in[m.Dev] = true
		}
	}
	var out []Stray
	devs, _ := sys.Glob("/sys/class/block/*/dev")
	for _, p := range devs {
		name := filepath.Base(filepath.Dir(p))
		num, err := sys.ReadFile(p)
		if err != nil || in[name] {
			continue
		}
		b, err := sys.ReadFile("/run/udev/data/b" + strings.TrimSpace(string(num)))
		if err != nil {
			continue
		}
		props := linux.ParseUdev(string(b))
		if props["ID_FS_TYPE"] != "linux_raid_member" { // libblkid's name of md members
			continue
		}
		for _, a := range arrays {
			if md.SameUUID(a.UUID, props["ID_FS_UUID"]) {
				out = append(out, Stray{name, a.Dev})
			}
		}
	}
	return out
}
