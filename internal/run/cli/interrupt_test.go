package cli

import (
	"os"
	"syscall"
	"testing"
)

// Only a second Ctrl-C kills. Any signal ends the context.
func TestObey(t *testing.T) {
	const i, term, hup = syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP
	for _, c := range []struct {
		signals         []os.Signal
		cancels, killed int
	}{
		{[]os.Signal{i}, 1, 0},
		{[]os.Signal{i, term}, 2, 0},
		{[]os.Signal{hup, hup, term, i}, 4, 0},
		{[]os.Signal{i, i}, 1, 1},
		{[]os.Signal{i, term, i}, 2, 1},
	} {
		got := make(chan os.Signal, len(c.signals))
		for _, s := range c.signals {
			got <- s
		}
		close(got)
		cancels, killed := 0, 0
		obey(got, func() { cancels++ }, func() { killed++ })
		if cancels != c.cancels || killed != c.killed {
			t.Errorf("%v: canceled %d, killed %d", c.signals, cancels, killed)
		}
	}
}
