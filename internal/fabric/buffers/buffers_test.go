package buffers

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClaimIsNotBelievedAtOnce(t *testing.T) {
	const length = 1 << 30
	for have := 1 << 10; have < length/ClaimFactor; have *= 2 {
		if n := NextSize(have, length); n > have*ClaimFactor || n <= have {
			t.Errorf("%d bytes of %d have come, and there is room for %d", have, length, n)
		}
	}
	if n := NextSize(length/ClaimFactor, length); n != length {
		t.Errorf("a tenth has come, and there is room for %d", n)
	}
}

func TestBuffersAreBoundedAndLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Pool
		var list []*Buffer
		for range 10 {
			list = append(list, r.Get(20<<20))
		}
		for _, x := range list {
			r.Put(x)
		}
		if r.mu.Lock(); r.size > maxPooled || len(r.free) != 3 {
			t.Errorf("%d buffers with %d bytes are kept", len(r.free), r.size)
		}
		r.mu.Unlock()
		x := r.Get(maxPooled + 1)
		r.Put(x)
		if r.mu.Lock(); r.size > maxPooled {
			t.Errorf("%d bytes are kept", r.size)
		}
		r.mu.Unlock()
		time.Sleep(3 * poolIdle)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.free) > 0 || r.size != 0 || r.timer != nil {
			t.Errorf("%d buffers with %d bytes are kept without a use", len(r.free), r.size)
		}
	})
}

func TestBuffersAreLargeEnough(t *testing.T) {
	seen := map[int]int{}
	for n := MinPooled; n < 1<<30; n += 1 + n/50 {
		class, size := sizeClass(n)
		if size < n || size-n > n/4+MinPooled/4 {
			t.Errorf("%d bytes in a buffer of %d", n, size)
		}
		if old := seen[class]; old != 0 && old != size {
			t.Errorf("buffers of class %d have %d and %d bytes", class, old, size)
		}
		seen[class] = size
	}
}
