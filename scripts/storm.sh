#!/bin/bash
# Thousands of NFS clients and a crash: builds a rack of nfs-ha whose public network has room
# for them, runs test/storm on this machine in a network namespace that is plugged into it,
# and panics the active server. For each round it prints the program's figures (JSON), and
# keeps what the servers said in OUT.
# Usage (root): scripts/storm.sh MORTAR STORM ["CLIENTS NFS3 BUSY DEAD DEAD3"]...
#   OUT=out/storm   MEMORY=2560MiB of each server   SETTLE=75 seconds that the dead are dead
set -euo pipefail
mortar=$(realpath "$1") storm=$(realpath "$2"); shift 2
[ $# -gt 0 ] || set -- "100 10 3 1 0" "500 50 12 5 0" "2000 200 50 20 0"
out=${OUT:-out/storm} settle=${SETTLE:-75} ns=mortar-storm-clients
mkdir -p "$out"; cd "$out"
[ -e brick.yaml ] || "$mortar" init nfs-ha | sed "s/^name: .*/name: storm/; s/memory: 1280MiB/memory: ${MEMORY:-2560MiB}/
  s#10\.77\.1\.0/24#10.88.0.0/16#; s/10\.77\.1\./10.88.1./; s/10\.77\./10.78./" > brick.yaml
clients=
down() {
  [ -z "$clients" ] || kill "$clients" 2>/dev/null || true
  ip netns del $ns 2>/dev/null || true
  "$mortar" rack down brick.yaml
}
trap down EXIT
node() { local n=$1; shift; timeout 120 "$mortar" rack ssh brick.yaml "$n" -- "$@" < /dev/null; }
seen='uname -r; cat /proc/fs/nfsd/threads; grep -E "MemTotal|MemAvailable|^Slab" /proc/meminfo; grep TCP: /proc/net/sockstat; echo "neighbours $(ip neigh | wc -l)"; echo "clients of NFSv4 $(ls /proc/fs/nfsd/clients | wc -l)"; wc -lc /var/lib/nfs/mortar/*; nstat -az TcpExtListenDrops; uptime'

"$mortar" rack up brick.yaml
"$mortar" apply brick.yaml --yes --skip-fence-test > apply.log
ip netns add $ns
ip -n mortar-storm link add clients type veth peer name storm0 netns $ns
ip -n mortar-storm link set clients master br-public up
ip -n $ns link set lo up
ip -n $ns addr add 10.88.15.1/16 dev storm0
ip -n $ns link set storm0 up
active=nfs1 other=nfs2
for round in "$@"; do
  read -r n nfs3 busy dead dead3 <<< "$round"
  to=$n-dead$dead-$dead3
  ip netns exec $ns "$storm" -server 10.88.1.100 -export /srv/home/data \
    -interface storm0 -first 10.88.16.0 -clients "$n" -nlm "$nfs3" -busy "$busy" -dead "$dead" -dead-nlm "$dead3" -settle "${settle}s" > "$to.json" 2> "$to.log" &
  clients=$!
  until grep -q ' ready$' "$to.log"; do
    kill -0 $clients 2>/dev/null || { cat "$to.log"; exit 1; }
    sleep 1
  done
  node $active "$seen" > "$to.before" || true
  "$mortar" rack fault brick.yaml panic $active
  code=0; wait $clients || code=$?
  clients=
  echo "== $round, code $code"; cat "$to.json"
  node $other "$seen" > "$to.after" || true
  node $other "dmesg | tail -60; journalctl -b --no-pager -t mortar-watch | tail -60; cat /run/mortar/ocf-home.log" > "$to.server" || true
  node $other "rm -f /srv/home/data/storm*"
  [ "$round" = "${!#}" ] && break
  until node $other crm_mon -1 2>/dev/null | grep -q 'Online: .*nfs1.*nfs2'; do sleep 3; done
  "$mortar" apply brick.yaml --yes --skip-fence-test > apply.log
  read -r active other <<< "$other $active"
done
