package spec

import (
	"regexp"
	"sync"
)

// patterns are what words of a spec must look like.
type patterns struct {
	bmcUser, brick, brickID, client, defined, dev, digits, file, login, fsname, host, iface, mirror, option, param, path, pool, ranges, repository, sas, serial, service, sha256, size, snmpUser, speed, word, wwn *regexp.Regexp
}

// re compiles the patterns when the first spec is read. A process of Mortar is
// started for every action of the resource agent and for every session with a
// host, and needs none of them: they would cost it a millisecond.
var re = sync.OnceValue(func() *patterns {
	return &patterns{
		bmcUser: regexp.MustCompile(`^[A-Za-z0-9_.@][A-Za-z0-9_.@-]{0,15}$`), // IPMI 2.0: at most 16 bytes
		brick:   regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9-]{0,13}[A-Za-z0-9])?$`),
		brickID: regexp.MustCompile(`^[a-z0-9]{8,32}$`),
		client:  regexp.MustCompile(`^[A-Za-z0-9*?@][A-Za-z0-9*?@._-]*$`),
		// The YAML parser's words for a repeated key.
		defined: regexp.MustCompile(`^mapping key "(.*)" already defined at \[(\d+):\d+\]`),
		// The names that the kernel gives block devices in the order in which it finds them.
		dev:    regexp.MustCompile(`^(/dev/.*|(sd|vd|xvd|hd)[a-z]{1,3}[0-9]*|nvme[0-9]+n[0-9]+(p[0-9]+)?|dm-[0-9]+|md[0-9]+|mpath[a-z]{1,3})$`),
		digits: regexp.MustCompile(`^[0-9]+$`),
		file:   regexp.MustCompile(`^[A-Za-z0-9._/~@+-]+$`),
		login:  regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`), // useradd(8)
		fsname: regexp.MustCompile(`^[A-Za-z0-9]{1,8}$`),              // mkfs.lustre(8), --fsname
		host:   regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`),
		iface:  regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`),
		mirror: regexp.MustCompile(`^https?://[A-Za-z0-9._:/@%+~-]+$`),
		option: regexp.MustCompile(`^[A-Za-z0-9_.-]+(=[A-Za-z0-9_.:@/+-]+)?$`),
		param:  regexp.MustCompile(`^[A-Za-z0-9_*-]+(\.[A-Za-z0-9_*-]+)*=[A-Za-z0-9_.:,*/@+-]+$`),
		path:   regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`),
		pool:   regexp.MustCompile(`^[A-Za-z0-9_-]{1,15}$`),
		ranges: regexp.MustCompile(`^([^\[\]]*)\[([0-9]{1,9})-([0-9]{1,9})\]([^\[\]]*)$`),
		// URI SUITE [COMPONENT...]; a suite that ends with a slash has no components. Source: sources.list(5)
		repository: regexp.MustCompile(`^https?://[A-Za-z0-9._:/@%+~-]+ ([A-Za-z0-9._/-]*/|[A-Za-z0-9._-]+( [A-Za-z0-9._/-]+)+)$`),
		sas:        regexp.MustCompile(`^(?:0x)?([0-9A-Fa-f]{16})$`),
		serial:     regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}$`),
		service:    regexp.MustCompile(`^[a-z]([a-z0-9-]{0,10}[a-z0-9])?$`),
		sha256:     regexp.MustCompile(`^(?:[0-9A-Fa-f]{2}:?){32}$`),
		size:       regexp.MustCompile(`^([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)$`),
		snmpUser:   regexp.MustCompile(`^[A-Za-z0-9._@-]{1,32}$`),
		speed:      regexp.MustCompile(`^[1-9][0-9]*(\.[0-9]+)?(Mb/s|Gb/s)$`),
		word:       regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,30}[A-Za-z0-9])?$`),
		wwn:        regexp.MustCompile(`^(?:naa\.|0x)?([0-9A-Fa-f]{16}|[0-9A-Fa-f]{32})$`),
	}
})
