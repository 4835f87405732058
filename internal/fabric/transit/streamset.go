package transit

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard/fabric/call"
)

// An OpenFunc opens a leg on the path that new calls take now. It returns the set of the
// connection's streams, or nil if the leg never has to move.
type OpenFunc func(ctx context.Context, h *call.Head) (call.ClientStream, *StreamSet, error)

// A StreamSet is the streams of one connection that can move. The zero value is ready.
type StreamSet struct {
	mu      sync.Mutex
	streams map[*Caller]bool
	added   chan struct{} // not nil: Move runs; has a value when toMove has grown
	toMove  []*Caller     // for Move
}

// Move moves the streams to the paths that their OpenFuncs choose, including streams that are added
// while it runs. It returns when ctx has ended and no move is in progress; streams that have not
// moved by then stay.
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

// startMoving queues the streams of the set to be moved, and streams that are added later. The
// channel that it returns has a value when streams were added.
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
