// Package smart reads what a disk reports about its own health, from the output of
// smartctl --json. It runs nothing and judges nothing.
package smart

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Report is the health that a disk reports.
type Report struct {
	Serial string
	// Model is what the maker calls the disk.
	Model string `json:",omitempty"`
	// Left is the remaining life of an SSD in percent; -1 if the disk does not report it.
	Left int
	// Temperature in degrees Celsius, and the one at which the disk protects itself;
	// 0 if the disk does not report it.
	Temperature, Trip int
	// Failing: the disk predicts its failure. Why says for what reason, if the disk
	// reports one.
	Failing bool
	Why     string
	// Hot: the disk says that it is too hot. That predicts no failure.
	Hot bool
	// Warns has what else the disk warns of, in words, without a prediction of its
	// failure.
	Warns []string
	// Remapped is the number of sectors that the disk has replaced by spare ones.
	Remapped int64
	// Defects are counts of lost or doubtful data, in words. A healthy disk has none.
	Defects []string
	// NoAnswer is why the disk's health cannot be read, in smartctl's words.
	NoAnswer string `json:",omitempty"`
	// Unread is what the disk or smartctl said that is not understood.
	Unread health.Unread `json:",omitempty"`
}

// document is the part of smartctl's output that Parse uses. Source: smartctl(8),
// schema of smartmontools 7.
type document struct {
	Smartctl struct {
		Exit     int `json:"exit_status"`
		Messages []struct {
			Text     string `json:"string"`
			Severity string `json:"severity"`
		} `json:"messages"`
	} `json:"smartctl"`
	Serial  string `json:"serial_number"`
	Model   string `json:"model_name"`
	SCSI    string `json:"scsi_model_name"`
	Support struct {
		Enabled *bool `json:"enabled"`
	} `json:"smart_support"`
	Status struct {
		Passed *bool `json:"passed"`
		SCSI   *struct {
			Code      int    `json:"asc"`
			Qualifier int    `json:"ascq"`
			Text      string `json:"ie_string"`
		} `json:"scsi"`
	} `json:"smart_status"`
	Temperature struct {
		Current int `json:"current"`
		Trip    int `json:"drive_trip"`
	} `json:"temperature"`
	// Environment has further temperatures of a SAS disk, by names like temperature_1.
	Environment map[string]struct {
		Current int `json:"current"`
	} `json:"scsi_environmental_reports"`
	NVMe *struct {
		Critical    int   `json:"critical_warning"`
		Used        *int  `json:"percentage_used"`
		MediaErrors int64 `json:"media_errors"`
	} `json:"nvme_smart_health_information_log"`
	Endurance *struct {
		Used *int `json:"current_percent"`
	} `json:"endurance_used"`
	SASUsed *int  `json:"scsi_percentage_used_endurance_indicator"`
	Grown   int64 `json:"scsi_grown_defect_list"`
	Pending struct {
		Count int64 `json:"count"`
	} `json:"scsi_pending_defects"`
	Errors map[string]struct {
		Uncorrected int64 `json:"total_uncorrected_errors"`
	} `json:"scsi_error_counter_log"`
	Data struct {
		Test struct {
			Status struct {
				Text   string `json:"string"`
				Passed *bool  `json:"passed"`
			} `json:"status"`
		} `json:"self_test"`
	} `json:"ata_smart_data"`
	ATA struct {
		Table []attribute `json:"table"`
	} `json:"ata_smart_attributes"`
}

type attribute struct {
	ID     int    `json:"id"`
	Name   string `json:"name"`
	Value  *int   `json:"value"`
	Failed string `json:"when_failed"`
	Flags  struct {
		Prefailure *bool `json:"prefailure"`
	} `json:"flags"`
	Raw struct {
		Value int64 `json:"value"`
	} `json:"raw"`
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

// ataHot are the attributes that are temperatures: below its threshold, such a one says
// that the disk is too hot, and predicts no failure.
//
// Source: drivedb.h of smartmontools, defaults
var ataHot = map[int]bool{190: true, 194: true}

// ataWear are the attributes of SATA SSDs whose normalized value is the remaining life in
// percent, by the name that smartctl gives them. Makers use the same numbers for other
// things.
//
// Source: drivedb.h of smartmontools
var ataWear = map[string]bool{
	"Media_Wearout_Indicator": true, "SSD_Life_Left": true, "Percent_Lifetime_Remain": true, "Remaining_Lifetime_Perc": true,
	"Wear_Leveling_Count": true, "Percent_Life_Remaining": true, "Drive_Life_Remaining%": true, "Perc_Rated_Life_Remain": true,
	"Remain_Life": true, "Remaining_Life": true, "Lifetime_Left": true, "Percent_Lifetime_Left": true, "SSD_LifeLeft(0.01%)": false,
}

// ataWearout is Intel's number for the remaining life, for a smartctl that does not know
// the model and so names no attribute.
const ataWearout = 233

// criticals are the bits of an NVMe SSD's critical warning. Source: NVMe base
// specification, SMART / Health Information (log 02h).
var criticals = []string{"spare space is below its threshold", "temperature is out of bounds", "reliability is degraded",
	"it is read-only", "the backup of its volatile memory failed", "its persistent memory region is unreliable"}

// criticalHot is the bit of the temperature.
const criticalHot = 1 << 1

// Additional sense codes of a SCSI disk's informational exceptions: 0x0b are warnings,
// of temperatures among others; 0x5d are predictions of failure.
//
// Source: SPC-5, annex F
const (
	ascWarning    = 0x0b
	ascPrediction = 0x5d
)

// ascqHot are the qualifiers of ascWarning for a temperature that is too high.
var ascqHot = map[int]bool{0x01: true, 0x0a: true, 0x0c: true}

// SwitchedOff is the NoAnswer of a disk whose SMART is switched off.
const SwitchedOff = "SMART is switched off"

// Parse reads the output of `smartctl --json --all DEVICE`. A disk that reports
// nothing about its health gives a Report without findings, or with the NoAnswer that
// smartctl gives. An answer without JSON is an error.
func Parse(text string) (Report, error) {
	r := Report{Left: -1}
	var doc document
	unread, err := health.JSON(text, &doc)
	if err != nil {
		return r, fmt.Errorf("output of smartctl: %w", err)
	}
	r.Model = strings.Join(strings.Fields(cmp.Or(doc.Model, doc.SCSI)), " ")
	r.Serial, r.Temperature, r.Trip, r.Unread = doc.Serial, doc.Temperature.Current, doc.Temperature.Trip, unread
	for name, e := range doc.Environment {
		if doc.Temperature.Current == 0 && strings.HasPrefix(name, "temperature") {
			r.Temperature = max(r.Temperature, e.Current)
		}
	}
	r.messages(&doc)
	var why []string
	if n := doc.NVMe; n != nil {
		for bit := range 8 {
			switch mask := 1 << bit; {
			case n.Critical&mask == 0:
			case mask == criticalHot:
				r.Hot = true
			case bit < len(criticals):
				why = append(why, criticals[bit])
			default:
				r.Unread.Add(fmt.Sprintf("critical_warning: bit %d", bit))
			}
		}
		r.count(n.MediaErrors, "media errors")
	}
	r.Remapped = doc.Grown
	r.count(doc.Pending.Count, "pending sectors")
	for _, kind := range []string{"read", "write", "verify"} {
		r.count(doc.Errors[kind].Uncorrected, "uncorrected "+kind+" errors")
	}
	if t := doc.Data.Test.Status; t.Passed != nil && !*t.Passed {
		r.Defects = append(r.Defects, strings.TrimSuffix("a self-test that failed: "+t.Text, ": "))
	}
	for _, a := range doc.ATA.Table {
		if s := r.attribute(a); s != "" {
			why = append(why, s)
		}
	}
	r.Left = doc.left()
	r.Failing = len(why) > 0
	r.verdict(&doc, &why)
	r.Why = strings.Join(why, ", ")
	return r, nil
}

// messages keeps the errors that smartctl met. If the disk has told nothing of its health,
// they are why.
func (r *Report) messages(doc *document) {
	told := doc.Status.Passed != nil || doc.NVMe != nil || len(doc.ATA.Table) > 0 || len(doc.Errors) > 0 || r.Temperature > 0
	var said []string
	for _, m := range doc.Smartctl.Messages {
		if m.Severity == "error" {
			said = append(said, strings.Join(strings.Fields(m.Text), " "))
		}
	}
	const notOpened = 1 | 2 // bits of the exit code: bad arguments, a device that does not open
	if doc.Smartctl.Exit&notOpened != 0 && len(said) == 0 {
		said = append(said, fmt.Sprintf("smartctl ended with code %d", doc.Smartctl.Exit))
	}
	if on := doc.Support.Enabled; on != nil && !*on {
		r.NoAnswer = SwitchedOff
	} else if !told {
		r.NoAnswer, said = strings.Join(said, "; "), nil
	}
	for _, s := range said {
		r.Unread.Add(s)
	}
}

// attribute reads one attribute of an ATA disk, and returns what makes it predict a
// failure; "" for none.
func (r *Report) attribute(a attribute) string {
	n := a.Raw.Value & 0xffffffff
	if a.ID == ataReallocated {
		r.Remapped = n
	}
	if what := ataDefects[a.ID]; what != "" {
		r.count(n, what)
	}
	// Without flags it counts as one that predicts a failure.
	predicts := a.Flags.Prefailure == nil || *a.Flags.Prefailure
	hot := ataHot[a.ID] || strings.HasPrefix(a.Name, "Temperature")
	switch a.Failed {
	case "", "-":
	case "now":
		switch {
		case hot:
			r.Hot = true
		case predicts:
			return a.Name + " is below its threshold"
		default:
			r.Warns = append(r.Warns, a.Name+" is below its threshold")
		}
	case "past":
		if predicts && !hot {
			r.Warns = append(r.Warns, a.Name+" was below its threshold")
		}
	default:
		r.Unread.Add(a.Name + " failed " + a.Failed)
	}
	return ""
}

// verdict takes the disk's own judgement of itself. One that only says that the disk is
// hot, or warns, predicts no failure.
func (r *Report) verdict(doc *document, why *[]string) {
	passed := doc.Status.Passed
	if s := doc.Status.SCSI; s != nil && s.Code != 0 {
		said := cmp.Or(s.Text, fmt.Sprintf("asc %#02x, ascq %#02x", s.Code, s.Qualifier))
		switch s.Code {
		case ascWarning:
			r.Hot = r.Hot || ascqHot[s.Qualifier]
			r.Warns = append(r.Warns, said)
			return
		case ascPrediction:
			r.Failing = true
			*why = append(*why, said)
			return
		}
		r.Unread.Add(said)
	}
	if passed == nil || *passed || r.Failing {
		return
	}
	if onlyHot := doc.NVMe != nil && r.Hot; !onlyHot {
		r.Failing = true
		*why = append(*why, "its self-assessment failed")
	}
}

// left returns the remaining life in percent, -1 if it is not reported.
func (d *document) left() int {
	switch {
	case d.NVMe != nil && d.NVMe.Used != nil:
		return remaining(*d.NVMe.Used)
	case d.Endurance != nil && d.Endurance.Used != nil:
		return remaining(*d.Endurance.Used)
	case d.SASUsed != nil:
		return remaining(*d.SASUsed)
	}
	left := -1
	for _, a := range d.ATA.Table {
		unnamed := a.Name == "" || strings.HasPrefix(a.Name, "Unknown")
		if a.Value == nil || *a.Value < 0 || *a.Value > 100 || !ataWear[a.Name] && !(unnamed && a.ID == ataWearout) {
			continue
		}
		if left < 0 || *a.Value < left {
			left = *a.Value
		}
	}
	return left
}

func remaining(used int) int { return min(100, max(0, 100-used)) }

func (r *Report) count(n int64, what string) {
	if n > 0 {
		r.Defects = append(r.Defects, fmt.Sprintf("%d %s", n, what))
	}
}

// mends has what to do about smartctl's reasons for no answer.
//
// Source: smartmontools, smartctl.cpp and os_linux.cpp
var mends = []struct{ said, mend string }{
	{"Unable to detect device type", "`smartctl --scan-open` on that server lists what smartctl can ask; a RAID controller answers for the disks behind it, and a disk of a virtual machine has no such data"},
	{SwitchedOff, "`smartctl --smart=on` with the disk's device switches it on"},
	{"open device", "see with `lsblk` on that server whether the kernel still has the device"},
	{"does not support SMART", "nothing: the disk, or the bridge before it, tells nothing of its health"},
}

// Mend says what to do about a NoAnswer.
func Mend(why string) string {
	for _, m := range mends {
		if strings.Contains(why, m.said) {
			return m.mend
		}
	}
	return "see `smartctl --all` of it on that server"
}
