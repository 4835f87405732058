package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// slowest is the rate below which a client is too slow, in bytes per second as a shift: 64 KiB.
const slowest = 16

// DefaultClientTimeout is the default of Options.ClientTimeout.
const DefaultClientTimeout = 30 * time.Second

// A pace bounds how long a client may make the sender of a response wait: for timeout beside a
// second for each 64 KiB, and 5 ms for each write, as a leaky bucket of time. A client that reads
// one byte now and then lets each write complete in time, and would otherwise hold its call for
// ever.
type pace struct {
	timeout time.Duration
	waited  atomic.Int64 // in nanoseconds, beyond the allowance for the written bytes
}

// left returns how long the next write of n bytes may take.
func (p *pace) left(n int) time.Duration {
	return p.timeout - time.Duration(p.waited.Load()) + allowance(n)
}

// charge charges a write of n bytes, and returns the error of a write that took too long.
func (p *pace) charge(n int, took time.Duration, err error) error {
	p.waited.Store(max(0, p.waited.Load()+int64(took-allowance(n))))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &slowReaderError{p.timeout, err}
	}
	return err
}

// leastWorth is how long a write of few bytes may take: on a busy machine the sender itself waits
// for its processor within a write, which the client of a stream of small messages must not pay for.
const leastWorth = 5 * time.Millisecond

// allowance is how long a client may take for n bytes.
func allowance(n int) time.Duration {
	return max(leastWorth, time.Duration(n)*time.Second>>slowest)
}

// slowReaderError is the error of a response that its client reads too slowly.
type slowReaderError struct {
	timeout time.Duration
	error
}

// Unwrap returns the error of the connection.
func (e *slowReaderError) Unwrap() error { return e.error }

// Error implements error.
func (e *slowReaderError) Error() string {
	return fmt.Sprintf("it has read less than %v a second for %v, the longest that a response waits (`outboard up --client-timeout`)",
		outboard.Bytes(1<<slowest), e.timeout)
}

// PaceConn returns a connection whose writes fail once the client has made them wait for timeout
// plus a second for each 64 KiB. The caller must not set its write deadlines.
func PaceConn(conn net.Conn, timeout time.Duration) net.Conn {
	return &pacedConn{Conn: conn, pace: pace{timeout: timeout}}
}

// pacedConn is the connection that PaceConn returns.
type pacedConn struct {
	net.Conn
	pace pace
}

// Write implements net.Conn.
func (c *pacedConn) Write(b []byte) (n int, err error) {
	for {
		part := b[n:min(len(b), n+piece)]
		begin := time.Now()
		if err := c.SetWriteDeadline(begin.Add(c.pace.left(len(part)))); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(part)
		err = c.pace.charge(m, time.Since(begin), err)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// A patience is how long a reader may still wait for what a client sends: timeout beside a second
// for each 1<<rate bytes, as a leaky bucket of time. One goroutine uses it.
type patience struct {
	timeout, left time.Duration // 0 <= left <= timeout
	rate          uint
}

func newPatience(timeout time.Duration, rate uint) patience { return patience{timeout, timeout, rate} }

// charge charges a read of n bytes.
func (p *patience) charge(n int, took time.Duration) {
	p.left = max(0, min(p.timeout, p.left+time.Duration(n)*time.Second>>p.rate-took))
}

// pacedBody is the body of a request of which reading fails once the client has made its reader wait
// for the client timeout beside a second for each 64 KiB. One goroutine reads it.
type pacedBody struct {
	io.ReadCloser
	x        *exchange
	patience patience
}

func (x *exchange) pace(body io.ReadCloser) *pacedBody {
	return &pacedBody{body, x, newPatience(x.h.gateway.opts.ClientTimeout, slowest)}
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	begin := time.Now()
	b.x.setReadDeadline(b.x.h.gateway.server.watch.clock().Add(b.patience.left))
	n, err := b.ReadCloser.Read(p)
	b.patience.charge(n, time.Since(begin))
	if errors.Is(err, io.EOF) {
		b.x.setReadDeadline(time.Time{}) // the next request of the connection sets its own
	}
	return n, err
}

// setReadDeadline sets the deadline of reading from the client. A recorder in a test has none.
func (x *exchange) setReadDeadline(until time.Time) {
	_ = http.NewResponseController(x.w).SetReadDeadline(until)
}

// slowestSender is the rate below which BoundBody gives up on a client, as a shift: 4 KiB a second.
// A tenant's process has stricter limits.
const slowestSender = 12

// BoundBody returns a copy of a request, of whose body reading fails once the client has made its
// reader wait for timeout beside a second for each 4 KiB: a client that has sent much at once may not
// stop for longer than others. It also bounds how long net/http waits for what the handler leaves of
// the body. The original keeps its own body, by whose type net/http learns whether it can use the
// connection again. The request is one of HTTP/1: over HTTP/2 its deadline would end a body that
// nothing reads.
func BoundBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &boundedBody{body: r.Body, control: http.NewResponseController(w), patience: newPatience(timeout, slowestSender)}
	_ = b.control.SetReadDeadline(time.Now().Add(timeout)) // a recorder in a test has none
	r = r.WithContext(context.WithValue(r.Context(), boundedKey{}, b))
	r.Body = b
	return r
}

// boundedKey is the key of a request's boundedBody in its context.
type boundedKey struct{}

// A boundedBody is the body of a request that BoundBody has bounded. One goroutine reads it.
type boundedBody struct {
	mu       sync.Mutex // held by Read
	failure  *bodyError // of Read
	body     io.ReadCloser
	control  *http.ResponseController
	patience patience
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	begin := time.Now()
	_ = b.control.SetReadDeadline(begin.Add(b.patience.left))
	n, err := b.body.Read(p)
	b.patience.charge(n, time.Since(begin))
	if errors.Is(err, io.EOF) { // the next request of the connection sets its own deadline
		_ = b.control.SetReadDeadline(time.Time{})
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = outboard.Errorf(outboard.Invalid, "", "the client has sent less than %v a second of its body for %v (`outboard up --client-timeout`): %w",
			outboard.Bytes(1<<slowestSender), b.patience.timeout, err)
		b.failure = &bodyError{http.StatusRequestTimeout, "the body came too slowly"}
	case err != nil && !errors.Is(err, io.EOF):
		b.failure = &bodyError{http.StatusBadRequest, "the body did not come whole: " + err.Error()}
	}
	return n, err
}

// BodyProblem returns the problem of a request, with this context, whose body BoundBody has bounded
// and could not read. ok is false if there is no such problem.
func BodyProblem(ctx context.Context) (p Problem, ok bool) {
	b, ok := ctx.Value(boundedKey{}).(*boundedBody)
	if !ok {
		return Problem{}, false
	}
	if ctx.Err() != nil {
		b.mu.Lock() // net/http ends the context before Read returns
	} else if !b.mu.TryLock() {
		return Problem{}, false
	}
	defer b.mu.Unlock()
	if b.failure == nil {
		return Problem{}, false
	}
	p = problem(b.failure.status, b.failure.detail)
	p.Kind = outboard.Invalid.String()
	return p, true
}

// Close implements io.Closer.
func (b *boundedBody) Close() error { return b.body.Close() }
