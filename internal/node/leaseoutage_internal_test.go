package node

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

// switchedHealth is a state that answers while it is on.
type switchedHealth struct{ on atomic.Bool }

func (h *switchedHealth) Health() error {
	if h.on.Load() {
		return nil
	}
	return outboard.Errorf(outboard.Unreachable, "the pool's state", "no write was acknowledged for 9s")
}

// A request for a lease ends with the state's error once the state has not answered for the time-out,
// and not before: an election takes some seconds.
func TestLeaseRequestEndsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := new(switchedHealth)
		for limit, want := range map[time.Duration]time.Duration{time.Second: leastOutage, time.Minute: time.Minute} {
			ctx, end := whileAnswered(t.Context(), state, limit)
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took != want {
				t.Errorf("with a time-out of %v the request ended after %v, want %v", limit, took, want)
			}
			err := withStateHealth(ctx, state, ctx.Err())
			if outboard.KindOf(err) != outboard.Unreachable || !strings.Contains(err.Error(), "no write was acknowledged") {
				t.Errorf("the request ended with %v", err)
			}
			end()
		}
		forever, end := whileAnswered(t.Context(), state, 0)
		defer end()
		short, endShort := whileAnswered(t.Context(), state, time.Minute)
		defer endShort()
		time.Sleep(50 * time.Second)
		state.on.Store(true)
		time.Sleep(5 * time.Second)
		state.on.Store(false)
		time.Sleep(50 * time.Second)
		if forever.Err() != nil || short.Err() != nil {
			t.Errorf("ended: without a limit %v, with outages of 50 s %v", forever.Err(), short.Err())
		}
	})
}

// In an outage the records of the pool's nodes expire. A request for a lease names the outage instead
// of devices that are missing.
func TestDevicesAreNotKnownInAnOutage(t *testing.T) {
	state := new(switchedHealth)
	none := outboard.Errorf(outboard.NoDevice, "select a device", "the pool has no devices")
	err := withStateHealth(context.Background(), state, none)
	if outboard.KindOf(err) != outboard.Unreachable || !strings.Contains(err.Error(), "not known") {
		t.Errorf("got %v", err)
	}
	state.on.Store(true)
	if err := withStateHealth(context.Background(), state, none); err != none {
		t.Errorf("with a healthy state: %v", err)
	}
}
