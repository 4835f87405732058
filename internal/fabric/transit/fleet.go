package transit

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard/fabric/call"
)

// A Way opens a leg by the way that new calls take now, and says to whose fleet it
// belongs; nil where it will never have to move.
type Way func(ctx context.Context, h *call.Head) (call.ClientStream, *Fleet, error)

// A Fleet is the streams of one connection that can move. The zero value is ready.
type Fleet struct {
	mu    sync.Mutex
	all   map[*Caller]bool
	more  chan struct{} // not nil: Move runs; has one when there are new ones
	comes []*Caller     // for Move
}

// Move moves the streams to where their ways lead, those that come while it runs too.
// It returns when ctx ends and nothing is under way any more; streams that have not
// moved then stay.
func (f *Fleet) Move(ctx context.Context) {
	var moving sync.WaitGroup
	defer moving.Wait()
	more := f.leave()
	for {
		for _, c := range f.take() {
			moving.Go(func() { c.move(ctx, f) })
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// leave makes those there are, and all who come, ones to be moved.
func (f *Fleet) leave() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.more = make(chan struct{}, 1)
	for c := range f.all {
		f.comes = append(f.comes, c)
	}
	return f.more
}

func (f *Fleet) take() []*Caller {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.comes
	f.comes = nil
	return taken
}

func (f *Fleet) join(c *Caller) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[*Caller]bool{}
	}
	f.all[c] = true
	if f.more == nil {
		return
	}
	f.comes = append(f.comes, c)
	select {
	case f.more <- struct{}{}:
	default:
	}
}

func (f *Fleet) part(c *Caller) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, c)
}
