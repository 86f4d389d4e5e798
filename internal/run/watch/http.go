package watch

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/run/metrics"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

//go:embed page
var page embed.FS

// Handler serves bricks: / is a page, /status.json its data, /metrics the same data
// for Prometheus. It allows no changes. It answers only requests to an address, to
// localhost or to one of names, so that no page of another site can make a browser
// read the data: that site's own name can be had to resolve to any address (DNS rebinding).
func Handler(bricks []*Brick, names []string) http.Handler {
	mux := http.NewServeMux()
	for path, file := range map[string]string{"/{$}": "index.html", "/watch.js": "watch.js", "/watch.css": "watch.css"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, page, "page/"+file)
		})
	}
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(views(bricks)) // fails only if the client has gone
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		Metrics(w, views(bricks))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if !answersTo(r.Host, names) {
			http.Error(w, fmt.Sprintf("this server does not answer for %q; use its address, or have mortar watch know the name (--name)", r.Host), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func answersTo(host string, names []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(host, ".")
	return net.ParseIP(strings.Trim(host, "[]")) != nil || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.EqualFold(host, n) })
}

func views(bricks []*Brick) []View {
	out := []View{}
	for _, b := range bricks {
		out = append(out, b.View())
	}
	return out
}

// Metrics writes the views of bricks in Prometheus' text format.
func Metrics(w io.Writer, all []View) {
	family := func(name, help string, samples func(v View, add func(value float64, labels ...string))) {
		io.WriteString(w, metrics.Head(name, "gauge", help))
		for _, v := range all {
			samples(v, func(value float64, labels ...string) {
				io.WriteString(w, metrics.Sample(name, value, append([]string{"brick", v.Name}, labels...)...))
			})
		}
	}
	type add = func(value float64, labels ...string)
	family("mortar_watch_looked_timestamp_seconds", "When the brick was last seen; 0: never.", func(v View, add add) {
		at := 0.0
		if v.Looked != nil {
			at = float64(v.Looked.Unix())
		}
		add(at)
	})
	family("mortar_watch_look_seconds", "How long the last look took.", func(v View, add add) { add(v.Seconds) })
	family("mortar_watch_hosts", "Hosts of the brick.", func(v View, add add) { add(float64(v.Hosts)) })
	family("mortar_watch_host_silent", "1 for a host that did not answer.", func(v View, add add) {
		for _, h := range slices.Sorted(maps.Keys(v.Silent)) {
			add(1, "host", h)
		}
	})
	family("mortar_status_level", "Health of the brick and of its parts: 0 ok, 1 unknown, 2 warning, 3 fault.", func(v View, add add) {
		if v.Status == nil {
			return
		}
		add(float64(v.Status.Level), "part", "")
		for _, p := range v.Status.Parts {
			add(float64(p.Level), "part", p.Name)
		}
	})
	family("mortar_status_findings", "Parts that are not ok, by level.", func(v View, add add) {
		if v.Status == nil {
			return
		}
		add(float64(v.Status.Faults), "level", "fault")
		add(float64(v.Status.Warnings), "level", "warning")
		add(float64(v.Status.Unknown), "level", "unknown")
	})
	family("mortar_status_finding", "A finding, by its code and what it is about: 1 unknown, 2 warning, 3 fault.", func(v View, add add) {
		if v.Status == nil {
			return
		}
		worst := map[[2]string]observe.Level{}
		v.Status.Each(func(p *observe.Part) {
			if key := [2]string{string(p.Code), p.Subject}; p.Level > observe.OK {
				worst[key] = max(worst[key], p.Level)
			}
		})
		for _, key := range slices.SortedFunc(maps.Keys(worst), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
			add(float64(worst[key]), "code", key[0], "subject", key[1])
		}
	})
	family("mortar_service_bytes_per_second", "What the services' volumes read and wrote between the last two looks.", func(v View, add add) {
		if n := len(v.Points); n > 0 {
			add(v.Points[n-1].Read, "direction", "read")
			add(v.Points[n-1].Written, "direction", "written")
		}
	})
}
