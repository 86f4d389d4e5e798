//go:build rack

package rack_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fencedBoot watches a server that is fenced and boots as Debian does: by GRUB, with Debian's
// kernel and an initial RAM disk of all drivers, which sees every shared disk. Its partner
// meanwhile writes to the RAID 6, and to the mirrors of the cache's SSDs. The fenced server,
// nfs1, must assemble none of them at any time since power-on. crash has it fenced, and
// returns when it is back. MORTAR_TEST_SUITE=bookworm tests Debian 12.
func fencedBoot(t *testing.T, spec string, crash func()) {
	on := func(node, command string) string {
		t.Helper()
		return must(t, "rack", "ssh", spec, node, "--", command)
	}
	began := on("nfs1", "cat /proc/sys/kernel/random/boot_id")
	// The mirrors take small writes, the RAID 6 large ones.
	on("c1", "setsid sh -c '"+writer+"' > /dev/null 2>&1 < /dev/null & sleep 1")
	crash()
	before := on("c1", "cat /root/rounds")
	if on("nfs1", "cat /proc/sys/kernel/random/boot_id") == began {
		t.Fatal("nfs1 did not boot")
	}
	booted(t, on)
	// The load still runs, and the arrays are unchanged.
	on("c1", "until [ $(cat /root/rounds) -gt $(("+strings.TrimSpace(before)+"+2)) ]; do sleep 1; done; touch /root/stop; until [ -e /root/stopped ]; do sleep 1; done")
	superblocks(t, on)
	on("c1", "cd /mnt/home && echo 3 > /proc/sys/vm/drop_caches && sha256sum --quiet -c /root/sums")
	must(t, "status", spec)
}

// writer writes small and large blocks until the test stops it, and records what must be read
// back. It rests between its rounds, so that the servers have the emulated processors.
const writer = `cd /mnt/home; n=0; head -c 16M /dev/urandom > /root/data
dd if=/root/data of=small bs=1M count=8 conv=fsync
until [ -e /root/stop ]; do
  n=$((n+1)); echo $n > /root/rounds
  dd if=/root/data of=large bs=1M conv=notrunc,fsync
  for i in 1 2 3 4 5 6 7 8; do dd if=/root/data of=small bs=4k count=1 skip=$(((n*37+i*501)%4096)) seek=$(((n*53+i*211)%2048)) conv=notrunc oflag=dsync; done
  sleep 2
done
sync; sha256sum large small > /root/sums; touch /root/stopped`

var (
	assembled = regexp.MustCompile(`md/raid|\bmd[0-9_]\S*: |md: .*(resync|recovery|bind)|bcache: (register|bch)`)
	attached  = regexp.MustCompile(`\[sd[a-z]+\] Attached SCSI disk`)
	ssd       = regexp.MustCompile(` nvme\d+n1: p1 p2`)
)

// booted checks the journal of the fenced server since power-on.
func booted(t *testing.T, on func(node, command string) string) {
	t.Helper()
	if line := on("nfs1", "cat /proc/cmdline"); !strings.Contains(line, "BOOT_IMAGE=/vmlinuz") {
		t.Errorf("GRUB did not load the kernel: %s", line)
	}
	// The last pattern is what the initial RAM disk logs while it waits for the root device.
	if md := on("nfs1", "cat /proc/mdstat; mdadm --assemble --scan --no-degraded 2>&1; cat /proc/mdstat"); regexp.MustCompile(`(?m)^md\S+ :`).MatchString(md) {
		t.Errorf("the fenced server has arrays:\n%s", md)
	}
	journal := on("nfs1", "journalctl --boot --no-pager --output short-monotonic")
	early, _, ok := strings.Cut(journal, "running in system mode")
	if !ok {
		t.Error("the journal does not say when the initial RAM disk gave way to systemd")
	}
	// 6 disks with two paths each.
	if n := len(attached.FindAllString(early, -1)); n != 12 {
		t.Errorf("the initial RAM disk saw %d paths to shared disks, want 12", n)
	}
	if n := len(ssd.FindAllString(early, -1)); n != 2 {
		t.Errorf("the initial RAM disk saw %d SSDs with partitions of the cache, want 2", n)
	}
	for line := range strings.Lines(journal) {
		if assembled.MatchString(line) {
			t.Errorf("the fenced server touched an array: %s", strings.TrimSpace(line))
		}
	}
}

// sample prints a line for each array, and one for each member: the array, the member's state,
// and its superblock.
const sample = `for a in /sys/block/md*/md; do
  echo "array $(cat $a/level) $(cat $a/degraded 2>/dev/null || echo 0) $(cat $a/sync_action 2>/dev/null || echo idle)"
  for m in $a/dev-*; do echo "$a $(cat $m/state) $(mdadm --examine /dev/${m##*/dev-} | grep -E 'Events|Array State' | tr -s ' \n' ' ')"; done
done`

// superblocks checks the arrays on the server that runs them: every member is in place, all
// have the same count of events, and nothing is or was resynchronized. A sample taken while
// md updates superblocks shows two counts, so a sample that differs is repeated.
func superblocks(t *testing.T, on func(node, command string) string) {
	t.Helper()
	var out string
	for range 10 {
		if out = on("nfs2", sample); len(differentEvents(out)) == 0 {
			break
		}
	}
	if d := differentEvents(out); len(d) > 0 {
		t.Errorf("members count different events: %v\n%s", d, out)
	}
	arrays := map[string]int{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if f[0] == "array" {
			arrays[f[1]]++
			if f[2] != "0" || f[3] != "idle" {
				t.Errorf("an array is not whole and idle: %s", line)
			}
		} else if f[1] == "spare" && len(f) > 2 {
			continue // what its superblock says follows from the others
		} else if f[1] != "in_sync" || !regexp.MustCompile(`Array State : A+ `).MatchString(line) {
			t.Errorf("a member is missing: %s", line)
		}
	}
	// The system disks are a mirror, too.
	if arrays["raid6"] != 1 || arrays["raid1"] != 2 {
		t.Errorf("nfs2 does not run the RAID 6 and the mirror of the cache:\n%s", out)
	}
	// The takeover itself repairs parity where the crash may have left it stale. That was
	// done, or had begun, before the fenced server had a kernel.
	since := strings.TrimSpace(on("nfs1", "sed -n 's/^btime //p' /proc/stat"))
	if log := on("nfs2", "journalctl --boot --dmesg --no-pager --since @"+since); strings.Contains(log, "md: resync of") || strings.Contains(log, "md: recovery of") {
		t.Errorf("arrays were synchronized after the fenced server had booted:\n%s", log)
	}
}

// differentEvents returns the counts of events of arrays whose members differ.
func differentEvents(sample string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(sample) {
		if array, rest, ok := strings.Cut(line, " "); ok && array != "array" {
			_, count, _ := strings.Cut(rest, "Events : ")
			count, _, _ = strings.Cut(count, " ")
			if !slices.Contains(all[array], count) {
				all[array] = append(all[array], count)
			}
		}
	}
	maps.DeleteFunc(all, func(_ string, counts []string) bool { return len(counts) == 1 })
	return all
}
