//go:build rack

package rack_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/mortarhpc/mortar/test/racktest"
)

func TestMain(m *testing.M) {
	os.Exit(racktest.Main(m, func(rack string) error {
		if out, err := exec.Command("../../bin/mortar", "rack", "down", "--dir", rack).CombinedOutput(); err != nil {
			return fmt.Errorf("mortar rack down --dir %s: %w\n%s", rack, err, out)
		}
		return nil
	}))
}
