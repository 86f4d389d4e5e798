package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// A brick none of whose hosts answers: mortar watch hands each finding to sendmail and
// to the program, and goes on when sendmail fails.
func TestWatchTells(t *testing.T) {
	dir := t.TempDir()
	src, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(src), "  user: root\n", "  user: root\n  known_hosts: known\n", 1)
	// Port 1 of addresses of this machine refuses at once.
	const inventory = `{"hosts": [{"name": "nfs1", "address": "127.77.3.11", "port": 1}, {"name": "nfs2", "address": "127.77.3.12", "port": 1}, {"name": "c1", "address": "127.77.3.51", "port": 1}]}`
	if err := os.MkdirAll(filepath.Join(dir, ".mortar/brick1/rack"), 0o700); err != nil {
		t.Fatal(err)
	}
	program := func(name, what string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte("#!/bin/sh\n"+what), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, data := range map[string]string{"brick.yaml": text, "known": "", ".mortar/brick1/rack/inventory.json": inventory} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := Watcher{Mail: "root", Interval: time.Second, Timeout: time.Second,
		Sendmail: program("sendmail", fmt.Sprintf("n=$(mktemp %s/mail.XXXXXX); echo \"$*\" > $n; cat >> $n; mv $n $n.done; echo 'relay refuses' >&2; exit 75\n", dir)),
		Notify:   program("page", fmt.Sprintf("n=$(mktemp %s/page.XXXXXX); echo \"$1\" > $n; cat >> $n; mv $n $n.done\n", dir))}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out bytes.Buffer
	c := &cli.Console{Env: &cli.Env{}, Out: &out}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, c, []string{filepath.Join(dir, "brick.yaml")}) }()
	// The mail of a finding comes after its page.
	var pages []string
	for len(pages) < 2 {
		select {
		case err := <-ended:
			t.Fatalf("it ends: %v\n%s", err, &out)
		case <-time.After(50 * time.Millisecond):
		}
		if pages, err = filepath.Glob(dir + "/page.*.done"); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	<-ended
	page, err := os.ReadFile(pages[0])
	if err != nil {
		t.Fatal(err)
	}
	words, object, _ := strings.Cut(string(page), "\n")
	var change struct{ Brick, Level, Text string }
	if err := json.Unmarshal([]byte(object), &change); err != nil || change.Brick != "brick1" || words != "brick1: "+change.Level+": "+change.Text {
		t.Errorf("%v\n%s", err, page)
	}
	mails, err := filepath.Glob(dir + "/mail.*.done")
	if err != nil || len(mails) == 0 {
		t.Fatal(err, mails)
	}
	subjects := map[string]bool{}
	for _, file := range mails {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		args, message, _ := strings.Cut(string(b), "\n")
		m, err := mail.ReadMessage(strings.NewReader(message))
		if args != "-i -- root" || err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		subject := m.Header.Get("Subject")
		subjects[subject] = true
		if !strings.HasPrefix(subject, "brick1: fault: ") && !strings.HasPrefix(subject, "brick1: warning: ") {
			t.Errorf("subject %q", subject)
		}
	}
	if !strings.Contains(fmt.Sprint(subjects), "brick1: fault: nfs1 (127.77.3.11:1): ") {
		t.Errorf("%v", subjects)
	}
	if !strings.Contains(out.String(), f.Sendmail+" ended with 75: relay refuses") {
		t.Errorf("%s", &out)
	}
}

// Messages that could reach no reader are refused before a spec is read.
func TestWatchRefuses(t *testing.T) {
	for _, f := range []Watcher{{Mail: "-oQ/tmp"}, {Mail: "root", Sendmail: "/none/sendmail"}, {Notify: "page"}, {Notify: "/etc/passwd"}} {
		f.Interval, f.Timeout = time.Second, time.Second
		if err := f.Run(t.Context(), &cli.Console{}, []string{"none.yaml"}); err == nil || strings.Contains(err.Error(), "none.yaml") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// A request that came off loopback has to name this machine too.
func TestWatchChecksHost(t *testing.T) {
	f := Watcher{Listen: "0.0.0.0:0", Names: []string{"wall.example.org"}}
	var out bytes.Buffer
	s, err := f.serve(nil, &printer{w: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"wall.example.org": http.StatusOK, own: http.StatusOK, "10.1.2.3": http.StatusOK, "evil.example": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/status.json", nil)
		r.Host = host + ":9880"
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
}
