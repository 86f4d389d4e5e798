package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/run/observe"
)

// at is the health of a brick with one part at a level.
func at(level observe.Level, text string) *observe.Status {
	return &observe.Status{Brick: "brick1", Level: level, Parts: []*observe.Part{{Name: "RAID", Level: level,
		Parts: []*observe.Part{{Name: "brick1-r0", Level: level, Text: text, Mend: "replace the disk"}}}}}
}

// A Brick reports a finding when two looks agree, again when it gets worse, and
// when it ends. A finding of a single look is not reported.
func TestChanges(t *testing.T) {
	b := New("brick1", nil, nil)
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		status *observe.Status
		want   string
	}{
		{at(observe.OK, ""), ""},
		{at(observe.Fault, "late once"), ""},
		{at(observe.OK, ""), ""},
		{at(observe.Warning, "a rebuild, 1 %"), ""},
		{at(observe.Warning, "a rebuild, 2 %"), "brick1: warning: a rebuild, 2 %"},
		{at(observe.Warning, "a rebuild, 3 %"), ""},
		{at(observe.Fault, "degraded"), "brick1: fault: degraded"},
		{at(observe.OK, ""), ""},
		{at(observe.Fault, "degraded"), ""},
		{at(observe.OK, ""), ""},
		{at(observe.OK, ""), "brick1: over: degraded"},
		{at(observe.OK, ""), ""},
	} {
		var got []string
		for _, c := range b.take(now.Add(time.Duration(i)*time.Second), Look{Status: step.status}, nil) {
			got = append(got, c.String())
		}
		if strings.Join(got, "\n") != step.want {
			t.Errorf("look %d: %q, want %q", i, got, step.want)
		}
	}
	if v := b.View(); len(v.Changes) != 3 || v.Changes[0].Part != "RAID / brick1-r0" || v.Looked.Unix() != 1011 || v.Changes[0].Time.Unix() != 1003 || v.Changes[1].Time.Unix() != 1006 || v.Changes[2].Time.Unix() != 1010 {
		t.Errorf("%+v", v)
	}
}

// Throughput is measured between looks at the same server. A move or a boot resets
// the counters and gives no throughput.
func TestRate(t *testing.T) {
	b := New("brick1", nil, nil)
	for i, tr := range []Traffic{{Service: "home", Server: "nfs1", Read: 100, Written: 1000}, {Service: "home", Server: "nfs1", Read: 300, Written: 5000},
		{Service: "home", Server: "nfs2", Read: 9000, Written: 90000}, {Service: "home", Server: "nfs2", Read: 1, Written: 1}, {Service: "home", Server: "nfs2", Read: 21, Written: 1}} {
		b.take(time.Unix(int64(1000+2*i), 0), Look{Status: at(observe.OK, ""), Traffic: []Traffic{tr}}, nil)
	}
	var got []float64
	for _, p := range b.View().Points {
		got = append(got, p.Read, p.Written)
	}
	if want := []float64{100, 2000, 0, 0, 0, 0, 10, 0}; !equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func equal(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A brick that does not answer shows the error, and keeps its last state.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	looks := 0
	b := New("brick1", func(context.Context) (Look, error) {
		looks++
		switch looks {
		case 1:
			return Look{Status: at(observe.OK, ""), Hosts: 3, Silent: map[string]string{"c1": "no answer within 30s"}}, nil
		case 3:
			stop()
		}
		return Look{}, errors.New("the spec is gone")
	}, nil)
	b.Run(ctx, time.Millisecond)
	if v := b.View(); v.Error != "the spec is gone" || v.Status == nil || v.Hosts != 3 || v.Silent["c1"] == "" {
		t.Errorf("%+v", v)
	}
}

func TestHTTP(t *testing.T) {
	b := New("brick1", nil, nil)
	b.take(time.Unix(1000, 0), Look{Status: at(observe.Fault, "degraded"), Hosts: 2, Silent: map[string]string{`c"1`: "x"}}, nil)
	get := func(path, host string, names ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		Handler([]*Brick{b}, names).ServeHTTP(w, r)
		return w
	}
	for path, want := range map[string]string{"/": "<title>Mortar</title>", "/watch.js": "use strict", "/watch.css": "prefers-color-scheme", "/status.json": `"level":"fault"`,
		"/metrics": `mortar_watch_host_silent{brick="brick1",host="c\"1"} 1`} {
		if w := get(path, "127.0.0.1:9880"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d\n%s", path, w.Code, w.Body)
		}
	}
	// The handler refuses foreign names that resolve to this machine, and changes.
	for host, want := range map[string]int{
		"127.0.0.1:9880": http.StatusOK, "localhost": http.StatusOK, "10.1.2.3:9880": http.StatusOK, "[fd00::1]:9880": http.StatusOK, "[fd00::1]": http.StatusOK,
		"wall.example:9880": http.StatusOK, "WALL.example.": http.StatusOK,
		"evil.example:9880": http.StatusForbidden, "wall.example.evil.example": http.StatusForbidden, "10.1.2.3.evil.example": http.StatusForbidden, "wall": http.StatusForbidden, "": http.StatusForbidden,
	} {
		if w := get("/status.json", host, "wall.example", ""); w.Code != want {
			t.Errorf("%q: %d", host, w.Code)
		}
	}
	w := httptest.NewRecorder()
	Handler([]*Brick{b}, nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/status.json", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Error(w.Code)
	}
	var text bytes.Buffer
	Metrics(&text, views([]*Brick{b, New("brick2", nil, nil)}))
	for _, want := range []string{`mortar_status_level{brick="brick1",part="RAID"} 3`, `mortar_watch_looked_timestamp_seconds{brick="brick2"} 0`, "# TYPE mortar_watch_hosts gauge"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, &text)
		}
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "page")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$1\" > "+dir+"/words; cat > "+dir+"/json\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := Change{Brick: "brick1", Level: observe.Fault, Text: "nfs1's $(reboot) `x`"}
	if err := Command(t.Context(), program, c); err != nil {
		t.Fatal(err)
	}
	words, _ := os.ReadFile(filepath.Join(dir, "words"))
	json, _ := os.ReadFile(filepath.Join(dir, "json"))
	if string(words) != "brick1: fault: nfs1's $(reboot) `x`\n" || !strings.Contains(string(json), `"level":"fault"`) {
		t.Errorf("%s %s", words, json)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no >&2; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Command(t.Context(), program, c); err == nil || !strings.HasSuffix(err.Error(), " 3: no") {
		t.Error(err)
	}
}

// mta writes a program with the interface of sendmail: it keeps its arguments and its
// standard input, each in a file, and ends with a code.
func mta(t *testing.T, code int) (program string, got func() (args []string, text string)) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, "sendmail")
	text := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\0' \"$@\" > '%s/args'\ncat > '%s/mail'\necho relay refuses >&2\nexit %d\n", dir, dir, code)
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, func() ([]string, string) {
		args, err := os.ReadFile(filepath.Join(dir, "args"))
		text, err2 := os.ReadFile(filepath.Join(dir, "mail"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00"), string(text)
	}
}

// What sendmail gets is a message that every mail program reads: 7-bit text, short
// lines, one recipient as an argument of its own, and no header from a finding's words.
func TestMail(t *testing.T) {
	at := time.Date(2026, 11, 25, 3, 4, 5, 0, time.FixedZone("", 3600))
	for name, c := range map[string]struct {
		change        Change
		subject, body string
	}{
		"a fault": {Change{Time: at, Brick: "brick1", Part: "RAID / brick1-r0", Level: observe.Fault, Text: "disk MA01 has failed", Mend: "swap it"},
			"brick1: fault: disk MA01 has failed", "disk MA01 has failed\n\nswap it\n\nRAID / brick1-r0, seen 2026-11-25T03:04:05+01:00 by mortar watch\n"},
		"its end": {Change{Time: at, Brick: "brick1", Part: "RAID", Level: observe.Fault, Text: "degraded", Mend: "swap it", Ended: true},
			"brick1: over: degraded", "degraded\n\nRAID, seen 2026-11-25T03:04:05+01:00 by mortar watch\n"},
		"no ASCII": {Change{Time: at, Brick: "brick1", Part: "hardware", Level: observe.Warning, Text: "57 °C → " + strings.Repeat("ä", 30)},
			"brick1: warning: 57 °C → " + strings.Repeat("ä", 30), "57 °C → " + strings.Repeat("ä", 30) + "\n\nhardware, seen 2026-11-25T03:04:05+01:00 by mortar watch\n"},
		"what a header, sendmail or a shell would take apart": {Change{Time: at, Brick: "b", Part: "p", Level: observe.Fault, Text: "a\r\nBcc: x@example.org\n.\n$(reboot) `x` 'y' =20"},
			"b: fault: a Bcc: x@example.org . $(reboot) `x` 'y' =20", "a\nBcc: x@example.org\n.\n$(reboot) `x` 'y' =20\n\np, seen 2026-11-25T03:04:05+01:00 by mortar watch\n"},
		"a long one": {Change{Time: at, Brick: "b", Part: "p", Level: observe.Fault, Text: strings.Repeat("x", 2000)},
			"b: fault: " + strings.Repeat("x", 110) + "...", strings.Repeat("x", 2000) + "\n\np, seen 2026-11-25T03:04:05+01:00 by mortar watch\n"},
	} {
		program, got := mta(t, 0)
		if err := Mail(t.Context(), program, "root@example.org", c.change); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		args, text := got()
		if want := []string{"-i", "--", "root@example.org"}; !slices.Equal(args, want) {
			t.Errorf("%s: %q", name, args)
		}
		head := 200 // RFC 5322 allows 998
		for line := range strings.Lines(text) {
			if line == "\n" {
				head = 77
			}
			if len(line) > head || strings.ContainsFunc(line, func(r rune) bool { return r > 126 || r < 32 && r != '\n' }) {
				t.Errorf("%s: line %q", name, line)
			}
		}
		m, err := mail.ReadMessage(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		body, err2 := io.ReadAll(quotedprintable.NewReader(m.Body))
		date, err3 := m.Header.Date()
		if err := errors.Join(err, err2, err3); err != nil || subject != c.subject || strings.ReplaceAll(string(body), "\r\n", "\n") != c.body || !date.Equal(at) {
			t.Errorf("%s: %v, %v\nsubject %q\nwant    %q\n%q\n%q", name, err, date, subject, c.subject, body, c.body)
		}
		h := map[string]string{}
		for k, v := range m.Header {
			h[k] = strings.Join(v, ", ")
		}
		delete(h, "Subject")
		delete(h, "Date")
		want := map[string]string{"To": "root@example.org", "Auto-Submitted": "auto-generated", "Mime-Version": "1.0",
			"Content-Type": "text/plain; charset=utf-8", "Content-Transfer-Encoding": "quoted-printable"}
		if !maps.Equal(h, want) {
			t.Errorf("%s: %v", name, h)
		}
	}
	program, _ := mta(t, 75)
	if err := Mail(t.Context(), program, "root", Change{}); err == nil {
		t.Error(err)
	}
}

func TestRecipient(t *testing.T) {
	for to, want := range map[string]bool{"root": true, "hpc_admin-2": true, "root@example.org": true, "-oQ/tmp": false, "a b": false, "": false, "root@example.org\nBcc: x@y": false,
		"Root <root@example.org>": false, "a@b, c@d": false, "Root": false} {
		if Recipient(to) != want {
			t.Errorf("%q: %v", to, !want)
		}
	}
}
