#!/bin/bash
# Takes the write journals off the arrays of a service, which an earlier version gave them
# (docs/operations.md, "A write journal of an earlier version"). Runs as root on one server, while
# Pacemaker is stopped on both:
#
#   ssh root@nfs1 bash -s home < scripts/journal-off.sh
#
# Interrupted, it is run again. With "home force" it also takes an array that mdadm does not start
# because its journal is missing: only if the server died while this program ran, because nothing
# was written then.
set -euo pipefail
config=${MORTAR_ETC:-/etc/mortar}/service-$1.json force=${2:-}
if systemctl is-active --quiet pacemaker; then
  echo "Pacemaker runs on this server: stop it on both servers first" >&2
  exit 1
fi

# array NAME: its kernel name, if it runs here.
array() { [ ! -e "/dev/md/$1" ] || basename "$(readlink -f "/dev/md/$1")"; }

# has FILE WORD: whether a file of sysfs holds a word.
has() { [ "$(cat "$1")" = "$2" ]; }

take_off() { # NAME UUID NUMBER MEMBER...: the array's journal is that partition of the mirror
  local name=$1 uuid=$2 part=/dev/$(array "$mirror")p$3 md
  shift 3
  until [ -b "$part" ]; do sleep 1; done
  if [ -z "$(array "$name")" ]; then
    if ! mdadm --examine "$1" | grep -q 'Feature Map : 0x[2-9a-f]0'; then
      mdadm --assemble "/dev/md/$name" --uuid="$uuid" --run "$@"
    elif ! mdadm --assemble "/dev/md/$name" --uuid="$uuid" --run "$@" "$part"; then
      [ "$force" = force ] || exit 1
      mdadm --assemble "/dev/md/$name" --uuid="$uuid" --force --run "$@" # of one that is there, the journal is replayed above
    fi
  fi
  md=/sys/block/$(array "$name")/md
  if has "$md/consistency_policy" journal; then
    if ! has "$md/degraded" 0 || ! has "$md/sync_action" idle; then
      echo "array $name lacks a disk, or is being synchronized: stop here, mend that with the version that you have, and begin again" >&2
      exit 1
    fi
    if grep -qs journal "$md/dev-${part#/dev/}/state"; then
      mdadm "/dev/md/$name" --fail "$part"
      until mdadm "/dev/md/$name" --remove "$part"; do sleep 1; done
    fi
    echo resync > "$md/consistency_policy" # md allows it once no journal is there
    has "$md/array_state" readonly && mdadm --readwrite "/dev/md/$name"
  fi
  has "$md/consistency_policy" bitmap || mdadm --grow --bitmap=internal "/dev/md/$name"
}

groups=$(python3 -c '
import json, sys
c = json.load(open(sys.argv[1]))
for a in [c["journal"]] + c["arrays"]:
    print(a["name"], a["uuid"], a.get("journal", 0), *a["members"])' "$config")
mapfile -t lines <<< "$groups"
read -r mirror uuid _ members <<< "${lines[0]}"
[ -n "$(array "$mirror")" ] || mdadm --assemble "/dev/md/$mirror" --uuid="$uuid" --run $members
names=()
for line in "${lines[@]:1}"; do
  take_off $line < /dev/null
  names+=("/dev/md/${line%% *}")
done
mdadm --stop "${names[@]}"
mdadm --stop "/dev/md/$mirror"
echo "the arrays of $1 have no write journal any more; now take storage.journal out of the spec, and run mortar apply"
