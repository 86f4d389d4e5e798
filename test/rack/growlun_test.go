//go:build rack

package rack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestArrayGrows adds a LUN to a volume while a client writes. The printed script of the
// growth makes the LUN on the array in use. Then the partner takes the grown volume over.
func TestArrayGrows(t *testing.T) {
	const more, lun = `  - {name: MD9, bays: 12, model: MD1200, disks: [{serial: "E9N[01-12]", size: 2TB, type: nl-sas, rpm: 7200, growth: 1}]}`, "nss2-g1-lun0"
	text := must(t, "init", "nss2-ha")
	large := strings.Replace(text, "\nstorage:", "\n"+more+"\nstorage:", 1)
	beside := func(spec, name, text string) string {
		file := filepath.Join(filepath.Dir(spec), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	spec := deploy(t, rackBrick{example: "nss2-ha", scale: "1/1000", hardware: large, empty: true,
		edit: func(string) string { return text },
		up: func(spec string) {
			configured(t, spec, "nss2", must(t, "array", "script", beside(spec, "small.yaml", text), "nss2"), 0)
		}})
	on := func(host, script string) string { return must(t, "rack", "ssh", spec, host, "--", script) }
	grow := []string{"grow", spec, "--disks", "MD9=E9N[01-12]", "--yes"}

	if _, code := mortar(t, grow...); code != 2 {
		t.Errorf("growth without its LUN: exit %d, want 2", code)
	}
	if b, err := os.ReadFile(spec); err != nil || string(b) != text {
		t.Errorf("the spec has changed: %v", err)
	}
	scripts := t.TempDir()
	must(t, append(grow, "--script", scripts)...)
	script, err := os.ReadFile(filepath.Join(scripts, "nss2.smcli"))
	if err != nil || !strings.Contains(string(script), lun) {
		t.Fatalf("%v\n%s", err, script)
	}

	on("node01", `mkdir /mnt/scratch/w; nohup sh -c 'i=0; while [ ! -e /tmp/stop ]; do
		dd if=/dev/urandom of=/tmp/f bs=64k count=4 status=none; md5sum < /tmp/f | sed "s/-/f$i/" > /tmp/sum
		dd if=/tmp/f of=/mnt/scratch/w/f$i bs=64k conv=fsync status=none && cat /tmp/sum >> /tmp/sums || echo "f$i" >> /tmp/failed
		date +%s.%N >> /tmp/times; i=$((i+1)); sleep 0.2; done' > /dev/null 2>&1 &`)
	was := on("node01", "df --output=size -B1M /mnt/scratch | tail -1")
	configured(t, beside(spec, "large.yaml", large), "nss2", string(script), 0)
	must(t, grow...)
	if is := on("node01", "df --output=size -B1M /mnt/scratch | tail -1"); is == was {
		t.Errorf("the client sees %s MiB before and after", strings.TrimSpace(is))
	}
	unchanged(t, "apply", spec, "--yes", "--json", "--skip-fence-test")
	unchanged(t, append(grow, "--json")...)
	on("node01", `sleep 10; touch /tmp/stop; sleep 5; cd /mnt/scratch/w && md5sum --quiet -c /tmp/sums && ! cat /tmp/failed 2> /dev/null`)
	t.Log("longest time between two files, s:", on("node01", `awk '{if (p && $1-p > m) m = $1-p; p = $1} END {print m}' /tmp/times`))
	drillAll(t, spec, "drills-grown", "--only", "controller,server-crash-freeze", "--seconds", "4", "--after", "3")
}
