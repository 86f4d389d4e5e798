package upgrade

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"upgrade-one-server": {"", "this brick has one server: its clients wait while it is rebooted", "choose the hour, upgrade and reboot it by hand, then run `mortar apply`"},
	"upgrade-unhealthy":  {"", "the brick is not healthy: {faults%;}", "mend that first; see `mortar status`"},
})
