package pool

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// No pool is founded by a clock that was never set: its certificates would have expired afterwards.
func TestNoPoolOfAnUnsetClock(t *testing.T) {
	if _, err := newAuthority(time.Unix(60, 0)); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("got %v, want Invalid", err)
	}
	if _, err := newAuthority(time.Now()); err != nil {
		t.Error(err)
	}
}
