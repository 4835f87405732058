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

// An emulatedLink is one direction of a stream over the plan's links. As on a real wire,
// messages follow each other while the first is in transit. The messages in transit are
// bounded.
type emulatedLink struct {
	flow      *flow
	direction policy.Direction
	send      func(*call.Message) error
	stop      func() bool // stops the watch on the call's end
	done      chan struct{}

	mu      sync.Mutex
	changed sync.Cond   // signals a change of any field below
	queue   []inTransit // messages in transit, the head included
	size    int
	used    bool
	closed  bool  // no more messages will be pushed
	err     error // why no more messages are sent
}

type inTransit struct {
	*call.Message
	arrives time.Time
}

// The bounds of the messages in transit.
const (
	// maxInTransit and maxBytesInTransit bound a link: one message of any size, or several up
	// to these.
	maxInTransit      = 64
	maxBytesInTransit = 1 << 20
)

// pipeline returns the functions that pass messages in one direction: directly, or through an
// emulated link if the plan has links. Every pushed message has been delivered or dropped when
// finish returns.
func (f *flow) pipeline(d policy.Direction, send func(*call.Message) error) (push func(*call.Message) error, finish func() error) {
	if len(f.links) == 0 {
		return send, func() error { return nil }
	}
	l := &emulatedLink{flow: f, direction: d, send: send, done: make(chan struct{})}
	l.changed.L = &l.mu
	l.stop = context.AfterFunc(f.ctx, func() { l.fail(toStatus(f.ctx.Err())) })
	if !f.router.spawn(l.run) {
		l.fail(status.Error(codes.Unavailable, errClosed.Error()))
		close(l.done)
	}
	return l.push, l.finish
}

// fail ends the link: messages in transit are dropped.
func (l *emulatedLink) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
}

// push begins the transit of a message, after waiting for space.
func (l *emulatedLink) push(m *call.Message) error {
	size := len(m.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && len(l.queue) > 0 && (len(l.queue) >= maxInTransit || l.size+size > maxBytesInTransit) {
		l.changed.Wait()
	}
	if l.err != nil {
		m.Free()
		return l.err
	}
	now := time.Now()
	arrives := now.Add(linksDelay(l.flow.links, l.direction, size, now, l.flow.router.options.Random))
	l.used = true
	l.queue = append(l.queue, inTransit{m, arrives})
	l.size += size
	l.changed.Broadcast()
	return nil
}

// finish waits until all messages have been delivered or dropped.
func (l *emulatedLink) finish() error {
	l.mu.Lock()
	l.closed = true
	empty := !l.used
	l.changed.Broadcast()
	l.mu.Unlock()
	<-l.done
	l.stop()
	if empty {
		// The end of the stream crosses the links too.
		now := time.Now()
		l.fail(wait(l.flow.ctx, linksDelay(l.flow.links, l.direction, 0, now, l.flow.router.options.Random)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// run delivers messages in order: jitter does not reorder them.
func (l *emulatedLink) run() {
	defer close(l.done)
	for {
		m, ok := l.waitForHead()
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
		l.dequeue(size)
	}
}

// waitForHead returns the next message to be delivered. It stays in the queue until then, so
// that it counts toward the bounds.
func (l *emulatedLink) waitForHead() (inTransit, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && !l.closed && len(l.queue) == 0 {
		l.changed.Wait()
	}
	if l.err != nil || len(l.queue) == 0 {
		return inTransit{}, false
	}
	return l.queue[0], true
}

func (l *emulatedLink) dequeue(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue[0] = inTransit{}
	l.queue = l.queue[1:]
	l.size -= size
	l.changed.Broadcast()
}

func (l *emulatedLink) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.queue {
		m.Free()
	}
	l.queue = nil
}
