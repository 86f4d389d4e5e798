package nfs

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

func TestGoneClient(t *testing.T) {
	const info = `clientid: 0x9ad2c4e06929f5a8
address: "10.88.16.2:1022"
status: courtesy
seconds from last renew: 61
name: "Linux NFSv4.1 \x22a\x5cb\x22"
minor version: 1
callback state: DOWN
`
	const name = `Linux NFSv4.1 "a\b"`
	for what, c := range map[string]struct {
		info string
		want string
	}{
		"dead for two leases":      {info, name},
		"not long enough":          {strings.Replace(info, "renew: 61", "renew: 60", 1), ""},
		"its state may be taken":   {strings.Replace(info, "courtesy", "expirable", 1), name},
		"alive":                    {strings.Replace(info, "courtesy", "confirmed", 1), ""},
		"a kernel without a state": {strings.Replace(info, "status: courtesy\n", "", 1), ""},
		"no name":                  {strings.Replace(info, "name: ", "nom: ", 1), ""},
		"half a name":              {strings.Replace(info, `\x22"`, `\x2`, 1), ""},
	} {
		got, gone := goneClient(c.info, 60)
		if gone != (c.want != "") || gone && string(got) != c.want {
			t.Errorf("%s: %q %v", what, got, gone)
		}
	}
}

// The database is one that nfsdcld of Debian 13 would read: it is changed by sqlite3.
func TestForgetGone(t *testing.T) {
	dir := t.TempDir()
	s := New(&unit.Host{K: kernel.New(), Log: &unit.Steps{Action: "start", Stderr: io.Discard, Now: time.Now}}, &NFSService{StateDir: dir}, "", nil)
	for _, d := range []string{"/mortar", "/nfsdcld"} {
		if err := os.Mkdir(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sql := func(text string) string {
		t.Helper()
		out, err := exec.Command("sqlite3", filepath.Join(dir, "nfsdcld/main.sqlite"), text).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	list := func() {
		t.Helper()
		if err := os.WriteFile(s.goneFile(), []byte("7 6465616427 131 140\n9 00ff\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	forget := func() {
		t.Helper()
		if err := s.Nfsd.forgetGone(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.goneFile()); !os.IsNotExist(err) {
			t.Error("the list is left:", err)
		}
	}
	forget() // no client is gone
	list()
	forget() // no database
	// Source: sqlite_maindb_init_v4 of utils/nfsdcld/sqlite.c.
	sql(`CREATE TABLE parameters (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE grace (current INTEGER , recovery INTEGER);
CREATE TABLE "rec-0000000000000001" (id BLOB PRIMARY KEY, principal BLOB);
CREATE TABLE "rec-000000000000000a" (id BLOB PRIMARY KEY, principal BLOB);
INSERT INTO "rec-0000000000000001" VALUES (CAST('dead''' AS BLOB), NULL), (CAST('alive' AS BLOB), NULL);
INSERT INTO "rec-000000000000000a" VALUES (CAST('dead''' AS BLOB), NULL), (X'00ff', NULL), (CAST('alive' AS BLOB), X'01');`)
	list()
	forget()
	sql(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 399)
INSERT INTO "rec-000000000000000a" SELECT CAST('c' || i AS BLOB), NULL FROM n;`)
	if err := os.MkdirAll(dir+notifyDir+"/sm.bak/10.0.0.9", 0o755); err != nil {
		t.Fatal(err)
	}
	// 399 and the one that is alive, in two epochs, and one of NFSv3.
	if got := s.Nfsd.reclaimSeconds(t.Context()); got != 40 {
		t.Errorf("a grace period of %d s", got)
	}
	sql(`DELETE FROM "rec-000000000000000a" WHERE hex(id) LIKE '63%';`)
	if got := sql(`SELECT hex(id) FROM "rec-0000000000000001"; SELECT hex(id), hex(principal) FROM "rec-000000000000000a";`); got != "616C697665\n616C697665|01\n" {
		t.Errorf("left: %q", got)
	}
}
