package transit

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard/fabric/call"
)

// A OpenFunc opens a leg by the way that new calls take now, and says to whose fleet it
// belongs; nil where it will never have to move.
type OpenFunc func(ctx context.Context, h *call.Head) (call.ClientStream, *StreamSet, error)

// A StreamSet is the streams of one connection that can move. The zero value is ready.
type StreamSet struct {
	mu      sync.Mutex
	streams map[*Caller]bool
	added   chan struct{} // not nil: Move runs; has one when there are new ones
	toMove  []*Caller     // for Move
}

// Move moves the streams to where their ways lead, those that come while it runs too.
// It returns when ctx ends and nothing is under way any more; streams that have not
// moved then stay.
func (f *StreamSet) Move(ctx context.Context) {
	var moving sync.WaitGroup
	defer moving.Wait()
	more := f.startMoving()
	for {
		for _, c := range f.takeToMove() {
			moving.Go(func() { c.move(ctx, f) })
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// startMoving makes those there are, and all who come, ones to be moved.
func (f *StreamSet) startMoving() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.added = make(chan struct{}, 1)
	for c := range f.streams {
		f.toMove = append(f.toMove, c)
	}
	return f.added
}

func (f *StreamSet) takeToMove() []*Caller {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.toMove
	f.toMove = nil
	return taken
}

func (f *StreamSet) add(c *Caller) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == nil {
		f.streams = map[*Caller]bool{}
	}
	f.streams[c] = true
	if f.added == nil {
		return
	}
	f.toMove = append(f.toMove, c)
	select {
	case f.added <- struct{}{}:
	default:
	}
}

func (f *StreamSet) remove(c *Caller) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, c)
}
