#!/bin/bash
# Prints the path of a program, for tests. Where it is not installed, it is taken
# out of its Debian package, into the cache: installed, many packages would run a
# daemon on this machine.
#
#   debian-program.sh PROGRAM PACKAGE...     the first of these packages that there is
set -euo pipefail
program=$1; shift
command -v "$program" && exit 0
tool="${XDG_CACHE_HOME:-$HOME/.cache}/mortar/tools/$program"
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
  mkdir -p "$(dirname "$tool")"
  install -m 755 "root/usr/bin/$program" "$tool.new"
  mv "$tool.new" "$tool"
fi
echo "$tool"
