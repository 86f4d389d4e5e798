package procedure

import "github.com/mortarhpc/mortar/internal/host/resource"

// Refusals of several commands.
var _ = resource.Register(resource.Codes{
	"service-not-named":     {"", "brick {brick} has {count} services", "name one of {services%,}"},
	"service-no-such":       {"service", "brick {brick} has no service {service}", "choose one of {services%,}"},
	"server-no-such":        {"server", "{server} is not a server of this brick", "choose one of {servers%,}"},
	"brick-one-server":      {"brick", "brick {brick} has one server[: {why}]", "this needs flavour nfs-ha"},
	"host-no-answer":        {"host", "{host} does not answer: {error}", "see `mortar status`"},
	"cluster-no-answer":     {"", "no server's cluster answers[: {why}]", "see `mortar status`"},
	"cluster-lacks-node":    {"node", "the cluster does not know {node}", "run `mortar apply`"},
	"cluster-lacks-service": {"service", "the cluster does not know service {service}", "run `mortar apply`"},
})
