package ocf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// pingKernel answers pings of the servers that are up.
type pingKernel struct {
	kernel
	up  map[string]bool
	ran []string
}

func (k *pingKernel) Run(_ context.Context, c command) (string, error) {
	if c.argv[1] == "ping" {
		if !k.up[c.argv[4]] {
			return "", errors.New("failed to ping: No route to host")
		}
		return "", nil
	}
	k.ran = append(k.ran, strings.Join(c.argv, " "))
	return "", nil
}

// The MGS evicts a server that misses three pings in a row, once.
func TestSilentServersAreEvicted(t *testing.T) {
	const a, b = "10.20.0.13@tcp", "10.20.0.14@tcp"
	for name, c := range map[string]struct {
		rounds string // who is up in each
		want   []string
	}{
		"all answer":    {"ab ab ab ab", nil},
		"two missed":    {"ab b b ab b b ab", nil},
		"three missed":  {"ab b b b b b", []string{a}},
		"crashed twice": {"b b b ab b b b", []string{a, a}},
		"both":          {"- - - -", []string{a, b}},
	} {
		k, s := &pingKernel{}, &silentServers{}
		var logged []string
		for _, up := range strings.Fields(c.rounds) {
			k.up = map[string]bool{a: strings.Contains(up, "a"), b: strings.Contains(up, "b")}
			s.round(t.Context(), k, []string{a, b}, func(f string, x ...any) { logged = append(logged, fmt.Sprintf(f, x...)) })
		}
		var want []string
		for _, nid := range c.want {
			want = append(want, "lctl set_param mgs.MGS.evict_client=nid:"+nid)
		}
		if !slices.Equal(k.ran, want) || len(logged) != len(want) {
			t.Errorf("%s: ran %q, logged %q", name, k.ran, logged)
		}
	}
}

// A look soon after another pings no server: pings of all servers of a file system, one
// process each, are not to keep a processor busy.
func TestPingsAreSpaced(t *testing.T) {
	k, s := &pingKernel{}, &silentServers{} // nobody answers: the third round evicts
	at := time.Now()
	for _, after := range []time.Duration{0, 2 * time.Second, 2 * time.Second, time.Second, 2 * time.Second} {
		at = at.Add(after)
		s.look(t.Context(), k, at, []string{"10.20.0.13@tcp"}, t.Logf)
		for s.busy.Load() {
			time.Sleep(time.Millisecond)
		}
	}
	if got := s.missed["10.20.0.13@tcp"]; got != 2 {
		t.Errorf("%d rounds within 7 s, not at 0 and 5 s", got)
	}
}
