package calls

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/fabric/remote"
)

// Flying is what a process has in flight.
type Flying struct {
	Calls   int `json:"calls"`
	Streams int `json:"streams"`
}

// Flying counts the calls in flight.
func (p *Plane) Flying() Flying {
	return Flying{Calls: int(p.flying.calls.Load()), Streams: int(p.flying.streams.Load())}
}

// origin says from whom a connection is that brings calls.
type origin int

const (
	fromNode    origin = iota // another node
	fromProcess               // another process of this node
)

// retirePause is how often a process that is being replaced looks whether it is
// done. What it waits for is many things that change often while calls flow.
const retirePause = 20 * time.Millisecond

// Retire asks all who call through this process to make their next calls through
// the one that takes over; Pause came before. It returns when the last call is over
// and no other can come, or when ctx ends.
func (p *Plane) Retire(ctx context.Context) error {
	p.mu.Lock()
	p.retiring = true
	for g := range p.connected {
		g.conn.Drain()
	}
	for conn, from := range p.inbound {
		if from == fromNode {
			p.sayGoodbye(conn)
		}
	}
	p.mu.Unlock()
	p.running.Go(func() {
		p.plain.GracefulStop()
		p.mu.Lock()
		p.stopped = true
		p.mu.Unlock()
	})
	if err := p.until(ctx, p.quiet); err != nil {
		return err
	}
	p.mu.Lock()
	p.leaving = true
	for conn := range p.inbound {
		p.sayGoodbye(conn)
	}
	p.mu.Unlock()
	return p.until(ctx, p.alone)
}

func (p *Plane) until(ctx context.Context, f func() bool) error {
	tick := time.NewTicker(retirePause)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.life.Done():
			return status.Error(codes.Unavailable, "the process ends")
		case <-tick.C:
		}
	}
	return nil
}

// quiet says that nobody but other processes of this node has a way to call here.
func (p *Plane) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped || p.arriving > 0 {
		return false
	}
	for g := range p.connected {
		if !g.moved {
			return false
		}
	}
	for _, from := range p.inbound {
		if from == fromNode {
			return false
		}
	}
	return true
}

// alone says that no call is left, and none can come.
func (p *Plane) alone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.inbound) == 0 && p.flying.none()
}

// sayGoodbye ends a connection once the calls that it has brought are over. The
// mutex is held.
func (p *Plane) sayGoodbye(conn *remote.Conn) {
	p.running.Go(func() {
		// Its error is that the connection has ended, or the Plane.
		_ = conn.Drain(p.life)
		_ = conn.Close()
	})
}

// Moved says that another process has the program of an endpoint now.
func (p *Plane) Moved(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.local[id]; g != nil {
		g.moved = true
	}
}
