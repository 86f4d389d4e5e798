package procedure

import (
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Service is a service of a brick by its name; "" is the only one.
func Service(d *design.Design, name string) (*design.Service, error) {
	var all []string
	for _, s := range d.Services() {
		if s.Name == name || name == "" && len(d.Services()) == 1 {
			return s, nil
		}
		all = append(all, s.Name)
	}
	if name == "" {
		return nil, resource.Refuse("service-not-named", resource.With{"brick": d.Name, "services": all, "count": len(all)})
	}
	return nil, resource.Refuse("service-no-such", resource.With{"brick": d.Name, "service": name, "services": all})
}

// IsServer refuses a name that none of a brick's servers has.
func IsServer(d *design.Design, name string) error {
	if all := d.Servers(); !slices.Contains(all, name) {
		return resource.Refuse("server-no-such", resource.With{"server": name, "servers": all})
	}
	return nil
}

// Current is the state of a service; an error if the cluster has lost the service, or one of
// its failures counts.
func Current(s *observe.Snapshot, service string, counts func(observe.Failure) bool) (*observe.ServiceState, error) {
	st := s.Service(service)
	if st == nil || st.Resource == "" {
		return nil, fmt.Errorf("the cluster no longer knows service %s", service)
	}
	if i := slices.IndexFunc(st.Failures, counts); i >= 0 {
		return nil, fmt.Errorf("service %s failed: %s", service, st.Failures[i])
	}
	return st, nil
}
