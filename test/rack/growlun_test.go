//go:build rack

package rack_test

import (
	"os"
	"strings"
	"testing"
)

// TestArrayGrows adds a LUN to a volume while a client writes. The array has the LUN from
// the first, and the servers see it once it is mapped to them. Then the partner takes the
// grown volume over.
func TestArrayGrows(t *testing.T) {
	const more, lun = `  - {name: MD9, bays: 12, model: MD1200, disks: [{serial: "E9N[01-12]", size: 2TB, type: nl-sas, rpm: 7200, growth: 1}]}`, "nss2-g1-lun0"
	text := must(t, "init", "nss2-ha")
	spec := deploy(t, rackBrick{example: "nss2-ha", scale: "1/1000", hardware: strings.Replace(text, "\nstorage:", "\n"+more+"\nstorage:", 1),
		edit: func(string) string { return text },
		up: func(spec string) {
			for _, s := range []string{"nss1", "nss2"} {
				must(t, "rack", "fault", spec, "lun-out", s, lun)
			}
		}})
	on := func(host, script string) string { return must(t, "rack", "ssh", spec, host, "--", script) }
	grow := []string{"grow", spec, "--disks", "MD9=E9N[01-12]", "--yes"}

	if _, code := mortar(t, grow...); code != 2 {
		t.Errorf("growth without its LUN: exit %d, want 2", code)
	}
	if b, err := os.ReadFile(spec); err != nil || string(b) != text {
		t.Errorf("the spec has changed: %v", err)
	}
	must(t, append(grow, "--script", t.TempDir())...)

	on("node01", `mkdir /mnt/scratch/w; nohup sh -c 'i=0; while [ ! -e /tmp/stop ]; do
		dd if=/dev/urandom of=/tmp/f bs=64k count=4 status=none; md5sum < /tmp/f | sed "s/-/f$i/" > /tmp/sum
		dd if=/tmp/f of=/mnt/scratch/w/f$i bs=64k conv=fsync status=none && cat /tmp/sum >> /tmp/sums || echo "f$i" >> /tmp/failed
		date +%s.%N >> /tmp/times; i=$((i+1)); sleep 0.2; done' > /dev/null 2>&1 &`)
	was := on("node01", "df --output=size -B1M /mnt/scratch | tail -1")
	for _, s := range []string{"nss1", "nss2"} {
		must(t, "rack", "fault", spec, "lun-in", s, lun)
	}
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
