#!/bin/bash
# How long each step takes, against the number of disks: for each number it builds a rack of
# nfs-ha with so many small sparse disks in six enclosures behind two paths, applies the spec
# twice, asks for the status, moves the service there and back, and takes the rack down.
# What the commands printed lies in OUT/DISKS; test/size makes the page and the plot of it.
# Usage (root): scripts/size.sh MORTAR [DISKS]...      DISKS is a multiple of 6, 240 at most
#   OUT=out/size   SIZE=320GB of each disk, of which the rack makes SCALE=1/1000   IOPS=0 of each disk; 125: a hard disk's 8 ms
#   LOCK= a file that is locked while a rack is up
set -euo pipefail
mortar=$(realpath "$1"); shift
[ $# -gt 0 ] || set -- 6 24 84
out=${OUT:-out/size}
mkdir -p "$out"; cd "$out"; here=$PWD
down() { "$mortar" rack down "$here/$n/brick.yaml" > /dev/null 2>&1 || true; }
timed() { # NAME COMMAND...: seconds and exit code into steps.tsv, output into NAME
  local name=$1 from=$EPOCHREALTIME code=0; shift
  "$@" > "$name" 2> "$name.err" < /dev/null || code=$?
  printf '%s\t%s\t%s\n' "$name" "$(bc <<< "$EPOCHREALTIME - $from")" $code | tee -a steps.tsv
}
spec() { # DISKS
  local data=8 each=$(($1 / 6)) width=${#1}
  [ "$1" -ge 10 ] || data=2
  "$mortar" init nfs-ha | sed "s/^name: .*/name: size$1/;
    s/data: 2 #/data: $data #/; s/spares: 2/spares: $(($1 % (data + 2)))/; /^enclosures:/,/^storage:/{/^storage:/!d}
    s/^storage:/enclosures:\n$(for e in A B C D E F; do
      printf '  - name: %s\\n    disks: [{serial: "%s[%0*d-%0*d]", size: %s, type: nl-sas}]\\n' $e $e "$width" 1 "$width" "$each" "${SIZE:-320GB}"
    done)\n\nstorage:/
    s/^rack:.*/&\n  iops: ${IOPS:-0}/"
}
trap down EXIT
for n in "$@"; do
  [ -z "${LOCK:-}" ] || { exec 9> "$LOCK"; flock 9; }
  mkdir -p "$n"; cd "$n"; rm -f ./*.tsv
  spec "$n" > brick.yaml
  uptime > begin
  timed rack-up "$mortar" rack up brick.yaml --sparse --scale "${SCALE:-1/1000}"
  timed apply "$mortar" apply brick.yaml --yes --skip-fence-test --json
  timed apply-again "$mortar" apply brick.yaml --yes --skip-fence-test --json
  timed status "$mortar" status brick.yaml --json
  timed move "$mortar" failover brick.yaml --json
  timed status-moved "$mortar" status brick.yaml --json
  timed move-back "$mortar" failover brick.yaml --json
  for node in nfs1 nfs2; do
    "$mortar" rack ssh brick.yaml $node -- cat /run/mortar/ocf-home.log < /dev/null > agent-$node || true
  done
  timed rack-down "$mortar" rack down brick.yaml
  uptime > end
  cd ..
  [ -z "${LOCK:-}" ] || exec 9>&-
done
