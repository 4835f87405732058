package worker

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// A replyReader reads the replies to a tensorClient's calls from the ring. The goroutine of a call
// reads them itself while no other goroutine does, as the leader of the leader/followers pattern
// (Schmidt et al., 2000): a sole call then needs no switch between goroutines. Replies to other
// calls that it reads it delivers to them.
//
// It leads for at most leadLimit, since a goroutine that waits at the ring does not notice the end of
// its context. Then, and whenever a call finds that another goroutine reads, readOutstanding reads
// until no reply is due.
type replyReader struct {
	client *tensorClient
	lead   sync.Mutex    // held while reading
	wanted chan struct{} // has a value when readOutstanding is to read
	closed chan struct{}
	own    sync.WaitGroup // readOutstanding
	ending sync.Once
}

// leadLimit is how long a call reads the ring itself. Calls that take longer than this gain little
// from one switch less.
const leadLimit = 2 * time.Millisecond

func (r *replyReader) start(c *tensorClient) {
	r.client, r.wanted, r.closed = c, make(chan struct{}, 1), make(chan struct{})
	r.own.Go(r.readOutstanding)
}

// stop waits until the reader's own goroutine has ended. The ring must be closed.
func (r *replyReader) stop() {
	close(r.closed)
	r.own.Wait()
}

// readOutstanding reads replies while any are due, whenever a call wants it.
func (r *replyReader) readOutstanding() {
	for {
		select {
		case <-r.wanted:
		case <-r.closed:
			return
		}
		if !r.readAll() {
			return
		}
	}
}

// readAll reads until no reply is due. It returns false if the ring has failed.
func (r *replyReader) readAll() bool {
	r.lead.Lock()
	defer r.lead.Unlock()
	for r.client.outstanding() {
		if _, ok := r.read(maxReceive); !ok {
			return false
		}
	}
	return true
}

// read reads one reply. It returns ok as false if the ring has failed, after which the worker ends.
func (r *replyReader) read(limit time.Duration) (received, ok bool) {
	received, err := r.client.channel.receiveWithin(limit, r.client.handle)
	switch err {
	case nil:
		return received, true
	case io.EOF: //nolint:errorlint // a wrapped EOF is premature
		r.awaitExit()
	default:
		r.client.worker.Kill(outboard.Errorf(outboard.Unreachable, "", "the model's process broke the protocol: %w", err))
	}
	return received, false
}

// awaitExit has the process, which has closed its ring, end by itself: its exit status is the reason of
// the end. A process that does not end soon is killed.
func (r *replyReader) awaitExit() {
	w := r.client.worker
	r.ending.Do(func() {
		time.AfterFunc(exitLimit, func() {
			if !isClosed(w.done) {
				w.Kill(outboard.Errorf(outboard.Unreachable, "", "the model's process closed its connection, and did not end"))
			}
		})
	})
}

// awaitReply reads until the reply to a call has come, at most for leadLimit or until the deadline
// of ctx. It returns early if another goroutine reads.
func (r *replyReader) awaitReply(ctx context.Context, call *tensorCall) {
	if r.lead.TryLock() {
		r.readFor(ctx, call)
		r.lead.Unlock()
	}
	if !call.answered() || r.client.outstanding() {
		r.want()
	}
}

// readFor reads until the reply to a call has come. The caller holds lead.
func (r *replyReader) readFor(ctx context.Context, call *tensorCall) {
	until := time.Now().Add(leadLimit)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	for !call.answered() {
		if received, _ := r.read(time.Until(until)); !received {
			return
		}
	}
}

// want makes readOutstanding read.
func (r *replyReader) want() {
	select {
	case r.wanted <- struct{}{}:
	default:
	}
}

// answered reports whether the reply is there and was not taken.
func (c *tensorCall) answered() bool { return len(c.reply) > 0 }
