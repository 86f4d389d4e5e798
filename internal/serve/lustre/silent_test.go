package lustre

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// pingKernel answers pings of the servers that are up.
type pingKernel struct {
	kernel.Host
	up  map[string]bool
	ran []string
}

func (k *pingKernel) Run(_ context.Context, c kernel.Command) (string, error) {
	if c.Argv[1] == "ping" {
		if !k.up[c.Argv[4]] {
			return "", errors.New("failed to ping: No route to host")
		}
		return "", nil
	}
	k.ran = append(k.ran, strings.Join(c.Argv, " "))
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
