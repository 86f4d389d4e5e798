package lustre

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// pingKernel answers pings of the servers that are up. A ping of one that hangs ends with the
// channel, or with ctx.
type pingKernel struct {
	kernel.Host
	mu    sync.Mutex
	up    map[string]bool
	hangs map[string]chan bool
	pings map[string]int // under way
	t     *testing.T
	ran   []string
}

func (k *pingKernel) Run(ctx context.Context, c kernel.Command) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Argv[1] != "ping" {
		k.ran = append(k.ran, strings.Join(c.Argv, " "))
		return "", nil
	}
	nid := c.Argv[4]
	if k.pings[nid]++; k.pings[nid] > 1 {
		k.t.Errorf("%s is pinged %d times at once", nid, k.pings[nid])
	}
	defer func() { k.pings[nid]-- }()
	if hangs := k.hangs[nid]; hangs != nil {
		k.mu.Unlock()
		defer k.mu.Lock()
		select {
		case <-hangs:
			return "", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if !k.up[nid] {
		return "", errors.New("failed to ping: No route to host")
	}
	return "", nil
}

// The MGS evicts a server that misses three rounds in a row, once. A ping that does not end is
// missed in each of them.
func TestSilentServersAreEvicted(t *testing.T) {
	const a, b = "10.20.0.13@tcp", "10.20.0.14@tcp"
	for name, c := range map[string]struct {
		rounds string // which servers answer in each; A: a ping of a hangs, x: that one is answered
		want   []string
	}{
		"all answer":        {"ab ab ab ab", nil},
		"two missed":        {"ab b b ab b b ab", nil},
		"three missed":      {"ab b b b b b", []string{a}},
		"crashed twice":     {"b b b ab b b b", []string{a, a}},
		"both":              {"- - - -", []string{a, b}},
		"a ping hangs":      {"ab Ab b b", []string{a}},
		"it hangs for long": {"ab Ab b b b b b b b", []string{a}},
		"a late answer":     {"ab Ab b xb b ab ab", nil},
		"it answers later":  {"ab Ab b b b xab ab b b b", []string{a, a}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				k, s := &pingKernel{t: t, pings: map[string]int{}}, &silentServers{}
				var logged []string
				rounds := strings.Fields(c.rounds)
				for _, up := range append(rounds, rounds[len(rounds)-1]) { // the pings of the last one are looked at, too
					if hangs := k.hangs[a]; strings.Contains(up, "x") && hangs != nil {
						close(hangs)
						synctest.Wait()
					}
					k.up, k.hangs = map[string]bool{a: strings.Contains(up, "a"), b: strings.Contains(up, "b")}, map[string]chan bool{a: k.hangs[a]}
					if strings.Contains(up, "x") {
						delete(k.hangs, a)
					}
					if strings.Contains(up, "A") {
						k.hangs[a] = make(chan bool)
					}
					s.round(ctx, k, []string{a, b}, func(f string, x ...any) { logged = append(logged, fmt.Sprintf(f, x...)) })
					synctest.Wait()
				}
				cancel()
				var want []string
				for _, nid := range c.want {
					want = append(want, "lctl set_param mgs.MGS.evict_client=nid:"+nid)
				}
				if !slices.Equal(k.ran, want) || len(logged) != len(want) {
					t.Errorf("ran %q, logged %q", k.ran, logged)
				}
			})
		})
	}
}
