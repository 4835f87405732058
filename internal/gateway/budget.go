package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// budget bounds the bytes of requests and messages that the gateway holds: those that are
// being read, that wait for a function, and that a function works on.
type budget struct {
	limit int64

	mu    sync.Mutex
	used  int64
	freed chan struct{} // closed at the next release; nil: no caller waits
}

// tryReserve reserves n bytes, unless that exceeds the limit.
func (b *budget) tryReserve(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit {
		return false
	}
	b.used += n
	return true
}

// reserveTimeout is how long a WebSocket's reader waits for bytes of the budget. Readers that
// wait hold what they have read, so a longer wait would block them all.
const reserveTimeout = 10 * time.Second

// reserve reserves n bytes, and waits for them for a while.
func (b *budget) reserve(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	for {
		b.mu.Lock()
		if b.used+n <= b.limit {
			b.used += n
			b.mu.Unlock()
			return nil
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return b.exceeded()
		}
	}
}

// release returns n reserved bytes.
func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// held is the number of bytes reserved now.
func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *budget) exceeded() error {
	return outboard.Errorf(outboard.Busy, "receive", "the requests and messages on this node have %v, which is all that this tenant may have: send it again later", outboard.Bytes(b.limit))
}
