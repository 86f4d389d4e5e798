package plan

import "github.com/mortarhpc/mortar/internal/host/resource"

// BinaryName is how the binary is found on a server. Pacemaker's agent is
// started by it.
const BinaryName = "/usr/local/sbin/mortar"

// BinaryLinks are the steps that make BinaryName lead to the binary that
// answers on each server (host to path). Only apply changes which version runs
// there; other commands push their version beside it.
func BinaryLinks(binaries map[string]string) []Step {
	var steps []Step
	for _, h := range names(binaries) {
		steps = append(steps, Step{Stage: stageBinary, Title: "this version of mortar", Host: h,
			Resource: &resource.Symlink{Path: BinaryName, Target: binaries[h]}})
	}
	return steps
}
