#!/bin/bash
# Makes the Debian package and the RPM in out/package from bin/mortar.
# usage: package.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
export VERSION=$1 ARCH
ARCH=$(go env GOARCH)
out=out/package
rm -rf $out && mkdir -p $out/completion
MAN_DATE=$(git log -1 --format=%cI) go run -tags man -ldflags "-X main.version=$VERSION" ./cmd/mortar man $out/man
gzip -9n $out/man/*.1
for shell in bash:mortar zsh:_mortar fish:mortar.fish; do
  bin/mortar completion "${shell%:*}" > $out/completion/"${shell#*:}"
done
# Lintian wants Debian's form; the changes themselves are in the manual.
printf 'mortar (%s) unstable; urgency=medium\n\n  * See /usr/share/doc/mortar/manual and CHANGELOG.md of the source.\n\n -- Mortar <mortar@mortarhpc.example>  %s\n' "$VERSION" "$(git log -1 --format=%cD)" | gzip -9n > $out/changelog.gz
# What is linked into the program: a bill of materials, and each module's licence.
go build -C packaging -o ../bin/ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod github.com/goreleaser/nfpm/v2/cmd/nfpm
bin/cyclonedx-gomod bin -json -notimestamp -noserial -std -version "v$VERSION" -output $out/sbom.cdx.json bin/mortar
go version -m bin/mortar | awk '$1 == "dep" { print $2 }' | while read -r module; do
  dir=$(go list -m -f '{{.Dir}}' "$module")
  mkdir -p "$out/licenses/$module"
  find "$dir" -maxdepth 1 -type f -iregex '.*/\(licen[cs]e\|copying\|notice\)[^/]*' -exec install -m 0644 -t "$out/licenses/$module" {} +
  rmdir --ignore-fail-on-non-empty "$out/licenses/$module"
  [ -d "$out/licenses/$module" ] || { echo "package.sh: $module has no licence file" >&2; exit 1; }
done
install -D -m 0644 "$(go env GOROOT)/LICENSE" $out/licenses/go/LICENSE
for format in deb rpm; do
  bin/nfpm package --config packaging/nfpm.yaml --packager $format --target $out
done
