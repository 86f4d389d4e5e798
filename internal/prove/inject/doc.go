// Package inject has those who break and mend in a drill: the injector of a
// virtual rack, the one of real hardware, and the operator, who does what an
// administrator types. It knows how a fault is done; which faults make a drill,
// and what must come of them, is in package drill. A new fault is a line in
// rackFaults, and one in hardwareFaults if a real server can do it by command.
package inject
