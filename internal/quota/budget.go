package quota

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// Budget counts the bytes of one kind that a tenant holds, and bounds them. All methods may be
// called by several goroutines. A nil Budget has no limit.
type Budget struct {
	kind  Kind
	limit int64

	mu      sync.Mutex
	used    int64
	refused uint64
	freed   chan struct{} // closed at the next release; nil: no caller waits
}

// NewBudget returns a budget of which nothing is held.
func NewBudget(kind Kind, limit outboard.Bytes) *Budget {
	return &Budget{kind: kind, limit: int64(limit)}
}

// TryReserve reserves n bytes or returns an error: of the kind Busy for requests, which are
// released soon, and of the kind Exhausted for others.
func (b *Budget) TryReserve(n int64) error { return b.TryReserveBeyond(n, 0) }

// TryReserveBeyond is TryReserve with a limit that is extra bytes higher: for bytes that complete
// an operation that has begun.
func (b *Budget) TryReserveBeyond(n, extra int64) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit+extra {
		b.refused++
		return b.exceeded()
	}
	b.used += n
	return nil
}

// reserveTimeout is how long Reserve waits. Waiting callers hold bytes themselves, so a longer wait
// would block all of them.
const reserveTimeout = 10 * time.Second

// Reserve reserves n bytes, and waits for them for a while.
func (b *Budget) Reserve(ctx context.Context, n int64) error {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	for {
		freed := b.reserveOrWait(n)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return b.refuse()
		}
	}
}

// refuse counts a refusal and returns its error.
func (b *Budget) refuse() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused++
	return b.exceeded()
}

// reserveOrWait reserves n bytes, or returns a channel that is closed when some are released.
func (b *Budget) reserveOrWait(n int64) (freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n <= b.limit {
		b.used += n
		return nil
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// Adjust adds n bytes to the held ones, or removes -n, whatever the limit: for bytes that exist
// already. TryReserve of more is refused while the limit is exceeded.
func (b *Budget) Adjust(n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
	if n < 0 && b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// Release returns n reserved bytes.
func (b *Budget) Release(n int64) { b.Adjust(-n) }

// Check returns the error of TryReserve and reserves nothing.
func (b *Budget) Check(n int64) error {
	if err := b.TryReserve(n); err != nil {
		return err
	}
	b.Release(n)
	return nil
}

// Held returns how many bytes are reserved now.
func (b *Budget) Held() int64 {
	if b == nil {
		return 0
	}
	held, _ := b.counts()
	return held
}

func (b *Budget) counts() (used int64, refused uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.refused
}

// exceeded returns the error with which bytes are refused.
func (b *Budget) exceeded() error {
	kind, where, then := outboard.Exhausted, "on this node", "free some"
	switch b.kind { //nolint:exhaustive // the others are freed on the node
	case Requests:
		kind, then = outboard.Busy, "send it again later"
	case Store:
		where, then = "in the pool's state", "remove apps or keys of buckets, wait until ended executions are forgotten"
	}
	return outboard.Errorf(kind, "", "the %s of this tenant have %v %s, which is all that they may have: %s, or raise the limit by `%s`",
		b.subject(), outboard.Bytes(b.limit), where, then, fmt.Sprintf("outboard up --tenant-limits %s=SIZE", b.kind))
}

func (b *Budget) subject() string {
	switch b.kind { //nolint:exhaustive // the others are called what they are
	case Requests:
		return "requests and messages"
	case Store:
		return "histories and buckets"
	}
	return string(b.kind)
}
