package router

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// A lane is one direction of a stream over the plan's links: as on a real wire,
// messages follow each other while the first is still under way. What is under way is
// bounded.
type lane struct {
	flow      *flow
	direction policy.Direction
	send      func(*call.Message) error
	stop      func() bool // of the watch on the call's end
	done      chan struct{}

	mu      sync.Mutex
	changed sync.Cond // any field below
	queue   []inLane  // on their way, the first one included
	size    int
	used    bool
	closed  bool  // there will be no more
	err     error // why nothing is sent any more
}

type inLane struct {
	*call.Message
	arrives time.Time
}

// What may be in a lane: a message of any size, or several up to these.
const (
	mostInLane      = 64
	mostBytesInLane = 1 << 20
)

// way is how messages go in one direction: straight, or by a lane where the plan has
// links. What push was given has arrived, or never will, when finish returns.
func (f *flow) way(d policy.Direction, send func(*call.Message) error) (push func(*call.Message) error, finish func() error) {
	if len(f.links) == 0 {
		return send, func() error { return nil }
	}
	l := &lane{flow: f, direction: d, send: send, done: make(chan struct{})}
	l.changed.L = &l.mu
	l.stop = context.AfterFunc(f.ctx, func() { l.fail(statusOf(f.ctx.Err())) })
	if !f.router.goes(l.run) {
		l.fail(status.Error(codes.Unavailable, errClosed.Error()))
		close(l.done)
	}
	return l.push, l.finish
}

// fail ends the lane: what is in it does not arrive.
func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
}

// push lets a message begin its way, and waits for room.
func (l *lane) push(m *call.Message) error {
	size := len(m.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && len(l.queue) > 0 && (len(l.queue) >= mostInLane || l.size+size > mostBytesInLane) {
		l.changed.Wait()
	}
	if l.err != nil {
		m.Free()
		return l.err
	}
	now := time.Now()
	arrives := now.Add(linksDelay(l.flow.links, l.direction, size, now, l.flow.router.options.Random))
	l.used = true
	l.queue = append(l.queue, inLane{m, arrives})
	l.size += size
	l.changed.Broadcast()
	return nil
}

// finish waits until everything has arrived, or does not any more.
func (l *lane) finish() error {
	l.mu.Lock()
	l.closed = true
	empty := !l.used
	l.changed.Broadcast()
	l.mu.Unlock()
	<-l.done
	l.stop()
	if empty {
		// The end crosses the links too.
		now := time.Now()
		l.fail(wait(l.flow.ctx, linksDelay(l.flow.links, l.direction, 0, now, l.flow.router.options.Random)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// run hands over what arrives, one after the other: jitter changes no order.
func (l *lane) run() {
	defer close(l.done)
	for {
		m, ok := l.first()
		if !ok {
			l.drop()
			return
		}
		size, err := len(m.Data), wait(l.flow.ctx, time.Until(m.arrives))
		if err != nil {
			m.Free()
		} else {
			err = l.send(m.Message)
		}
		if err != nil {
			l.fail(err)
		}
		l.took(size)
	}
}

// first is the next message to arrive; it stays in the queue, for the bounds.
func (l *lane) first() (inLane, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && !l.closed && len(l.queue) == 0 {
		l.changed.Wait()
	}
	if l.err != nil || len(l.queue) == 0 {
		return inLane{}, false
	}
	return l.queue[0], true
}

func (l *lane) took(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue[0] = inLane{}
	l.queue = l.queue[1:]
	l.size -= size
	l.changed.Broadcast()
}

func (l *lane) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.queue {
		m.Free()
	}
	l.queue = nil
}
