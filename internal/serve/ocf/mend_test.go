package ocf

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// mended is a service that runs on nfs1, with what its watcher has said.
type mended struct {
	*fakeHost
	s    *service
	w    *watcher
	said []string
}

func newMended(t *testing.T, c *Config) *mended {
	m := &mended{fakeHost: newShared(t).hosts["nfs1"]}
	m.files["/sys/class/net/eth0/carrier"] = "1\n"
	m.cabled(true)
	m.s = m.service(c)
	if err := m.s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.w = m.watcher(m.s)
	m.w.log = func(format string, a ...any) { m.said = append(m.said, fmt.Sprintf(format, a...)) }
	m.look(0)
	m.said = nil
	return m
}

func (m *mended) look(after time.Duration) {
	m.clock = m.clock.Add(after)
	m.w.look(m.t.Context())
}

// says says whether the watcher has said a text, once.
func (m *mended) says(text string) bool {
	n := 0
	for _, s := range m.said {
		if strings.Contains(s, text) {
			n++
		}
	}
	return n == 1
}

// loses takes the service address away, as a restart of systemd-networkd does.
func (m *mended) loses() {
	p := netip.MustParsePrefix(m.s.cfg.Address)
	delete(m.addrs, p)
	delete(m.spaceAddrs, p)
}

func (m *mended) addressed() bool { return nfsOf(m.s).Addressed() }

// unmountLazily takes a mount away under those who use it.
func (m *mended) unmountLazily(at string) {
	m.mounts = slices.DeleteFunc(m.mounts, func(x linux.Mount) bool { return x.Target == at })
}

// taken are the things that are put back, and how they go.
var taken = []struct {
	what  string
	takes func(m *mended)
	said  string
}{
	{"address", (*mended).loses, "[put-back-address] service home: service address 10.0.0.9/24 was gone: put back"},
	{"what nfs-utils see", func(m *mended) {
		if m.s.cfg.Namespace == "" {
			m.unmountLazily("/var/lib/nfs")
		} else {
			m.unmountLazily(nfsOf(m.s).Pipefs())
		}
	}, "NFS state was gone: put back"},
	{"nfsd's files", func(m *mended) { m.unmountLazily(nfsOf(m.s).NfsdDir()) }, "NFS state was gone: put back"},
}

// A part that is taken away above the file system while the service serves is put back in place,
// at the next look, and the service runs on.
func TestMend(t *testing.T) {
	flavours(t, func(t *testing.T, cfg func() *Config) {
		for _, c := range taken {
			t.Run(c.what, func(t *testing.T) {
				m := newMended(t, cfg())
				threads, etab := m.nfsd, m.volume["/.nfs/etab"]
				c.takes(m)
				if st, err := m.s.Check(); st == unit.Running || err == nil {
					t.Fatalf("taken away, and the service is %v", st)
				}
				m.look(time.Second)
				mustState(t, m.s, unit.Running)
				if !m.says(c.said) {
					t.Errorf("the watcher said %q", m.said)
				}
				if m.nfsd != threads || m.volume["/.nfs/etab"] != etab {
					t.Errorf("nfsd has %d threads, and the table of exports is %q", m.nfsd, m.volume["/.nfs/etab"])
				}
				for _, x := range m.changes {
					if strings.HasPrefix(x, "crm_resource") {
						t.Error(x)
					}
				}
			})
		}
	})
}

// A service that lacks one of them stops, and leaves nothing behind.
func TestStopWithoutWhatWasTaken(t *testing.T) {
	flavours(t, func(t *testing.T, cfg func() *Config) {
		for _, c := range taken {
			t.Run(c.what, func(t *testing.T) {
				m := newMended(t, cfg())
				c.takes(m)
				if err := m.s.stop(t.Context()); err != nil || m.left() != "" {
					t.Errorf("%v; left: %s", err, m.left())
				}
			})
		}
	})
}

// A monitor that comes before the watcher waits for it.
func TestMonitorWaitsForMend(t *testing.T) {
	m := newMended(t, testConfig())
	m.loses()
	k := &sleeping{fakeHost: m.fakeHost, then: func() { m.look(0) }}
	m.s.K = k
	if st, err := m.s.monitor(t.Context()); st != unit.Running || err != nil {
		t.Errorf("%v, %v", st, err)
	}
	if k.then != nil {
		t.Error("the monitor did not wait")
	}
	// The watcher does not put it back: it is a fault.
	m.loses()
	if st, err := m.s.monitor(t.Context()); st == unit.Running || err == nil {
		t.Errorf("without an address: %v, %v", st, err)
	}
}

// sleeping does something while its caller sleeps, once.
type sleeping struct {
	*fakeHost
	then func()
}

func (k *sleeping) Sleep(ctx context.Context, d time.Duration) error {
	if f := k.then; f != nil {
		k.then = nil
		f()
	}
	return k.fakeHost.Sleep(ctx, d)
}

// The address is not put back where another server may serve, or this one is to stop.
func TestNotMended(t *testing.T) {
	for _, c := range []struct {
		what string
		when func(m *mended)
		said string // "": nothing
	}{
		{"another host answers for the address", func(m *mended) {
			m.hosts["nfs2"].addrs[netip.MustParsePrefix("10.0.0.9/24")] = "eth0"
		}, "is answered by"},
		{"the storage is the other server's", func(m *mended) { m.owner = "nfs2" }, `is "nfs2"'s, not this server's`},
		{"the exports are gone", func(m *mended) { m.volume["/.nfs/etab"] = "" }, "exports"},
		{"a stop is under way, or has failed", func(m *mended) { m.s.overdueIn(time.Minute) }, ""},
		{"a start or stop has the lock", func(m *mended) {
			m.w.lock = func(string) (func(), error) { return nil, unit.ErrBusy }
		}, ""},
		{"nfsd is stopped", func(m *mended) { m.nfsd = 0 }, ""},
		{"the disks are gone", func(m *mended) { m.cabled(false) }, ""},
		{"the disks were gone, and are not trusted yet", func(m *mended) {
			m.cabled(false)
			m.look(time.Second)
			m.look(2 * time.Second)
			m.cabled(true)
		}, ""},
		{"the service is stopped", func(m *mended) {
			if err := m.s.stop(m.t.Context()); err != nil {
				m.t.Error(err)
			}
		}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := newMended(t, testConfig())
			m.loses()
			c.when(m)
			m.said = nil
			m.look(time.Second)
			m.look(time.Second)
			if m.addressed() {
				t.Error("the address is put back")
			}
			if c.said != "" && !m.says(c.said) {
				t.Errorf("the watcher said %q", m.said)
			}
		})
	}
}

// What goes again and again is for Pacemaker to judge.
func TestMendIsLimited(t *testing.T) {
	m := newMended(t, testConfig())
	for range mostMends {
		m.loses()
		m.look(time.Second)
		if !m.addressed() {
			t.Fatal("not put back")
		}
	}
	m.said = nil
	m.loses()
	for range 3 {
		m.look(time.Second)
	}
	if m.addressed() || !m.says("it is not put back") {
		t.Errorf("put back once more: %v, said %q", m.addressed(), m.said)
	}
	m.look(mendWindow)
	if !m.addressed() {
		t.Error("not put back later")
	}
}

// The line of the service address in /etc/hosts is needed at the next takeover, so a server
// that does not serve has it, too.
func TestMendHosts(t *testing.T) {
	for _, c := range []struct{ have, want string }{
		{"127.0.0.1 localhost\n10.0.0.9 10.0.0.9 brick-home # written by mortar apply\n", ""},
		{"10.0.0.9\t10.0.0.9 another-scope\n", ""}, // apply writes a new one, and the watcher has the old file
		{"127.0.0.1 localhost\n", "127.0.0.1 localhost\n10.0.0.9 10.0.0.9 brick-home # put back by the watcher\n"},
		{"", "10.0.0.9 10.0.0.9 brick-home # put back by the watcher\n"},
		{"10.0.0.9 storage\n127.0.0.1 localhost\n", "127.0.0.1 localhost\n10.0.0.9 10.0.0.9 brick-home # put back by the watcher\n"},
	} {
		h := newShared(t).hosts["nfs2"]
		h.files["/sys/class/net/eth0/carrier"], h.files["/etc/hosts"] = "1\n", c.have
		if c.have == "" {
			delete(h.files, "/etc/hosts")
		}
		h.cabled(true)
		w := h.watcher(h.service(testConfig()))
		w.look(t.Context())
		if got := h.files["/etc/hosts"]; c.want == "" && got != c.have || c.want != "" && got != c.want {
			t.Errorf("%q becomes %q", c.have, got)
		}
	}
}
