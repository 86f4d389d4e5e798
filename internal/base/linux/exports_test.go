package linux

import "testing"

func TestClientsOf(t *testing.T) {
	for clients, want := range map[string]ExportedTo{
		"*": ToAddresses, "10.0.0.0/8": ToAddresses, "10.1.2.3": ToAddresses, "10.0.0.0/255.0.0.0": ToAddresses, "fd00::1": ToAddresses,
		"build7": ToHost, "build7.example.org": ToHost, "10gate.example.org": ToHost,
		"@nodes": ToMatch, "*.example.org": ToMatch, "node?": ToMatch,
	} {
		if got := ClientsOf(clients); got != want {
			t.Errorf("%s: %d, want %d", clients, got, want)
		}
	}
}
