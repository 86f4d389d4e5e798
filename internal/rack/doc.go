// Package rack is the virtual rack: real Debian nodes in QEMU with shared
// disks on two paths, switches, baseboard management controllers (BMCs),
// switched power distribution units (PDUs) and hooks that break any of them.
// Everything follows a plain description, [Config]; [Up] builds it, [Down]
// takes it away, [Status] looks at it and [Fault] breaks or mends one part.
//
// What lives here: the node image, QEMU command lines and their machine
// protocol (QMP), the network namespace, the disk images, the IPMI and SNMP
// ends of power control. What may not: anything that is done to a host over
// SSH. A rack node is a clean Debian server, and nobody downstream of its
// inventory may know that it is not made of metal. Only cmd/mortar and the
// rack's own fault driver may import this package.
package rack
