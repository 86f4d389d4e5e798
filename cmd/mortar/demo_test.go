package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/run/cli"
)

// A command that is part of another one prints its error once, and passes its exit code on.
func TestPart(t *testing.T) {
	var out, said bytes.Buffer
	c := &cli.Console{Env: env, Err: &said}
	if err := c.Part(t.Context(), &out, "init", "nfs-ha"); err != nil || !strings.Contains(out.String(), "flavour: nfs-ha") {
		t.Errorf("%v: %s", err, &out)
	}
	var ee *cli.Exit
	if err := c.Part(context.WithoutCancel(t.Context()), &out, "check", "no-such-file"); !errors.As(err, &ee) || ee.Code != exitBadInput || ee.Err != nil {
		t.Errorf("%+v", err)
	}
	if strings.Count(said.String(), "mortar: open no-such-file") != 1 {
		t.Errorf("%s", &said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Part(ctx, &out, "check", "no-such-file"); !errors.As(err, &ee) || ee.Code != exitInterrupted {
		t.Errorf("interrupted: %+v", err)
	}
}
