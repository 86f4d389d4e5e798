package nfs

import "testing"

// rpc.statd and sm-notify have a block and an inode for each client. The blocks that mkfs.ext4
// leaves free were counted: see stateBytes.
func TestStateSize(t *testing.T) {
	for clients, want := range map[int]int64{0: 32 << 20, FewClients: 32 << 20, FewClients + 1: 128 << 20, 10_000: 128 << 20} {
		c := &NFSService{NFS: NFS{Clients: clients}}
		free := map[int64]int{32 << 20: 6447, 128 << 20: 28116}[want]
		if got := c.stateSize(); got != want || 2*clients > free {
			t.Errorf("%d clients: %d bytes, want %d, with %d free blocks", clients, got, want, free)
		}
	}
}
