package state

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

// A stream that a server has not heard of yet is waited for; one that does not exist is an
// error while there is still time.
func TestStreamIsNotFound(t *testing.T) {
	for name, test := range map[string]struct {
		appears time.Duration
		kind    outboard.Kind
		took    time.Duration
	}{
		"soon":  {2 * time.Second, outboard.Other, 2 * time.Second},
		"never": {time.Hour, outboard.NotFound, appearTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				err := new(client).retry(ctx, func(context.Context) error {
					if time.Since(begin) < test.appears {
						return jetstream.ErrStreamNotFound
					}
					return nil
				})
				if (err != nil) != errors.Is(err, jetstream.ErrStreamNotFound) || err != nil && outboard.KindOf(err) != test.kind {
					t.Errorf("got %v of kind %v", err, outboard.KindOf(err))
				}
				if took := time.Since(begin); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
		})
	}
}
