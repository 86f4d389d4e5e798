package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
)

// mdStorage are md arrays of disks.
type mdStorage struct{ Scene }

func (m mdStorage) group(ctx context.Context, e *engine) (g design.Group, members []string, err error) {
	all := m.Design.MDGroups(m.Service)
	if len(all) == 0 {
		return g, nil, nil
	}
	members, err = e.members(ctx, all[0])
	if err != nil {
		err = fmt.Errorf("%s: %w", e.active, err)
	}
	return all[0], members, err
}

func (m mdStorage) reached() (string, error) {
	ds, err := m.disks(1)
	if err != nil {
		return "", err
	}
	return ds[0], nil
}

func (m mdStorage) module() ([]Step, error) {
	if len(m.Design.Spec.Enclosures) == 0 {
		return nil, errors.New("the brick has no enclosure")
	}
	return []Step{{Fault: Fault{Kind: ModuleOut, Args: []string{m.Design.Spec.Enclosures[0].Name, "0"}}, Wait: pathHold, Look: true}}, nil
}

func (m mdStorage) pulled(serial string) Fault { return Fault{Kind: DiskOut, Args: []string{serial}} }

func (m mdStorage) without(n int) *Sight {
	if len(m.Group.Spares) >= n {
		return rebuilding(m.Group)
	}
	return degraded(m.Group, n)
}

func (m mdStorage) parts() map[Kind][][]string {
	var modules [][]string
	for _, e := range m.Design.Spec.Enclosures {
		modules = append(modules, []string{e.Name, "0"}, []string{e.Name, "1"})
	}
	return map[Kind][][]string{ModuleOut: modules, DiskOut: m.members()}
}

func (m mdStorage) rot() error {
	if m.Group.Level != 6 || len(m.Service.Storage.Groups) != 1 {
		return errors.New("bytes are only found again on a volume of one RAID 6 group")
	}
	return nil
}

// mdState reads what the kernel says of a group's array on the server that
// has it.
func mdState(ctx context.Context, v *View, g design.Group, file string) string {
	for _, server := range []string{v.Active, v.Passive} {
		// By its name; the kernel's own, md127, may differ from boot to boot.
		out, err := v.e.query(ctx, server, "readlink", "-e", "/dev/md/"+g.Name)
		if err != nil || out.Code != 0 {
			continue
		}
		dev := strings.TrimPrefix(strings.TrimSpace(out.Stdout), "/dev/")
		if s, err := v.e.read(ctx, server, "/sys/block/"+dev+"/md/"+file); err == nil {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

func degraded(g design.Group, n int) *Sight {
	return &Sight{What: "degraded", Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		d := mdState(ctx, v, g, "degraded")
		return d == fmt.Sprint(n), fmt.Sprintf("array %s runs without %s of its disks", g.Name, d)
	}}
}

func rebuilding(g design.Group) *Sight {
	return &Sight{What: "spare takes over", Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		a := mdState(ctx, v, g, "sync_action")
		if a != "recover" {
			return false, fmt.Sprintf("array %s does not rebuild (sync_action is %q, degraded %s)", g.Name, a, mdState(ctx, v, g, "degraded"))
		}
		return true, fmt.Sprintf("array %s rebuilds a spare", g.Name)
	}}
}
