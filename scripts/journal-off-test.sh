#!/bin/bash
# Tries scripts/journal-off.sh on loop devices, and reads the arrays back. Needs root, mdadm,
# sfdisk, python3, md, and 1.5 GB in /dev/shm; no Pacemaker may run. On a server of a rack whose
# brick is down:
#
#   cat scripts/journal-off.sh | mortar rack ssh brick.yaml nfs1 -- "cat > /tmp/journal-off.sh"
#   mortar rack ssh brick.yaml nfs1 -- "bash -s /tmp/journal-off.sh HOW" < scripts/journal-off-test.sh
#
# HOW is crash (the arrays were being written: the journals are replayed first), again (the program
# is run twice), killed (it is killed between removing a journal and telling md so) or dies (so does
# the server: then the program is told to use force).
set -euo pipefail
program=$1 how=$2
modprobe -a raid1 raid456 loop
dir=$(mktemp -d /dev/shm/journal-XXXXXX)
loops=()
cleanup() {
  mdadm --stop --quiet /dev/md/jr0 /dev/md/jr1 /dev/md/jj || true
  for l in "${loops[@]}"; do losetup -d "$l" || true; done
  rm -rf "$dir"
}
trap cleanup EXIT
attach() { loops=(); for f in "$@"; do loops+=("$(losetup --find --show "$dir/$f")"); done; }
copy() { for f in "$dir"/$1[ds]?; do cp --sparse=always "$f" "$dir/$2${f##*/$1}"; done; } # as a server's death leaves them
stop() { mdadm --stop --quiet /dev/md/jr0 /dev/md/jr1; mdadm --stop --quiet /dev/md/jj; for l in "${loops[@]}"; do losetup -d "$l"; done; }
uuid() { mdadm --detail "/dev/md/$1" | sed -n 's/ *UUID : //p'; }
write_config() {
  MORTAR_ETC=$dir python3 - "${loops[@]}" > "$dir/service-home.json" <<END
import json, sys
l = sys.argv[1:]
print(json.dumps({"journal": {"name": "jj", "uuid": "$(uuid jj)", "members": l[10:]}, "arrays": [
    {"name": "jr0", "uuid": "$(uuid jr0)", "journal": 1, "members": l[:5]},
    {"name": "jr1", "uuid": "$(uuid jr1)", "journal": 2, "members": l[5:10]}]}))
END
}

truncate -s 64M "$dir"/d{0..9}
truncate -s 300M "$dir"/s{0,1}
attach d{0..9} s0 s1
create() { mdadm --create "/dev/md/$1" --run --quiet --metadata=1.2 --homehost=any "${@:2}"; }
create jj --level=1 --raid-devices=2 --bitmap=internal --assume-clean "${loops[@]:10}"
printf 'label: gpt\n1 : start=1MiB, size=130MiB, type=linux-raid\n2 : size=130MiB, type=linux-raid\n' | sfdisk --quiet /dev/md/jj
part=$(readlink -f /dev/md/jj)p
until [ -b "${part}2" ]; do sleep 1; done
for i in 0 1; do
  create jr$i --level=6 --raid-devices=4 --spare-devices=1 --chunk=64 --bitmap=none --assume-clean "${loops[@]:5*i:5}" --write-journal "$part$((i+1))"
  dd if=/dev/urandom of="$dir/ref$i" bs=1M count=24 status=none
  dd if="$dir/ref$i" of=/dev/md/jr$i bs=1M oflag=direct status=none
done
copy "" c
write_config
stop
attach cd{0..9} cs0 cs1 # the same loop devices

case $how in
crash) ;;
again) MORTAR_ETC=$dir bash "$program" home ;;
killed|dies) # what journal-off.sh has done by then
  mdadm --assemble --quiet /dev/md/jj --run "${loops[@]:10}"
  part=$(readlink -f /dev/md/jj)p
  until [ -b "${part}1" ]; do sleep 1; done
  mdadm --assemble --quiet /dev/md/jr0 --run "${loops[@]:0:5}" "${part}1"
  mdadm --quiet /dev/md/jr0 --fail "${part}1"
  until mdadm --quiet /dev/md/jr0 --remove "${part}1"; do sleep 1; done
  if [ "$how" = dies ]; then
    copy c e
    mdadm --stop --quiet /dev/md/jr0
    mdadm --stop --quiet /dev/md/jj
    for l in "${loops[@]}"; do losetup -d "$l"; done
    attach ed{0..9} es0 es1
  fi ;;
esac
if [ "$how" = dies ]; then
  if MORTAR_ETC=$dir bash "$program" home; then
    echo "an array whose journal is missing was started without force" >&2
    exit 1
  fi
  MORTAR_ETC=$dir bash "$program" home force
else
  MORTAR_ETC=$dir bash "$program" home
fi

for i in 0 1; do
  for l in "${loops[@]:5*i:5}"; do
    if mdadm --examine "$l" | grep 'Feature Map : 0x[2-9a-f]0'; then
      echo "$l still has the journal's mark" >&2
      exit 1
    fi
  done
  mdadm --assemble --quiet /dev/md/jr$i --run "${loops[@]:5*i:5}"
  md=/sys/block/$(basename "$(readlink -f /dev/md/jr$i)")/md
  wrong=$(cmp -n $((24<<20)) -l /dev/md/jr$i "$dir/ref$i" | wc -l)
  until [ "$(cat $md/sync_action)" = idle ]; do sleep 1; done
  echo check > $md/sync_action
  until [ "$(cat $md/sync_action)" = idle ]; do sleep 1; done
  echo "$how, array $i: $wrong of $((24<<20)) bytes read wrong, mismatches $(cat $md/mismatch_cnt), policy $(cat $md/consistency_policy)"
done
