// Package stream is self-describing verified data and its ledger. Every
// 4 KiB block says which run, stream (file), block, generation and writer it
// comes from, its payload can be regenerated from these, and every sector
// carries a keyed tag, so that whatever is found on disk can be named: stale,
// misplaced, torn, of another run, corrupt in so many bits. The ledger says
// what was issued and what was acknowledged. Verify compares the two. Policy
// of I/O (which flags, when to sync, what to do on an error) does not belong
// here, nor does any network or host.
package stream

// BlockSize is the unit of everything here: one block, in bytes.
const BlockSize = 4096
