package report

import (
	"encoding/json"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// papersTable is a paper's table of failures with the outcomes of the drills.
type papersTable struct {
	paper.FailureTable
	Outcomes []failureRow
}

// failureRow is a row of the paper with the runs of its drills; without runs the
// page says "not run".
type failureRow struct {
	paper.Failure
	Runs []runPage
}

// papersTableOf returns the table of the paper that describes the runs' flavour;
// nil if no paper has a table for that flavour.
func papersTableOf(runs []runPage) *papersTable {
	var d struct {
		Flavour spec.Flavour `json:"flavour"`
	}
	if err := json.Unmarshal(runs[0].Config.Design, &d); err != nil {
		return nil // without a design the flavour is unknown
	}
	t := &papersTable{FailureTable: paper.Failures(d.Flavour)}
	for _, f := range t.Rows {
		row := failureRow{Failure: f}
		for _, r := range runs {
			if slices.Contains(f.Drills, r.Summary.Drill) {
				row.Runs = append(row.Runs, r)
			}
		}
		t.Outcomes = append(t.Outcomes, row)
	}
	if len(t.Outcomes) == 0 {
		return nil
	}
	return t
}
