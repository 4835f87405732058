package fabric

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

// errServerStopped is the status of calls to a server that has stopped.
var errServerStopped = status.Error(codes.Unavailable, "fabric: the server in this process has stopped")

// A Network maps the names of "inproc:NAME" to servers in this process. The zero value is
// ready.
type Network struct {
	mu    sync.Mutex
	names map[string]*localListener
}

// listen reserves a name. Dialling "inproc:NAME" with this network waits until a server
// serves the listener.
func (n *Network) listen(name string) (Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names[name] != nil {
		return nil, fmt.Errorf("fabric: listen on inproc:%s: the name is taken", name)
	}
	if n.names == nil {
		n.names = map[string]*localListener{}
	}
	l := &localListener{network: n, name: name, ready: make(chan struct{})}
	l.life, l.over = context.WithCancelCause(context.Background())
	n.names[name] = l
	return l, nil
}

// localListener is a listener at a name in a Network.
type localListener struct {
	network *Network
	name    string
	once    sync.Once
	server  *Server
	ready   chan struct{}   // closed when server is known
	life    context.Context //nolint:containedctx // of the connections
	over    context.CancelCauseFunc
}

// Addr implements Listener.
func (l *localListener) Addr() net.Addr { return address("inproc:" + l.name) }

func (l *localListener) serve(ctx context.Context, s *Server) error {
	l.server = s
	close(l.ready)
	<-ctx.Done()
	return l.Close()
}

// Close implements Listener.
func (l *localListener) Close() error {
	l.once.Do(func() {
		l.network.remove(l)
		l.over(errServerStopped)
	})
	return nil
}

func (n *Network) remove(l *localListener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.names, l.name)
}

func (n *Network) find(name string) *localListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}

// dial returns a link to the server that listens at name now.
func (n *Network) dial(ctx context.Context, name string) (*link, error) {
	l := n.find(name)
	if l == nil {
		return nil, fmt.Errorf("fabric: dial inproc:%s: nobody listens", name)
	}
	select {
	case <-l.ready:
	case <-l.life.Done():
		return nil, fmt.Errorf("fabric: dial inproc:%s: nobody listens", name)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t := newInProcess(l.life, serverHandler{l.server})
	return &link{transport: t, peer: securePeer("inproc:"+name, "inproc"), done: t.life.Done()}, nil
}

// inProcess is a transport to a handler in this process. Messages of protocol buffers are copied,
// never shared and never marshalled.
type inProcess struct {
	handler call.Handler
	server  *Server         // the handler's server, if it is of this package
	life    context.Context //nolint:containedctx // of all calls; its cause is their status
	close   context.CancelCauseFunc
	unhook  func() bool
}

var (
	_ call.Transport = (*inProcess)(nil)
	_ call.Unary     = (*inProcess)(nil)
)

func newInProcess(ctx context.Context, h call.Handler) *inProcess {
	t := &inProcess{handler: h}
	t.life, t.close = context.WithCancelCause(ctx)
	if own, ok := h.(serverHandler); ok {
		s := own.Server
		t.server = s
		t.unhook = context.AfterFunc(s.life, func() { t.close(errServerStopped) })
	}
	return t
}

// Close implements call.Transport. It does not wait for handlers.
func (t *inProcess) Close() error {
	t.close(errClosing)
	if t.unhook != nil {
		t.unhook()
	}
	return nil
}

// ended returns the reason that no call can begin, or nil.
func (t *inProcess) ended() error {
	if t.life.Err() == nil {
		return nil
	}
	return context.Cause(t.life)
}

// handlerContext returns the context of a handler for a caller with ctx: it ends with ctx and the
// transport, and inherits nothing else.
func (t *inProcess) handlerContext(ctx context.Context) (context.Context, context.CancelFunc) {
	var mine context.Context
	var cancel context.CancelFunc
	if d, ok := ctx.Deadline(); ok {
		mine, cancel = context.WithDeadline(context.Background(), d)
	} else {
		mine, cancel = context.WithCancel(context.Background())
	}
	caller, transport := context.AfterFunc(ctx, cancel), context.AfterFunc(t.life, cancel)
	return mine, func() { caller(); transport(); cancel() }
}

// Unary implements call.Unary.
func (t *inProcess) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	u, ok := t.handler.(call.UnaryHandler)
	if !ok {
		return t.unaryByStream(ctx, h, request)
	}
	if err := t.ended(); err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	kept := detach(request)
	var response *call.Message
	var end call.End
	var err error
	late := t.do(ctx, func(ctx context.Context) { response, end, err = u.ServeUnary(ctx, h, kept) },
		func() { response.Free() })
	if late != nil {
		return nil, call.End{}, late
	}
	if err != nil {
		return nil, end, handlerStatus(err)
	}
	return detach(response), end, nil
}

// do runs work for a caller whose context may end first: then do returns that context's status, and
// late runs after work.
func (t *inProcess) do(ctx context.Context, work func(context.Context), late func()) error {
	mine, cancel := t.handlerContext(ctx)
	done := make(chan struct{})
	var settled atomic.Bool // set by the first of: work has returned, the caller has left
	go func() {
		defer cancel()
		if work(mine); settled.Swap(true) {
			late()
		}
		close(done)
	}()
	err := t.wait(ctx, done)
	if err != nil {
		cancel()
		if settled.Swap(true) {
			late()
		}
	}
	return err
}

// wait waits for done. It returns the reason if the wait ended before; done takes precedence.
func (t *inProcess) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return contextStatus(ctx)
	case <-t.life.Done():
		return context.Cause(t.life)
	}
}

// detach returns a copy of m that shares no memory with its sender.
func detach(m *call.Message) *call.Message {
	kept := *m
	if m.Value != nil && m.Data == nil {
		if v := protoOf(m.Value); v != nil {
			kept.Value = proto.Clone(v)
		}
	}
	return &kept
}
