package main

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

type counts struct {
	mu       sync.Mutex
	now      int
	most     int
	dials    []time.Time
	errs     map[string]int
	reclaims map[string][]time.Time // by protocol
	lost     map[string]int
}

func newCounts() counts {
	return counts{errs: map[string]int{}, reclaims: map[string][]time.Time{}, lost: map[string]int{}}
}

func (c *counts) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *counts) open(n int) { c.do(func() { c.now += n; c.most = max(c.most, c.now) }) }

func (c *counts) connects(at time.Time) { c.do(func() { c.dials = append(c.dials, at) }) }

// failed counts an error by its kind.
func (c *counts) failed(err error) { c.do(func() { c.errs[errorKind(err)]++ }) }

// reclaimed notes that a client has its locks back; lost, that the server refused that.
func (c *counts) reclaimed(protocol string) {
	c.do(func() { c.reclaims[protocol] = append(c.reclaims[protocol], time.Now()) })
}

func (c *counts) lose(protocol string, err error) {
	c.do(func() { c.lost[protocol+" "+errorKind(err)]++ })
}

// errorKind is an error without what is of one client.
func errorKind(err error) string {
	var no unix.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &no):
		return no.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	return err.Error()
}

// mostWithin is the largest number of moments within a time.
func mostWithin(all []time.Time, d time.Duration) (most int) {
	slices.SortFunc(all, time.Time.Compare)
	first := 0
	for i, t := range all {
		for t.Sub(all[first]) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// after are the seconds from a moment to the median, the 99th percentile and the last of others.
func after(from time.Time, all []time.Time) *spread {
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, time.Time.Compare)
	at := func(p int) float64 { return seconds(from, all[(len(all)-1)*p/100]) }
	return &spread{Clients: len(all), First: at(0), Median: at(50), P99: at(99), Last: at(100)}
}

// spread says when how many clients had come, in seconds.
type spread struct {
	Clients int     `json:"clients"`
	First   float64 `json:"first"`
	Median  float64 `json:"median"`
	P99     float64 `json:"p99"`
	Last    float64 `json:"last"`
}

// seconds rounds to hundredths.
func seconds(from, to time.Time) float64 {
	return float64(to.Sub(from).Round(10*time.Millisecond).Milliseconds()) / 1000
}
