package host

import "sync"

// Excused are hosts that a drill keeps silent on purpose, and that are to speak again:
// keepalives that they leave unanswered do not count, and a session with one lasts. The
// zero value, and nil, have none. It is safe for concurrent use.
type Excused struct {
	mu    sync.Mutex
	names map[string]bool
}

// Set excuses a host, or no longer does. On nil it does nothing.
func (e *Excused) Set(name string, excused bool) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names == nil {
		e.names = map[string]bool{}
	}
	e.names[name] = excused
}

// Has says whether a host is excused.
func (e *Excused) Has(name string) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.names[name]
}
