package ses

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/test/field"
)

// areca is a recording; see its head. It has no disks, fans 1 to 4 are not there, and
// neither are power supplies that report.
func areca(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "areca-8028.hex"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wounded is the recording with other bits in its status page: a fan that failed, one
// that turns, a hot sensor, a supply without power, a slot with a fault.
func wounded(t testing.TB) string {
	t.Helper()
	text := areca(t)
	for _, c := range [][2]string{
		{"05 00 00 10 05 00 00 10  05 00 00 10 05 00 00 10\n", "02 00 00 40 01 02 ee 07  43 02 ee 07 05 00 00 10\n"}, // fans 1 to 4
		{"01 00 45 00 01 00 56 00\n", "03 00 4f 04 02 00 6a 08\n"},                                                   // temperatures
		{"00 00 00 00 01 00 00 5e  01 00 00 b4 ", "00 00 00 00 02 01 00 5e  01 08 00 b4 "},                           // voltages
		{"05 00 00 20 05 00 00 20  00 00 00 00 01 00 00 00\n", "01 00 00 a2 41 00 00 a0  00 00 00 00 01 00 00 00\n"}, // power supplies
		{"02 02 00 cc 00 00 00 00  00 00 00 00 05 00 00 00\n", "02 02 00 cc 00 00 00 00  00 00 00 00 01 00 00 40\n"}, // slot 1
		{"05 00 00 00 01 00 00 00  05 00 00 00 05 00 00 00\n", "05 00 00 00 01 00 00 20  05 00 00 00 05 00 00 00\n"}, // slot 19
	} {
		if strings.Count(text, c[0]) != 1 {
			t.Fatalf("%q is there %d times", c[0], strings.Count(text, c[0]))
		}
		text = strings.Replace(text, c[0], c[1], 1)
	}
	return text
}

func TestParse(t *testing.T) {
	e, err := Parse(areca(t))
	if err != nil || e.ID != "d5b401503fc0ec16" || e.Vendor != "Areca" || e.Product != "ARC-802801.33.63" || len(e.Elements) != 41 {
		t.Fatalf("%+v, %v", e, err)
	}
	var got []Element
	for _, x := range e.Elements {
		if !x.Silent {
			got = append(got, x)
		}
	}
	want := []Element{
		{Kind: "slot", Name: "SLOT 19"},
		{Kind: "enclosure", Name: "EnclosureElement01"},
		{Kind: "expander", Name: "Expander0"},
		{Kind: "fan", Name: "CPUFan", Text: "7500 rpm"},
		{Kind: "temperature", Name: "ENC. Temp", Text: "49 °C", Celsius: 49},
		{Kind: "temperature", Name: "Chip Temp", Text: "66 °C", Celsius: 66},
		{Kind: "voltage", Name: "0.95V", Text: "0.94 V"},
		{Kind: "voltage", Name: "1.8V", Text: "1.80 V"},
		{Kind: "connector", Name: "Connector00"}, {Kind: "connector", Name: "Connector01"}, {Kind: "connector", Name: "Connector02"},
		{Kind: "alarm", Name: "Audible-Alarm"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFaults(t *testing.T) {
	e, err := Parse(wounded(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range e.Elements {
		if x.Level > health.OK {
			got = append(got, fmt.Sprintf("%s %s %s: %s", x.Level, x.Kind, x.Name, x.Text))
		}
	}
	want := []string{
		"fault slot SLOT 01: the enclosure senses a fault of its disk",
		"warning slot SLOT 19: a program has switched its fault light on",
		"fault fan Fan 01: 0 rpm, it has failed",
		"warning fan Fan 03: 7500 rpm, it predicts its failure, not as it should be",
		"warning temperature ENC. Temp: 59 °C, too hot",
		"fault temperature Chip Temp: 86 °C, critically hot",
		"fault voltage 0.95V: 0.94 V, critically low",
		"warning voltage 1.8V: 1.80 V, too high",
		"fault power supply PowerSupply01: no power comes in (AC fail)",
		"warning power supply PowerSupply02: it predicts its failure",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sg_ses itself decodes the same pages alike.
func TestAgreesWithSgSes(t *testing.T) {
	header, state := regexp.MustCompile(`Element (\d+) descriptor:`), regexp.MustCompile("status: (OK|Critical|Noncritical)")
	for name, text := range map[string]string{"recorded": areca(t), "with faults": wounded(t)} {
		file := filepath.Join(t.TempDir(), "pages.hex")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("sg_ses", "--inhex="+file, "--status", "--page=es").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		e, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		// One section for each element, those of all elements of a type left out.
		var sections []string
		for part := range strings.SplitSeq(string(out), " descriptor:") {
			sections = append(sections, part)
		}
		var said []string
		for i, s := range sections[:len(sections)-1] {
			if header.MatchString(s[max(0, strings.LastIndex(s, "\n")):] + " descriptor:") {
				said = append(said, sections[i+1])
			}
		}
		if len(said) != len(e.Elements) {
			t.Fatalf("%s: sg_ses has %d elements, we have %d\n%s", name, len(said), len(e.Elements), out)
		}
		for i, x := range e.Elements {
			reading := ""
			switch {
			case x.Silent:
			case x.Kind == "temperature":
				reading = fmt.Sprintf("Temperature=%d C", x.Celsius)
			case x.Kind == "fan":
				reading = "Actual speed=" + strings.Split(x.Text, ",")[0]
			case x.Kind == "voltage":
				reading = "Voltage: " + strings.Fields(x.Text)[0]
			}
			if x.Silent == state.MatchString(said[i]) || !strings.Contains(said[i], reading) {
				t.Errorf("%s: %+v, and sg_ses says %s", name, x, said[i])
			}
		}
	}
}

// Half a page, or none, is an error.
func TestBroken(t *testing.T) {
	text := areca(t)
	for name, broken := range map[string]string{
		"nothing":            "",
		"an error":           "sg_ses failed: No such device",
		"no status":          text[:strings.Index(text, "\n02 02 ")],
		"cut short":          text[:strings.Index(text, "\n02 02 ")+40],
		"another generation": strings.Replace(text, "02 02 00 cc 00 00 00 00", "02 02 00 cc 00 00 00 01", 1),
	} {
		if e, err := Parse(broken); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
	// Without names, elements have numbers.
	e, err := Parse(text[:strings.Index(text, "\n07 ")+1])
	if err != nil || e.Elements[30].Name != "fan 5" {
		t.Errorf("%+v, %v", e, err)
	}
}

// A banner before each page changes nothing. A status that the enclosure does not know is
// Unknown, not a part that is not there.
func TestField(t *testing.T) {
	text := wounded(t)
	want, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Parse(field.Banner + strings.ReplaceAll(text, "\n02 02 ", "\nsudo: no such host\n02 02 ")); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("under a banner: %+v, %v", got, err)
	}
	for code, c := range map[string]string{"06": "unknown fan Fan 01: the enclosure does not know its status", "07": "unknown fan Fan 01: it is installed, and not available", "0d": "unknown fan Fan 01: status code 13"} {
		e, err := Parse(strings.Replace(text, "02 00 00 40 01 02 ee 07", code+" 00 00 40 01 02 ee 07", 1))
		found := false
		for _, x := range e.Elements {
			found = found || fmt.Sprintf("%s %s %s: %s", x.Level, x.Kind, x.Name, x.Text) == c
		}
		if err != nil || !found {
			t.Errorf("%s: %+v, %v", code, e.Elements, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(areca(f))
	f.Add(wounded(f))
	f.Add("01 00 00 04 00 00 00 00")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if again, errAgain := Parse(field.Banner + text); (errAgain == nil) != (err == nil) || err == nil && !reflect.DeepEqual(again, e) {
			t.Errorf("under a banner %+v, %v; else %+v, %v", again, errAgain, e, err)
		}
		if err == nil {
			for _, x := range e.Elements {
				if x.Name == "" || x.Kind == "" || x.Level > health.OK && x.Text == "" {
					t.Errorf("%+v", x)
				}
			}
		}
	})
}
