package state

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

// A request that repeats its writes ends with the state's error once the state has not answered for
// the limit, and not before: an election takes some seconds.
func TestRequestsEndInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &State{table: table{new(client)}}
		var answers atomic.Bool
		write := func(ctx context.Context) error {
			return s.retry(ctx, func(attempt context.Context) error {
				var err error
				if !answers.Load() {
					<-attempt.Done()
					err = attempt.Err()
				}
				s.writes.record(err)
				return err
			})
		}
		const limit = 30 * time.Second
		ctx, end := s.WhileAnswered(t.Context(), limit)
		began := time.Now()
		err := write(ctx)
		if took := time.Since(began); outboard.KindOf(err) != outboard.Unreachable || !errors.Is(err, context.Cause(ctx)) || took < limit || took > limit+2*writeGrace {
			t.Errorf("the write ended after %v with %v, want the state's error after %v", took, err, limit)
		}
		end()

		time.AfterFunc(limit-time.Second, func() { answers.Store(true) })
		ctx, end = s.WhileAnswered(t.Context(), limit)
		defer end()
		if err := write(ctx); err != nil {
			t.Errorf("a write during a short outage ended with %v", err)
		}

		answers.Store(false)
		forever, endForever := s.WhileAnswered(t.Context(), 0)
		time.AfterFunc(time.Hour, endForever)
		began = time.Now()
		if err := write(forever); time.Since(began) < time.Hour || err == nil {
			t.Errorf("without a limit the write ended after %v with %v", time.Since(began), err)
		}
	})
}
