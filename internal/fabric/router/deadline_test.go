package router

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A late context does what one of the standard library does.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type make func(context.Context) (context.Context, context.CancelFunc)
		makers := map[string]make{
			"late": func(ctx context.Context) (context.Context, context.CancelFunc) {
				l := newDeadlineContext(ctx, time.Now().Add(time.Second))
				return l, l.end
			},
			"late, used again": func(ctx context.Context) (context.Context, context.CancelFunc) {
				l := newDeadlineContext(ctx, time.Now())
				l.end()
				if !l.reset() {
					t.Error("nobody has waited, and it can't be used again")
				}
				l.restart(ctx, time.Now().Add(time.Second))
				return l, l.end
			},
			"standard": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
		}
		for name, makes := range makers {
			for _, waits := range []bool{false, true} {
				checkLate(t, name, waits, makes)
			}
		}
	})
}

// Who waits for a late context may hold it for ever.
func TestLateIsNotUsedAgainAfterSomebodyWaited(t *testing.T) {
	l := newDeadlineContext(context.Background(), time.Now().Add(time.Hour))
	<-func() <-chan struct{} { defer l.end(); return l.Done() }()
	if l.reset() {
		t.Error("it is used again")
	}
}

func checkLate(t *testing.T, name string, waits bool, makes func(context.Context) (context.Context, context.CancelFunc)) {
	t.Helper()
	parent, stop := context.WithCancel(context.Background())
	one, cancelOne := makes(parent)
	two, cancelTwo := makes(parent)
	three, cancelThree := makes(context.Background())
	defer cancelTwo()
	defer cancelThree()
	if waits {
		_, _, _ = one.Done(), two.Done(), three.Done()
	}
	if err := errors.Join(one.Err(), two.Err(), three.Err()); err != nil {
		t.Errorf("%s, waits %v: ended at once: %v", name, waits, err)
	}
	cancelOne()
	stop()
	<-one.Done()
	<-two.Done()
	if one.Err() != context.Canceled || two.Err() != context.Canceled {
		t.Errorf("%s, waits %v: cancelled: %v, %v", name, waits, one.Err(), two.Err())
	}
	time.Sleep(time.Second + time.Millisecond)
	if three.Err() != context.DeadlineExceeded {
		t.Errorf("%s, waits %v: too late: %v", name, waits, three.Err())
	}
	<-three.Done()
}
