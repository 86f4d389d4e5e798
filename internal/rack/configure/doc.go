// Package configure executes the scripts that configure RAID arrays and RAID cards, as
// `mortar array script` prints them: of SMcli, of the CLI of an ME4, of perccli and of
// omconfig. It knows the commands that these scripts use, refuses what the vendors'
// manuals say that their tools refuse, and says what the array then has: groups, LUNs,
// spares. The rack makes its arrays of that.
//
// No vendor's firmware ran here. docs/rack.md has the manual of each rule.
package configure
