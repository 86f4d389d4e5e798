package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

// An agent that may only watch runs no action and reads no file that a caller names.
// Of programs it runs only those that show its journal.
func TestWatchCore(t *testing.T) {
	m := WatchCore()
	for op := range Core("") {
		switch op {
		case string(OpHello), string(OpTime), string(OpQuery), string(OpFollow):
			continue
		}
		if out, err := m[op](t.Context(), json.RawMessage("{}"), func(any) {}); out != nil || err == nil || !strings.Contains(err.Error(), "this key may only watch") {
			t.Errorf("%s is answered: %v, %v", op, out, err)
		}
	}
	ask := func(op string, argv ...string) error {
		b, err := json.Marshal(QueryParams{Argv: argv})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m[op](t.Context(), b, func(any) {})
		return err
	}
	for _, op := range []string{string(OpQuery), string(OpFollow)} {
		for _, argv := range [][]string{{"tail", "/etc/shadow"}, {"ls", "/root"}, {"journalctl", "--vacuum-size=1"}, {"journalctl", "--rot"},
			{"journalctl", "--cursor-fi=/etc/cron.d/x", "-n", "1"}, {"journalctl", "-D", "/root"}, {"crm_mon"}, nil} {
			if ask(op, argv...) == nil {
				t.Errorf("%s %v is answered", op, argv)
			}
		}
	}
	if err := ask(string(OpQuery), "ls", "-d", "/var/log/journal"); err != nil {
		t.Error(err)
	}
}
