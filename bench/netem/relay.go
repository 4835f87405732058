package netem

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Options are the options of a Relay.
type Options struct {
	// Listener accepts the connections to relay; the Relay closes it.
	Listener net.Listener
	// Dial connects to the process behind the relay.
	Dial func(ctx context.Context) (net.Conn, error)
	// Link is the path that connections take, until SetLink changes it.
	Link Link
}

// A Relay forwards TCP connections to one address over an emulated network path, which they share. It
// changes no bytes, so TLS through it is end to end.
type Relay struct {
	opts    Options
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	path  *path
	whole chan struct{} // closed while the path carries bytes

	up, down         atomic.Int64
	lateUp, lateDown lateness
}

// StartRelay begins to accept connections. The relay works until Close.
func StartRelay(ctx context.Context, opts Options) *Relay {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &Relay{opts: opts, cancel: cancel, path: newPath(opts.Link), whole: make(chan struct{})}
	close(r.whole)
	r.running.Go(func() { r.accept(ctx) })
	return r
}

// Addr returns the address that the relay listens at.
func (r *Relay) Addr() string { return r.opts.Listener.Addr().String() }

// SetLink changes the path of the connections that are accepted from now on.
func (r *Relay) SetLink(link Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path = newPath(link)
}

// Cut interrupts the path, or repairs it. While it is interrupted connections stay open and carry
// no bytes, as behind a router that has lost its power. The bytes sent meanwhile are delivered
// after the repair.
func (r *Relay) Cut(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.whole:
		if down {
			r.whole = make(chan struct{})
		}
	default:
		if !down {
			close(r.whole)
		}
	}
}

// awaitRepair waits until the path carries bytes. It returns the error of ctx if that ends first.
func (r *Relay) awaitRepair(ctx context.Context) error {
	r.mu.Lock()
	whole := r.whole
	r.mu.Unlock()
	select {
	case <-whole:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Bytes returns how many bytes the relay has forwarded: up to the process behind it, and down from
// it.
func (r *Relay) Bytes() (up, down int64) { return r.up.Load(), r.down.Load() }

// Late returns by how much deliveries of each direction have missed their due times so far: the
// relay's processor had to wake up.
func (r *Relay) Late() (up, down Lateness) { return r.lateUp.soFar(), r.lateDown.soFar() }

// Close ends all connections.
func (r *Relay) Close() error {
	r.cancel()
	err := r.opts.Listener.Close()
	r.running.Wait()
	return err
}

func (r *Relay) accept(ctx context.Context) {
	for {
		client, err := r.opts.Listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		path := r.path
		r.mu.Unlock()
		r.running.Go(func() { r.forward(ctx, client, path) })
	}
}

// forward relays one connection until both directions have ended or one fails.
func (r *Relay) forward(ctx context.Context, client net.Conn, p *path) {
	far := newEmulated(client, p)
	far.in.late, far.out.late = &r.lateUp, &r.lateDown
	far.start()
	defer far.Close()
	server, err := r.opts.Dial(ctx)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = far.Close(), server.Close() })
	defer stop()
	var up sync.WaitGroup
	up.Go(func() {
		if r.copyDirection(ctx, server, far, &r.up) != nil {
			_ = server.Close()
		}
	})
	if r.copyDirection(ctx, far, server, &r.down) != nil {
		_ = far.Close()
	}
	up.Wait()
}

// copyDirection copies bytes until the source ends, and then half-closes the destination.
func (r *Relay) copyDirection(ctx context.Context, to, from net.Conn, count *atomic.Int64) error {
	_, err := io.Copy(counter{to, count, func() error { return r.awaitRepair(ctx) }}, from)
	return errors.Join(err, closeWrite(to))
}

// A counter writes while the path carries bytes, and counts the bytes. It hides the methods by
// which io.Copy would bypass Write.
type counter struct {
	to    io.Writer
	count *atomic.Int64
	await func() error
}

// Write implements io.Writer.
func (c counter) Write(p []byte) (int, error) {
	if err := c.await(); err != nil {
		return 0, err
	}
	c.count.Add(int64(len(p))) // before the peer can have the bytes and look at the count
	return c.to.Write(p)
}
