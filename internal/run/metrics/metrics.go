// Package metrics measures a server for Prometheus. It judges nothing; the metrics of
// `mortar watch` are in package watch.
package metrics

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// Measure measures this server and returns its metrics for the textfile collector of
// node_exporter.
func Measure(ctx context.Context, m design.Measured) string {
	h := gather.Once(ctx, request(m))
	return metrics(m, h).text()
}

// metricsSeconds bounds each command and statfs(2), since the timer starts them each
// minute.
const metricsSeconds = 20

func request(m design.Measured) gather.Request {
	r := gather.Request{
		Files:     []string{"/proc/mdstat", "/proc/self/mounts", "/proc/diskstats", "/sys/block/sd*/dev", "/sys/block/bcache*/bcache/dirty_data"},
		Links:     []string{"/dev/md/*"},
		Run:       [][]string{strings.Fields(gather.CmdDM)},
		Disks:     true,
		FS:        slices.Clone(linux.SystemDirs),
		TimeoutMS: metricsSeconds * 1000,
	}
	r.Files = slices.Concat(r.Files, gather.SystemFiles, gather.MDFiles)
	if m.Cache != "" {
		r.Run = append(r.Run, gather.CacheCommand(m.Cache))
	}
	if m.Cluster {
		r = r.With(gather.ClusterRequest()).With(gather.Request{CIB: true}) // the proofs of fencing
	}
	for _, s := range m.Services {
		r.FS = append(r.FS, s.Mounts...)
		if s.Exports != nil {
			r.Files = append(r.Files, nfs.NFSDDir(s.Namespace)+"/threads", gather.ETab(s.Namespace, s.StateDir))
		}
	}
	return r
}

// exposition builds text in Prometheus' format, one family after the other.
type exposition struct {
	brick string
	order []string
	lines map[string][]string // samples by family
}

// families has the type and the help text of each family that a server exposes.
var families = map[string][2]string{
	"mortar_raid_disks":                        {"gauge", "Disks that a RAID group has when it is whole."},
	"mortar_raid_disks_present":                {"gauge", "Disks of a RAID group that md takes data from."},
	"mortar_raid_action":                       {"gauge", "1 while md does this with a RAID group: recovery, resync, check, reshape."},
	"mortar_raid_mismatch_sectors":             {"gauge", "Sectors of 512 bytes that did not match in the last check."},
	"mortar_disk_seen":                         {"gauge", "1 if the server sees the disk."},
	"mortar_disk_paths":                        {"gauge", "Paths to a disk that work."},
	"mortar_disk_requests_total":               {"counter", "Requests that a disk has answered, over all its paths."},
	"mortar_disk_request_seconds_total":        {"counter", "How long these requests took together."},
	"mortar_lun_paths":                         {"gauge", "Paths to a LUN that work."},
	"mortar_lun_paths_wanted":                  {"gauge", "Paths to a LUN by the design."},
	"mortar_cache_dirty_bytes":                 {"gauge", "Data that is on SSDs of a cache and not on the disks."},
	"mortar_cache_mirror_members":              {"gauge", "SSDs that a cache's mirror of unwritten data has when it is whole."},
	"mortar_cache_mirror_members_in_sync":      {"gauge", "SSDs that the mirror takes data from."},
	"mortar_cache_ssd_life_left_percent":       {"gauge", "Life that an SSD of a cache has left, as it says itself."},
	"mortar_cache_ssd_failing":                 {"gauge", "1 if an SSD of a cache predicts its failure."},
	"mortar_volume_mounted":                    {"gauge", "1 if the file system of a service is mounted here."},
	"mortar_volume_readonly":                   {"gauge", "1 if it is mounted read-only."},
	"mortar_volume_answers":                    {"gauge", "1 if statfs(2) of it ended in time and without an error."},
	"mortar_volume_size_bytes":                 {"gauge", "Size of the file system."},
	"mortar_volume_avail_bytes":                {"gauge", "What users may still write."},
	"mortar_volume_inodes":                     {"gauge", "Inodes of the file system."},
	"mortar_volume_inodes_free":                {"gauge", "Inodes that are free."},
	"mortar_exports_wrong":                     {"gauge", "Exports that are missing, or other than in the spec, on the server that serves."},
	"mortar_nfsd_threads":                      {"gauge", "Threads of nfsd for a service."},
	"mortar_system_answers":                    {"gauge", "1 if statfs(2) of a file system of the server's own system ended in time and without an error."},
	"mortar_system_readonly":                   {"gauge", "1 if it is mounted read-only."},
	"mortar_system_full":                       {"gauge", "1 if it is so full that apply does not begin."},
	"mortar_system_size_bytes":                 {"gauge", "Its size."},
	"mortar_system_avail_bytes":                {"gauge", "What may still be written to it."},
	"mortar_system_inodes":                     {"gauge", "Its inodes."},
	"mortar_system_inodes_free":                {"gauge", "Its inodes that are free."},
	"mortar_system_errors":                     {"gauge", "Errors that an ext4 of this server has met since it was checked last."},
	"mortar_memory_bytes":                      {"gauge", "Memory of the server."},
	"mortar_memory_available_bytes":            {"gauge", "Memory that processes can still get."},
	"mortar_memory_stalled_seconds_total":      {"counter", "How long all processes waited for memory at once."},
	"mortar_memory_kills_total":                {"counter", "Processes that the kernel has killed for want of memory."},
	"mortar_cluster_answers":                   {"gauge", "1 if Pacemaker answers on this server."},
	"mortar_cluster_quorum":                    {"gauge", "1 if this server's part of the cluster has quorum."},
	"mortar_cluster_fencing_enabled":           {"gauge", "1 if Pacemaker may fence."},
	"mortar_cluster_failed_actions":            {"gauge", "Actions of resources and fence devices that failed and were not cleaned up."},
	"mortar_cluster_server_online":             {"gauge", "1 if a server is in the cluster, as this one sees it."},
	"mortar_cluster_server_standby":            {"gauge", "1 if a server is in standby."},
	"mortar_service_running":                   {"gauge", "1 if the cluster runs a service on a server."},
	"mortar_service_started_timestamp_seconds": {"gauge", "When the service was started where it runs: the last failover or move."},
	"mortar_fence_proven_timestamp_seconds":    {"gauge", "When a level of fencing was seen to work with its present configuration; 0: never."},
}

// add adds one sample; labels are pairs of name and value.
func (e *exposition) add(family string, value float64, labels ...string) {
	if e.lines[family] == nil {
		e.order = append(e.order, family)
	}
	e.lines[family] = append(e.lines[family], Sample(family, value, append([]string{"brick", e.brick}, labels...)...))
}

// Head is what stands before the samples of a family.
func Head(family, kind, help string) string {
	return fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", family, help, family, kind)
}

// Sample is a sample of a family; labels are pairs of name and value.
//
// Source: prometheus/docs, exposition formats: text
func Sample(family string, value float64, labels ...string) string {
	var all []string
	for pair := range slices.Chunk(labels, 2) {
		all = append(all, pair[0]+`="`+strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(pair[1])+`"`)
	}
	return fmt.Sprintf("%s{%s} %s\n", family, strings.Join(all, ","), strconv.FormatFloat(value, 'g', -1, 64))
}

func (e *exposition) text() string {
	var b strings.Builder
	for _, f := range e.order {
		b.WriteString(Head(f, families[f][0], families[f][1]) + strings.Join(e.lines[f], ""))
	}
	return b.String()
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// metrics returns the metrics in a server's answer.
func metrics(m design.Measured, h *gather.Host) *exposition {
	e := &exposition{brick: m.Brick, lines: map[string][]string{}}
	e.raid(m, h)
	e.disks(m, h)
	e.cache(m, h)
	e.volumes(m, h)
	e.system(h)
	if m.Cluster {
		e.cluster(m, h)
	}
	return e
}

// raid adds the arrays that run on this server, including those outside the brick.
func (e *exposition) raid(m design.Measured, h *gather.Host) {
	for _, a := range h.Arrays() {
		if !a.Running() || a.Level == "raid0" {
			continue
		}
		name, disks := cmp.Or(a.Name, a.Dev), a.RaidDisks
		if i := slices.IndexFunc(m.Groups, func(g design.MeasuredGroup) bool { return md.SameUUID(g.UUID, a.UUID) }); i >= 0 {
			name, disks = m.Groups[i].Name, m.Groups[i].Disks
		}
		present := 0
		for _, p := range linux.MDPresent(a.RaidDisks, a.Members, nil) {
			present += int(bit(p))
		}
		e.add("mortar_raid_disks", float64(disks), "group", name)
		e.add("mortar_raid_disks_present", float64(present), "group", name)
		e.add("mortar_raid_mismatch_sectors", float64(a.Mismatches), "group", name)
		if a.Action != "" && a.Action != "idle" {
			e.add("mortar_raid_action", 1, "group", name, "action", a.Action)
		}
	}
}

// disks adds paths and latency of the brick's disks and LUNs.
func (e *exposition) disks(m design.Measured, h *gather.Host) {
	failed, _ := h.FailedPaths()
	stats := linux.ParseDiskStats(h.Files["/proc/diskstats"])
	for _, x := range m.Disks {
		labels := []string{"serial", x.Serial, "group", x.Group, "enclosure", x.Enclosure, "bay", strconv.Itoa(x.Bay)}
		i := slices.IndexFunc(h.Disks, func(s resource.DiskFact) bool { return s.Is(x.Serial, x.WWN) })
		e.add("mortar_disk_seen", bit(i >= 0), labels...)
		if i < 0 {
			continue
		}
		d := h.Disks[i]
		good, _ := d.Divide(failed)
		e.add("mortar_disk_paths", float64(len(good)), labels...)
		var done, ms int64
		for _, p := range d.Paths {
			s := stats[filepath.Base(p)]
			done, ms = done+s.Done, ms+s.MS
		}
		e.add("mortar_disk_requests_total", float64(done), labels...)
		e.add("mortar_disk_request_seconds_total", float64(ms)/1000, labels...)
	}
	status, _ := linux.ParseMultipath(h.Run[gather.CmdDM].Stdout) // status tells of what is not understood
	for _, l := range m.LUNs {
		good := 0
		for _, p := range status[l.Name] {
			good += int(bit(p.State == linux.PathActive))
		}
		e.add("mortar_lun_paths", float64(good), "lun", l.Name, "array", l.Array)
		e.add("mortar_lun_paths_wanted", float64(l.Paths), "lun", l.Name, "array", l.Array)
	}
	for _, p := range slices.Sorted(maps.Keys(h.Files)) {
		if dev, ok := strings.CutSuffix(p, "/bcache/dirty_data"); ok {
			e.add("mortar_cache_dirty_bytes", float64(linux.ParseBcacheBytes(h.Files[p])), "device", filepath.Base(dev))
		}
	}
}

// cache adds the cache, on the server that has it.
func (e *exposition) cache(m design.Measured, h *gather.Host) {
	var st cache.Stats
	if m.Cache == "" || json.Unmarshal([]byte(h.Run[strings.Join(gather.CacheCommand(m.Cache), " ")].Stdout), &st) != nil || !st.Up {
		return
	}
	if st.Mirror.Members > 0 { // a write-through cache has none
		e.add("mortar_cache_mirror_members", float64(st.Mirror.Members), "service", m.Cache)
		e.add("mortar_cache_mirror_members_in_sync", float64(len(st.Mirror.InSync)), "service", m.Cache)
	}
	for _, s := range st.SSDs {
		e.add("mortar_cache_ssd_failing", bit(s.Failing), "service", m.Cache, "serial", s.Serial)
		if s.Left >= 0 {
			e.add("mortar_cache_ssd_life_left_percent", float64(s.Left), "service", m.Cache, "serial", s.Serial)
		}
	}
}

func (e *exposition) volumes(m design.Measured, h *gather.Host) {
	mounts := linux.ParseMounts(h.Files["/proc/self/mounts"])
	for _, s := range m.Services {
		here := false
		for _, path := range s.Mounts {
			labels := []string{"service", s.Name, "path", path}
			x, ok := linux.MountAt(mounts, path)
			ok = ok && x.Type != "autofs"
			e.add("mortar_volume_mounted", bit(ok), labels...)
			if !ok {
				continue
			}
			here = true
			e.fileSystem("mortar_volume_", h.FS[path], x, labels...)
		}
		if here && s.Exports != nil {
			var want []nfs.Export
			for _, x := range s.Exports {
				want = append(want, nfs.Export{Dir: x.Dir, Clients: x.Clients, FSID: x.FSID, Options: x.Options})
			}
			wrong := 0
			for _, d := range nfs.CompareExports(nfs.ParseETab(h.Files[gather.ETab(s.Namespace, s.StateDir)]), want) {
				if !d.Extra || m.Cluster { // without a cluster, an extra export may come from another file
					wrong++
				}
			}
			threads, _ := strconv.Atoi(strings.TrimSpace(h.Files[nfs.NFSDDir(s.Namespace)+"/threads"])) // none: 0
			e.add("mortar_exports_wrong", float64(wrong), "service", s.Name)
			e.add("mortar_nfsd_threads", float64(threads), "service", s.Name)
		}
	}
}

func (e *exposition) cluster(m design.Measured, h *gather.Host) {
	c := h.Cluster()
	e.add("mortar_cluster_answers", bit(c.CRM != nil))
	if c.CRM != nil {
		e.add("mortar_cluster_quorum", bit(c.DC.Quorum))
		e.add("mortar_cluster_fencing_enabled", bit(c.Options.Stonith))
		e.add("mortar_cluster_failed_actions", float64(len(c.Failures)))
		for _, n := range c.Nodes {
			e.add("mortar_cluster_server_online", bit(n.Online), "server", n.Name)
			e.add("mortar_cluster_server_standby", bit(n.Standby), "server", n.Name)
		}
		for _, s := range m.Services {
			r := gather.ServiceIn(c.CRM, s.Name)
			for _, n := range c.Nodes {
				runs := r != nil && r.Role == "Started" && slices.Contains(r.NodeNames(), n.Name)
				e.add("mortar_service_running", bit(runs), "service", s.Name, "server", n.Name)
				if !runs {
					continue
				}
				if t, ok := c.Started(r.ID, n.Name, h.UTCOffset); ok {
					e.add("mortar_service_started_timestamp_seconds", float64(t.Unix()), "service", s.Name, "server", n.Name)
				}
			}
		}
	}
	for _, l := range m.Fencing {
		at := 0.0
		if p := observe.ProofOf(c.CIB, l.Server, l.Level); p != nil && p.Fingerprint == l.Fingerprint {
			at = float64(p.At.Unix())
		}
		e.add("mortar_fence_proven_timestamp_seconds", at, "server", l.Server, "level", strconv.Itoa(l.Level))
	}
}

// Read parses the file that apply wrote for this server.
func Read(text []byte) (design.Measured, error) {
	var m design.Measured
	err := json.Unmarshal(text, &m)
	return m, err
}

// system adds the room of the server's own system, and its memory.
func (e *exposition) system(h *gather.Host) {
	mounts := linux.ParseMounts(h.Files["/proc/self/mounts"])
	for _, dir := range h.SystemMounts(mounts) {
		m, _ := linux.MountAt(mounts, dir)
		fs := h.FS[dir]
		if e.fileSystem("mortar_system_", fs, m, "path", dir) {
			e.add("mortar_system_full", bit(fs.Room().Full(dir) != ""), "path", dir)
		}
	}
	errors := h.SystemErrors()
	for _, dev := range slices.Sorted(maps.Keys(errors)) {
		e.add("mortar_system_errors", float64(errors[dev]), "device", dev)
	}
	info := h.Files["/proc/meminfo"]
	if all := linux.Memory(info, "MemTotal"); all > 0 {
		e.add("mortar_memory_bytes", float64(all))
		e.add("mortar_memory_available_bytes", float64(linux.Memory(info, "MemAvailable")))
	}
	if p, ok := linux.ParsePressure(h.Files["/proc/pressure/memory"], "full"); ok {
		e.add("mortar_memory_stalled_seconds_total", p.Total.Seconds())
	}
	if n, ok := linux.VMStat(h.Files["/proc/vmstat"], "oom_kill"); ok {
		e.add("mortar_memory_kills_total", float64(n))
	}
}

// fileSystem adds a file system; its families have a common prefix. It reports whether the file
// system answers.
func (e *exposition) fileSystem(prefix string, fs gather.FS, m linux.Mount, labels ...string) bool {
	answers := !fs.TimedOut && fs.Err == ""
	e.add(prefix+"readonly", bit(m.ReadOnly()), labels...)
	e.add(prefix+"answers", bit(answers), labels...)
	if answers {
		e.add(prefix+"size_bytes", float64(fs.Size), labels...)
		e.add(prefix+"avail_bytes", float64(fs.Avail), labels...)
		e.add(prefix+"inodes", float64(fs.Files), labels...)
		e.add(prefix+"inodes_free", float64(fs.FilesFree), labels...)
	}
	return answers
}
