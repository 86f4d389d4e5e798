package cld

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// message is a question of nfsd, and then the answer, with the layout of struct cld_msg
// (version 1) or struct cld_msg_v2.
//
// Source: include/uapi/linux/nfsd/cld.h of the kernel.
type message []byte

// What nfsd asks for.
const (
	create     = iota // write a client down
	remove            // drop a client
	check             // may this client reclaim? The kernel asks only if graceStart failed
	graceDone         // drop who has not reclaimed
	graceStart        // list who may reclaim
	getVersion
)

const (
	nameAt = 8 // after version, command, status and number of the question
	hashAt = nameAt + 2 + 1024
	size1  = hashAt
	size2  = hashAt + 1 + 32 // with the SHA-256 of the client's Kerberos principal
)

func (m message) command() byte { return m[1] }
func (m message) name() []byte  { return m[nameAt+2:][:binary.NativeEndian.Uint16(m[nameAt:])] }

// hash is empty for a client without Kerberos.
func (m message) hash() []byte {
	if len(m) < size2 {
		return nil
	}
	return m[hashAt+1:][:m[hashAt]]
}

// known says whether this is a message of the protocol.
func (m message) known() bool {
	if !(len(m) == size1 && m[0] == 1 || len(m) == size2 && m[0] == 2) {
		return false
	}
	if m.command() > check { // of no client
		return m.command() <= getVersion
	}
	return binary.NativeEndian.Uint16(m[nameAt:]) <= 1024 && (m[0] == 1 || m[hashAt] <= 32)
}

func (m message) answer(status unix.Errno) {
	binary.NativeEndian.PutUint16(m[2:], uint16(-int16(status)))
}

// about makes of a message one about a client: name and hash in hexadecimal digits.
func (m message) about(client string) {
	id, princhash, _ := strings.Cut(client, "|")
	name, _ := hex.DecodeString(id)
	clear(m[nameAt:])
	binary.NativeEndian.PutUint16(m[nameAt:], uint16(copy(m[nameAt+2:hashAt], name)))
	if len(m) == size2 {
		hash, _ := hex.DecodeString(princhash)
		m[hashAt] = byte(copy(m[hashAt+1:], hash))
	}
}

// epochs are the numbers of the present one, and of the one before while its clients may
// reclaim; else 0. The clients of each are a table.
type epochs struct{ current, recovery int64 }

func table(epoch int64) string { return fmt.Sprintf(`"rec-%016x"`, uint64(epoch)) }

// sql is what a message changes in the database, and then in e. To do it twice does no harm.
//
// Source: utils/nfsdcld/sqlite.c and nfsdcld.c of nfs-utils.
func (e *epochs) sql(m message) (text string) {
	switch command := m.command(); {
	case command != check && command != graceDone && command != graceStart:
	case e.recovery == 0:
		e.current, e.recovery = e.current+1, e.current
		text = fmt.Sprintf("UPDATE grace SET current = %d, recovery = %d;\nCREATE TABLE IF NOT EXISTS %s (id BLOB PRIMARY KEY, princhash blob);\nDELETE FROM %s;\n", e.current, e.recovery, table(e.current), table(e.current))
	case command == graceStart: // nfsd was stopped in a grace period
		text = fmt.Sprintf("DELETE FROM %s;\n", table(e.current))
	}
	switch m.command() {
	case create:
		hash := "NULL"
		if h := m.hash(); len(h) > 0 {
			hash = fmt.Sprintf("X'%x'", h)
		}
		text = fmt.Sprintf("INSERT OR REPLACE INTO %s VALUES (X'%x', %s);\n", table(e.current), m.name(), hash)
	case remove:
		text = fmt.Sprintf("DELETE FROM %s WHERE id = X'%x';\n", table(e.current), m.name())
	case check:
		text += fmt.Sprintf("INSERT OR REPLACE INTO %s (id) SELECT id FROM %s WHERE id = X'%x';\nSELECT changes();\n", table(e.current), table(e.recovery), m.name())
	case graceDone:
		text += fmt.Sprintf("UPDATE grace SET recovery = 0;\nDROP TABLE IF EXISTS %s;\nUPDATE parameters SET value = '0' WHERE key = 'first_time';\n", table(e.recovery))
		e.recovery = 0
	}
	return text
}
