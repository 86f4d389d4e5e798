// Package pkg tests the packages that `make package` makes: lintian, and a life
// in a root directory of their own. It holds tests only.
package pkg
