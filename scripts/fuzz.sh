#!/bin/bash
# fuzz.sh DURATION: runs every fuzz target of the repository for DURATION each.
set -euo pipefail
for pkg in $(go list ./...); do
  for f in $(go test -list '^Fuzz' "$pkg" 2>/dev/null | grep '^Fuzz' || true); do
    echo "== $pkg $f"
    go test -run '^$' -fuzz "^$f\$" -fuzztime "${1:-30s}" "$pkg"
  done
done
