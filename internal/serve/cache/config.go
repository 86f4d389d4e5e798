// Package cache puts SSDs in front of a volume, on the server that has the volume. It
// makes, starts, changes, stops and describes the stack of bcache devices on md arrays
// of SSD partitions. Its Config holds all it needs: it reads neither spec nor design.
// Its callers are Pacemaker's resource agent, systemd at boot, and apply.
//
// The stack, from the file system down:
//
//	VG.cached   dm-linear; the name that is mounted, whatever is below
//	bcache, "dirty"   write-back on an md mirror of the SSDs' second partitions;
//	                  takes writes only, and only those that are not sequential
//	VG.clean    a multipath map of one path: keeps I/O that failed, see Revive
//	bcache, "clean"   write-through on all of the SSDs' first partitions; keeps
//	                  what was read
//	VG.origin   dm-linear: 8 MiB for bcache's superblocks, then the volume
//	VG/LV       on the disks
//
// The file system begins at the volume's first byte, with and without a cache. The
// label on the disks records the content of the SSDs (see Label), so that the stale
// data of an SSD that comes back after a failure is not used.
package cache

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/conffile"
)

// Modes of a cache.
const (
	WriteBack    = "write-back"
	WriteThrough = "write-through"
)

// Sizes of the header, the logical volume that precedes the data: bcache's
// superblock of the clean layer is at 4 KiB, that of the dirty layer 4 KiB
// behind half, and labels are at 1 and 2 MiB.
const (
	HeaderLV    = "cacheheader"
	HeaderBytes = 8 << 20
	half        = HeaderBytes / 2
)

// Generations is the number of array UUIDs in a config for each layer. Each new array
// gets the next UUID, so that an SSD that was away meanwhile does not count as a
// member.
const Generations = 8

// Config is the cache of one volume, as apply writes it on each server.
type Config struct {
	Service string `json:"service"`
	VG      string `json:"vg"`
	LV      string `json:"lv"`
	SSDs    []SSD  `json:"ssds"`
	Mode    string `json:"mode"`
	// Bypass is the length in bytes from which a sequential stream bypasses the
	// SSDs; 0: never.
	Bypass int64 `json:"sequential_bypass"`
	// MirrorBytes is the size of the part of each SSD for dirty data.
	MirrorBytes int64 `json:"mirror_bytes"`
	// DirtyUUIDs and CleanUUIDs are the layers' md UUIDs, by generation. mdadm.conf
	// lists them, so that only this package assembles the arrays.
	DirtyUUIDs []string `json:"dirty_uuids"`
	CleanUUIDs []string `json:"clean_uuids"`
}

type SSD struct {
	Serial string `json:"serial"`
	// Server: the SSD is inside that server only; empty: every server has it.
	Server string `json:"server,omitempty"`
}

// Load reads and checks a config file. It ignores keys that it does not know: another
// release may have written the file.
func Load(file string) (*Config, error) { return conffile.Load(file, (*Config).Check) }

// LoadKept is Load, and falls back to the last good copy: see conffile.LoadKept.
func LoadKept(file string) (*Config, error) { return conffile.LoadKept(file, (*Config).Check) }

// Parse checks src, the content of file.
func Parse(file string, src []byte) (*Config, error) {
	return conffile.Parse(file, src, (*Config).Check)
}

// LoadOrParse reads a config from its argument: the name of a file, or, for a plan,
// the content of a file that is not written yet.
func LoadOrParse(config string) (*Config, error) {
	if strings.HasPrefix(config, "{") {
		return Parse("config", []byte(config))
	}
	return Load(config)
}

// Check returns every mistake that is visible without a host.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	for key, v := range map[string]string{"service": c.Service, "vg": c.VG, "lv": c.LV} {
		if v == "" || strings.ContainsAny(v, " \t\r\n/\"'\\") || strings.HasPrefix(v, "-") {
			bad("%s %q: a name without blanks, quotes and slashes is needed", key, v)
		}
	}
	if c.Mode != WriteBack && c.Mode != WriteThrough {
		bad("mode %q: %s or %s is needed", c.Mode, WriteBack, WriteThrough)
	}
	if n := len(c.SSDs); n < 1 || n > 4 || n < 2 && c.Mode == WriteBack {
		bad("%d SSDs: 1 to 4 are needed, for %s at least 2", n, WriteBack)
	}
	for i, s := range c.SSDs {
		if s.Serial == "" {
			bad("ssds[%d]: no serial", i)
		}
		if s.Server != "" && c.Mode == WriteBack {
			bad("ssds[%d]: %s is inside one server, which %s does not allow", i, s.Serial, WriteBack)
		}
		if slices.ContainsFunc(c.SSDs[:i], func(o SSD) bool { return o.Serial == s.Serial }) {
			bad("ssds[%d]: %s is listed twice", i, s.Serial)
		}
	}
	if c.Bypass < 0 || c.MirrorBytes < 0 || c.MirrorBytes%(1<<20) != 0 || c.Mode == WriteBack && c.MirrorBytes == 0 {
		bad("sequential_bypass %d, mirror_bytes %d", c.Bypass, c.MirrorBytes)
	}
	if len(c.DirtyUUIDs) != Generations || len(c.CleanUUIDs) != Generations {
		bad("%d and %d UUIDs: %d of each are needed", len(c.DirtyUUIDs), len(c.CleanUUIDs), Generations)
	}
	return errors.Join(errs...)
}

// here returns the SSDs that a server reaches.
func (c *Config) here(host string) []string {
	var out []string
	for _, s := range c.SSDs {
		if s.Server == "" || s.Server == host {
			out = append(out, s.Serial)
		}
	}
	return out
}

// Mounted is the device mapper's name of the device below the file system.
func (c *Config) Mounted() string { return c.VG + ".cached" }

func (c *Config) origin() string { return c.VG + ".origin" }

func (c *Config) between() string { return c.VG + ".clean" }

// Device is the path of the device below the file system.
func (c *Config) Device() string { return "/dev/mapper/" + c.Mounted() }

// ConfigPath is the file to which apply writes the config of a service's cache.
func ConfigPath(service string) string { return "/etc/mortar/cache-" + service + ".json" }
