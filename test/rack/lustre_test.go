//go:build rack

package rack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallLustre is lustre-small with the packages of LUSTRE. Its pool has only the second OST,
// because an OST in a pool cannot be retired.
func smallLustre(t *testing.T) rackBrick {
	dir := os.Getenv("LUSTRE")
	if dir == "" {
		t.Fatal("give the directory of Lustre's Debian packages: make test-lustre LUSTRE=DIR")
	}
	return rackBrick{example: "lustre-small", scale: "1/1000", lustre: dir, edit: func(text string) string {
		const pool = "{name: disk, osts: [0-1]}"
		if !strings.Contains(text, pool) {
			t.Fatal("the pool of lustre-small is another one")
		}
		return strings.Replace(text, pool, "{name: disk, osts: [1]}", 1)
	}}
}

// TestLustreCrash crashes an OSS and the MDS under load.
func TestLustreCrash(t *testing.T) {
	spec := deploy(t, smallLustre(t))
	for _, service := range []string{"ost0000", "mdt0000"} {
		drillAll(t, spec, "drills-lustre-"+service, "--only", "server-crash-freeze", "--service", service)
	}
}

// TestLustreGrow adds a pair of OSS to lustre-small while a client writes.
func TestLustreGrow(t *testing.T) {
	whole, err := os.ReadFile("testdata/lustre-grown.yaml")
	if err != nil {
		t.Fatal(err)
	}
	small := smallLustre(t)
	small.edit, small.hardware = nil, string(whole)
	b := lustreBrick{t, deploy(t, small)}
	grown := filepath.Join(t.TempDir(), "grown.yaml")
	if err := os.WriteFile(grown, append(whole, idOf(t, b.spec)...), 0o644); err != nil {
		t.Fatal(err)
	}
	b.on("node01", `mkdir /small/w; nohup sh -c 'i=0; while [ ! -e /tmp/stop ]; do
		dd if=/dev/urandom of=/tmp/f bs=64k count=4 status=none; md5sum < /tmp/f | sed "s/-/f$i/" > /tmp/sum
		dd if=/tmp/f of=/small/w/f$i bs=64k oflag=sync status=none && cat /tmp/sum >> /tmp/sums || echo "f$i" >> /tmp/failed
		date +%s.%N >> /tmp/times; i=$((i+1)); sleep 0.2; done' > /dev/null 2>&1 &`)
	must(t, "grow", b.spec, "--to", grown, "--yes")
	b.has(b.on("node01", "lfs df /small"), "small-OST0002", "small-OST0003")
	b.on("node01", `sleep 15; touch /tmp/stop; sleep 5; cd /small/w && md5sum --quiet -c /tmp/sums && ! cat /tmp/failed 2> /dev/null`)
	t.Log("longest time between two files, s:", b.on("node01", `awk '{if (p && $1-p > m) m = $1-p; p = $1} END {print m}' /tmp/times`))
	b.has(b.on("node01", "lfs getstripe -i /small/w/* | sort -n | uniq"), "2", "3")
	b.applied()
	must(t, "status", b.spec)
	// A second run changes nothing.
	unchanged(t, "grow", b.spec, "--to", grown, "--yes", "--json")
}

// idOf returns the line of a spec with the id that mortar init drew.
func idOf(t *testing.T, spec string) string {
	text, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "id:") {
			return line
		}
	}
	t.Fatal("the spec has no id")
	return ""
}

// lustreBrick is a Lustre brick on a rack, with one client.
type lustreBrick struct {
	t    *testing.T
	spec string
}

// lustre runs a procedure with --yes.
func (b lustreBrick) lustre(words ...string) string {
	b.t.Helper()
	return must(b.t, b.args(words)...)
}

func (b lustreBrick) args(words []string) []string {
	n := 1
	switch words[0] {
	case "pool", "ost", "layout":
		n = 2
	}
	args := append(append([]string{"lustre"}, words[:n]...), b.spec)
	args = append(args, words[n:]...)
	switch words[n-1] {
	case "list", "show", "balance":
		return args
	}
	return append(args, "--yes")
}

// wants runs a procedure and checks its exit code: 1 failed, 2 refused.
func (b lustreBrick) wants(code int, words ...string) {
	b.t.Helper()
	if _, got := mortar(b.t, b.args(words)...); got != code {
		b.t.Errorf("mortar lustre %s: exit %d, want %d", strings.Join(words, " "), got, code)
	}
}

// on runs a script on a node of the rack.
func (b lustreBrick) on(host, script string) string {
	b.t.Helper()
	return must(b.t, "rack", "ssh", b.spec, host, "--", script)
}

// has checks that a command's output contains words.
func (b lustreBrick) has(text string, words ...string) {
	b.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			b.t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

// applied checks that another apply changes nothing.
func (b lustreBrick) applied() {
	b.t.Helper()
	unchanged(b.t, "apply", b.spec, "--yes", "--json", "--skip-fence-test")
}

// TestLustre deploys lustre-small and runs every procedure of mortar lustre.
func TestLustre(t *testing.T) {
	b := lustreBrick{t, deploy(t, smallLustre(t))}
	b.pools()
	b.drain()
	b.lfsck()
	b.fsck()
	b.writeconf()
	b.retire()
	b.applied()
}

func (b lustreBrick) pools() {
	b.lustre("pool", "create", "fast", "OST0001")
	b.lustre("pool", "add", "fast", "0")
	b.has(b.lustre("pool", "list"), "disk (of the spec): small-OST0001", "fast: small-OST0000 small-OST0001")
	b.lustre("pool", "remove", "fast", "OST0000")
	b.wants(2, "pool", "add", "fast", "OST0002")
	b.wants(2, "pool", "destroy", "disk")
	b.on("node01", "mkdir /small/d /small/e")
	b.lustre("layout", "set", "d", "--pool", "fast", "--stripe-count", "1")
	b.wants(2, "layout", "set", "d", "--stripe-count", "3")
	b.has(b.lustre("layout", "show", "d"), "fast", "stripe_count:  1")
	if got := b.on("node01", "touch /small/d/f && lfs getstripe --stripe-index /small/d/f"); strings.TrimSpace(got) != "1" {
		b.t.Errorf("a file of a directory with a pool of OST0001 is on OST %s", got)
	}
	b.lustre("pool", "create", "slow", "OST0000")
	b.lustre("pool", "destroy", "slow")
	if out := b.lustre("pool", "list"); strings.Contains(out, "slow") {
		b.t.Errorf("the pool is still there:\n%s", out)
	}
}

// drain moves files off an OST and compares their contents.
func (b lustreBrick) drain() {
	b.on("node01", `cd /small/e && lfs setstripe --stripe-index 0 --stripe-count 1 . &&
		for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of="f $i" bs=64k count=4 status=none || exit 1; done; sync; md5sum * > /tmp/sums`)
	b.wants(2, "ost", "retire", "OST0000")
	b.has(b.lustre("ost", "drain", "OST0000"), "no new files")
	if got := b.on("node01", "cd /small/e && md5sum --quiet --check /tmp/sums && lfs find /small --ost 0 --type f | wc -l"); strings.TrimSpace(got) != "0" {
		b.t.Errorf("files on the OST that was drained: %s", got)
	}
	b.wants(2, "ost", "drain", "OST0001")
	b.lustre("ost", "fill", "OST0000")
	b.has(b.lustre("balance"), "small-MDT0000", "small-OST0000", "small-OST0001")
}

// lfsck finds a file whose name is damaged, and repairs it.
//
// Source: OBD_FAIL_LFSCK_LINKEA_CRASH, lustre-release, lustre/tests/sanity-lfsck.sh, test 2a
func (b lustreBrick) lfsck() {
	b.has(b.lustre("lfsck", "--only-look"), "namespace: ", "layout: ", " 0 inconsistencies found")
	b.on("mds01", "lctl set_param fail_loc=0x1603")
	b.on("node01", "touch /small/e/damaged; sync")
	b.on("mds01", "lctl set_param fail_loc=0")
	b.wants(1, "lfsck", "--only-look")
	b.has(b.lustre("lfsck"), " 1 inconsistencies repaired, 0 left")
	b.has(b.lustre("lfsck", "--only-look"), "namespace: ", " 0 inconsistencies found")
}

// fsck finds a wrong link count in the inode of lost+found, which nothing reads, and repairs
// it.
func (b lustreBrick) fsck() {
	b.on("oss01", `dev=$(findmnt --noheadings --output SOURCE --mountpoint /lustre/small-OST0000) &&
		set -- $(debugfs -R 'imap <11>' "$dev" 2> /dev/null | tr -d , | sed -n 's/.*located at block \([0-9]*\) offset \(0x[0-9a-f]*\).*/\1 \2/p') &&
		echo "inode 11 of $dev: block $1, offset $2" && printf '\011' | dd of="$dev" bs=1 seek=$(($1 * 4096 + $2 + 26)) conv=notrunc,fsync status=none`)
	b.wants(1, "fsck", "OST0000", "--only-look")
	b.lustre("fsck", "OST0000")
	b.lustre("fsck", "OST0000", "--only-look")
	b.on("node01", "cd /small/e && md5sum --quiet --check /tmp/sums")
}

// writeconf keeps files, and also pools that the spec does not have.
func (b lustreBrick) writeconf() {
	b.wants(2, "writeconf")
	b.on("node01", "umount /small")
	b.lustre("writeconf")
	b.has(b.lustre("pool", "list"), "disk (of the spec): small-OST0001", "fast: small-OST0001")
	must(b.t, "apply", b.spec, "--yes", "--skip-fence-test")
	b.on("node01", "cd /small/e && md5sum --quiet --check /tmp/sums")
	b.applied()
}

// retire closes an OST for good: no new file gets objects on it.
func (b lustreBrick) retire() {
	b.wants(2, "ost", "retire", "OST0001") // it has files
	b.lustre("ost", "drain", "OST0000")
	b.lustre("ost", "retire", "OST0000")
	b.has(b.lustre("balance"), "small-OST0001")
	if got := b.on("node01", "mkdir /small/g && cd /small/g && touch 1 2 3 4 && lfs getstripe --stripe-index . 1 2 3 4 | sort -u"); strings.Contains(got, "\n0\n") {
		b.t.Errorf("new files are on OST0000, which is retired:\n%s", got)
	}
}
