package borrow

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/shm"
)

// Sessions is the version of what a session's bytes mean: the ring's layout and
// the messages. Both sides must have the same; it is raised with every change.
const Sessions = 2

// Method is the fabric's method of a session. Its header is a byte, the version,
// and the lease's claim; its bytes are those of the ring.
const Method = "session"

// Header makes the header of a session's stream.
func Header(claim []byte) []byte { return append([]byte{Sessions}, claim...) }

// ClaimOf takes the claim out of a session's header.
func ClaimOf(header []byte) ([]byte, error) {
	if len(header) == 0 {
		return nil, outboard.Errorf(outboard.Protocol, "session", "no header")
	}
	return header[1:], CheckVersion(int(header[0]))
}

// CheckVersion returns an error with a remedy when the other side's sessions are of another
// version.
func CheckVersion(version int) error {
	if version == Sessions {
		return nil
	}
	return outboard.Errorf(outboard.Protocol, "session", "the device's node speaks version %d of sessions, the program's outboard version %d: run the same release on both",
		Sessions, version)
}

// Protocol is the TLS application protocol of the fabric.
const Protocol = "outboard/1"

// RemoteOptions say how to reach a device's node.
type RemoteOptions struct {
	// Addr is where the node listens.
	Addr string
	// TLS is asked before each new connection.
	TLS func() (*tls.Config, error)
	// DeadAfter is how long the node may be silent; 0 means the fabric's default.
	DeadAfter time.Duration
	// Area is the size of each direction of a ring; 0 means shm.DefaultArea.
	Area int
}

// Remote is a connection to one device's node, shared by the sessions there.
// It is made when the first session needs it, and again after it was lost.
type Remote struct {
	opts RemoteOptions

	mu   sync.Mutex
	conn *framed.Conn
}

// NewRemote connects to nothing yet.
func NewRemote(opts RemoteOptions) *Remote {
	if opts.Area == 0 {
		opts.Area = shm.DefaultArea
	}
	return &Remote{opts: opts}
}

// Dial opens a session. It waits for the network only when there is no
// connection yet: what is wrong with the claim shows at the ring's first use.
func (r *Remote) Dial(ctx context.Context, claim []byte) (Link, error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := conn.Open(ctx, Method, Header(claim))
	if err != nil {
		return nil, err
	}
	file, err := shm.NewFile(r.opts.Area)
	if err != nil {
		stream.Reset(err)
		return nil, err
	}
	ring, err := shm.Open(file, shm.Worker)
	if err != nil {
		stream.Reset(err)
		_ = file.Close()
		return nil, err
	}
	l := &remote{stream: stream, ring: ring, done: make(chan struct{})}
	go l.relay()
	return l, nil
}

// Warm makes the connection ahead of its first session. An error shows there.
func (r *Remote) Warm(ctx context.Context) { _, _ = r.connect(ctx) }

// connect returns the connection that lives, or makes one.
func (r *Remote) connect(ctx context.Context) (*framed.Conn, error) {
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
	ctx, cancel := context.WithTimeoutCause(ctx, r.connectTimeout(), outboard.Errorf(outboard.Unreachable,
		"connect to "+r.opts.Addr, "no answer within %v: is the device's node up, and its port open?", r.connectTimeout()))
	defer cancel()
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", r.opts.Addr)
	if err != nil {
		return nil, outboard.Errorf(outboard.Unreachable, "connect to the device's node", "%w", err)
	}
	conn := framed.Client(nc, framed.Options{TLS: config, DeadAfter: r.opts.DeadAfter})
	if err := conn.Handshake(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	r.conn = conn
	return conn, nil
}

func (r *Remote) connectTimeout() time.Duration {
	if r.opts.DeadAfter == 0 {
		return 5 * time.Second
	}
	return r.opts.DeadAfter
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
	stream *framed.Stream
	ring   *shm.Ring
	done   chan struct{}

	mu     sync.Mutex
	closed bool
	err    error
}

// relay moves bytes until either side ends.
func (l *remote) relay() {
	defer close(l.done)
	err := framed.Relay(l.stream, l.ring)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.err = err
	}
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
	// A program that closed its ring has said all; otherwise it is gone.
	_ = l.ring.Close(shm.Done)
	<-l.done
	l.ring.Unmap()
	return nil
}
