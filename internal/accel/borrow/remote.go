package borrow

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/bridge"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/shm"
)

// Protocol is the TLS application protocol of the fabric.
const Protocol = "outboard/1"

// RemoteOptions configure the connection to a device's node.
type RemoteOptions struct {
	// Addr is the address of the node.
	Addr string
	// TLS is called for each new connection.
	TLS func() (*tls.Config, error)
	// Dialed, when set, is called with each new connection before the handshake. An error ends the
	// dial.
	Dialed func(net.Conn) error
	// DeadAfter is how long the node may be unreachable before its sessions are lost: shorter
	// interruptions of the network are bridged. 0 means 5 s.
	DeadAfter time.Duration
	// Area is the size of each direction of a ring; 0 means shm.DefaultArea.
	Area int
}

// Remote is a connection to one device's node, shared by the sessions there. It is made when the
// first session needs it, and made again after it was lost.
type Remote struct {
	opts RemoteOptions

	mu   sync.Mutex
	conn *framed.Conn
}

// NewRemote returns a Remote that is not connected yet.
func NewRemote(opts RemoteOptions) *Remote {
	if opts.Area == 0 {
		opts.Area = shm.DefaultArea
	}
	return &Remote{opts: opts}
}

// Dial opens a session. It waits for the network only when there is no connection yet: an error of
// the claim is reported at the ring's first use.
func (r *Remote) Dial(ctx context.Context, claim []byte) (Link, error) {
	conn, err := r.connect(ctx, r.deadAfter())
	if err != nil {
		return nil, err
	}
	l := &remote{to: r, token: bridge.NewToken(), done: make(chan struct{})}
	streams, err := l.open(ctx, conn, bridge.Opening{Kind: bridge.Open, Claim: claim})
	if err != nil {
		return nil, err
	}
	file, err := shm.NewFile(r.opts.Area)
	if err != nil {
		streams.Reset(err)
		return nil, err
	}
	if l.ring, err = shm.Open(file, shm.Worker); err != nil {
		streams.Reset(err)
		_ = file.Close()
		return nil, err
	}
	l.life, l.end = context.WithCancel(context.WithoutCancel(ctx))
	go l.run(streams)
	return l, nil
}

// Warm connects ahead of the first session. Dial reports its errors.
func (r *Remote) Warm(ctx context.Context) { _, _ = r.connect(ctx, r.deadAfter()) }

// connect returns the live connection, or makes one, whose dial has a time limit.
func (r *Remote) connect(ctx context.Context, limit time.Duration) (*framed.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil && r.conn.Err() == nil {
		return r.conn, nil
	}
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
	config, err := r.opts.TLS()
	if err != nil {
		return nil, err
	}
	nc, err := r.dial(ctx, limit)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.within(ctx, max(limit, handshakeLimit))
	defer cancel()
	conn := framed.Client(nc, framed.Options{TLS: config, DeadAfter: r.silence()})
	if err := conn.Handshake(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	r.conn = conn
	return conn, nil
}

// dial connects to the node within a time limit.
func (r *Remote) dial(ctx context.Context, limit time.Duration) (net.Conn, error) {
	ctx, cancel := r.within(ctx, limit)
	defer cancel()
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", r.opts.Addr)
	if err != nil {
		return nil, outboard.Errorf(outboard.Unreachable, "connect to the device's node", "%w", err)
	}
	if r.opts.Dialed != nil {
		if err := r.opts.Dialed(nc); err != nil {
			_ = nc.Close()
			return nil, err
		}
	}
	return nc, nil
}

// within limits a step of connecting.
func (r *Remote) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, outboard.Errorf(outboard.Unreachable,
		"connect to "+r.opts.Addr, "no answer within %v: is the device's node up, and its port open?", limit))
}

// deadAfter returns how long the node may be unreachable.
func (r *Remote) deadAfter() time.Duration { return cmp.Or(r.opts.DeadAfter, 5*time.Second) }

// minSilence prevents a busy machine from being mistaken for a cut network.
const minSilence = 300 * time.Millisecond

// silence returns how long the node may be silent until the connection counts as lost and another
// one is tried.
func (r *Remote) silence() time.Duration {
	return max(r.deadAfter()/5, min(minSilence, r.deadAfter()/2))
}

// Close ends the connection and, with it, every session that it carries.
func (r *Remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	conn := r.conn
	r.conn = nil
	return conn.Close()
}

// remote is a session whose worker is on another machine.
type remote struct {
	to    *Remote
	token bridge.Token
	ring  *shm.Ring
	life  context.Context //nolint:containedctx // It is the session's life, which Close ends.
	end   context.CancelFunc
	done  chan struct{}

	mu     sync.Mutex
	closed bool
	err    error
}

// open opens the session's streams on a connection.
func (l *remote) open(ctx context.Context, conn *framed.Conn, o bridge.Opening) (bridge.Streams, error) {
	o.Token, o.Patience = l.token, l.to.deadAfter()
	data, err := conn.Open(ctx, bridge.Method, o.Marshal())
	if err != nil {
		return bridge.Streams{}, err
	}
	acks, err := conn.Open(ctx, bridge.Method, bridge.Opening{Kind: bridge.Acks, Token: l.token}.Marshal())
	if err != nil {
		data.Reset(err)
		return bridge.Streams{}, err
	}
	return bridge.Streams{Data: data, Acks: acks}, nil
}

// run moves bytes until either side ends.
func (l *remote) run(streams bridge.Streams) {
	defer close(l.done)
	defer l.end()
	err := bridge.NewHalf(l.ring, nil).Run(l.life, streams, l.reconnect)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.err = err
	}
}

const (
	// redialLimit bounds one attempt to connect: the next attempt succeeds once the network is
	// back, while the system would repeat the packets of this one at growing intervals. Packets pass
	// when the handshake begins. It takes two round trips, and longer on a busy machine: more than
	// redialLimit over a link of 200 ms, so that no attempt would succeed there.
	redialLimit    = 400 * time.Millisecond
	handshakeLimit = 4 * redialLimit
	redialPause    = 50 * time.Millisecond
)

// reconnect continues the session over another connection, which it tries to make until the node
// has been unreachable for DeadAfter. It then returns cause.
func (l *remote) reconnect(received uint64, cause error) (bridge.Streams, uint64, error) {
	ctx, cancel := context.WithTimeout(l.life, l.to.deadAfter()-l.to.silence())
	defer cancel()
	for ctx.Err() == nil {
		conn, err := l.to.connect(ctx, redialLimit)
		if err == nil {
			streams, peer, err := l.resume(ctx, conn, received)
			if err == nil {
				return streams, peer, nil
			}
			if !conn.Lost() && ctx.Err() == nil {
				return bridge.Streams{}, 0, err
			}
		}
		if errors.Is(err, syscall.ECONNREFUSED) || outboard.KindOf(err) == outboard.Denied {
			break // no process listens there: the session has ended with the node
		}
		select {
		case <-ctx.Done():
		case <-time.After(redialPause):
		}
	}
	return bridge.Streams{}, 0, cause
}

// resume opens the session's streams on another connection, and reads how many bytes the node has
// received.
func (l *remote) resume(ctx context.Context, conn *framed.Conn, received uint64) (bridge.Streams, uint64, error) {
	streams, err := l.open(ctx, conn, bridge.Opening{Kind: bridge.Resume, Received: received})
	if err != nil {
		return streams, 0, err
	}
	stop := context.AfterFunc(ctx, func() { streams.Reset(context.Cause(ctx)) })
	defer stop()
	peer, err := streams.Peer()
	if err != nil {
		streams.Reset(err)
	}
	return streams, peer, err
}

func (l *remote) File() *os.File        { return l.ring.File() }
func (l *remote) Done() <-chan struct{} { return l.done }

func (l *remote) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *remote) Close() error {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	if already {
		<-l.done
		return nil
	}
	// A program that closed its ring has sent everything; otherwise the program has ended.
	_ = l.ring.Close(shm.Done)
	l.end()
	<-l.done
	l.ring.Unmap()
	return nil
}
