// Package smart reads what a disk reports about its own health, from the output of
// smartctl --json. It runs nothing and judges nothing.
package smart

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Report is the health that a disk reports.
type Report struct {
	Serial string
	// Left is the remaining life of an SSD in percent; -1 if the disk does not report it.
	Left int
	// Temperature in degrees Celsius, and the one at which the disk protects itself;
	// 0 if the disk does not report it.
	Temperature, Trip int
	// Failing: the disk predicts its failure. Why says for what reason, if the disk
	// reports one.
	Failing bool
	Why     string
	// Remapped is the number of sectors that the disk has replaced by spare ones.
	Remapped int64
	// Defects are counts of lost or doubtful data, in words. A healthy disk has none.
	Defects []string
}

// document is the part of smartctl's output that Parse uses. Source: smartctl(8),
// schema of smartmontools 7.
type document struct {
	Serial string `json:"serial_number"`
	Status *struct {
		Passed bool `json:"passed"`
	} `json:"smart_status"`
	Temperature struct {
		Current int `json:"current"`
		Trip    int `json:"drive_trip"`
	} `json:"temperature"`
	NVMe *struct {
		Critical    int   `json:"critical_warning"`
		Used        int   `json:"percentage_used"`
		MediaErrors int64 `json:"media_errors"`
	} `json:"nvme_smart_health_information_log"`
	Endurance *struct {
		Used int `json:"current_percent"`
	} `json:"endurance_used"`
	SASUsed *int  `json:"scsi_percentage_used_endurance_indicator"`
	Grown   int64 `json:"scsi_grown_defect_list"`
	Errors  map[string]struct {
		Uncorrected int64 `json:"total_uncorrected_errors"`
	} `json:"scsi_error_counter_log"`
	ATA *struct {
		Table []struct {
			ID     int    `json:"id"`
			Failed string `json:"when_failed"`
			Name   string `json:"name"`
			Raw    struct {
				Value int64 `json:"value"`
			} `json:"raw"`
		} `json:"table"`
	} `json:"ata_smart_attributes"`
}

// ataDefects are the attributes of ATA disks that predict failure best, with what
// they count. The upper bytes of some raw values have another meaning.
//
// Source: "Failure Trends in a Large Disk Drive Population" (FAST '07), section 3.5,
// and smartctl(8).
var ataDefects = map[int]string{
	187: "uncorrectable errors",
	197: "pending sectors",
	198: "sectors that cannot be read",
}

// ataReallocated is the attribute that counts sectors replaced by spare ones.
const ataReallocated = 5

// criticals are the bits of an NVMe SSD's critical warning. Source: NVMe base
// specification, SMART / Health Information (log 02h).
var criticals = []string{"spare space is below its threshold", "temperature is out of bounds", "reliability is degraded",
	"it is read-only", "the backup of its volatile memory failed"}

// Parse reads the output of `smartctl --json --all DEVICE`. A disk that reports
// nothing about its health gives a Report without findings.
func Parse(text string) (Report, error) {
	var doc document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return Report{Left: -1}, fmt.Errorf("output of smartctl: %w", err)
	}
	r := Report{Serial: doc.Serial, Left: doc.left(), Temperature: doc.Temperature.Current, Trip: doc.Temperature.Trip}
	var why []string
	if n := doc.NVMe; n != nil {
		for bit, what := range criticals {
			if n.Critical>>bit&1 != 0 {
				why = append(why, what)
			}
		}
		r.Failing = n.Critical != 0
		r.count(n.MediaErrors, "media errors")
	}
	r.Remapped = doc.Grown
	for _, kind := range []string{"read", "write", "verify"} {
		r.count(doc.Errors[kind].Uncorrected, "uncorrected "+kind+" errors")
	}
	if doc.ATA != nil {
		for _, a := range doc.ATA.Table {
			n := a.Raw.Value & 0xffffffff
			if a.ID == ataReallocated {
				r.Remapped = n
			}
			if what := ataDefects[a.ID]; what != "" {
				r.count(n, what)
			}
			if a.Failed == "now" {
				r.Failing = true
				why = append(why, a.Name+" is below its threshold")
			}
		}
	}
	if doc.Status != nil && !doc.Status.Passed {
		r.Failing = true
		if len(why) == 0 {
			why = []string{"its self-assessment failed"}
		}
	}
	r.Why = strings.Join(why, ", ")
	return r, nil
}

// left returns the remaining life in percent, -1 if it is not reported.
func (d *document) left() int {
	switch {
	case d.NVMe != nil:
		return max(0, 100-d.NVMe.Used)
	case d.Endurance != nil:
		return max(0, 100-d.Endurance.Used)
	case d.SASUsed != nil:
		return max(0, 100-*d.SASUsed)
	}
	return -1
}

func (r *Report) count(n int64, what string) {
	if n > 0 {
		r.Defects = append(r.Defects, fmt.Sprintf("%d %s", n, what))
	}
}
