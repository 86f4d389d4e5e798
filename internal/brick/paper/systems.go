package paper

import (
	"fmt"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// The documents.
const (
	nss4   = "Dell HPC NFS Storage Solution High Availability (NSS-HA) Configurations with Dell PowerEdge 12th Generation Servers, July 2012"
	nss55  = "Easy Peasy NFS with RHEL6.5, June 2014"
	nss74  = "Dell EMC HPC NFS Storage Solution - High Availability (NSS7.4-HA) Configuration, June 2019"
	dfc    = "Improving NFS Performance on HPC Clusters with Dell Fluid Cache for DAS, 2013"
	lustre = "High Performance, Open Source, Dell Lustre Storage System, Cambridge, 2011"
)

// cores is why NSS7.4-HA's metadata rates are not its example's.
const cores = "measured with 2 x 8 cores; the system, and its example, has 2 x 18"

// unmirrored is why the Lustre brick's writes are not its example's.
const unmirrored = "measured with write cache mirroring off, for scratch data only; the example mirrors. `write_cache_mirroring: off` gives what was measured"

// Systems has every system of the papers that is an example, in order of time.
var Systems = []System{
	{Name: "nss2-ha", Title: "NSS2-HA", Source: nss4, RandomFile: 2 * spec.GiB, Figures: []Figure{
		{Where: "Table 2", Test: "sequential", Phase: "seq-write", Peak: 1275, Unit: "MB/s"},
		{Where: "Table 2", Test: "sequential", Phase: "seq-read", Peak: 2430, Unit: "MB/s"},
	}},
	{Name: "lustre-brick", Title: "Dell/Cambridge Lustre storage brick", Source: lustre, Figures: lustreFigures},
	{Name: "lustre-rack", Title: "Cambridge's rack of three bricks", Source: lustre, Figures: []Figure{
		{Where: "Section 11", Test: "sequential", Phase: "seq-write", Peak: 6000, Unit: "MB/s", Says: "back-end bandwidth of three bricks", Example: unmirrored},
		{Where: "Section 11", Test: "sequential", Phase: "seq-read", Peak: 6000, Unit: "MB/s", Says: "as above"},
	}},
	{Name: "nss3-ha", Title: "NSS3-HA", Source: nss4, RandomFile: 2 * spec.GiB, Figures: figures(5,
		[7]Figure{{Peak: 1495}, {Peak: 2127}, {}, {}, {}, {}, {}})},
	{Name: "nss4-ha-144", Title: "NSS4-HA, 144 TB", Source: nss4, RandomFile: 2 * spec.GiB},
	{Name: "nss4-ha-288", Title: "NSS4-HA, 288 TB", Source: nss4, RandomFile: 2 * spec.GiB, Figures: figures(5, [7]Figure{{Peak: 1535},
		{Peak: 4058, Says: "75 % above NSS3-HA on average. Section 2.3 has 4,508 MB/s: a slip"},
		{Says: "17 % above NSS3-HA on average"}, {Says: "23 % above NSS3-HA on average"},
		{Says: "more than 20 % above NSS3-HA on average, as the next two"}, {}, {}})},
	{Name: "nss-ha-xl", Title: "NSS-HA XL", Source: nss4, RandomFile: 2 * spec.GiB},
	{Name: "nfs-dfc", Title: "NFS with Dell Fluid Cache for DAS", Source: dfc, RandomFile: 4 * spec.GiB, Figures: dfcFigures},
	{Name: "nss5.5", Title: "NSS5.5", Source: nss55, RandomFile: 4 * spec.GiB, Figures: []Figure{
		{Where: "Figure 2", Test: "sequential", Phase: "seq-write", Peak: 2671, Unit: "MiB/s"},
		{Where: "Figure 2", Test: "sequential", Phase: "seq-read", Peak: 2818, Unit: "MiB/s"},
		{Where: "Figure 3", Test: "random", Phase: "rand-read", Peak: 10000, Unit: "1/s", Clients: 64, Says: "still rising"},
		{Where: "Figure 4", Test: "random", Phase: "rand-write", Peak: 100000, Unit: "1/s", Says: "with async exports: acknowledged before anything is on a disk", Example: "its exports are sync"},
	}},
	{Name: "nss7.3-ha", Title: "NSS7.3-HA", Source: nss74, RandomFile: 4 * spec.GiB, Figures: figures74([7]Figure{{Peak: 4906}, {Peak: 7073}, {Peak: 7341},
		{Peak: 28811, Clients: 32, Example: "more than the disks can turn: see the misses of forecast.md; the same array gave NSS7.4-HA 16,607"}, {Peak: 54795}, {Peak: 808317}, {Peak: 73320}})},
	{Name: "nss7.4-ha", Title: "NSS7.4-HA", Source: nss74, RandomFile: 4 * spec.GiB, Figures: figures74([7]Figure{{Peak: 4834}, {Peak: 7024}, {Peak: 7290},
		{Peak: 16607, Clients: 64}, {Peak: 54197}, {Peak: 522231, Example: cores}, {Peak: 47345, Example: cores}})},
}

// nssPhases are what the NSS-HA papers measure, in their order.
var nssPhases = [7][2]string{{"sequential", "seq-write"}, {"sequential", "seq-read"}, {"random", "rand-write"}, {"random", "rand-read"},
	{"metadata", "md-create"}, {"metadata", "md-stat"}, {"metadata", "md-remove"}}

// figures gives each curve a figure of its own, from a number on.
func figures(first int, curves [7]Figure) []Figure {
	var numbers [7]int
	for i := range numbers {
		numbers[i] = first + i
	}
	return numbered(numbers, curves)
}

// figures74 has write and read in one figure each, as NSS7.4-HA draws them.
func figures74(curves [7]Figure) []Figure { return numbered([7]int{2, 2, 3, 3, 4, 5, 6}, curves) }

func numbered(numbers [7]int, curves [7]Figure) []Figure {
	for i := range curves {
		f := &curves[i]
		f.Where, f.Test, f.Phase, f.Unit = fmt.Sprintf("Figure %d", numbers[i]), nssPhases[i][0], nssPhases[i][1], "1/s"
		if i < 2 {
			f.Unit = "MB/s"
		}
	}
	return curves[:]
}

// dfcFigures are of write-back mode, as the example has it. Figures 12 to 14,
// of a cold cache, are drawn by suite cache.
var dfcFigures = []Figure{
	{Where: "Figure 5", Test: "sequential", Phase: "seq-write", Peak: 600, Unit: "MiB/s", Says: "about 400 mostly; 2,000 without a cache", Example: "its sequential_bypass sends streams past the cache"},
	{Where: "Figure 6", Test: "sequential", Phase: "seq-read", Peak: 3050, Unit: "MiB/s", Says: "of what is in the cache already"},
	{Where: "Figure 7", Test: "random", Phase: "rand-write", Peak: 6.4 * 1600, Unit: "1/s", Clients: 64, Says: "6.4 times the 1,600 without a cache"},
	{Where: "Figure 8", Test: "random", Phase: "rand-read", Peak: 123000, Unit: "1/s", Clients: 32, Says: "9,300 without a cache"},
	{Where: "Figure 9", Test: "metadata", Phase: "md-create", Unit: "1/s", Says: "slower than without a cache"},
	{Where: "Figure 10", Test: "metadata", Phase: "md-stat", Unit: "1/s", Says: "up to 80 % faster than without a cache"},
	{Where: "Figure 11", Test: "metadata", Phase: "md-remove", Unit: "1/s", Says: "slower than without a cache"},
}

// lustreFigures are of one brick. The summary gives the numbers, without the
// figure they are from.
var lustreFigures = []Figure{
	{Where: "Figure 19", Test: "sequential", Phase: "seq-write", Peak: 2000, Unit: "MB/s", Example: unmirrored},
	{Where: "Figure 19", Test: "sequential", Phase: "seq-read", Peak: 2000, Unit: "MB/s"},
	{Where: "Figure 20", Test: "shifted", Phase: "seq-write", Unit: "MB/s"},
	{Where: "Figure 20", Test: "shifted", Phase: "seq-read", Unit: "MB/s", Says: "falls with many clients"},
	{Where: "Figures 21, 22", Test: "small-4k", Phase: "seq-write", Peak: 500000, AtLeast: true, Unit: "1/s", Record: 4096, Says: "gathered in the clients' caches; of which blocks, from 4 KiB to 1 MiB, is not said: of 4 KiB they are 2,048 MB/s, and larger ones were more than a brick moves", Example: unmirrored},
	{Where: "Figures 21, 22", Test: "small-4k", Phase: "seq-read", Peak: 500000, AtLeast: true, Unit: "1/s", Record: 4096, Says: "as above"},
	{Where: "Figures 21, 22", Test: "small-64k", Phase: "seq-write", Unit: "MB/s"},
	{Where: "Figures 21, 22", Test: "small-64k", Phase: "seq-read", Unit: "MB/s"},
	{Where: "Figures 23, 24", Test: "metadata-sync", Phase: "md-create", Peak: 15000, Unit: "1/s"},
	{Where: "Figures 23, 24", Test: "metadata-sync", Phase: "md-stat", Peak: 50000, Unit: "1/s"},
	{Where: "Figures 23, 24", Test: "metadata-sync", Phase: "md-remove", Peak: 15000, Unit: "1/s"},
	{Where: "Figures 25, 26", Test: "metadata", Phase: "md-create", Unit: "1/s"},
	{Where: "Figures 25, 26", Test: "metadata", Phase: "md-stat", Unit: "1/s"},
	{Where: "Figures 25, 26", Test: "metadata", Phase: "md-remove", Unit: "1/s"},
}
