package paper

import "github.com/mortarhpc/mortar/internal/brick/spec"

// Failure is a row of a paper's table of failures.
type Failure struct {
	What string // fails
	Must string // what the paper says happens then
	Time string // that it publishes for that; "": none
	// Drills stand for it, by name of drill; any of them does.
	Drills []string
	Here   string // what is otherwise here by design; "": nothing
}

// FailureTable is what a paper says of the failures of its systems.
type FailureTable struct {
	Title, Source string
	Rows          []Failure
}

// Failures gives the table for bricks of a flavour; one without rows if no
// paper has any.
func Failures(f spec.Flavour) FailureTable {
	switch f {
	case spec.NFSHA, spec.NFSHAXL:
		return nssFailures
	case spec.Lustre:
		return lustreFailures
	}
	return FailureTable{}
}

// Times are of 4.3.2, where the paper gives them for these tests together.
var nssFailures = FailureTable{Title: "Table 10 of NSS-HA", Source: nss4 + ", 4.3.1 and 4.3.2", Rows: []Failure{
	{What: "one local disk of a server", Must: "the mirror of the system disks goes on", Drills: []string{"local-disk"}},
	{What: "one server", Must: "the passive server fences it and takes over", Time: "30 to 60 s", Drills: []string{"server-crash"}},
	{What: "power supply or power bus", Must: "each server goes on with its second supply", Drills: []string{"power-bus"}},
	{What: "fence device", Must: "the PDUs fence instead of the BMC", Time: "30 to 60 s", Drills: []string{"fence-device"}},
	{What: "one SAS cable or port", Must: "multipath goes on over the others", Drills: []string{"path-one"}},
	{What: "all SAS cables or cards of a server", Must: "the service moves, or a watchdog resets the server", Time: "3 to 8 min", Drills: []string{"paths-all"}},
	{What: "InfiniBand or 10 GbE link", Must: "the service moves", Time: "30 to 60 s", Drills: []string{"public-link"}},
	{What: "private switch", Must: "the service stays where it is; a second failure stops it", Drills: []string{"private-switch"},
		Here: "the cluster goes on over the public network"},
	{What: "heartbeat interface of the active server", Must: "the passive server fences it and takes over", Time: "30 to 60 s", Drills: []string{"heartbeat-link"},
		Here: "the second ring carries on and no server is fenced"},
	{What: "one RAID controller of the array", Must: "the other one serves, perhaps slower", Drills: []string{"controller-out", "controller"}},
}}

// The Lustre paper has no table; these are what its text says may fail.
var lustreFailures = FailureTable{Title: "Failures that the Lustre paper names", Source: lustre + ", sections 4.1, 4.2 and 9.0", Rows: []Failure{
	{What: "one server of a module", Must: "Heartbeat fences it over IPMI, and its partner mounts all targets", Drills: []string{"server-crash"}},
	{What: "one SAS link or HBA", Must: "multipath goes on over the others", Drills: []string{"path-one"}},
	{What: "one RAID controller of the array", Must: "the other one serves its virtual disks", Drills: []string{"controller-out", "controller"}},
	{What: "a disk of a RAID group", Must: "RAID 6 or 10 goes on without it", Drills: []string{"array-disk", "shared-disk"}},
	{What: "a takeover by hand", Must: "hb_takeover and hb_standby move the targets", Drills: []string{"failover", "standby"}},
}}
