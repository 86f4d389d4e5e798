package smart

import (
	"flag"
	"fmt"
	"reflect"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/test/field"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want Report
	}{
		"an NVMe SSD near its end": {
			`{"serial_number":"S1","smart_status":{"passed":false},"temperature":{"current":71},"nvme_smart_health_information_log":{"critical_warning":5,"percentage_used":97,"media_errors":2}}`,
			Report{Serial: "S1", Left: 3, Temperature: 71, Failing: true, Why: "spare space is below its threshold, reliability is degraded", Defects: []string{"2 media errors"}},
		},
		"a SAS disk with grown defects": {
			`{"serial_number":"S2","smart_status":{"passed":true},"temperature":{"current":31,"drive_trip":60},"scsi_grown_defect_list":4,"scsi_error_counter_log":{"read":{"total_uncorrected_errors":1},"write":{"total_uncorrected_errors":0}}}`,
			Report{Serial: "S2", Left: -1, Temperature: 31, Trip: 60, Remapped: 4, Defects: []string{"1 uncorrected read errors"}},
		},
		"a SATA disk": {
			`{"serial_number":"S3","smart_status":{"passed":true},"temperature":{"current":38},"ata_smart_attributes":{"table":[{"id":5,"name":"Reallocated_Sector_Ct","raw":{"value":8}},{"id":197,"name":"Current_Pending_Sector","raw":{"value":3}},{"id":9,"name":"Power_On_Hours","raw":{"value":1234}}]}}`,
			Report{Serial: "S3", Left: -1, Temperature: 38, Remapped: 8, Defects: []string{"3 pending sectors"}},
		},
		"a SATA disk below a threshold": {
			`{"serial_number":"S4","smart_status":{"passed":false},"ata_smart_attributes":{"table":[{"id":1,"name":"Raw_Read_Error_Rate","when_failed":"now","raw":{"value":1}}]}}`,
			Report{Serial: "S4", Left: -1, Failing: true, Why: "Raw_Read_Error_Rate is below its threshold"},
		},
		"a SAS SSD": {`{"serial_number":"S5","scsi_percentage_used_endurance_indicator":12}`, Report{Serial: "S5", Left: 88}},
		"a LUN":     {`{"serial_number":"600a","device":{"type":"scsi"}}`, Report{Serial: "600a", Left: -1}},
	} {
		got, err := Parse(tc.text)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, tc.want)
		}
	}
	if r, err := Parse("smartctl: no such device"); err == nil || r.Left != -1 {
		t.Errorf("got %+v, %v", r, err)
	}
}

var update = flag.Bool("update", false, "rewrite testdata/field")

// said is a report in words.
func said(text string) string {
	r, err := Parse(text)
	if err != nil {
		return "error: " + err.Error()
	}
	out := fmt.Sprintf("serial %s, left %d, temperature %d of %d, remapped %d", r.Serial, r.Left, r.Temperature, r.Trip, r.Remapped)
	if r.Failing {
		out += "\nfailing: " + r.Why
	}
	if r.Hot {
		out += "\nhot"
	}
	for _, s := range r.Warns {
		out += "\nwarns: " + s
	}
	for _, s := range r.Defects {
		out += "\ndefect: " + s
	}
	if r.NoAnswer != "" {
		out += "\nno answer: " + r.NoAnswer
	}
	if len(r.Unread) > 0 {
		out += "\nunknown: " + r.Unread.String()
	}
	return out
}

func TestField(t *testing.T) { field.Check(t, "smart", *update, said) }

// Text before the data changes nothing. A value of another type costs that value and is
// counted. An answer gives a report or an error: one of a disk that says that it is not
// well is never without a finding.
func FuzzParse(f *testing.F) {
	for _, c := range field.Cases(f, "smart") {
		f.Add(c.Input)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(field.Banner + text); err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("under a banner %+v, else %+v, %v", again, r, err)
		}
		var doc struct {
			Status struct {
				Passed any `json:"passed"`
			} `json:"smart_status"`
			NVMe struct {
				Critical any `json:"critical_warning"`
			} `json:"nvme_smart_health_information_log"`
		}
		if _, err := health.JSON(text, &doc); err != nil {
			return
		}
		good := (doc.Status.Passed == nil || doc.Status.Passed == true) && (doc.NVMe.Critical == nil || fmt.Sprint(doc.NVMe.Critical) == "0")
		if !good && !r.Failing && !r.Hot && len(r.Warns)+len(r.Unread) == 0 && r.NoAnswer == "" {
			t.Errorf("%s: %+v", text, r)
		}
	})
}
