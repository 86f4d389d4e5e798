package paper

import (
	"maps"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Saying is what a paper says of an aspect of a system: its layout, its capacity or a setting.
type Saying struct {
	Value, Where string
	Note         string // why a brick of today differs; "": it does not
}

// Says is what the papers say of a system, by the key of package release's aspects.
func Says(system string) map[string]Saying { return said[system] }

// Said lists the systems of which Says has something, sorted.
func Said() []string { return slices.Sorted(maps.Keys(said)) }

// Capacity is what a paper says of a system's raw and usable capacity, 0 for what it does not name. The
// papers' usable TB are TiB: see docs/systems.md.
func Capacity(system string) (raw, usable spec.Bytes) {
	c := capacity[system]
	return c[0], c[1]
}

// capacity is of the configuration that the example has.
var capacity = map[string][2]spec.Bytes{
	"nss2-ha":      {96 * spec.TB, 0},
	"nss3-ha":      {288 * spec.TB, 218 * spec.TiB},
	"nss4-ha-144":  {144 * spec.TB, 109 * spec.TiB},
	"nss4-ha-288":  {288 * spec.TB, 218 * spec.TiB},
	"nss-ha-xl":    {2 * 288 * spec.TB, 0},
	"nss5.5":       {144 * spec.TB, 110 * spec.TiB},
	"nfs-dfc":      {144 * spec.TB, 120001386250240},
	"nss7.3-ha":    {1008 * spec.TB, 0},
	"nss7.4-ha":    {1008 * spec.TB, 0},
	"lustre-brick": {120 * spec.TB, 87 * spec.TiB},
	"lustre-rack":  {0, 280 * spec.TB},
}

// said has the papers' values, by system and aspect.
var said = func() map[string]map[string]Saying {
	with := func(base map[string]Saying, more map[string]Saying) map[string]Saying {
		all := map[string]Saying{}
		for _, m := range []map[string]Saying{base, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	ha := map[string]Saying{
		"groups":    {"RAID 6 10+2, segment 512 KB", "table 4", ""},
		"lvm":       {"clustered LVM", "table 4", "a system ID in place of clustered locks: one server has the volume at a time"},
		"policy":    {"write cache mirrored, read cache, dynamic prefetch", "table 4", ""},
		"spares":    {"not named", "table 4", ""},
		"paths":     {"two cards, each with a cable to storage", "table 10", "each card to both controllers"},
		"retry":     {"150 s", "4.3.2", ""},
		"fencing":   {"iDRAC, then the switched PDUs on two power buses", "table 10", ""},
		"version":   {"3", "4.3.2", ""},
		"scheduler": {"not named (deadline in NSS7.3-HA)", "", ""},
		"threads":   {"not named (256 in NSS7.3-HA)", "", ""},
		"export":    {"sync is meant: with async a failover corrupted a file", "A.3", ""},
	}
	// The paper names its own details only.
	laterOnly := func(value, note string) Saying {
		return Saying{"not named (" + value + " in NSS3-HA)", "table 4", note}
	}
	r710 := Saying{"2 x R710, 2 x E5630, 96 GB", "table 3", ""}
	r620 := Saying{"2 x R620, 2 x E5-2680, 128 GB recommended (64 GB measured)", "tables 3 and 6", ""}
	qdr, fdr := Saying{"QDR InfiniBand or 10 GbE", "table 1", "32 Gb/s is QDR's 40 less its line code"}, Saying{"FDR InfiniBand or 10 GbE", "table 1", ""}
	four, eight := Saying{"1 MD3200, 3 MD1200", "table 4", ""}, Saying{"1 MD3200, 7 MD1200", "table 4", ""}
	nss4Cards := Saying{"2 SAS HBAs of 6 Gb/s, ConnectX-3 FDR", "table 5", ""}
	tib := "decimal TB against the binary ones of `df`"
	nss7 := with(ha, map[string]Saying{
		"network":    {"EDR InfiniBand", "table 1", ""},
		"cards":      {"two SAS HBAs of 12 Gb/s, ConnectX-5 EDR", "table 2", ""},
		"enclosures": {"1 ME4084", "table 1", ""},
		"disks":      {"84 NL-SAS of up to 12 TB (10 TB measured)", "tables 1 and 2", ""},
		"groups":     {"linear RAID 6 8+2, chunk 128 KiB", "table 1", ""},
		"luns":       {"8", "table 1", ""},
		"policy":     {"not named", "", ""},
		"spares":     {"4 global", "table 1", ""},
		"raw":        {"1008 TB (840 TB measured)", "table 1", ""},
		"scheduler":  {"deadline", "performance summary", "its successor in kernels with many queues"},
		"threads":    {"256", "performance summary", ""},
		"paths":      {"two SAS cards, each with a cable to each controller", "architecture", ""},
		"lvm":        {"LVM", "solution overview, 3", ""},
		"export":     {"not named", "", ""},
		"version":    {"not named", "", ""},
		"retry":      {"not named (150 s in NSS4-HA)", "", ""},
		"fencing":    {"iDRAC9, two switched PDUs", "table 2", ""},
	})
	lustre := map[string]Saying{
		"servers":     {"MDS: 2 x R710, 32 GB; OSS: 2 x R710, 24 GB; six cores", "table 1", ""},
		"network":     {"QDR InfiniBand", "table 1", "32 Gb/s is QDR's 40 less its line code"},
		"enclosures":  {"MD3220; MD3200 and four MD1200", "4.1, 4.2", "table 1 has five MD1200: a slip"},
		"disks":       {"24 of 136 GB, 15k SAS; 60 of 2 TB NL-SAS", "table 1", ""},
		"groups":      {"RAID 10, chunk 64 KB; 6 x RAID 6 8+2, segment 128 KB", "4.1.1, 4.2.1", ""},
		"spread":      {"two: over all five enclosures", "4.2.1, appendix B", ""},
		"paths":       {"four", "4.2", ""},
		"luns":        {"one virtual disk for each disk group, no partitions", "4.2.1", ""},
		"policy":      {"blocks of 32 KB, reads cached, prefetch; measured without mirroring, which is for scratch only", "4.2.1, 10.2", "without a mirror a dead controller loses what it acknowledged"},
		"raw":         {"108.75 TB", "table 1", "does not follow from the geometry: see [systems.md](../systems.md#figures)"},
		"usable":      {"87 TB", "table 1", tib},
		"mds":         {"3.2 TB, 1.6 TB", "table 1", ""},
		"scheduler":   {"deadline", "4.2.1", "its successor in kernels with many queues"},
		"max_sectors": {"2048", "4.2.1", ""},
		"read_ahead":  {"2048 (the text has 8192 as well)", "4.2.1", ""},
		"mdt":         {"stride=16, stripe-width=64", "7.3", ""},
		"ost":         {"stride=32, stripe-width=256", "7.4", ""},
		"flex":        {"-O flex_bg -G 256", "7.3, 7.4", ""},
		"striping":    {"1 for home directories", "8.1", ""},
		"dirty":       {"256", "8.1", ""},
		"rpcs":        {"32", "8.1, 10.4", ""},
		"token":       {"deadtime 60 s, warntime 10 s", "appendix C", "Corosync finds it sooner; fencing still comes first"},
		"fencing":     {"STONITH over IPMI", "9.0, appendix C", "a BMC dies with its server's power feed, so the PDUs are the second level"},
		"retry":       {"not named", "", ""},
	}
	perc := map[string]Saying{
		"network":   {"FDR InfiniBand", "table 2", ""},
		"disks":     {"48 of 3 TB, NL-SAS, 7,200 rpm", "table 2", ""},
		"raw":       {"144 TB", "introduction", ""},
		"version":   {"3", "introduction", ""},
		"scheduler": {"not named", "", ""},
		"threads":   {"not named", "", ""},
		"spares":    {"not named", "", ""},
	}
	return map[string]map[string]Saying{
		"nss2-ha": with(ha, map[string]Saying{"servers": {"2 x R710", "table 1", ""}, "network": qdr, "enclosures": {"MD3200 and MD1200", "table 1", ""},
			"disks": {"2 TB NL-SAS", "table 1", ""}, "raw": {"48 TB and 96 TB", "table 1", ""},
			"groups": laterOnly("RAID 6 10+2, segment 512 KB", ""), "policy": laterOnly("write cache mirrored, read cache, dynamic prefetch", ""), "spares": {"not named", "", ""},
			"lvm": laterOnly("clustered LVM", ha["lvm"].Note), "paths": {"two cards", "table 10", "one HBA, as NSS3-HA has by table 5: its two ports, each to a controller"}}),
		"nss3-ha": with(ha, map[string]Saying{"servers": r710, "cards": {"1 SAS HBA of 6 Gb/s, ConnectX-2 QDR", "table 5", ""}, "network": qdr, "enclosures": eight, "disks": {"96 of 3 TB, NL-SAS", "table 4", ""},
			"raw": {"288 TB", "table 4", ""}, "usable": {"218 TB", "table 4", tib}, "paths": {"one HBA in each server; two by table 10", "tables 5 and 10", "its two ports, each to a controller"}}),
		"nss4-ha-144": with(ha, map[string]Saying{"servers": r620, "cards": nss4Cards, "network": fdr, "enclosures": four, "disks": {"48 of 3 TB, NL-SAS", "table 4", ""},
			"raw": {"144 TB", "table 4", ""}, "usable": {"109 TB", "table 4", tib}}),
		"nss4-ha-288": with(ha, map[string]Saying{"servers": r620, "cards": nss4Cards, "network": fdr, "enclosures": eight, "disks": {"96 of 3 TB, NL-SAS", "table 4", ""},
			"raw": {"288 TB", "table 4", ""}, "usable": {"218 TB", "table 4", tib}}),
		"nss-ha-xl": with(ha, map[string]Saying{"servers": r620, "cards": nss4Cards, "network": fdr, "enclosures": {"twice those of the 288 TB system", "2.2", ""}, "disks": {"3 TB NL-SAS", "table 4", ""},
			"raw": {"2 x 288 TB", "table 2", ""}, "lvm": {"two file systems, each server active for one", "2.2", ""}}),
		"nss7.3-ha": with(nss7, map[string]Saying{"servers": {"2 x R740, 2 x Gold 6136 of 12 cores, 192 GiB", "table 1", ""}}),
		"nss7.4-ha": with(nss7, map[string]Saying{"servers": {"2 x R740, 2 x Gold 6240 of 18 cores, 192 GiB (measured with 2 x 8 cores)", "tables 1 and 2", ""}}),
		"nss5.5": with(perc, map[string]Saying{
			"servers":    {"R620, 2 x E5-2680 v2 of 8 cores, 128 GB", "table 2", ""},
			"enclosures": {"4 MD1200 on two PERC H810", "table 2", ""},
			"groups":     {"RAID 60 of 10+2, stripe element 512 KB", "introduction", ""},
			"luns":       {"two RAID 60 sets", "introduction", ""},
			"policy":     {"write back, read ahead, that of the disks disabled", "introduction", ""},
			"lvm":        {"one logical volume of both", "introduction", ""},
			"usable":     {"110 TB", "introduction", "`df -h` rounds 109.1 TiB up"},
			"export":     {"async", "introduction", "what is acknowledged must be on disk"},
		}),
		"nfs-dfc": with(perc, map[string]Saying{
			"servers":    {"R720, 2 x E5-2680, 128 GB", "table 1", ""},
			"enclosures": {"4 MD1200, daisy-chained on one PERC H810", "table 1", ""},
			"network":    {"FDR InfiniBand", "table 1", ""}, "disks": {"48 of 3 TB, 7,200 rpm NL-SAS", "table 1", ""}, "raw": {"144 TB", "A.1", ""},
			"groups":    {"RAID 60, span length 12, stripe 512 KB", "2.4.1, A.4", ""},
			"spread":    {"three: over all four enclosures (the command lists them one enclosure after the other)", "2.4.1, A.4", ""},
			"luns":      {"one virtual disk", "2.1", ""},
			"policy":    {"write back, no read ahead, that of the disks disabled", "A.4", "streams pass the SSDs, so the PERC reads ahead for them"},
			"bytes":     {"120001386250240 bytes", "A.4", ""},
			"cache":     {"two SSDs of 350 GB, write-back or write-through", "table 3, A.5", "streams pass it: [cache.md](../cache.md)"},
			"scheduler": {"deadline", "2.4.2", "its successor in kernels with many queues"},
			"threads":   {"256", "2.4.2", ""},
			"mkfs":      {"su=512k, sw=40, log of 128m", "2.4.2", "many creates in flight; replayed within seconds all the same"},
			"mount":     {"noatime,allocsize=1g,nobarrier,inode64,logbsize=262144,attr2", "2.4.2", "nobarrier and attr2 are gone from the kernel"},
			"export":    {"rw,no_root_squash,sync", "A.5", ""},
			"version":   {"3", "2.4.2", ""},
			"rmem":      {"4096 2621440 16777216", "A.7", ""},
		}),
		"lustre-brick": lustre,
		"lustre-rack": with(lustre, map[string]Saying{
			"servers":    {"one HA-MDS, three HA-OSS", "11", ""},
			"enclosures": {"three bricks in a rack", "11", ""},
			"disks":      {"2 TB NL-SAS", "11", ""},
			"usable":     {"280 TB", "11", "does not follow from the geometry: see [systems.md](../systems.md#figures)"},
			"raw":        {"not named", "", ""},
		}),
	}
}()
