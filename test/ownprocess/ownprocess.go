// Package ownprocess gives a test a process of its own, because what it sets
// holds for the whole process: a limit on file sizes also stops the log by which
// `go test` remembers results. Nothing may live here that starts a rack: see
// test/racktest.
package ownprocess

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Repeated runs the calling test once more, alone in another process, and
// reports its failure. It returns false in that other process: the caller goes
// on there only.
func Repeated(t *testing.T) bool {
	t.Helper()
	const mark = "MORTAR_TEST_OWN_PROCESS"
	if os.Getenv(mark) == t.Name() {
		return false
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v=true")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Fatalf("%v\n%s", err, out)
	}
	return true
}
