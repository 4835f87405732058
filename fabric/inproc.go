package fabric

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

var errLocalClosed = status.Error(codes.Unavailable, "fabric: the connection in this process is closed")

// A Network is the names of servers in this process. The zero value is ready.
type Network struct {
	mu    sync.Mutex
	names map[string]*localListener
}

// Listen takes a name. Those who dial "inproc:NAME" with this network wait until
// a server serves the listener.
func (n *Network) Listen(name string) (Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names[name] != nil {
		return nil, fmt.Errorf("fabric: listen on inproc:%s: the name is taken", name)
	}
	if n.names == nil {
		n.names = map[string]*localListener{}
	}
	l := &localListener{network: n, name: name, ready: make(chan struct{}), over: make(chan struct{})}
	n.names[name] = l
	return l, nil
}

// localListener is a name in a Network.
type localListener struct {
	network *Network
	name    string
	once    sync.Once
	handler call.Handler
	ready   chan struct{} // closed when handler is known
	over    chan struct{} // closed when it serves no more
}

// Addr implements Listener.
func (l *localListener) Addr() net.Addr { return address("inproc:" + l.name) }

// Serve implements Listener.
func (l *localListener) Serve(ctx context.Context, h call.Handler) error {
	l.handler = h
	close(l.ready)
	<-ctx.Done()
	return l.Close()
}

// Close implements Listener.
func (l *localListener) Close() error {
	l.once.Do(func() {
		l.network.remove(l)
		close(l.over)
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

// dial is the link to who listens at name now.
func (n *Network) dial(ctx context.Context, name string) (*Link, error) {
	l := n.find(name)
	if l == nil {
		return nil, fmt.Errorf("fabric: dial inproc:%s: nobody listens", name)
	}
	select {
	case <-l.ready:
	case <-l.over:
		return nil, fmt.Errorf("fabric: dial inproc:%s: nobody listens", name)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t := newInProcess(l.handler, l.over)
	return &Link{Transport: t, Peer: private("inproc:"+name, "inproc"), Done: l.over}, nil
}

// InProcess is a way to h for callers in the same process. Messages of protocol
// buffers are copied, never shared and never marshalled.
func InProcess(h call.Handler) call.Transport { return newInProcess(h, nil) }

// inProcess is a transport to a handler in this process.
type inProcess struct {
	handler call.Handler
	server  *Server         // handler, where it is one of ours
	gone    <-chan struct{} // closed when the handler listens no more; nil: never
	closed  chan struct{}
	once    sync.Once
}

var (
	_ call.Transport = (*inProcess)(nil)
	_ call.Unary     = (*inProcess)(nil)
)

func newInProcess(h call.Handler, gone <-chan struct{}) *inProcess {
	t := &inProcess{handler: h, gone: gone, closed: make(chan struct{})}
	t.server, _ = h.(*Server)
	return t
}

// Close implements call.Transport. It does not wait for handlers.
func (t *inProcess) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// ended says why no call can begin.
func (t *inProcess) ended() error {
	select {
	case <-t.closed:
		return errClosing
	case <-t.gone:
		return errLocalClosed
	default:
		return nil
	}
}

// handlerContext is the context of a handler for a caller with ctx: it ends with
// ctx and inherits nothing else.
func handlerContext(ctx context.Context) (context.Context, context.CancelFunc) {
	var mine context.Context
	var cancel context.CancelFunc
	if d, ok := ctx.Deadline(); ok {
		mine, cancel = context.WithDeadline(context.Background(), d)
	} else {
		mine, cancel = context.WithCancel(context.Background())
	}
	unhook := context.AfterFunc(ctx, cancel)
	return mine, func() { unhook(); cancel() }
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
	kept := keep(request)
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
	return keep(response), end, nil
}

// do runs work, for callers who may leave before it is done: then late runs when
// it is, and the caller gets the status to leave with.
func (t *inProcess) do(ctx context.Context, work func(context.Context), late func()) error {
	if ctx.Done() == nil {
		// Nothing can make this caller leave: no goroutine is needed.
		work(context.Background())
		return nil
	}
	mine, cancel := handlerContext(ctx)
	done, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer cancel()
		work(mine)
		close(done)
		select {
		case <-left:
			late()
		default:
		}
	}()
	err := t.wait(ctx, done)
	if err != nil {
		cancel()
		close(left)
	}
	return err
}

// wait waits for done, and says why it did not.
func (t *inProcess) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return contextStatus(ctx)
	case <-t.closed:
		return errClosing
	case <-t.gone:
		return errLocalClosed
	}
}

// keep makes m something that its sender no longer holds.
func keep(m *call.Message) *call.Message {
	kept := *m
	if m.Value != nil && m.Data == nil {
		if v := protoOf(m.Value); v != nil {
			kept.Value = proto.Clone(v)
		}
	}
	return &kept
}
