// Package inject has the injectors of drills: Rack breaks a virtual rack, Hardware
// breaks real servers, and Operator runs an administrator's commands. The package
// knows how to inject a fault. Package fault describes each fault, with the command by which
// a virtual rack does it; package drill has the faults of each drill and the outcome that each
// must have. A new fault needs a row in package fault, and an entry in hardwareFaults if a
// command can inject it on a real server.
package inject
