#!/bin/bash
# Prints the path of promtool, which tests the alert rules. Where it is not
# installed, it is taken out of its Debian package, into the cache: installed,
# the package prometheus would run a daemon on this machine.
set -euo pipefail
command -v promtool && exit 0
tool="${XDG_CACHE_HOME:-$HOME/.cache}/mortar/tools/promtool"
fetch() { # Debian 13 has a package of its own for it
  apt-get download -qq promtool 2> err || apt-get download -qq prometheus 2>> err
}
if [ ! -x "$tool" ]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  chmod 777 "$tmp" # apt downloads as a user of its own
  cd "$tmp"
  fetch || { apt-get update -qq && fetch; } || { cat err >&2; exit 1; }
  dpkg-deb -x prom*.deb root
  mkdir -p "$(dirname "$tool")"
  install -m 755 root/usr/bin/promtool "$tool.new"
  mv "$tool.new" "$tool"
fi
echo "$tool"
