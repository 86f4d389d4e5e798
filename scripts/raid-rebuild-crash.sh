#!/bin/bash
# Shows what this host's kernel does with a RAID whose server dies while a disk is rebuilt
# (docs/ocf.md, "A crash during a rebuild"). Needs root, mdadm, md, and 250 MB in /dev/shm:
#
#   mortar rack ssh brick.yaml nfs1 -- "bash -s 10 dirty" < scripts/raid-rebuild-crash.sh
#
# raid-rebuild-crash.sh 10|6 dirty|clean|left-out: the array was being written or not; left-out
# is dirty, with the disk that was being rebuilt left out and added blank, as the agent does.
set -euo pipefail
level=$1 how=$2
modprobe -a raid10 raid456 loop
dir=$(mktemp -d /dev/shm/raid-XXXXXX)
array=/dev/md77 md=/sys/block/md77/md
loops=()
cleanup() {
  mdadm --stop --quiet "$array" || true
  for l in "${loops[@]}"; do losetup -d "$l" || true; done
  rm -rf "$dir"
}
trap cleanup EXIT
attach() { loops=(); for f in "$@"; do loops+=("$(losetup --find --show "$dir/$f")"); done; }

truncate -s 24M "$dir"/d{0..4}
attach d{0..4}
mdadm --create "$array" --run --quiet --level="$level" --raid-devices=4 --metadata=1.2 \
  --bitmap=internal --bitmap-chunk=1M --assume-clean "${loops[@]:0:4}"
head -c "$(blockdev --getsize64 "$array")" /dev/urandom > "$dir/ref"
dd if="$dir/ref" of="$array" bs=1M oflag=direct status=none
until mdadm --examine-bitmap "${loops[1]}" | grep -q ' 0 dirty'; do sleep 1; done

# A disk fails, its spare is rebuilt slowly, and the server dies: what is on its disks is copied.
echo 50 > $md/sync_speed_min
echo 50 > $md/sync_speed_max
mdadm --quiet "$array" --fail "${loops[0]}"
until mdadm --quiet "$array" --remove "${loops[0]}" 2> /dev/null; do sleep 1; done
mdadm --quiet "$array" --add "${loops[4]}"
sleep 2
if [ "$how" != clean ]; then
  echo 60 > $md/safe_mode_delay # it stays dirty
  dd if="$dir/ref" of="$array" bs=4k count=1 conv=notrunc oflag=direct status=none
  sleep 1
fi
for i in 1 2 3 4; do cp "$dir/d$i" "$dir/c$i"; done
mdadm --stop --quiet "$array"
for l in "${loops[@]}"; do losetup -d "$l"; done

# Another server starts it.
attach c{1..4}
echo 1 > /sys/module/md_mod/parameters/start_dirty_degraded
if [ "$how" = left-out ]; then
  mdadm --assemble --run --quiet "$array" "${loops[@]:0:3}"
  mdadm --zero-superblock "${loops[3]}"
  mdadm --quiet "$array" --add "${loops[3]}"
else
  mdadm --assemble --run --quiet "$array" "${loops[@]}"
fi
echo 0 > /sys/module/md_mod/parameters/start_dirty_degraded
until [ "$(cat $md/degraded)" = 0 ] && [ "$(cat $md/sync_action)" = idle ]; do sleep 1; done
echo 3 > /proc/sys/vm/drop_caches
echo "RAID $level, $how: $(cmp -l "$array" "$dir/ref" | wc -l) of $(stat -c %s "$dir/ref") bytes read wrong"
