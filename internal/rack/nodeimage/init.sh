#!/bin/sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
say() { read up idle < /proc/uptime; echo "MORTAR-RACK $1 $up" > /dev/console; }
fail() { say "failed: $1"; $b sleep 2; $b poweroff -f; }
read cmdline < /proc/cmdline
say kernel
case " $cmdline " in *" mortar.probe "*) $b poweroff -f;; esac
for m in @MODULES@; do $b insmod /m/$m || echo "MORTAR-RACK insmod $m failed" > /dev/console; done
mirror=
case " $cmdline " in *" mortar.mirror "*) mirror=yes;; esac
disks() {
  legs= count=0
  for d in /sys/block/vd*; do
    read serial < $d/serial
    case $serial in sys[01]-*) legs="$legs /dev/${d##*/}"; count=$((count+1));; esac
  done
  [ -b /dev/vda ] || return 1
  [ "$mirror" ] || { [ -b /dev/vdb ]; return; }
  # One that is out is waited for no longer than a second.
  [ $count -eq 2 ] || [ $count -eq 1 -a $n -gt 50 ]
}
n=0
until disks; do
  n=$((n+1)); [ $n -gt 500 ] && fail "no root disk"
  $b usleep 20000
done
$b mount -t erofs -o ro /dev/vda /ro || fail "mounting the root"
state=/dev/vdb
mdadm() { MDADM_NO_UDEV=1 $b chroot /ro /sbin/mdadm "$@"; }
blank() { for d in $legs; do mdadm --examine $d > /dev/null 2>&1 && return 1; done; [ $count -eq 2 ]; }
if [ "$mirror" ]; then
  state=/dev/md0
  for d in dev proc sys; do $b mount -o bind /$d /ro/$d; done
  $b mount -t tmpfs run /ro/run
  mdadm --assemble $state --run --quiet $legs 2> /dev/null ||
    { blank && mdadm --create $state --name=system --homehost=any --level=1 --raid-devices=2 --metadata=1.0 \
      --assume-clean --bitmap=internal --bitmap-chunk=64M --run --quiet $legs; } || fail "the system mirror"
  for d in dev proc sys run; do $b umount /ro/$d; done
  say mirror
fi
$b mount -t ext4 -o noatime $state /rw || fail "mounting the node's own disk"
case " $cmdline " in *" mortar.array "*)
  . /rw/array;;
esac
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work,redirect_dir=on,index=on,nfs_export=on root /new || fail "mounting the overlay"
[ -c /dev/loop-control ] || $b mknod -m 660 /dev/loop-control c 10 237
$b ip link set lo up
while read mac cidr mtu; do
  for d in /sys/class/net/*; do
    read m < $d/address
    [ "$m" = "$mac" ] || continue
    $b ip link set ${d##*/} mtu $mtu up
    $b ip addr add $cidr brd + dev ${d##*/}
  done
done < /rw/addresses
for d in dev proc sys; do $b mount --move /$d /new/$d; done
exec $b switch_root /new /lib/systemd/systemd
