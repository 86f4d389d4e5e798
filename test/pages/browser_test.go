//go:build pages

package pages

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// browser is a Chromium without a window, asked over the pipe of its debugger.
// Source: Chrome DevTools Protocol
type browser struct {
	t      *testing.T
	in     io.Writer
	out    *bufio.Reader
	id     int
	target string // session of the page that is open
	errors []string
}

// message is a command, its result or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func start(t *testing.T) *browser {
	t.Helper()
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Root has no sandbox of Chromium; the pages are Mortar's own.
	cmd := exec.Command("chromium-headless-shell", "--no-sandbox", "--remote-debugging-pipe", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: make test-pages installs it", err)
	}
	toR.Close()
	fromW.Close()
	b := &browser{t: t, in: toW, out: bufio.NewReader(fromR)}
	t.Cleanup(func() {
		toW.Close() // ends it
		_ = cmd.Wait()
	})
	var made struct{ TargetID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	var session struct{ SessionID string }
	b.do("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &session)
	b.target = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.do(domain+".enable", nil, nil)
	}
	return b
}

// read returns the next message, and keeps what the page's console got.
func (b *browser) read() message {
	b.t.Helper()
	line, err := b.out.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser has ended: %v", err)
	}
	line = bytes.TrimSuffix(line, []byte{0})
	var m struct {
		message
		Params struct {
			Type  string
			Entry struct{ Level, Text, URL string }
		} `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		b.t.Fatal(err)
	}
	switch p := m.Params; {
	case m.Method == "Runtime.exceptionThrown", m.Method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "warning"):
		b.errors = append(b.errors, "console: "+string(line))
	case m.Method == "Log.entryAdded" && (p.Entry.Level == "error" || p.Entry.Level == "warning"):
		b.errors = append(b.errors, "console: "+p.Entry.Text+" "+p.Entry.URL)
	}
	return m.message
}

// do has a command done, and decodes its result.
func (b *browser) do(method string, params, result any) {
	b.t.Helper()
	b.id++
	text, err := json.Marshal(message{ID: b.id, Session: b.target, Method: method, Params: params})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	for {
		m := b.read()
		if m.ID != b.id {
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
		return
	}
}

// view is how a page is looked at.
type view struct {
	width  int
	scheme string
}

// open loads a page at a width and in a colour scheme, and waits until ready, an expression, is true.
func (b *browser) open(url string, v view, ready string) {
	b.t.Helper()
	b.errors = nil
	phone := v.width < 600
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": v.width, "height": 900, "screenWidth": v.width, "screenHeight": 900, "deviceScaleFactor": 1, "mobile": phone}, nil)
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": v.scheme}}}, nil)
	b.do("Page.navigate", map[string]any{"url": url}, nil)
	b.eval(`new Promise((ok) => { const wait = () => document.readyState === "complete" && (`+ready+`) ? ok("") : setTimeout(wait, 20); wait(); })`, nil)
}

// eval returns the value of an expression.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%.80s: %s", expression, r.ExceptionDetails)
	}
	if value != nil {
		if err := json.Unmarshal(r.Result.Value, value); err != nil {
			b.t.Fatal(err)
		}
	}
}

// shoot writes the whole page as PNG.
func (b *browser) shoot(file string) {
	b.t.Helper()
	var r struct{ Data string }
	b.do("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.t.Error(fmt.Errorf("%s: %w", file, err))
	}
}
