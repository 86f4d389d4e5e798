package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// Faults of a service's room: a file system, an OST or a cache that is full, or in use.

// LoadDir is the directory on a mount for the runs' files:
// <mount>/.mortar/<run id>/.
const LoadDir = ".mortar"

func filler(f Fault) string { return path.Join(f.Args[0], ".mortar-fill") }

// takeLast writes to the end of a file until no block is free.
func takeLast(ctx context.Context, b *Site, host, file, conv string) error {
	for _, bs := range []string{"1M", "4k"} {
		a := resource.Action{Title: "take the last blocks", OKCodes: []int{1}, Seconds: 600,
			Cmd: []string{"dd", "if=/dev/zero", "of=" + file, "bs=" + bs, "oflag=append", "conv=" + conv + "notrunc,fsync", "status=none"}}
		if err := b.Do(ctx, host, a); err != nil {
			return err
		}
	}
	return nil
}

// fillFS fills the file system: most of it by allocation, which costs nothing, the
// rest by writing until no block is free.
func fillFS(ctx context.Context, b *Site, f Fault) error {
	text, err := b.output(ctx, f.On, linux.Avail(f.Args[0])...)
	if err != nil {
		return err
	}
	avail, err := linux.ParseAvail(text)
	if err != nil {
		return fmt.Errorf("df of %s: %w", f.Args[0], err)
	}
	const rest = 32 << 20
	if avail > rest {
		if err := b.Run(ctx, f.On, "take the free blocks", "fallocate", "-l", strconv.FormatInt(avail-rest, 10), filler(f)); err != nil {
			return err
		}
	}
	return takeLast(ctx, b, f.On, filler(f), "")
}

// emptyFS removes the drill's file, on the server that has the volume now.
func emptyFS(ctx context.Context, b *Site, f Fault) error {
	server, err := b.holder(ctx)
	if err != nil {
		return fmt.Errorf("the drill's file %s could not be removed: %w", filler(f), err)
	}
	return b.Run(ctx, server, "remove the drill's file", "rm", "-f", "--", filler(f))
}

func isDevice(held string) bool { return strings.HasPrefix(held, "/dev/") }

// holdFS keeps the service's storage in use with a loop device on a file, or on a volume:
// there is no process to kill, and no unmount, or no deactivation, succeeds.
func holdFS(ctx context.Context, b *Site, f Fault) error {
	loop := []string{"losetup", "--find", "--read-only", f.Args[0]}
	if !isDevice(f.Args[0]) {
		if err := b.Run(ctx, f.On, "make a file", "fallocate", "-l", "1M", filler(f)); err != nil {
			return err
		}
		loop = []string{"losetup", "--find", filler(f)}
	}
	return b.Run(ctx, f.On, "make a loop device of it", loop...)
}

// releaseFS ends what holdFS has left. A server that boots has no loop device.
func releaseFS(ctx context.Context, b *Site, f Fault) error {
	held := f.Args[0]
	if !isDevice(held) {
		held = filler(f)
	}
	argv := []string{"losetup", "--noheadings", "--output", "NAME", "--associated", held}
	if err := resource.ReadOnly(argv); err != nil {
		return err
	}
	out, err := b.Query(ctx, f.On, argv...)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	for _, loop := range strings.Fields(out.Stdout) { // none if it does not answer
		if err := b.Run(ctx, f.On, "let go of "+held, "losetup", "--detach", loop); err != nil {
			return err
		}
	}
	if isDevice(held) {
		return nil
	}
	return emptyFS(ctx, b, f)
}

const (
	// ostRest is what fillOST leaves for writing: less than clients may hold as grants.
	ostRest = 64 << 20
	// largestObject is below the largest file of ldiskfs, 16 TiB of blocks of 4 KiB.
	largestObject = 8 << 40
)

// OnOST makes an empty file with its only stripe on an OST, and fails if that is full: with
// --stripe-index the MDS would take another one.
func OnOST(file, index string) resource.Action {
	return resource.Action{Title: "a file on OST " + index, Seconds: 120, Cmd: []string{"lfs", "setstripe", "-o", index, file}}
}

func Removed(file string) resource.Action {
	return resource.Action{Title: "remove " + path.Base(file), Seconds: 60, Cmd: []string{"rm", "-rf", "--", file}}
}

// fillers are the files on an OST that fill it, in a directory of a mount.
func fillers(m design.ClientMount, index string) string {
	return path.Join(m.Path, LoadDir, "fill-"+index)
}

// fillOST takes the space of an OST: most of it by allocation, which costs nothing, the
// rest by writing on each client until there is no room. What a client holds as a grant,
// only this client can use up.
func fillOST(ctx context.Context, b *Site, f Fault) error {
	index := f.Args[0]
	avail, err := availOn(ctx, b, f.Args[1])
	if err != nil {
		return err
	}
	first := b.Design.Mounts[0]
	dir := fillers(first, index)
	if err := b.Run(ctx, first.Client, "a directory for what fills the OST", "mkdir", "-p", dir); err != nil {
		return err
	}
	// Before the OST is full: it makes no more files then.
	for _, m := range b.Design.Mounts {
		if err := b.Do(ctx, first.Client, OnOST(path.Join(dir, "rest-"+m.Client), index)); err != nil {
			return err
		}
	}
	for i, n := range sizes(avail-ostRest, largestObject) {
		file := path.Join(dir, strconv.Itoa(i))
		if err := b.Do(ctx, first.Client, OnOST(file, index)); err != nil {
			return err
		}
		a := resource.Action{Title: "take the free blocks", Seconds: 600, Cmd: []string{"fallocate", "-l", strconv.FormatInt(n, 10), file}}
		if err := b.Do(ctx, first.Client, a); err != nil && !errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	for _, m := range b.Design.Mounts {
		if err := takeLast(ctx, b, m.Client, path.Join(fillers(m, index), "rest-"+m.Client), "nocreat,"); err != nil {
			return err
		}
	}
	return nil
}

// sizes splits n bytes into parts of at most largest.
func sizes(n, largest int64) (out []int64) {
	for ; n > 0; n -= largest {
		out = append(out, min(n, largest))
	}
	return out
}

// availOn is the free space of a target, in bytes.
//
// Source: Lustre Operations Manual, parameters of osd-ldiskfs
func availOn(ctx context.Context, b *Site, target string) (int64, error) {
	name := "osd-ldiskfs." + target + ".kbytesavail"
	text, err := b.output(ctx, b.Active, "lctl", "get_param", name)
	if err != nil {
		return 0, err
	}
	kb, err := strconv.ParseInt(linux.ParseParams(text)[name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: lctl get_param %s said %q", b.Active, name, text)
	}
	return kb << 10, nil
}

// emptyOST removes what fills the OST, by the first client that answers.
func emptyOST(ctx context.Context, b *Site, f Fault) error {
	var errs []error
	for _, m := range b.Design.Mounts {
		err := b.Do(ctx, m.Client, Removed(fillers(m, f.Args[0])))
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Client, err))
	}
	return errors.Join(errs...)
}

// hostCache runs a command of the cache on a server; its first argument is the service.
func hostCache(ctx context.Context, b *Site, server, title, verb, service string, more ...string) error {
	file := cache.ConfigPath(service)
	a := resource.Action{Title: title, Cmd: append([]string{hostMortar, "host-cache", verb, file}, more...), Seconds: 300}
	if verb == "apply" {
		a.Seconds, a.Beside = 600, path.Base(file)
	}
	return b.Do(ctx, server, a)
}

// hostMortar is the binary on a server.
const hostMortar = "/usr/local/sbin/mortar"

// applyCache brings the service's cache to its config, on the server that runs
// the service.
func applyCache(ctx context.Context, b *Site, f Fault) error {
	return hostCache(ctx, b, f.On, "bring the cache to its config", "apply", f.Args[0])
}

func cacheFiller(f Fault) string { return path.Join(f.Args[1], ".mortar-cache-fill") }

// fillCache fills the mirror of dirty data, on the server that runs the service.
func fillCache(ctx context.Context, b *Site, f Fault) error {
	return hostCache(ctx, b, f.On, "fill the mirror of dirty data", "fill", f.Args[0], cacheFiller(f))
}

// drainCache undoes fillCache on the server that has the volume now.
func drainCache(ctx context.Context, b *Site, f Fault) error {
	server, err := b.holder(ctx)
	if err != nil {
		return fmt.Errorf("%s could not be removed: %w", cacheFiller(f), err)
	}
	return hostCache(ctx, b, server, "let dirty data go to the disks", "drain", f.Args[0], cacheFiller(f))
}

// FlushUnit is the command of CacheFlush on a server.
const FlushUnit = "mortar-drill-flush.service"

// Commands that flush, as arguments of CacheFlush.
const (
	ModeFlush = "mode " + cache.WriteThrough
	OffFlush  = "off"
)

// startFlush has bcache write nothing of what is dirty, as if the disks took nothing, and
// starts the command that waits for it. The brick's own configuration stays as it is: it
// is what the flush is taken back to.
func startFlush(ctx context.Context, b *Site, f Fault) error {
	file := cache.ConfigPath(f.Args[0])
	run := []string{"off", file}
	if f.Args[1] == ModeFlush {
		text, err := b.Read(ctx, f.On, file)
		if err != nil {
			return err
		}
		cfg, err := cache.Parse(file, []byte(text))
		if err != nil {
			return err
		}
		cfg.Mode = cache.WriteThrough
		j, err := json.Marshal(cfg)
		if err != nil {
			return err
		}
		run = []string{"apply", string(j)}
	}
	if err := hostCache(ctx, b, f.On, "keep dirty data from the disks", "stall", f.Args[0]); err != nil {
		return err
	}
	return b.Run(ctx, f.On, "begin mortar cache "+f.Args[1],
		append([]string{"systemd-run", "--quiet", "--collect", "--service-type=exec", "--unit=" + FlushUnit, hostMortar, "host-cache"}, run...)...)
}

// endFlush ends a command of startFlush that still runs, and takes back what it has done.
func endFlush(ctx context.Context, b *Site, f Fault) error {
	if UnitRuns(ctx, b, f.On, FlushUnit) {
		if err := b.Run(ctx, f.On, "end the flush", "systemctl", "stop", FlushUnit); err != nil {
			return err
		}
	}
	server, err := b.holder(ctx)
	if err != nil {
		return fmt.Errorf("the cache is not set back to write-back: %w", err)
	}
	return applyCache(ctx, b, Fault{On: server, Args: f.Args})
}

// UnitRuns reports whether a systemd unit is active on a server.
func UnitRuns(ctx context.Context, b *Site, server, unit string) bool {
	text, err := b.output(ctx, server, "systemctl", "is-active", unit)
	return err == nil && text == "active"
}

// CacheStats reads the counters and the state of the service's cache on a server.
func CacheStats(ctx context.Context, b *Site, server string) (st cache.Stats, err error) {
	text, err := b.output(ctx, server, hostMortar, "host-cache", "stats", cache.ConfigPath(b.Service.Name))
	if err == nil {
		err = json.Unmarshal([]byte(text), &st)
	}
	return st, err
}

// cacheHas reports whether a disk is an SSD of a cache.
func cacheHas(d *design.Design, serial string) bool {
	return slices.ContainsFunc(d.Services(), func(s *design.Service) bool {
		return s.Storage.Cache != nil && slices.ContainsFunc(s.Storage.Cache.SSDs, func(x design.Disk) bool { return x.Serial == serial })
	})
}
