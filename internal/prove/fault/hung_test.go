package fault

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/test/example"
)

// A disk that a drill makes hang answers again whatever happens: by the healing, once a
// server that was away is back, or by a timer if the drill is killed.
func TestHang(t *testing.T) {
	for _, c := range []struct {
		example, on, arg string
		name             string // of the map; "": there is none, and the fault is refused
	}{
		{"nfs-ha.yaml", "nfs2", "MA01", "35000c500a0000001"},
		{"nfs-ha.yaml", "nfs2", "MA02", ""},
		{"nss7.4-ha.yaml", "nss2", "nss7-lun0", "nss7-lun0"},
	} {
		var ran []string
		away := false
		e := &Site{Scene: Scene{Design: example.Design(t, c.example)}, Env: Env{Progress: func(string) {}}}
		conn := hosttest.Play(func(_ context.Context, _, op string, params, result any) error {
			switch op {
			case string(gather.Op):
				return hosttest.Answer(result, gather.Host{Disks: []resource.DiskFact{
					{Serial: "MA01", Device: "/dev/mapper/35000c500a0000001"}, {Serial: "MA02", Device: "/dev/disk/by-id/wwn-0x5000c500a0000002"}}})
			case "run":
				if away {
					return errors.New("no route to host")
				}
				ran = append(ran, strings.Join(params.(agent.RunParams).Action.Cmd, " "))
			}
			return nil
		})
		if _, err := e.Hosts.Connect(t.Context(), func(_ context.Context, name string) (*host.Session, error) { return conn.Session(name), nil }, c.on); err != nil {
			t.Fatal(err)
		}
		f := Fault{Kind: DiskHang, On: c.on, Args: []string{c.arg}}
		how := Kinds[DiskHang]
		if err := how.inject(t.Context(), e, f); (err == nil) != (c.name != "") {
			t.Errorf("%s: %v", c.arg, err)
		}
		var want []string
		if c.name != "" {
			want = []string{"systemctl stop mortar-drill-hung.timer", "systemd-run --collect --unit=mortar-drill-hung --on-active=900 dmsetup resume " + c.name, "dmsetup suspend --noflush --nolockfs " + c.name}
		}
		if !slices.Equal(ran, want) {
			t.Errorf("%s: %q", c.arg, ran)
		}
		ran, away = nil, true
		if err := how.heal(t.Context(), e, f); err != nil {
			t.Errorf("%s: a server that is away: %v", c.arg, err)
		}
		away = false
		if err := how.Back(t.Context(), e, f); err != nil {
			t.Errorf("%s: %v", c.arg, err)
		}
		if c.name != "" {
			want = []string{"dmsetup resume --noudevsync " + c.name, "systemctl stop mortar-drill-hung.timer"}
		}
		if !slices.Equal(ran, want) {
			t.Errorf("%s: healed by %q", c.arg, ran)
		}
	}
}
