package router

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// peer is a callee behind a transport in this process. Nothing is buffered: who
// does not receive is not sent to.
type fake struct {
	serve func(call.ServerStream) error
	// refuse, when it gives an error, is what Open says.
	refuse func() error

	opened, ended atomic.Int64
	mu            sync.Mutex
	streams       map[*pipe]bool
	dead          bool
}

func newFake(serve func(call.ServerStream) error) *fake {
	return &fake{serve: serve, streams: map[*pipe]bool{}}
}

// quick is a fake that has the shorter way too.
type quick struct {
	*fake
	unary func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error)
	calls atomic.Int64
}

func (q *quick) Unary(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	q.calls.Add(1)
	return q.unary(ctx, h, m)
}

func newQuick(unary func(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error)) *quick {
	return &quick{fake: newFake(nil), unary: unary}
}

// echo answers what it got.
func echo(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
	data := m.Data
	m.Free()
	return &call.Message{Data: data}, call.End{}, nil
}

func echoes(s call.ServerStream) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

// A pipe is one call: its two directions and its end.
type pipe struct {
	head   *call.Head
	ctx    context.Context //nolint:containedctx // the call's
	cancel context.CancelCauseFunc

	up, down chan *call.Message
	closed   chan struct{} // the caller has sent everything
	closing  sync.Once

	header  chan struct{} // closed when it is known
	once    sync.Once
	md      metadata.MD
	trailer metadata.MD
	done    chan struct{} // closed at the end
	err     error
}

func (f *fake) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	if f.refuse != nil {
		if err := f.refuse(); err != nil {
			return nil, err
		}
	}
	p := &pipe{
		head: h, up: make(chan *call.Message), down: make(chan *call.Message), closed: make(chan struct{}),
		header: make(chan struct{}), done: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, status.Error(codes.Unavailable, "the peer is dead")
	}
	f.streams[p] = true
	f.opened.Add(1)
	go f.run(p)
	return &clientEnd{p}, nil
}

func (f *fake) run(p *pipe) {
	err := f.serve(&serverEnd{p})
	f.mu.Lock()
	delete(f.streams, p)
	f.mu.Unlock()
	if cause := context.Cause(p.ctx); cause != nil {
		err = cause
	}
	p.err = toStatus(err)
	f.ended.Add(1)
	close(p.done)
	p.cancel(nil)
}

// die ends all calls as a broken connection does.
func (f *fake) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	for p := range f.streams {
		p.cancel(status.Error(codes.Unavailable, "the peer died"))
	}
}

func (f *fake) Close() error { f.die(); return nil }

type clientEnd struct{ *pipe }

func (c *clientEnd) Send(m *call.Message) error {
	select {
	case c.up <- m:
		return nil
	case <-c.ctx.Done():
		m.Free()
		return io.EOF
	case <-c.done:
		m.Free()
		return io.EOF
	}
}

func (c *clientEnd) CloseSend() error {
	c.closing.Do(func() { close(c.closed) })
	return nil
}

func (c *clientEnd) Header() (metadata.MD, error) {
	select {
	case <-c.header:
		return c.md, nil
	case <-c.done:
	}
	select {
	case <-c.header:
		return c.md, nil
	default:
		return nil, nil
	}
}

func (c *clientEnd) Recv() (*call.Message, error) {
	select {
	case m := <-c.down:
		return m, nil
	case <-c.done:
		if c.err == nil {
			return nil, io.EOF
		}
		return nil, c.err
	}
}

func (c *clientEnd) Trailer() metadata.MD { return c.trailer }

type serverEnd struct{ *pipe }

func (s *serverEnd) Context() context.Context { return s.ctx }
func (s *serverEnd) Head() *call.Head         { return s.head }

func (s *serverEnd) Recv() (*call.Message, error) {
	select {
	case m := <-s.up:
		return m, nil
	case <-s.closed:
		return nil, io.EOF
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	case <-s.done:
		return nil, context.Canceled
	}
}

func (s *serverEnd) SendHeader(md metadata.MD) error {
	s.once.Do(func() {
		if s.md = md; md == nil {
			s.md = metadata.MD{}
		}
		close(s.header)
	})
	return nil
}

func (s *serverEnd) Send(m *call.Message) error {
	_ = s.SendHeader(nil)
	select {
	case s.down <- m:
		return nil
	case <-s.ctx.Done():
		m.Free()
		return s.ctx.Err()
	}
}

func (s *serverEnd) SetTrailer(md metadata.MD) { s.trailer = metadata.Join(s.trailer, md) }

const find = "/shop.Search/Find"

func text(s string) *call.Message { return &call.Message{Data: []byte(s)} }

// routed is a router with one service, shop.Search, on the transports, and policies.
func routed(t testing.TB, policies string, transports ...call.Transport) *Router {
	t.Helper()
	return routedWith(t, Options{}, policies, transports...)
}

func routedWith(t testing.TB, o Options, policies string, transports ...call.Transport) *Router {
	t.Helper()
	r := New(o)
	t.Cleanup(func() { r.Close() })
	if err := r.SetService("shop.Search", Service{Endpoints: endpointsOf(transports...)}); err != nil {
		t.Fatal(err)
	}
	if policies != "" {
		r.SetPolicies(policiesOf(t, policies))
	}
	return r
}

func endpointsOf(transports ...call.Transport) []Endpoint {
	var list []Endpoint
	for i, tr := range transports {
		list = append(list, Endpoint{Endpoint: balance.Endpoint{ID: string(rune('a' + i))}, Transport: tr})
	}
	return list
}

func policiesOf(t testing.TB, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte("policies:\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// ask makes a unary call and tells the answer.
func ask(ctx context.Context, r *Router, request string) (string, error) {
	m, _, err := r.ServeUnary(ctx, &call.Head{Method: find}, text(request))
	if err != nil {
		return "", err
	}
	defer m.Free()
	return string(m.Data), nil
}

// caller opens calls to a router as a transport does: a fake whose callee it is.
func callerOf(r *Router) *fake { return newFake(r.Serve) }

// eventually waits for something that other goroutines do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
