package pace

import (
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

const ms = time.Millisecond

func TestBetween(t *testing.T) {
	before := map[string]linux.DiskStat{"a": {Done: 10, MS: 100, Read: 1000, Written: 500}, "b": {Done: 5, MS: 50, InFlight: 1}, "c": {Done: 5, MS: 50}, "d": {Done: 9}, "e": {Done: 5, InFlight: 2}}
	after := map[string]linux.DiskStat{"a": {Done: 14, MS: 140, Read: 1010, Written: 505, InFlight: 2}, "b": {Done: 5, MS: 50, InFlight: 4}, "c": {Done: 5, MS: 50, InFlight: 1}, "d": {Done: 1}, "e": {Done: 6, MS: 900, InFlight: 1}, "f": {Done: 3}}
	got := Between(before, after)
	want := map[string]Answers{"a": {Done: 4, Took: 40 * ms, Bytes: 15}, "b": {Stuck: true, Open: true}, "c": {}, "e": {Done: 1, Took: 900 * ms, Open: true}}
	if len(got) != len(want) {
		t.Errorf("got %+v", got)
	}
	for dev, w := range want {
		if got[dev] != w {
			t.Errorf("%s: %+v, want %+v", dev, got[dev], w)
		}
	}
}

func TestMean(t *testing.T) {
	for want, a := range map[time.Duration]Answers{10 * ms: {Done: 4, Took: 40 * ms}, time.Second: {Stuck: true, Open: true}, 0: {}} {
		if got := a.Mean(time.Second); got != want {
			t.Errorf("%+v: %v, want %v", a, got, want)
		}
	}
}
