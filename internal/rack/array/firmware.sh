r() { MDADM_NO_UDEV=1 $b chroot /ro "$@"; }
dev() { set -- /sys/class/scsi_device/$(($1 / 128)):0:$(($1 % 128)):0/device/block/sd*; d=/dev/${1##*/}; [ -b "$d" ]; }
devs() { o=; for s in "$@"; do dev $s && o="$o $d"; done; }
group() {
  g=$1 level=$2 count=$3 chunk=$4 size=$5; shift 5
  if [ -e /rw/group$g ]; then
    read slots < /rw/group$g; devs $slots
    r /sbin/mdadm --assemble /dev/md$g --run --quiet $o
  else
    devs "$@"
    r /sbin/mdadm --create /dev/md$g --level=$level --raid-devices=$count --chunk=$chunk --assume-clean --bitmap=internal \
      --metadata=1.2 --data-offset=1M --size=$size --homehost=any --name=g$g --run --quiet $o && echo "$*" > /rw/group$g
  fi
}
members() { # of group: noted
  l=; for s in $slotlist; do dev $s && [ -e /sys/block/${d##*/}/holders/md$1 ] && l="$l $s"; done
  echo $l > /rw/group$1.new && $b mv /rw/group$1.new /rw/group$1
}
spare() { for s in $sparelist; do dev $s && { set -- /sys/block/${d##*/}/holders/*; [ -e $1 ] || return 0; }; done; return 1; }
heal() {
  for m in $grouplist; do
    r /sbin/mdadm /dev/md$m --fail detached --remove detached --quiet
    read degraded < /sys/block/md$m/md/degraded
    [ $degraded = 0 ] && continue
    read count < /sys/block/md$m/md/raid_disks
    while set -- /sys/block/md$m/md/dev-*; [ $# -lt $count ] && spare; do
      r /sbin/mdadm --zero-superblock --quiet $d 2> /dev/null
      r /sbin/mdadm /dev/md$m --add --quiet $d || return 1
    done
    members $m
  done
}
arrived() { # slot: a disk that comes back is blank to the array
  n=0; until dev $1; do n=$((n+1)); [ $n -gt 100 ] && return 1; $b usleep 50000; done
  set -- /sys/block/${d##*/}/holders/*
  [ -e $1 ] || r /sbin/mdadm --zero-superblock --quiet $d 2> /dev/null
  return 0
}
lun() { # index group offset sectors
  eval "lun$1='$2 $3 $4'"
  r /sbin/dmsetup create lun$1 --noudevsync --noudevrules --table "0 $4 linear /dev/md$2 $3"
}
table() { # index table
  r /sbin/dmsetup load lun$1 --table "$2" && r /sbin/dmsetup suspend --noflush --nolockfs lun$1 && r /sbin/dmsetup resume --noudevsync lun$1
}
slow() { # index milliseconds; an unmirrored cache is written before, and gone
  [ ! -e /dev/mapper/below$1 ] || flushed $1
  eval "set -- $1 $2 \$lun$1"
  t="linear /dev/md$3 $4"; [ $2 -gt 0 ] && t="delay /dev/md$3 $4 $2"
  table $1 "0 $5 $t"
}
unmirrored() { # index: dm-64 and on are the LUNs below their caches
  eval "set -- $1 \$lun$1"
  [ -b /dev/ram0 ] || $b modprobe brd rd_nr=64 rd_size=$cacheKiB || return 1
  read major < /sys/block/dm-$1/dev
  r /sbin/dmsetup create below$1 --major ${major%:*} --minor $((64 + $1)) --noudevsync --noudevrules --table "0 $4 linear /dev/md$2 $3" && empty $1
}
empty() { # index: its cache begins anew
  eval "set -- $1 \$lun$1"
  $b dd if=/dev/zero of=/dev/ram$1 bs=4096 count=1 2> /dev/null && table $1 "0 $4 writecache s /dev/dm-$((64 + $1)) /dev/ram$1 4096 0"
}
flushed() { for i in "$@"; do r /sbin/dmsetup message lun$i 0 flush || return 1; done; }
own() { # index controller flush|lose: what the unmirrored cache of the controller before has
  eval "was=\$own$1 own$1=$2"
  [ "${was:-$2}" = $2 ] && return
  eval "set -- $1 $3 \$lun$1"
  [ $2 = lose ] || flushed $1 || return 1
  table $1 "0 $5 linear /dev/md$3 $4" && empty $1
}
alua() { # index controller state
  f=$core/iblock_$1/lun$1/alua/c$2/alua_access_state
  read now < $f; [ $now = $3 ] || { echo $3 > $f || echo failed > /run-alua; } &
}
alua_ok() { [ ! -e /run-alua ] || { $b rm /run-alua; return 1; }; }
state() {
  for m in $grouplist; do
    cd /sys/block/md$m/md; read a < array_state; read d < degraded; read s < sync_action; read c < sync_completed
    echo "group $m $a $d $s $c"
    read c < mismatch_cnt; echo "differ $m $c"
    read c < /rw/group$m; echo "in $m $c"
  done
  cd /
}
compare() { # group on|off: refused while the group rebuilds, which it hurries
  cd /sys/block/md$1/md
  case $2 in
  on) echo 1000000 > sync_speed_max; echo 0 > sync_min && echo check > sync_action;;
  off) echo system > sync_speed_max; read s < sync_action; [ $s != check ] || echo idle > sync_action;;
  esac
  set -- $?; cd /; return $1
}
expose() { # index serial company
  p=$core/iblock_$1/lun$1
  $b mkdir -p $p; echo udev_path=/dev/dm-$1 > $p/control; echo 1 > $p/enable
  echo $vendor > $p/wwn/vendor_id; echo $product > $p/wwn/product_id; echo $revision > $p/wwn/revision
  echo 0x$3 > $p/wwn/company_id; echo $2 > $p/wwn/vpd_unit_serial
  $b mkdir $p/alua/c0 $p/alua/c1
  for c in 0 1; do
    a=$p/alua/c$c
    echo $(($c + 1)) > $a/tg_pt_gp_id; echo 1 > $a/alua_access_type; echo 0 > $a/nonop_delay_msecs; echo $transition > $a/trans_delay_msecs
  done
}
portal() { # controller address
  p=$target/tpgt_$(($1 + 1))
  $b mkdir -p $p/np/$2:3260
  echo 0 > $p/attrib/authentication; echo 0 > $p/attrib/generate_node_acls
  echo 262144 > $p/param/MaxRecvDataSegmentLength; echo 262144 > $p/param/FirstBurstLength; echo No > $p/param/InitialR2T
}
map() { # controller index number initiators
  p=$target/tpgt_$(($1 + 1)) c=$1 i=$2 n=$3; shift 3
  m=; for w in "$@"; do m="$m $p/acls/$w/lun_$n"; done
  $b mkdir -p $p/lun/lun_$n $m
  $b ln -s $core/iblock_$i/lun$i $p/lun/lun_$n/lun$i; echo c$c > $p/lun/lun_$n/alua_tg_pt_gp
  for m in $m; do $b ln -s $p/lun/lun_$n $m/lun; done
}
configure() { # line: done now, and at each boot; the power may be cut right after
  eval "$1" && echo "$1" >> /rw/more && $b sync
}
core=/sys/kernel/config/target/core
$b mkdir -p /lib /var /sbin /rw/target/pr
$b ln -s /bin/busybox /sbin/modprobe; $b ln -s /ro/lib/modules /lib/modules; $b ln -s /rw/target /var/target
for m in raid456 raid10 dm_delay dm_writecache target_core_iblock iscsi_target_mod; do $b modprobe $m || fail "module $m"; done
$b mount -t configfs none /sys/kernel/config
for d in dev proc sys; do $b mount -o bind /$d /ro/$d; done
$b mount -t tmpfs run /ro/run
$b mkdir -p $core/alua/lu_gps /sys/kernel/config/target/iscsi
$b stty -F /dev/ttyS1 raw -echo
echo $rebuild > /proc/sys/dev/raid/speed_limit_max
want=0; for w in $cmdline; do case $w in mortar.disks=*) want=${w#mortar.disks=};; esac; done
n=0; until set -- /sys/block/sd*; [ $# -ge $want ]; do n=$((n+1)); [ $n -gt 300 ] && break; $b usleep 100000; done
