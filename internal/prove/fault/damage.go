package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// What of an XFS a drill overwrites. Sectors of 4 KiB, which designs give each XFS: the first is
// the superblock, the next three are the headers AGF, AGI and AGFL.
//
// Source: XFS Algorithms & Data Structures, Allocation Groups
const (
	AGHeaders  = "the headers of the first allocation group"
	Superblock = "the first superblock"
)

var damages = map[string][]string{
	AGHeaders:  {"seek=1", "count=3"},
	Superblock: {"seek=0", "count=1"},
}

// stopLimit bounds the stop of a service that is not hurried.
const stopLimit = 5 * time.Minute

// mayDamage refuses real hardware, as the Injector does for bytes of a disk.
func mayDamage(b *Site, f Fault) error {
	if err := hasOperator(b, f); err != nil {
		return err
	}
	if b.Service.MountPoint == "" {
		return errors.New("the service has no XFS")
	}
	return mayRot(b, f)
}

// damageFS has the cluster stop the service, overwrites blocks of its volume, and has the cluster
// start the service, which fails.
func damageFS(ctx context.Context, b *Site, f Fault) error {
	on, err := b.server(ctx, f.Args[1])
	if err != nil {
		return err
	}
	crm := []string{"crm_resource", "--resource", resource.ServiceID(f.Args[1]), "--meta"}
	if err := b.Run(ctx, on, "stop the service", append(crm, "--set-parameter", "target-role", "--parameter-value", "Stopped")...); err != nil {
		return err
	}
	err = host.Wait{Limit: stopLimit, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		switch nodes, err := b.Location(ctx, f.Args[1]); {
		case err != nil:
			return err.Error(), nil
		case len(nodes) > 0:
			return "the service is on " + strings.Join(nodes, ", "), nil
		}
		return "", nil
	})
	if err != nil {
		return fmt.Errorf("stopping the service: %w", err)
	}
	dd := append([]string{"dd", "if=/dev/zero", "of={}", "bs=4096", "conv=notrunc", "oflag=direct"}, damages[f.Args[0]]...)
	a := resource.Action{Title: "overwrite " + f.Args[0], Seconds: int(stopLimit.Seconds()),
		Cmd: append([]string{resource.MortarCommand}, ocf.Offline(f.Args[1], ocf.OnVolume, b.Service.MountPoint, "", dd...)...)}
	err = b.Do(ctx, on, a)
	return errors.Join(err, b.Run(ctx, on, "start the service", append(crm, "--delete-parameter", "target-role")...))
}

// repairFS has nothing to do if the service runs.
func repairFS(ctx context.Context, b *Site, f Fault) error {
	args := []string{f.Args[1], "--yes", "--json"}
	if f.Args[0] == Superblock {
		args = append(args, "--no-dump") // xfs_metadump needs it
	}
	_, err := b.Env.Operator.Command(ctx, "repair", args...)
	return err
}
