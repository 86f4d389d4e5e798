package spec

import "fmt"

// Memory of a server and a client in a scaled brick: enough to boot, to serve and
// to be a member of the cluster. Source: the rack's nodes, docs/rack.md.
const (
	scaledServer = 1280 * MiB
	// With one OST a server had 372 MiB of 1280 left, and it takes over a second one: a mount of an OST enlarges md's
	// stripe cache to 16384 entries, 256 MiB for four disks (Lustre 2.17.57).
	scaledLustre = 1536 * MiB
	scaledClient = 768 * MiB
	// A server with 480 paths to 240 disks in 24 arrays had 30 MiB of 1280 left, and commands
	// of LVM took over a minute.
	scaledDisk = 6 * MiB // for each disk that it sees
	// mostScale leaves less than a disk of anything.
	mostScale = 1_000_000
)

// leastArrayDisk leaves room for a target of Lustre next to what an array keeps for
// itself on each disk, half a GiB.
const leastArrayDisk = GiB

// leastSSD is the smallest SSD that has room for a cache's metadata.
const leastSSD = GB

// Scaled says that the sizes are not those of the spec.
func (s *Spec) Scaled() bool { return s.scaled }

// Scale makes the brick smaller for a virtual rack, in place: disks and SSDs
// have 1/by of their size in whole MiB, machines the memory that a node of the
// rack needs, SSDs of a cache what its metadata needs; LNet speaks TCP unless
// rack.rdma asks for Soft RoCE. Numbers of things, and how they are connected, stay.
func (s *Spec) Scale(by int64) error {
	if by < 1 || by > mostScale {
		return fmt.Errorf("scale 1/%d: want 1/1 to 1/%d", by, mostScale)
	}
	if by == 1 {
		return nil
	}
	s.scaled = true
	shrink := func(lists []DiskList, least Bytes) {
		for i := range lists {
			lists[i].Size = max(lists[i].Size/Bytes(by)/MiB*MiB, least)
		}
	}
	seen := Bytes(0)
	for i := range s.Enclosures {
		if s.Enclosures[i].Array == "" {
			for _, l := range s.Enclosures[i].Disks {
				serials, _ := l.Serials() // parsing has refused errors
				seen += Bytes(len(serials))
			}
		}
		least := Bytes(MiB)
		if s.Flavour == Lustre && s.Enclosures[i].Array != "" {
			least = leastArrayDisk
		}
		shrink(s.Enclosures[i].Disks, least)
	}
	if s.Lustre != nil && s.Rack.RDMA != "on" {
		s.Lustre.LNET = "tcp" // Debian's kernel for clouds, which boots faster, has no Soft RoCE
	}
	if s.Cache != nil {
		shrink(s.Cache.SSDs, leastSSD)
	}
	if p := s.Preparation; p != nil { // a node has no room for the swap of real volumes
		small := *p
		small.Swap, s.Preparation = 0, &small
	}
	server := scaledServer
	if s.Flavour == Lustre {
		server = scaledLustre
	}
	server += seen * scaledDisk
	for i := range s.Servers {
		s.Servers[i].Memory = max(s.Servers[i].Memory/Bytes(by), server)
	}
	for i := range s.Clients {
		s.Clients[i].Memory = max(s.Clients[i].Memory/Bytes(by), scaledClient)
	}
	return nil
}
