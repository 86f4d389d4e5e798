package ocf

// metadata is what the meta-data action prints; it conforms to ra-api-1.dtd.
const metadata = `<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="service" version="1.0">
<version>1.0</version>

<longdesc lang="en">
Runs one service of a Mortar brick as a whole. It brings the storage up: it
assembles md arrays, or sees that LUNs are there as designed, takes ownership of
the LVM volume group by system ID, activates it, and starts its cache of SSDs.

On it runs an NFS export tree: the agent mounts the XFS file system, moves the NFS
server's recovery state (/var/lib/nfs) to the volume, exports, starts the kernel
NFS server with its daemons, brings the service address up, announces it, wakes
the connections of the clients and notifies NFSv3 clients that held locks. Or it
mounts targets of Lustre. Stopping does the opposite, the address first.

Not cloneable. Fencing must be enabled: none of these parts keeps a second
server from writing.

OCF_CHECK_LEVEL 10 makes a monitor also write and read a file on the volume, or
read each target's device, past all caches.
</longdesc>
<shortdesc lang="en">A service of a Mortar storage brick: storage, and NFS exports with an address or targets of Lustre</shortdesc>

<parameters>
<parameter name="config" unique="1" required="1">
<longdesc lang="en">
The file that describes the service, written by "mortar apply" on each node:
absolute path of a JSON file, e.g. /etc/mortar/service-home.json.
</longdesc>
<shortdesc lang="en">Description of the service (JSON file)</shortdesc>
<content type="string"/>
</parameter>
</parameters>

<actions>
<action name="start" timeout="180s"/>
<action name="stop" timeout="120s"/>
<action name="monitor" depth="0" timeout="30s" interval="10s"/>
<action name="monitor" depth="10" timeout="60s" interval="60s"/>
<action name="status" depth="0" timeout="30s" interval="10s"/>
<action name="validate-all" timeout="20s"/>
<action name="meta-data" timeout="5s"/>
</actions>
</resource-agent>
`
