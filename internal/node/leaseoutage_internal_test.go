package node

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
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

// A request for a lease outlasts an election, whatever its time-out.
func TestOutageLimit(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 0, time.Second: leastOutage, time.Minute: time.Minute} {
		if got := outageLimit(timeout); got != want {
			t.Errorf("%v with a time-out of %v, want %v", got, timeout, want)
		}
	}
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
	if err := withStateHealth(context.Background(), state, none); !errors.Is(err, none) {
		t.Errorf("with a healthy state: %v", err)
	}
}
