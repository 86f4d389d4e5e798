#!/bin/bash
# Measures what the cluster's part of a takeover costs this machine's processors,
# part by part: the Corosync, Pacemaker, fence agent and ipmitool of the rack's
# node image, in namespaces: two servers, two rings, a BMC for each (ipmi_sim),
# and cib.xml, the CIB of a brick with two services. A server's processes are
# stopped (SIGSTOP); its partner fences it and starts its service. Nothing else
# is real: the service and the watcher are a script that does nothing, the PDUs
# (not asked: the BMC answers) another, and a BMC has a server off and on at once.
# Corosync runs at real-time priority, and the image is in memory: nothing else
# should run on the machine.
# Usage (root): scripts/takeover/cluster.sh     RUNS=5 TOKEN=1000 (ms) KEEP=directory for the logs
set -euo pipefail
export TZ=UTC0 LC_ALL=C # of the servers' logs, too
here=$(realpath "$(dirname "$0")") runs=${RUNS:-5} token=${TOKEN:-1000}
image=$(ls -t ~/.cache/mortar/images/*/root.erofs 2>/dev/null | head -1 || true)
[ -n "$image" ] || { echo "cluster: there is no node image; 'mortar rack up' of any brick makes one" >&2; exit 2; }
dir=$(mktemp -d --tmpdir=/dev/shm)
lab='' bmcs=()
declare -A init=() # the first process of each server
in_lab() { nsenter -t "$lab" -n -- "$@"; }
down() {
  [ ${#init[@]} -gt 0 ] || return 0
  for n in "${!init[@]}"; do kill -KILL "${init[$n]}" 2>/dev/null || true; done
  wait "${init[@]}" 2>/dev/null || true
  init=()
  # The kernel removes a server's interfaces some seconds later.
  for link in $(in_lab ip -o link | grep -o ' s[12]-[0-9]*'); do in_lab ip link del "$link" 2>/dev/null || true; done
}
trap 'down; kill -KILL $lab "${bmcs[@]}" 2>/dev/null || true; wait 2>/dev/null; rm -rf "$dir"' EXIT

# The image, with the stand-ins in it.
fsck.erofs --extract="$dir/root" "$image" >/dev/null
ocf=$dir/root/usr/lib/ocf/resource.d/mortar
mkdir -p "$ocf" "$dir/root/etc/mortar/secrets"
cat > "$ocf/service" <<'AGENT'
#!/bin/bash
at=/run/agent-$OCF_RESOURCE_INSTANCE
case $1 in
meta-data) cat <<XML
<?xml version="1.0"?>
<resource-agent name="${0##*/}" version="1"><version>1.1</version><longdesc lang="en">nothing</longdesc><shortdesc lang="en">nothing</shortdesc>
<parameters><parameter name="config"><content type="string"/></parameter><parameter name="configs"><content type="string"/></parameter></parameters>
<actions><action name="start" timeout="180s"/><action name="stop" timeout="180s"/><action name="monitor" timeout="60s" interval="10s" depth="0"/><action name="meta-data" timeout="5s"/></actions></resource-agent>
XML
;;
start) echo "$EPOCHREALTIME start $OCF_RESOURCE_INSTANCE" >> /run/events; : > "$at" ;;
stop) rm -f "$at" ;;
monitor) [ -e "$at" ] || exit 7 ;;
*) exit 3 ;;
esac
AGENT
cp "$ocf/service" "$ocf/watch"
# The agents' Python compiles nothing anew: the image has its cache, or makes it here.
chroot "$dir/root" python3 -m compileall -q /usr/share/fence >/dev/null 2>&1 || true
for n in nfs1 nfs2; do
  printf '#!/bin/sh\necho mortar\n' > "$dir/root/etc/mortar/secrets/fence-$n-bmc.sh"
done
mv "$dir/root/usr/sbin/fence_ipmilan" "$dir/root/usr/sbin/fence_ipmilan.real"
cat > "$dir/root/usr/sbin/fence_ipmilan" <<'AGENT'
#!/bin/bash
input=$(cat)
[[ $input != *action=metadata* ]] || exec /usr/sbin/fence_ipmilan.real <<< "$input"
echo "$EPOCHREALTIME fence-begin" >> /run/events
/usr/sbin/fence_ipmilan.real <<< "$input"; rc=$?
echo "$EPOCHREALTIME fence-end" >> /run/events
exit $rc
AGENT
cat > "$dir/root/usr/sbin/fence_apc_snmp" <<'AGENT'
#!/bin/bash
input=$(cat)
[[ $input$* != *metadata* ]] || cat <<XML
<?xml version="1.0"?>
<resource-agent name="fence_apc_snmp" shortdesc="nothing"><longdesc>nothing</longdesc><parameters/>
<actions><action name="on" automatic="0"/><action name="off"/><action name="reboot"/><action name="status"/><action name="monitor"/><action name="metadata"/></actions></resource-agent>
XML
exit 0
AGENT
chmod 755 "$ocf"/* "$dir/root/usr/sbin/"fence_{ipmilan,apc_snmp} "$dir/root/etc/mortar/secrets/"*
cat > "$dir/root/etc/corosync/corosync.conf" <<CONF
totem {
	version: 2
	cluster_name: brick1
	transport: knet
	crypto_cipher: aes256
	crypto_hash: sha256
	token: $token
	consensus: $((token / 2))
	link_mode: active
}
nodelist {
	node {
		name: nfs1
		nodeid: 1
		ring0_addr: 10.77.2.11
		ring1_addr: 10.77.1.11
	}
	node {
		name: nfs2
		nodeid: 2
		ring0_addr: 10.77.2.12
		ring1_addr: 10.77.1.12
	}
}
quorum {
	provider: corosync_votequorum
	two_node: 1
	wait_for_all: 1
}
logging {
	to_logfile: yes
	logfile: /run/corosync.log
	to_stderr: no
	to_syslog: no
	timestamp: hires
}
CONF
head -c 128 /dev/urandom > "$dir/root/etc/corosync/authkey"
chmod 400 "$dir/root/etc/corosync/authkey"

# The networks, and the BMCs beside them, have a namespace of their own.
unshare --net -- sleep infinity &
lab=$!
until [ "$(readlink /proc/$lab/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
in_lab ip link set lo up
for net in 1 2 3; do
  in_lab ip link add "net$net" type bridge
  in_lab ip link set "net$net" up
done
cat > "$dir/chassis" <<'CHASSIS'
#!/bin/bash
# chassis FILE [MC] get|set|check PARAMETER [VALUE]...: the power is what FILE says.
file=$1; shift
while [[ $1 != get && $1 != set && $1 != check ]]; do shift; done
op=$1; shift
while [ $# -gt 0 ]; do
  p=$1; shift
  case $op in
  get) if [ "$p" = power ]; then echo "power:$(<"$file")"; else echo "$p:0"; fi ;;
  *) [ "$op $p" != "set power" ] || echo "$1" > "$file"; shift ;;
  esac
done
CHASSIS
chmod 755 "$dir/chassis"
for n in 1 2; do
  in_lab ip addr add "10.77.3.2$n/24" dev net3
  echo 1 > "$dir/power$n"
  cat > "$dir/bmc$n" <<CONF
name "bmc$n"
set_working_mc 0x20
  startlan 1
    addr 10.77.3.2$n 623
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid 0000000000000000000000000a4d031$n
  endlan
  chassis_control "$dir/chassis $dir/power$n"
  startnow false
  user 1 false "" "" user 10 none md2 md5 straight
  user 2 true "mortar" "mortar" admin 10 none md2 md5 straight
CONF
  printf 'mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nsel_enable 0x20 1000 0x0a\nmc_enable 0x20\n' > "$dir/emu$n"
  mkdir "$dir/state$n"
  nsenter -t "$lab" -n -- ipmi_sim -c "$dir/bmc$n" -f "$dir/emu$n" -s "$dir/state$n" -n </dev/null >/dev/null 2>&1 &
  bmcs+=($!)
done

# server runs in the namespaces of a server as its first process. A panic that
# Pacemaker asks for must not reach this machine's kernel.
server() { # server NODE
  local up=$dir/$1/upper
  mount --make-rprivate /
  mkdir -p "$up" "$dir/$1/work" "$dir/$1/root"
  mount -t overlay overlay -o "lowerdir=$dir/root,upperdir=$up,workdir=$dir/$1/work" "$dir/$1/root"
  cd "$dir/$1/root"
  mount -t proc none proc
  mount --bind proc/sys proc/sys
  mount -o remount,bind,ro proc/sys
  mount --bind /dev/null proc/sysrq-trigger
  mount --rbind /dev dev
  mount -t tmpfs none dev/shm
  mount --bind "$dir/$1/run" run
  mount -t tmpfs none tmp
  hostname "$1"
  exec chroot . bash -c 'mkdir -p /run/lock /run/crm /var/lib/corosync /var/lib/pacemaker/{cib,pengine,cores,blackbox}
    chown -R hacluster:haclient /var/lib/pacemaker /run/crm
    export PCMK_logfile=/run/pacemaker.log PCMK_logfacility=none PCMK_ipc_type=socket
    ip link set lo up
    corosync
    exec pacemakerd'
}
export -f server
export dir

up() {
  for n in 1 2; do
    rm -rf "$dir/nfs$n"; mkdir -p "$dir/nfs$n/run"
    unshare --net --uts --ipc --pid --fork --mount --kill-child -- bash -c "sleep 1; server nfs$n" </dev/null >"$dir/nfs$n/out" 2>&1 &
    init[nfs$n]=$!
    child=
    for _ in $(seq 100); do child=$(pgrep -P "${init[nfs$n]}") && break; sleep 0.05; done
    [ -n "$child" ] || { cat "$dir/nfs$n/out" >&2; echo "cluster: nfs$n does not start" >&2; exit 1; }
    for net in 1 2 3; do
      in_lab ip link add "s$n-$net" type veth peer name "eth$net" netns "$child"
      in_lab ip link set "s$n-$net" master "net$net" up
      nsenter -t "$child" -n ip addr add "10.77.$net.1$n/24" dev "eth$net"
      nsenter -t "$child" -n ip link set "eth$net" up
    done
    eval "child$n=$child"
    echo 1 > "$dir/power$n"
  done
}
on() { local n=$1; shift; eval "nsenter -t \$child$n -a -r -w -- \"\$@\""; }
wait_for() { # wait_for SECONDS WHAT COMMAND...
  local t=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $t ] || { on 2 crm_mon -1 -r >&2 || true; tail -n 20 "$dir"/nfs*/out "$dir"/nfs*/run/*.log >&2; echo "cluster: $what: not within its time" >&2; exit 1; }
    sleep 0.5
  done
}
both_online() { on 2 crm_mon -1 | grep -q 'Online: \[ nfs1 nfs2 \]'; }
all_started() { local s; s=$(on 2 crm_mon -1 -r) && ! grep -qE 'Stopped|Starting|FAILED|UNCLEAN' <<< "$s" && [ "$(grep -c 'Started nfs' <<< "$s")" -eq "$1" ]; }
started_there() { grep -q 'start service-home' "$dir/nfs2/run/events"; }
# at PATTERN SINCE: when nfs2's corosync wrote it first since then; seconds of the epoch.
at() {
  local month day clock rest s
  while read -r month day clock rest; do
    s=$(date -d "$month $day $clock" +%s.%N)
    if [[ $rest == *"$1"* && ${s/./} > ${2/./}000 ]]; then echo "$s"; return; fi
  done < "$dir/nfs2/run/corosync.log"
}

cib() { # cib SERVICES: one service, or both
  if [ "$1" = 2 ]; then cat "$here/cib.xml"; else
    sed -e '/<primitive id="service-scratch"/,/<\/primitive>/d' -e '/<rsc_location id="locate-service-scratch-/,/<\/rsc_location>/d' \
      -e '/service-scratch/d' -e '/pcmk_delay_base/d' "$here/cib.xml"
  fi
}

for services in 1 2; do
  for i in $(seq "$runs"); do
    echo "cluster: $services service(s), $i of $runs" >&2
    up
    wait_for 60 "both servers online" both_online
    cib "$services" > "$dir/nfs2/run/cib.xml"
    on 2 cibadmin --replace --scope configuration --xml-file /run/cib.xml >/dev/null
    wait_for 60 "all resources started" all_started $((services + 4))
    sleep 5 # Pacemaker is at rest
    : > "$dir/nfs2/run/events"
    stopped=$(pgrep --ns "$child1" --nslist pid)
    t0=$EPOCHREALTIME
    # shellcheck disable=SC2086
    kill -STOP $stopped
    wait_for 60 "service-home on nfs2" started_there
    silence=$(at 'A processor failed' "$t0") membership=$(at 'A new membership' "$t0")
    [ -n "$silence" ] && [ -n "$membership" ] || { echo "cluster: Corosync's log does not tell of the loss" >&2; exit 1; }
    awk -v s="$services" -v t0="$t0" -v a="$silence" -v b="$membership" '
      /fence-begin/ && !c { c = $1 } /fence-end/ { d = $1 } /start service-home/ { e = $1 }
      END {
        printf "%s silence %.3f\n%s membership %.3f\n%s decision %.3f\n%s agent %.3f\n%s start %.3f\n%s all %.3f\n",
          s, a - t0, s, b - a, s, c - b, s, d - c, s, e - d, s, e - t0
      }' "$dir/nfs2/run/events" >> "$dir/found"
    [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP"; cp -a "$dir/nfs2/run" "$KEEP/$services-$i"; }
    down
  done
done
awk -v title="seconds, token $token ms: services, part, median of $runs runs (least to most)" -f "$here/medians.awk" "$dir/found"
