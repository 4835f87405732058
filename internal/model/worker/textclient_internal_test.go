package worker

import (
	"context"
	"errors"
	"testing"

	"github.com/outboard-run/outboard"
)

// The limit of tokenizing has an error that says so; a client that has gone gets its own.
func TestLimitOfTokenizing(t *testing.T) {
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-ended.Done()
	if err := explainLimit(t.Context(), ended, ended.Err()); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("the limit: %v", err)
	}
	other := errors.New("the process has ended")
	for name, client := range map[string]context.Context{"before the limit": t.Context(), "the client has gone": ended} {
		if err := explainLimit(client, client, other); !errors.Is(err, other) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := explainLimit(t.Context(), ended, nil); err != nil {
		t.Errorf("in time: %v", err)
	}
}
