// Package examples holds the commented specs that `mortar init` prints, one
// per flavour, and specs of the real systems of the source papers. Only
// files live here; they are parsed by internal/brick/spec like any other.
package examples

import "embed"

// FS has every example, named <flavour>.yaml or after its system.
//
//go:embed *.yaml
var FS embed.FS
