package quota

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"quota-off":         {"service", "the file system of {service} counts no {kind}s", "add {option} to filesystem.mount of the spec and apply; it counts from the next start of the service (mortar failover)"},
	"quota-not-mounted": {"service", "the file system of {service} counts no {kind}s yet: it was mounted before the spec had the option", "mount it anew: mortar failover"},
})
