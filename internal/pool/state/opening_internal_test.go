package state

import (
	"testing"
	"time"
)

// A server that has not heard of a bucket's stream yet says that there is none. Who has
// opened it asks again.
func TestStreamNotHeardOfYet(t *testing.T) {
	t.Parallel()
	ctx := kvContext(t)
	k := testKV(ctx, t)
	must(t, k.s.js.DeleteStream(ctx, k.stream))
	made := make(chan error, 1)
	time.AfterFunc(3*retryPause, func() { made <- k.s.ensureStream(ctx, k.config()) })
	_, err := k.Since(ctx, 0, func(Entry) {})
	must(t, err)
	must(t, <-made)
}
