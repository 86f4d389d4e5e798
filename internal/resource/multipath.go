package resource

import (
	"context"
	"fmt"
	"path"
	"sort"
	"strings"
)

// Multipath is dm-multipath for the disks of a brick and for no others: each
// disk becomes one map, named by its WWID, with every path the kernel knows.
type Multipath struct {
	Brick string
	Disks []DiskRef
}

// Kind is "multipath".
func (m *Multipath) Kind() string { return "multipath" }

// ID is the brick.
func (m *Multipath) ID() string { return m.Brick }

const multipathConf = "/etc/multipath.conf"

// Diff compares the configuration, and whether each path is in its map.
func (m *Multipath) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	fs, err := resolve(ctx, sys, m.Disks)
	if err != nil {
		return nil, err
	}
	var wwids []string
	var loose []string
	for _, f := range fs {
		if !f.scsi() {
			continue
		}
		wwids = append(wwids, f.mapName())
		for _, p := range f.Paths {
			n := path.Base(p)
			in, err := inMap(sys, n, f.mapName())
			if err != nil {
				return nil, err
			}
			if !in {
				loose = append(loose, n)
			}
		}
		// The node multipathd or udev makes may lag behind the map.
		if ok, err := exists(sys, "/dev/mapper/"+f.mapName()); err != nil {
			return nil, err
		} else if !ok && len(loose) == 0 {
			loose = append(loose, f.mapName())
		}
	}
	if len(wwids) == 0 {
		return nil, nil
	}
	sort.Strings(wwids)
	conf := TextFile{Path: multipathConf, Content: []byte(multipathText(wwids))}
	files, err := conf.Diff(ctx, sys)
	if err != nil {
		return nil, err
	}
	running := unitHasProcesses(sys, "multipathd.service")
	pending, err := exists(sys, pendingPath("multipath"))
	if err != nil {
		return nil, err
	}
	var cmds []Action
	switch {
	case !running:
		cmds = append(cmds, Action{
			Title: "start multipathd now and at boot",
			Cmd:   []string{"systemctl", "enable", "--now", "multipathd.service"}, Seconds: 180,
		})
	case len(files) > 0 || pending:
		cmds = append(cmds, Action{Title: "tell multipathd", Cmd: []string{"multipathd", "reconfigure"}, Seconds: 180})
	}
	if len(loose) > 0 {
		// multipathd makes the maps by itself; multipath(8) makes what is still
		// missing and returns when it is done.
		cmds = append(cmds,
			Action{Title: "make the multipath maps", Why: fmt.Sprintf("not in a map: %s", strings.Join(loose, " ")),
				Cmd: []string{"multipath", "-v1"}, OKCodes: []int{1}, Seconds: 180},
			Action{Title: "wait for device nodes", Cmd: []string{"udevadm", "settle", "--timeout=120"}, Seconds: 150})
	}
	if len(files) == 0 && !pending {
		return cmds, nil
	}
	return withReload(sys, "multipath", files, cmds)
}

// inMap tells whether a path device belongs to the multipath map.
func inMap(sys Sys, dev, name string) (bool, error) {
	hs, err := sys.Glob("/sys/block/" + dev + "/holders/dm-*/dm/uuid")
	if err != nil {
		return false, err
	}
	for _, h := range hs {
		u, err := readTrim(sys, h)
		if err != nil {
			return false, err
		}
		if u == "mpath-"+name {
			return true, nil
		}
	}
	return false, nil
}

func multipathText(wwids []string) string {
	var b strings.Builder
	b.WriteString(Header + `defaults {
	# A map is named by its WWID: the same on both servers, whatever the order
	# in which disks are found.
	user_friendly_names no
	# Only disks of the brick are let through below, so every one of them
	# becomes a map, even with one path left.
	find_multipaths greedy
	# Both paths lead to the same dual-ported disk and are equal.
	path_grouping_policy multibus
	path_selector "service-time 0"
	path_checker tur
	failback immediate
	polling_interval 5
	# Without a path, I/O waits 4 x 5 s and then fails: an enclosure may reset
	# meanwhile, but a server that lost its cables must notice, so that the
	# service moves. Never 'queue'.
	no_path_retry 4
	# A dead link gives its requests back after 5 s, for the other path.
	fast_io_fail_tmo 5
	dev_loss_tmo 60
	# Members of md arrays have no partitions.
	skip_kpartx yes
}
# Nothing but the brick's own disks is touched.
blacklist {
	wwid ".*"
}
blacklist_exceptions {
`)
	for _, w := range wwids {
		b.WriteString("\twwid \"" + w + "\"\n")
	}
	b.WriteString("}\n")
	return b.String()
}
