package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// minBackoff and maxBackoff bound the pause before an operation is tried again.
const minBackoff, maxBackoff = 20 * time.Millisecond, 2 * time.Second

// failing are the operations of executions that have failed until their pause was maxBackoff, and are
// repeated: the executions do not continue until they succeed. The zero value logs nothing.
type failing struct {
	log *slog.Logger

	mu  sync.Mutex
	all map[*operation]bool
}

// operation is one operation that is repeated.
type operation struct {
	name string
	err  error // of its last attempt
}

// report records the error of an attempt, and logs the first one.
func (f *failing) report(o *operation, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.err = err; f.all[o] {
		return
	}
	if f.all == nil {
		f.all = map[*operation]bool{}
	}
	f.all[o] = true
	if f.log != nil {
		f.log.Warn("an operation of an execution fails, and is repeated until it succeeds", "operation", o.name, "error", err)
	}
}

func (f *failing) end(o *operation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, o)
}

// health returns why executions do not continue, nil if they do.
func (f *failing) health() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for o := range f.all {
		return outboard.Errorf(outboard.Unreachable, "", "%d executions wait for operations that fail and are repeated; one of them: %s: %w", len(f.all), o.name, o.err)
	}
	return nil
}

// retry calls f with exponential back-off until it succeeds, fails permanently, or ctx ends. name
// says in the log and in the node's health what f does.
func retry[T any](ctx context.Context, all *failing, name string, f func() (T, error)) (T, error) {
	o := &operation{name: name}
	defer all.end(o)
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		v, err := f()
		if err == nil || permanent(err) {
			return v, err
		}
		if pause == maxBackoff {
			all.report(o, err)
		}
		if !sleep(ctx, pause) {
			return v, errors.Join(ctx.Err(), err)
		}
	}
}

// permanent reports whether a retry is of no use.
func permanent(err error) bool {
	kind := outboard.KindOf(err)
	return kind == outboard.Invalid || kind == outboard.Exhausted || kind == outboard.Denied || kind == outboard.NotFound ||
		errors.Is(err, ErrNotFound)
}

// sleep waits for d or until ctx ends. It reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
