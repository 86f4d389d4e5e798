package linux

import (
	"strconv"
	"strings"
)

// RPCCommand asks rpcbind of this host which program has which port.
var RPCCommand = []string{"rpcinfo", "-p"}

// ParseRPC reads what RPCCommand prints: the ports of each program, by its number and protocol
// ("100005 tcp"), each once.
//
//	program vers proto   port  service
//	 100005    3   tcp  20048  mountd
func ParseRPC(text string) map[string][]int {
	out := map[string][]int{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		port, err := strconv.Atoi(f[3])
		if err != nil {
			continue // the heading
		}
		key := f[0] + " " + f[2]
		if len(out[key]) == 0 || out[key][len(out[key])-1] != port {
			out[key] = append(out[key], port)
		}
	}
	return out
}
