package linux

// SystemdDir has the units of the administrator, drop-ins, the units that are masked, links to /dev/null, and the links by which
// units are enabled.
const SystemdDir = "/etc/systemd/system/"
