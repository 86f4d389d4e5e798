// Package ocf is Mortar's OCF resource agent, run on a server by Pacemaker as
// ocf:mortar:service: it brings one service of a brick (md arrays, volume
// group, file system, NFS state, nfsd, exports, service address) up and down in one process and checks each
// part. It is handed everything in its Config; it knows neither spec nor
// design, and it never decides where a service runs.
package ocf

// Config is the file the agent's `config` parameter names. Written by apply
// on each server, root only.
type Config struct {
	Service    string   `json:"service"`
	Arrays     []Array  `json:"arrays"`
	VG         string   `json:"vg"`
	LV         string   `json:"lv"`
	FSUUID     string   `json:"fs_uuid"`
	MountPoint string   `json:"mount_point"`
	MountOpts  []string `json:"mount_opts"`
	// StateDir, on the volume, is bind-mounted on /var/lib/nfs while the
	// service runs, so that recovery state moves with it.
	StateDir string   `json:"state_dir"`
	NFS      NFS      `json:"nfs"`
	Exports  []Export `json:"exports"`
	Address  string   `json:"address"` // service IP with prefix, 10.0.0.9/24
	// Nodes maps each cluster node to its public address, to find the
	// interface the service address goes on.
	Nodes map[string]string `json:"nodes"`
}

// Array is one md array by UUID and its members' WWNs or serials.
type Array struct {
	Name    string   `json:"name"`
	UUID    string   `json:"uuid"`
	Members []string `json:"members"` // device paths, /dev/disk/by-id or /dev/mapper, resolved by apply on the host
}

// NFS server settings.
type NFS struct {
	Threads  int      `json:"threads"`
	Versions []string `json:"versions"`
	Lease    int      `json:"lease"` // s
	Grace    int      `json:"grace"` // s
	Scope    string   `json:"scope"` // server scope and statd name, equal on both nodes
}

// Export is one export.
type Export struct {
	Dir     string   `json:"dir"`
	Clients string   `json:"clients"`
	FSID    string   `json:"fsid"`
	Options []string `json:"options"`
}
