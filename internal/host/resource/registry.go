package resource

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/mortarhpc/mortar/internal/base/strictjson"
)

// Kinds has one of each kind of resource in this package.
var Kinds = []Resource{
	&Host{}, &Packages{}, &TextFile{}, &Directory{}, &HostsEntry{}, &Binary{}, &AgentWorks{}, &Symlink{}, &Units{}, &Sysctl{},
	&TimeService{}, &Watchdog{}, &UnitFiles{}, &Modules{}, &LNet{}, &LustrePackages{}, &LustreParam{}, &LustrePool{}, &LustreStriping{}, &Built{},
	&Exports{}, &ServiceExports{}, &NFSServer{}, &FenceAgent{}, &Corosync{}, &Cluster{}, &CIB{}, &Everywhere{}, &Running{}, &Firewall{}, &Swap{},
}

// Decode makes a resource of what travelled to the host: its kind, one of kinds, and its
// exported fields as JSON. A field this binary does not know is an error, so
// that two versions never disagree silently.
func Decode(kinds []Resource, kind string, raw json.RawMessage) (Resource, error) {
	for _, k := range kinds {
		if KindOf(k) != kind {
			continue
		}
		r := reflect.New(reflect.TypeOf(k).Elem()).Interface().(Resource)
		if err := strictjson.Decode(raw, r); err != nil {
			return nil, fmt.Errorf("resource of kind %s: %w", kind, err)
		}
		return r, nil
	}
	return nil, fmt.Errorf("unknown kind of resource %q", kind)
}

// KindOf is the kind of a resource.
func KindOf(r Resource) string {
	kind, _ := r.Identity()
	return kind
}
