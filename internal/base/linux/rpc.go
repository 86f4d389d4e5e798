package linux

import (
	"slices"
	"strings"
)

// RPCCommand asks rpcbind of this host which program has which port.
var RPCCommand = []string{"rpcinfo", "-p"}

// ParseRPC reads what RPCCommand prints: the ports of each program, by its number.
//
//	program vers proto   port  service
//	 100005    3   tcp  20048  mountd
func ParseRPC(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 4 && !slices.Contains(out[f[0]], f[3]) {
			out[f[0]] = append(out[f[0]], f[3])
		}
	}
	return out
}
