// Package inject has the injectors of drills: Rack breaks a virtual rack, Hardware
// breaks real servers, and Operator runs an administrator's commands. The package
// knows how to inject a fault. Package drill has the faults of each drill and the
// outcome that each must have. A new fault needs an entry in rackFaults, and one in
// hardwareFaults if a command can inject the fault on a real server.
package inject
