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
		for range 20 {
			list = append(list, r.Get(20<<20))
		}
		for _, x := range list {
			r.Put(x)
		}
		if r.mu.Lock(); r.size > maxPooled || len(r.free) != 12 {
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

// TestBuffersFollowTheirUse returns as many buffers as are in use at once, and drops the others.
func TestBuffersFollowTheirUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pool
		defer p.Close()
		use := func(n int) {
			var list []*Buffer
			for range n {
				list = append(list, p.Get(16<<20))
			}
			for _, b := range list {
				p.Put(b)
			}
		}
		for _, n := range []int{8, 2, 4} {
			for range 30 {
				time.Sleep(poolIdle / 10)
				use(n)
			}
			p.mu.Lock()
			if len(p.free) != n {
				t.Errorf("%d buffers are kept, of which %d are in use at once", len(p.free), n)
			}
			p.mu.Unlock()
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

func TestBufferOfData(t *testing.T) {
	var p Pool
	for n := MinPooled; n < 64<<20; n += n/3 + 1 {
		b := p.Get(n)
		if got := Of(b.Data); got == nil || got.class != b.class {
			t.Errorf("%d bytes: %v, want class %d", len(b.Data), got, b.class)
		}
	}
	for _, n := range []int{0, 1, MinPooled - 1, MinPooled + 1, 100_000} {
		if b := Of(make([]byte, n)); b != nil {
			t.Errorf("%d bytes are a buffer of class %d", n, b.class)
		}
	}
}
