package failover

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"confirm-member":         {"node", "{node} is a member of the cluster: it is not off", "nothing has to be confirmed; see `mortar status`"},
	"confirm-lives":          {"node", "{node} is not off: {signs%;}; if its service started on {to} now, two servers would write to the same disks", "cut its power by hand first: pull both power cords of {node}, or hold its power button"},
	"confirm-partner-silent": {"host", "{host}, which has to take over, does not answer", "see `mortar status`"},
	"power-fencing":          {"node", "{node} is to be fenced", "wait until it is fenced; see `mortar status`"},
	"power-outlet":           {"", "{error}", "see `mortar check`"},
	"power-no-pdu":           {"node", "no PDU could be asked for the outlets of {node}", "see `mortar status`"},
	"power-not-known":        {"", "{note}", "see `mortar status`"},
	"service-runs-nowhere":   {"service", "service {service} runs on no server", "name the server with --to, after a look at `mortar status`"},
	"failback-auto":          {"service", "ha.failback is auto: service {service} would go back to {preferred} at once", "put {preferred} in standby instead (`mortar standby`), or set ha.failback: manual"},
	"takeover-not-ready":     {"server", "{server} cannot take service {service} over[ from {from}]: {why%;}", "see `mortar status`"},
	"doubt-none":             {"service", "no server that could start service {service} has refused it because blocks are in doubt", "see `mortar status`"},
	"fence-test-no-pair":     {"brick", "brick {brick} has no pair of servers", "fencing needs flavour nfs-ha"},
	"fence-test-unfit":       {"", "the brick is not fit for a fence test: {why%;}", "see `mortar status`"},
	"fence-test-power":       {"node", "the BMC of {node} says {state%q} though the server runs: {said}", "see that the BMC can be reached from {via}"},
})
