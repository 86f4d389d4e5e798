package cli

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/screen"
)

// terminal is a pseudo terminal. Source: pts(4).
func terminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	side, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = side.Close() })
	return side
}

// A dumb terminal has no colour and no lines that are written over.
func TestTerminal(t *testing.T) {
	w := screen.To(terminal(t))
	for _, c := range []struct {
		term, noColor string
		want          bool
	}{{"xterm-256color", "", true}, {"dumb", "", false}, {"xterm", "1", false}} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		if got := IsTerminal(w); got != c.want || (Painter(w) != nil) != c.want {
			t.Errorf("TERM=%s NO_COLOR=%s: %v", c.term, c.noColor, got)
		}
	}
}
