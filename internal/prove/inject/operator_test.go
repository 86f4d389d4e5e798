package inject

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/test/example"
)

// Two commands that are given at once run at once: neither waits for the other. Status
// runs beside them.
func TestCommandsRunAtOnce(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	asked, answer := make(chan string, 10), make(chan struct{})
	o := NewOperator(d, func(_ context.Context, name string) (*host.Session, error) {
		asked <- name
		<-answer
		return nil, errors.New("no route to host")
	})
	defer o.Close()
	done := make(chan error, 3)
	go func() { done <- o.Standby(t.Context(), "nfs1", true) }()
	go func() { done <- o.Move(t.Context(), "home", "nfs2") }()
	go func() { _, err := o.Status(t.Context()); done <- err }()
	for i := range 7 { // both servers, for each of the three; Status asks the client as well
		select {
		case <-asked:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d hosts asked, then a command waits for another one", i)
		}
	}
	close(answer)
	for range 3 {
		<-done
	}
	if len(o.idle) != 2 {
		t.Errorf("%d collectors are kept, want 2", len(o.idle))
	}
}
