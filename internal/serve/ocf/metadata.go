package ocf

import _ "embed"

// What the meta-data action of each agent prints; it conforms to ra-api-1.dtd.
var (
	//go:embed service.xml
	metadata string
	//go:embed watch.xml
	watchMetadata string
)

// lvmConf is the configuration of the agent's LVM commands, see lvmDir.
//
//go:embed lvm.conf
var lvmConf []byte
