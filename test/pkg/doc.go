// Package pkg tests the packages that `make package` builds: lintian, and installation, use
// and removal in a root directory of their own. It has tests only.
package pkg
