package linux

import (
	"net/netip"
	"strings"
)

// ExportedTo is what the clients of an export are, by exports(5).
type ExportedTo int

const (
	// ToAddresses asks no name service: an address, a network, or everybody (*).
	ToAddresses ExportedTo = iota
	// ToHost is a host name. exportfs and rpc.mountd resolve it when they read the table, and
	// leave out one that does not resolve.
	ToHost
	// ToMatch is a netgroup (@…) or a name with wildcards. exportfs takes it as it is; while
	// the table has one, rpc.mountd asks the name service for each client that mounts, also
	// for those of other exports.
	ToMatch
)

// ClientsOf tells what the clients of an export are.
//
// Source: nfs-utils, support/export/client.c, client_gettype, client_lookup and client_resolve
func ClientsOf(clients string) ExportedTo {
	_, notAddress := netip.ParseAddr(clients)
	switch {
	case clients == "*" || notAddress == nil:
		return ToAddresses
	case strings.HasPrefix(clients, "@") || strings.ContainsAny(clients, "*?["):
		return ToMatch
	case strings.Contains(clients, "/"):
		return ToAddresses
	}
	return ToHost
}
