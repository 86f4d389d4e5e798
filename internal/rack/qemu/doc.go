// package qemu has the command lines of the rack's machines and speaks QEMU's machine
// protocol. It starts no process, and decides on no fault: those may not live here.
package qemu
