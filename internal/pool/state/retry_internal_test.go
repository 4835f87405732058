package state

import (
	"context"
	"errors"
	"sync/atomic"
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

// The parts of a node that stops, one after the other, wait for a lost majority once. A state
// that answers again is waited for.
func TestStopWithoutMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(client)
		var majority atomic.Bool
		write := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return c.retry(ctx, func(ctx context.Context) error {
				if majority.Load() {
					c.writes.record(nil)
					return nil
				}
				<-ctx.Done()
				c.writes.record(ctx.Err())
				return ctx.Err()
			})
		}
		c.BeginStop()
		begin := time.Now()
		for range 10 {
			if err := write(time.Minute); !errors.Is(err, errGivenUp) || outboard.KindOf(err) != outboard.Unreachable {
				t.Fatalf("a write ended with %v", err)
			}
		}
		if took := time.Since(begin); took > writeGrace+3*attemptTimeout {
			t.Errorf("ten writes without a majority took %v", took)
		}

		c = new(client)
		c.BeginStop()
		time.AfterFunc(writeGrace, func() { majority.Store(true) })
		if err := write(time.Minute); err != nil {
			t.Errorf("a write during an election ended with %v", err)
		}
	})
}

// A client that is refused because no leader answers repeats its request; one that may not write
// does not.
func TestDenialWithoutLeader(t *testing.T) {
	for code, err := range map[int]error{
		codeUnavailable: unreachable("the pool's state", context.DeadlineExceeded),
		codeDenied:      outboard.Errorf(outboard.Denied, "write", "not yours"),
	} {
		if got := denialCode(err); got != code {
			t.Errorf("%v is answered with status %d, want %d", err, got, code)
		}
		if repeated := isRetryable(&jetstream.APIError{Code: denialCode(err)}); repeated != (code == codeUnavailable) {
			t.Errorf("%v: the client repeats its request: %v", err, repeated)
		}
	}
}
