package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// After an interrupt Mortar says that nothing is left broken only if nothing else went wrong.
func TestNothingBut(t *testing.T) {
	other := errors.New("the power of pdu-a stays off")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{context.Canceled, true},
		{errors.Join(context.Canceled, nil), true},
		{errors.Join(errors.Join(context.Canceled), context.Canceled), true},
		{errors.Join(context.Canceled, other), false},
		{fmt.Errorf("%w; and the brick is not healthy yet: %w", context.Canceled, other), false},
		{fmt.Errorf("%w; and the brick is not healthy yet: %w", context.Canceled, context.Canceled), false},
		{other, false},
	} {
		if got := nothingBut(c.err, context.Canceled); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
