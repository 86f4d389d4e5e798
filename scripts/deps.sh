#!/bin/bash
# Installs Debian packages from the host's own apt sources, and only what is missing.
# usage: deps.sh [rack|test|package|pages]: what the virtual rack needs, also what the tests
# need (default), also what the tests of the packages need; the browser alone
set -euo pipefail
packages=(
  qemu-system-x86 qemu-block-extra # the nodes; their disks (iSCSI)
  qemu-utils                    # tests: a client of the rack's disks
  mmdebstrap erofs-utils cpio zstd xz-utils busybox-static e2fsprogs # the node image
  iproute2 openssh-client       # networks of the rack; `mortar rack ssh`
  openipmi                      # virtual BMCs
  snmpd                         # virtual PDUs
  debian-archive-keyring ca-certificates
)
tests=(
  ipmitool snmp                 # clients of BMCs and PDUs
  mdadm lvm2 xfsprogs multipath-tools util-linux # superblocks the tests plant and read
  fio                           # a load engine that the tests run
  fence-agents                  # agents that a test runs against a service of its own
  sg3-utils                     # sg_ses, with which a test compares
  nftables                      # a firewall that a test opens, in a network namespace
  sqlite3                       # changes a database of nfsdcld
  gcc libc6-dev                 # the race detector
)
case ${1:-test} in
  rack) ;;
  test) packages+=("${tests[@]}") ;;
  package) packages+=("${tests[@]}" lintian rpm) ;;
  pages) packages=(chromium-headless-shell) ;;
  *) echo "deps.sh: $1: want rack, test, package or pages" >&2; exit 2 ;;
esac
missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ]; then
  echo "mortar: these Debian packages are missing; run as root: apt-get install ${missing[*]}" >&2
  exit 2
fi
echo "== installing ${#missing[@]} Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# The daemons these packages bring are run by the rack in its own network
# namespace, never by this machine's init: do not start them here.
if [ ! -e /usr/sbin/policy-rc.d ]; then
  printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
  chmod 755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
