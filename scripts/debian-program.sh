#!/bin/bash
# Prints the path of a program, for tests. Where it is not installed, its Debian
# package is unpacked into the cache, and the path ends in /usr/bin/PROGRAM below
# that: installed, many packages would run a daemon on this machine.
#
#   debian-program.sh PROGRAM PACKAGE...     the first of these packages that there is
set -euo pipefail
program=$1; shift
command -v "$program" && exit 0
root="${XDG_CACHE_HOME:-$HOME/.cache}/mortar/tools/$program.d"
tool="$root/usr/bin/$program"
fetch() {
  for package in "$@"; do
    apt-get download -qq "$package" 2>> err && return
  done
  return 1
}
if [ ! -x "$tool" ]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  chmod 777 "$tmp" # apt downloads as a user of its own
  cd "$tmp"
  fetch "$@" || { apt-get update -qq && fetch "$@"; } || { cat err >&2; exit 1; }
  dpkg-deb -x *.deb root
  mkdir -p "$(dirname "$root")"
  rm -rf "$root" "$root.new"
  cp -a root "$root.new"
  mv "$root.new" "$root"
fi
echo "$tool"
