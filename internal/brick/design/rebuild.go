package design

import (
	"fmt"
	"math"
	"strconv"
)

// RebuildMBps is how many MB/s md rebuilds or scrubs at least on each disk of a type,
// whatever clients do: a fifth of what the disk streams. A client's stream keeps the rest.
// `mortar simulate` counts with it.
//
// Source: data sheets of makers (250 MB/s and more on the outer tracks of a hard disk of
// 16 TB, 1,000 of an SAS SSD, 2,500 of an NVMe disk that writes), as in coefficients.txt
func RebuildMBps(diskType string) float64 {
	switch diskType {
	case "ssd":
		return 200
	case "nvme":
		return 500
	}
	return 50
}

// restful is how much faster a rebuild is while clients rest: a hard disk's mean over all
// tracks is four fifths of its outer ones.
const restful = 4

// rebuildMin is the floor of the slowest disks, KiB/s: a server has one for all.
func rebuildMin(d *Design) int {
	least := math.Inf(1)
	for _, k := range d.Disks {
		least = min(least, RebuildMBps(k.Type))
	}
	return int(least * 1e6 / 1024)
}

// rebuildMax is a ceiling above the fastest disks, KiB/s.
func rebuildMax(d *Design) int {
	most := 300000
	for _, k := range d.Disks {
		if k.Type == "ssd" || k.Type == "nvme" {
			most = 4000000
		}
	}
	return most
}

// RebuildHours are the hours in which md rebuilds one disk of a group, or scrubs the group:
// while clients rest, and under their load. Both are 0 for a group inside a RAID array,
// which has its own ways.
func RebuildHours(d *Design, g *Group) (rest, load float64) {
	if g.Array != "" || len(g.Members) == 0 {
		return 0, 0
	}
	limit := func(name string, kernels float64) float64 {
		v, err := strconv.ParseFloat(d.Value("sysctl", "dev.raid."+name), 64)
		if err != nil {
			v = kernels // profile stock
		}
		return v * 1024
	}
	m := g.Members[0]
	hours := func(rate float64) float64 { return float64(m.Size) / rate / 3600 }
	return hours(min(restful*RebuildMBps(m.Type)*1e6, limit("speed_limit_max", 200000))), hours(limit("speed_limit_min", 1000))
}

// scrubDays is how long the scrub of a service's groups may take under load. While one group
// is scrubbed the whole volume is as slow as that group, because files are striped over all:
// several groups at once cost no more, and end sooner.
const scrubDays = 14

// ScrubsAtOnce is how many of some groups are scrubbed side by side.
func ScrubsAtOnce(d *Design, groups []Group) int {
	hours := 0.0
	for i := range groups {
		_, load := RebuildHours(d, &groups[i])
		hours += load
	}
	return min(max(int(math.Ceil(hours/(scrubDays*24))), 1), max(len(groups), 1))
}

// hoursText is a time for a person: "33 h", "5.6 days".
func hoursText(h float64) string {
	switch {
	case h < 1:
		return fmt.Sprintf("%.0f min", math.Ceil(h*60))
	case h < 10:
		return fmt.Sprintf("%.1f h", h)
	case h < 48:
		return fmt.Sprintf("%.0f h", h)
	}
	return fmt.Sprintf("%.1f days", h/24)
}
