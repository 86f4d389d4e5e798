package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// compare takes two specs, a spec and a published system, or two published systems. It refuses
// a file that is no brick, or that is not like the other one.
func TestCompareBricks(t *testing.T) {
	dir := t.TempDir()
	write := func(name, example string, edits ...string) string {
		src, err := examples.FS.ReadFile(example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(strings.NewReplacer(edits...).Replace(string(src))), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	a, b := write("a.yaml", "nss4-ha-144"), write("b.yaml", "nss4-ha-288", "model: R620", "model: R999")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{a, b}, "+100 %"},
		{[]string{"nss4-ha-288", b}, "FORECAST BESIDE WHAT WAS PUBLISHED"},
		{[]string{"nss7.3-ha", "nss7.4-ha"}, "-35.4 %"},
	} {
		out, _, err := runCmd(t, "compare", c.args...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v lacks %q (%v):\n%s", c.args, c.want, err, out)
		}
		out, _, err = runCmd(t, "compare", append(c.args, "--json")...)
		var v struct {
			Kind  string
			Peaks []struct {
				Load    string
				Percent *float64
			}
		}
		if jerr := json.Unmarshal([]byte(out), &v); err != nil || jerr != nil || v.Kind != "spec" || len(v.Peaks) != 7 || v.Peaks[0].Percent == nil {
			t.Errorf("%v --json: %v, %v, %+v", c.args, err, jerr, v)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{a, dir}, "like with like"},
		{[]string{a, "nss9-ha"}, "they are: nss2-ha"},
		{[]string{"nss9-ha", "nss4-ha"}, "nss9-ha"},
		{[]string{a, filepath.Join(dir, "none.yaml")}, "none.yaml"},
		{[]string{a, b, a}, "two at a time"},
		{[]string{a, b, "--html", filepath.Join(dir, "x.html")}, "two at a time"},
	} {
		if _, code, err := runCmd(t, "compare", c.args...); err == nil || code != exitBadInput || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: exit %d, %v; want %q", c.args, code, err, c.want)
		}
	}
}
