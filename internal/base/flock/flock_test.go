package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWait(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := Wait(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error)
	go func() { given <- Wait(ctx, second) }()
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { given <- Wait(t.Context(), second) }()
	first.Close()
	if err := <-given; err != nil {
		t.Error(err)
	}
	if err := Wait(t.Context(), first); !errors.Is(err, os.ErrClosed) && err == nil {
		t.Error("a closed file was locked")
	}
}
