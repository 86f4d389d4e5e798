// package hw describes a rack: its [Config], made from a spec, the state of its hardware
// (what is out, off or broken), and the names and wiring that follow from both. It is pure:
// nothing that runs a program or reads a rack's files may live here.
package hw
