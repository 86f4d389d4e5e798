package bench

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// sampleEvery is the interval between samples of the servers' devices: short
// enough for a phase of some seconds, long enough not to load the servers. A
// variable for tests.
var sampleEvery = time.Second

// dirtyFiles have the dirty bytes of a bcache device. Of a cache's two layers
// one never has dirty data.
const dirtyFiles = "/sys/block/bcache*/bcache/dirty_data"

// sampler samples the I/O of a volume's devices on a server.
type sampler struct {
	session *host.Session
	offset  int64 // the server's clock minus this one's, ns
	io      report.BenchIO
	groups  [][]string // files of each of io's devices
	last    []linux.BlockIO
	stopped chan struct{}
	ended   chan struct{}
	err     error
}

// sample begins to sample the volumes that a phase uses. The function that it
// returns ends that and returns the samples, by the clock of this machine.
func (r *runner) sample(ctx context.Context, use []lane) func() []report.BenchIO {
	var all []*sampler
	for _, s := range r.env.Design.Services() {
		server := r.serves[s.Name]
		if r.host(server) == nil || !slices.ContainsFunc(use, func(l lane) bool { return l.service == s.Name }) {
			continue
		}
		m := &sampler{session: r.host(server), offset: r.hosts.Clock(server).Offset, stopped: make(chan struct{}), ended: make(chan struct{})}
		m.io.Service, m.io.Server = s.Name, server
		all = append(all, m)
		go m.run(context.WithoutCancel(ctx), r.env.Design, s)
	}
	return func() (out []report.BenchIO) {
		for _, m := range all {
			close(m.stopped)
			<-m.ended
			if m.err != nil {
				r.note(m.io.Server, "what the devices of %s did was not seen: %v", m.io.Service, m.err)
			}
			if len(m.io.Times) > 1 {
				out = append(out, m.io)
			}
		}
		return out
	}
}

// sampleTime bounds one sample: a server that does not answer must not delay the
// benchmark.
const sampleTime = 10 * time.Second

func (m *sampler) run(ctx context.Context, d *design.Design, s *design.Service) {
	defer close(m.ended)
	if m.err = m.find(ctx, d, s); m.err != nil {
		return
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for last := false; m.err == nil; {
		m.err = m.look(ctx)
		if last {
			return
		}
		select {
		case <-tick.C:
		case <-m.stopped:
			last = true
		}
	}
}

func (m *sampler) ask(ctx context.Context, req gather.Request) (gather.Host, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	return host.Ask(ctx, m.session, gather.Op, req)
}

// find finds the kernel's names of the devices, which differ after each start
// of the service. It skips missing disks.
func (m *sampler) find(ctx context.Context, d *design.Design, s *design.Service) error {
	h, err := m.ask(ctx, gather.Request{Files: []string{"/sys/block/dm-*/dm/name"}, Disks: true})
	if err != nil {
		return err
	}
	kernel := map[string]string{} // by the device mapper's name
	for file, name := range h.Files {
		kernel[strings.TrimSpace(name)] = strings.Split(file, "/")[3]
	}
	var missing []string
	group := func(name string, devices ...string) {
		files := lists.Map(devices, func(dev string) string { return "/sys/block/" + dev + "/stat" })
		if len(files) == 0 {
			missing = append(missing, name)
		}
		m.io.Devices = append(m.io.Devices, report.BenchDevice{Name: name})
		m.groups = append(m.groups, files)
	}
	v := &s.Storage
	if dev := kernel[path.Base(volumeOf(v))]; dev != "" {
		group(report.IOVolume, dev)
	} else {
		group(report.IOVolume)
	}
	group(report.IODisks, kernelNames(h.Disks, disksBelow(d, v))...)
	if v.Cache != nil {
		ssds := lists.Map(v.Cache.SSDs, func(x design.Disk) string { return x.Serial })
		group(report.IOSSDs, kernelNames(h.Disks, ssds)...)
	}
	if len(missing) > 0 {
		return fmt.Errorf("no device of: %s", strings.Join(missing, ", "))
	}
	return nil
}

// volumeOf is the device mapper's name of the device below the file system.
func volumeOf(v *design.Storage) string {
	switch {
	case v.Cache != nil:
		return (&cache.Config{VG: v.VG}).Device()
	case v.VG != "":
		return linux.DMName(v.VG, v.LV)
	}
	return v.Device
}

// disksBelow returns the serial numbers or WWNs of a volume's disks or LUNs. Of an
// array it returns the LUNs, since servers do not see its disks.
func disksBelow(d *design.Design, v *design.Storage) []string {
	out := lists.Map(d.LUNsIn(v), func(l design.LUN) string { return l.WWN })
	for _, g := range d.GroupsIn(v) {
		for _, k := range slices.Concat(g.Members, g.Spares) {
			out = append(out, k.Serial)
		}
	}
	return out
}

// kernelNames returns the kernel's names of all paths to the named disks that a server
// has.
func kernelNames(disks []resource.DiskFact, names []string) []string {
	var out []string
	for _, x := range disks {
		if slices.ContainsFunc(names, func(n string) bool {
			return n != "" && (strings.EqualFold(n, x.Serial) || strings.EqualFold(n, x.WWN))
		}) {
			for _, p := range x.Paths {
				out = append(out, path.Base(p))
			}
		}
	}
	return out
}

// look takes one sample.
func (m *sampler) look(ctx context.Context) error {
	h, err := m.ask(ctx, gather.Request{Files: append(slices.Concat(m.groups...), dirtyFiles)})
	if err != nil {
		return err
	}
	first := m.last == nil
	now := make([]linux.BlockIO, len(m.groups))
	for i, files := range m.groups {
		for _, f := range files {
			one, ok := linux.ParseBlockIO(h.Files[f])
			if !ok {
				return fmt.Errorf("%s is gone", f)
			}
			now[i].Add(one)
		}
		if !first {
			m.io.Devices[i].Add(m.last[i], now[i])
		}
	}
	m.last = now
	m.io.Times = append(m.io.Times, h.NowNS-m.offset)
	if len(m.io.Devices) > 2 {
		dirty := int64(0)
		for f, text := range h.Files {
			if path.Base(f) == path.Base(dirtyFiles) {
				dirty += linux.ParseBcacheBytes(text)
			}
		}
		m.io.Dirty = append(m.io.Dirty, dirty)
	}
	return nil
}
