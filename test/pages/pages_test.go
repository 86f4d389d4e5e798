//go:build pages

package pages

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/watch"
)

//go:embed wrong.js
var wrong string

// views are a desk's screen and a phone.
var views = []view{{1440, "light"}, {1440, "dark"}, {390, "light"}, {390, "dark"}}

// page is a page of Mortar's; it is drawn when ready is true.
type page struct{ name, url, ready string }

// TestPages opens each page in each view. What it saw is in out/pages.
func TestPages(t *testing.T) {
	b := start(t)
	shots, err := filepath.Abs("../../out/pages")
	if err == nil {
		err = os.MkdirAll(shots, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(reports(t), wall(t)) {
		for _, v := range views {
			t.Run(fmt.Sprintf("%s %d %s", p.name, v.width, v.scheme), func(t *testing.T) {
				b.open(p.url, v, p.ready)
				b.eval(`document.querySelectorAll("details").forEach((d) => d.open = true)`, nil)
				b.shoot(filepath.Join(shots, fmt.Sprintf("%s-%d-%s.png", p.name, v.width, v.scheme)))
				var found []string
				b.eval(wrong, &found)
				for _, w := range append(found, b.errors...) {
					t.Error(w)
				}
			})
		}
	}
}

// reports are the golden pages of package report, and that of a drill that ran on a rack.
func reports(t *testing.T) []page {
	t.Helper()
	files, err := filepath.Glob("../../internal/prove/report/testdata/*.html")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	r, err := report.Load("testdata/drill")
	if err != nil {
		t.Fatal(err)
	}
	var html bytes.Buffer
	if err := report.HTML(&html, []*report.Run{r}); err != nil {
		t.Fatal(err)
	}
	drill := filepath.Join(t.TempDir(), "drill.html")
	if err := os.WriteFile(drill, html.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var out []page
	for _, f := range append(files, drill) {
		abs, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page{strings.TrimSuffix(filepath.Base(f), ".html"), "file://" + abs, "true"})
	}
	return out
}

// wall is the page of `mortar watch` for two bricks: a server of the first is off, and the
// second cannot be looked at.
func wall(t *testing.T) page {
	t.Helper()
	silent := "nfs1 (10.77.3.11:22): unreachable: dial tcp 10.77.3.11:22: i/o timeout; is it powered on, is the address right, and does sshd listen there?"
	since := time.Now().Add(-30 * time.Hour)
	status := &observe.Status{Brick: "brick1", Level: observe.Fault,
		Services: []observe.Where{{Service: "home", Address: "10.77.1.100", Server: "nfs2", Since: &since}},
		Parts: []*observe.Part{
			{Name: "hosts", Level: observe.Fault, Parts: []*observe.Part{
				{Name: "nfs1", Level: observe.Fault, Code: observe.HostSilent, Subject: "nfs1", Text: silent},
				{Name: "nfs2", Level: observe.OK, Text: "answers"}}},
			{Name: "path", Level: observe.Unknown, Parts: []*observe.Part{{Name: "nfs1", Level: observe.Unknown, Code: "host-unknown", Subject: "nfs1", Text: "nfs1 does not answer"}}},
			{Name: "RAID", Level: observe.Unknown, Parts: []*observe.Part{{Name: "brick1-home-r0", Level: observe.Unknown, Text: "no server answers"}}},
			{Name: "cluster", Level: observe.Warning, Parts: []*observe.Part{{Name: "membership", Level: observe.Warning, Text: "nfs1 is out of the cluster: no partner is left to take over", Mend: "bring it up again; it joins by itself"}}},
		}}
	at := int64(0)
	looks := int64(0)
	bricks := []*watch.Brick{
		watch.New("brick1", func(context.Context) (watch.Look, error) {
			at += 3e6
			looks++
			return watch.Look{Status: status, Hosts: 3, Silent: map[string]string{"nfs1": silent, "c1": "no answer within 30s"},
				Traffic: []watch.Traffic{{Service: "home", Server: "nfs2", Read: at, Written: at * (1 + looks%3)}}}, nil
		}, nil),
		watch.New("a-long-name-of-a-brick", func(context.Context) (watch.Look, error) {
			return watch.Look{}, fmt.Errorf("/srv/mortar/a-long-name-of-a-brick.yaml:12:3: networks.public.cidr is missing")
		}, nil),
	}
	for _, b := range bricks {
		ctx, stop := context.WithCancel(t.Context())
		go b.Run(ctx, 10*time.Millisecond)
		for v := b.View(); len(v.Points) < 20 && v.Error == ""; v = b.View() {
			time.Sleep(10 * time.Millisecond)
		}
		stop()
	}
	s := httptest.NewServer(watch.Handler(bricks, nil))
	t.Cleanup(s.Close)
	return page{"watch", s.URL, `document.querySelector(".brick")`}
}

// TestWall opens the page of `mortar watch`. The page names each silent host once, names the part
// that no server answers for, and dates a finding that began on another day.
func TestWall(t *testing.T) {
	p, b := wall(t), start(t)
	b.open(p.url, views[0], p.ready)
	var text string
	b.eval(`(() => { const c = document.querySelector(".brick").cloneNode(true); c.querySelector("details").remove(); return c.innerText; })()`, &text)
	now, came, _ := strings.Cut(text, "What came and went")
	if n := strings.Count(now, "nfs1 (10.77.3.11:22)"); n != 1 || strings.Contains(now, "nfs1 does not") || !strings.Contains(now, "c1 does not answer") || !strings.Contains(now, "brick1-home-r0: no server answers") {
		t.Error(now)
	}
	if today := time.Now().Format("15:04"); !strings.Contains(came, today[:2]) || strings.Contains(came, "00:00:00") {
		t.Error(came)
	}
	b.eval(`clock("2026-02-03T04:05:06")`, &text)
	if text != "Feb 3, 2026, 04:05:06" {
		t.Error(text)
	}
}

// TestWrong: the checks find what is wrong with a page.
func TestWrong(t *testing.T) {
	s := httptest.NewServer(http.FileServer(http.Dir("testdata")))
	t.Cleanup(s.Close)
	b := start(t)
	b.open(s.URL+"/wrong.html", view{390, "light"}, "true")
	var found []string
	b.eval(wrong, &found)
	got := strings.Join(append(found, b.errors...), "\n")
	for _, want := range []string{"overflow: the page is ", "overflow: wider than the screen", "overflow of a drawing: beyond", "contrast 1.61: pale", "contrast 1.00: drawn pale",
		"labels touch: one label / another", "a line crosses: crossed later", "console: "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(got, "fine") || t.Failed() {
		t.Error(got)
	}
}
