// package rack is the virtual rack: real Debian nodes in QEMU with shared disks on
// two paths, switches, baseboard management controllers (BMCs), switched power
// distribution units (PDUs), and faults for each of these. A plain description,
// [Config], determines everything. [Up] builds a rack, [Down] removes it, [Status]
// returns its state, and [Fault] breaks or mends one part.
//
// The package is the door for callers, and makes a rack of the parts below: tool (programs
// of the host, processes, files), hw (description and state), nodeimage, qemu, vdisk (disks
// with a cache), power (BMC and PDU) and array. All that it does to a host over SSH is to
// set the clock of one that was stopped (clock.go): a rack node is a clean Debian server, and
// the users of the inventory must not depend on its being virtual. Only cmd/mortar and the
// rack's own fault driver may import this package. What one part alone needs may not live
// here.
package rack
