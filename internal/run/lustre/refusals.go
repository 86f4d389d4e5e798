package lustre

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"pool-name":             {"pool", "{pool%q} cannot name a pool", "use at most 15 letters, digits, - and _"},
	"pool-exists":           {"pool", "there is a pool {pool} already", "`mortar lustre pool add` adds OSTs to it"},
	"pool-no-osts":          {"", "a pool without OSTs serves no client", "name OSTs, e.g. OST0000 OST0001"},
	"pool-in-spec":          {"pool", "pool {pool} is of the spec", "change lustre.pools in the spec and run `mortar apply`; to destroy the pool, take it out of the spec first"},
	"pool-no-such":          {"pool", "there is no pool {pool%q}", "choose one of: {pools%,}"},
	"brick-no-lustre":       {"brick", "brick {brick} has no Lustre", "the command is for flavour lustre"},
	"lustre-device-unknown": {"device", "no server that answers has {device}: {error}", "see `mortar status`"},
	"lustre-device-stopped": {"device", "{device} runs on no server", "start its service; see `mortar status`"},
	"lustre-no-client":      {"", "no client has the file system mounted: {error}", "mount it with `mortar apply`"},
	"target-no-such":        {"word", "{word%q} is no {what} of {fs}", "choose one of {targets%,}"},
	"stripe-count":          {"", "a stripe count of {count}, and there are {osts} OSTs", "choose 1 to {osts}, or -1 for all"},
	"stripe-size":           {"", "a stripe size of {size}", "choose a multiple of 64 KiB, e.g. 4MiB"},
	"layout-empty":          {"", "nothing to set", "give --stripe-count, --stripe-size or --pool"},
	"layout-in-spec":        {"path", "the layout of {path} is of the spec", "change lustre.stripe_count and stripe_size in the spec and run `mortar apply`"},
	"path-outside":          {"path", "{path} is not in the file system", "name one below {mount}"},
	"path-unseen":           {"path", "{error}", "make it first"},
	"lustre-client-mounted": {"client", "client {client} has the file system mounted", "unmount it there"},
	"ost-unread":            {"ost", "how much {ost} holds is not known: {unread}", "see that {ost} is up and that the client reaches it"},
	"ost-last":              {"", "no other OST takes new files", "`mortar lustre ost fill` opens one again"},
	"ost-no-room":           {"ost", "{ost} holds {holds_gib} GiB and the other OSTs have room for {free_gib} GiB", "delete files, or add OSTs"},
	"ost-in-use":            {"ost", "{ost} still has objects of {files} files, e.g. {example}", "`mortar lustre ost drain` moves them"},
	"ost-in-pool":           {"ost", "{ost} is in pool {pool}", "take it out of the pool first"},
})
