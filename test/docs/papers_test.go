package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	paperRow  = regexp.MustCompile(`^\| (\d+) \|.*\| ([RPON]) \| .+ \|$`)
	countRow  = regexp.MustCompile(`^\| \**([^|*]+?)\** \| \**(\d+)\** \| \**(\d+)\** \| \**(\d+)\** \| \**(\d+)\** \| \**(\d+)\** \|$`)
	markRow   = regexp.MustCompile(`^\| \*\*([RPON])\*\* \| (\d+) \|`)
	reasonRow = regexp.MustCompile(`^\| .+ \| (\d+) \| (\d+(?:, \d+)*) \|$`)
)

// TestPapers: the counts of lab/papers.md are those of its rows, and each row that is not R has one reason.
func TestPapers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "lab/papers.md"))
	if err != nil {
		t.Fatal(err)
	}
	document, marks := "", map[string]string{} // by the number of a row
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## "); ok {
			document = name
		}
		if m := paperRow.FindStringSubmatch(line); m != nil {
			marks[m[1]] = m[2]
			for _, of := range []string{document, "all"} {
				count[of+m[2]]++
				count[of]++
			}
		}
	}
	reasons, same := map[string]int{}, func(what string, have string, want int) {
		if have != strconv.Itoa(want) {
			t.Errorf("%s: the table has %s, and the rows %d", what, have, want)
		}
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := markRow.FindStringSubmatch(line); m != nil {
			same(m[1], m[2], count["all"+m[1]])
		}
		if m := countRow.FindStringSubmatch(line); m != nil {
			same(m[1], m[2], count[m[1]])
			for i, mark := range []string{"R", "P", "O", "N"} {
				same(m[1]+", "+mark, m[3+i], count[m[1]+mark])
			}
		}
		if m := reasonRow.FindStringSubmatch(line); m != nil && !countRow.MatchString(line) {
			rows := strings.Split(m[2], ", ")
			same(line, m[1], len(rows))
			for _, r := range rows {
				reasons[r]++
			}
		}
	}
	for r, mark := range marks {
		want := 1
		if mark == "R" {
			want = 0
		}
		if reasons[r] != want {
			t.Errorf("row %s is %s, and has %d reasons", r, mark, reasons[r])
		}
	}
	if len(marks) < 100 {
		t.Errorf("only %d rows", len(marks))
	}
}
