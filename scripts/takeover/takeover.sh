#!/bin/bash
# Measures what a takeover costs a server of bare metal, step by step, where
# only an emulator is at hand. QEMU counts the instructions of the server's
# processor and makes its clock from them: 1 ns each (-icount shift=0), so the
# server measures itself as a processor that does 10^9 instructions a second
# would. While the processor waits for a disk the clock is the host's; the disks
# are files in memory.
# The rack's node image runs the agent on md, LVM, XFS and nfsd: one server
# writes and loses its power; the next one takes the service over, stops it and
# starts it again, writes and loses its power: RUNS times (5).
# Usage (root): scripts/takeover/takeover.sh MORTAR
set -euo pipefail
mortar=$(realpath "$1") here=$(realpath "$(dirname "$0")") runs=${RUNS:-5}
image=$(dirname "$(ls -t ~/.cache/mortar/images/*/root.erofs 2>/dev/null | head -1)")
[ -e "$image/vmlinux" ] || { echo "takeover: there is no node image; 'mortar rack up' of any brick makes one" >&2; exit 2; }
dir=$(mktemp -d --tmpdir=/dev/shm)
trap 'rm -rf "$dir"' EXIT

# layer makes the disk that the initrd mounts over the image; the first program
# of the server is ours.
layer() { # layer NODE WHAT
  local up=$dir/layer/upper
  rm -rf "$dir/layer"
  mkdir -p "$dir/layer/work" "$up"/{takeover,etc/mortar,etc/lvm,usr/lib/systemd,usr/local/sbin,usr/lib/ocf/resource.d/mortar}
  echo "$1" > "$up/etc/hostname"
  echo "$2" > "$up/takeover/what"
  printf 'global {\n\tsystem_id_source = "uname"\n}\n' > "$up/etc/lvm/lvmlocal.conf"
  cp "$here/service-home.json" "$up/etc/mortar/"
  cp "$mortar" "$up/usr/local/sbin/mortar"
  ln -s /usr/local/sbin/mortar "$up/usr/lib/ocf/resource.d/mortar/service"
  install -m 755 "$here/init" "$up/usr/lib/systemd/systemd"
  : > "$dir/layer/addresses"
  truncate -s 256M "$dir/vdb"
  mkfs.ext4 -qF -d "$dir/layer" "$dir/vdb"
}

boot() { # boot NODE WHAT: until the power goes
  layer "$1" "$2"
  local disks=() d
  for d in 0 1 2 3; do disks+=(-drive "if=virtio,format=raw,cache=unsafe,file=$dir/disk$d"); done
  timeout 900 qemu-system-x86_64 -nodefaults -display none -M q35 -accel tcg -icount shift=0 -cpu max,-cx16,-la57 -m 1280 -no-reboot \
    -kernel "$image/vmlinux" -initrd "$image/initrd.img" -serial "file:$dir/console" \
    -append 'console=ttyS0 quiet mitigations=off nokaslr norandmaps audit=0 raid=noautodetect net.ifnames=0 apparmor=0' \
    -drive "if=virtio,format=raw,readonly=on,file=$image/root.erofs" \
    -drive "if=virtio,format=raw,cache=unsafe,file=$dir/vdb" "${disks[@]}"
  grep -q TAKEOVER-DONE "$dir/console" || { tail -40 "$dir/console" >&2; echo "takeover: $2 on $1 failed" >&2; exit 1; }
  # The serial line ends lines with a carriage return.
  tr -d '\r' < "$dir/console" | sed -n 's/^TAKEOVER //p' >> "$dir/found"
}

for d in 0 1 2 3; do truncate -s 1G "$dir/disk$d"; done
boot nfs1 build
for i in $(seq "$runs"); do
  node=nfs$((i % 2 + 1))
  echo "takeover: $node, $i of $runs" >&2
  boot "$node" start
done
# Each line found is KIND, STEP, SECONDS, in the order of a run.
awk -v title="seconds on a processor of 10^9 instructions a second: median of $runs runs (least to most)" -f "$here/medians.awk" "$dir/found"
