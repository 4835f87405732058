package models

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/ipc"
	tensor "github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// bypasses are the connections through which this process calls the workers of models on its node
// itself, while it is their only client. A call that can't use one goes through the node.
type bypasses struct {
	socket, credential string
	log                *slog.Logger
	life               context.Context //nolint:containedctx // of the connections
	end                context.CancelFunc
	opening            sync.WaitGroup

	mu     sync.Mutex
	models map[string]*bypass
	closed bool
}

const (
	// maxBypasses bounds the models that this process calls itself.
	maxBypasses = 32
	// bypassRetry is the least time between two requests to the node for a bypass to one model.
	bypassRetry = time.Second
	// bypassLimit bounds the time in which the node has to answer such a request.
	bypassLimit = 30 * time.Second
	// sharedRest is how long calls of a model go through the node after several of them were in
	// progress at once: the node forms batches of them.
	sharedRest = 10 * time.Millisecond
)

// newBypasses returns the bypasses that the node grants on a socket, "" for none.
func newBypasses(socket, credential string, log *slog.Logger) *bypasses {
	b := &bypasses{socket: socket, credential: credential, log: log, models: map[string]*bypass{}}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// close ends all connections. Calls in progress end.
func (b *bypasses) close() {
	b.end()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.opening.Wait()
	for _, m := range b.models {
		m.drop(m.link.Load())
	}
}

// of returns the bypass to a model, nil if there are too many or the node grants none.
func (b *bypasses) of(name string) *bypass {
	if b.socket == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.models[name]
	if m == nil && len(b.models) < maxBypasses && !b.closed {
		m = &bypass{owner: b, name: name}
		b.models[name] = m
	}
	return m
}

// A bypass is the connection for one model, which is opened after a first call.
type bypass struct {
	owner *bypasses
	name  string

	inProgress atomic.Int32
	shared     atomic.Int64 // time at which several calls were last in progress, in ns of the Unix time
	link       atomic.Pointer[bypassLink]

	mu      sync.Mutex
	asked   time.Time // the last request to the node
	opening bool      // that request is in progress
	size    int       // bytes of the tensors of the largest call
}

// A bypassLink is an open connection.
type bypassLink struct {
	*worker.BypassClient
	conn *ipc.Conn
}

// begin counts a call that begins, and returns the connection that it may use, nil for none. The
// caller calls done after the call.
func (m *bypass) begin() (link *bypassLink, done func()) {
	if m == nil {
		return nil, func() {}
	}
	if m.inProgress.Add(1) > 1 {
		m.shared.Store(time.Now().UnixNano())
	} else if link = m.link.Load(); link != nil && time.Now().UnixNano()-m.shared.Load() < int64(sharedRest) {
		link = nil
	}
	return link, func() { m.inProgress.Add(-1) }
}

// infer calls the worker. It fails with worker.ErrNoBypass if the call has to go through the node.
func (m *bypass) infer(ctx context.Context, link *bypassLink, inputs []function.ModelTensor, names []string) ([]function.ModelTensor, error) {
	list := make([]tensor.Tensor, len(inputs))
	for i := range inputs {
		t := &inputs[i]
		kind, err := tensor.ParseDataType(t.Type)
		if err != nil {
			return nil, worker.ErrNoBypass // the node explains the error
		}
		list[i] = tensor.Tensor{Name: t.Name, Type: kind, Shape: t.Shape, Data: t.Data}
	}
	results, err := link.Infer(ctx, list, names)
	if link.Broken() {
		m.drop(link)
	}
	if err != nil {
		return nil, err
	}
	return orderOutputs(results, names)
}

// orderOutputs returns the outputs in the order of their names.
func orderOutputs(results []tensor.Tensor, names []string) ([]function.ModelTensor, error) {
	list := make([]function.ModelTensor, len(names))
	for i, name := range names {
		at := indexOf(results, name)
		if at < 0 {
			return nil, worker.ErrNoBypass
		}
		t := &results[at]
		list[i] = function.ModelTensor{Name: name, Type: t.Type.String(), Shape: t.Shape, Data: t.Data}
	}
	return list, nil
}

func indexOf(list []tensor.Tensor, name string) int {
	for i := range list {
		if list[i].Name == name {
			return i
		}
	}
	return -1
}

// drop closes a connection that is no longer used.
func (m *bypass) drop(link *bypassLink) {
	if link != nil && m.link.CompareAndSwap(link, nil) {
		link.Close()
		_ = link.conn.Close() // the node may have closed it
	}
}

// request asks the node for a connection after a call of the given size went through the node,
// unless there is one or the last request was too recent.
func (m *bypass) request(size int) {
	if m == nil || m.link.Load() != nil {
		return
	}
	m.mu.Lock()
	m.size = max(m.size, size)
	size = m.size
	due := size <= worker.MaxBypass && !m.opening && m.link.Load() == nil && time.Since(m.asked) >= bypassRetry
	if due {
		m.asked, m.opening = time.Now(), true
	}
	m.mu.Unlock()
	if due {
		m.owner.start(func() { m.open(size) })
	}
}

// start runs a function in a goroutine that close waits for.
func (b *bypasses) start(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.opening.Go(f)
	}
}

// open opens the connection.
func (m *bypass) open(size int) {
	ctx, cancel := context.WithTimeout(m.owner.life, bypassLimit)
	defer cancel()
	link, err := m.owner.dial(ctx, m.name, size)
	if err != nil {
		m.owner.log.Debug("a model is called through the node", "model", m.name, "reason", err)
	} else {
		m.link.Store(link)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opening = false
}

// dial asks the node for a bypass.
func (b *bypasses) dial(ctx context.Context, name string, size int) (*bypassLink, error) {
	conn, err := ipc.Dial(ctx, b.socket, worker.BypassOptions)
	if err != nil {
		return nil, err
	}
	client, err := b.receive(ctx, conn, worker.BypassRequest{Key: b.credential, Model: name, Size: size})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &bypassLink{client, conn}, nil
}

// receive sends the request and maps the memory that the node passes.
func (b *bypasses) receive(ctx context.Context, conn *ipc.Conn, r worker.BypassRequest) (*worker.BypassClient, error) {
	if err := conn.Send(worker.TypeBypassRequest, r); err != nil {
		return nil, err
	}
	m, err := conn.Receive(ctx)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	switch m.Type {
	case worker.TypeBypassGranted:
		var granted worker.BypassGranted
		if err := m.Decode(&granted); err != nil {
			return nil, err
		}
		return worker.OpenBypassClient(m.Files(), granted.Timeout)
	case worker.TypeBypassEnded:
		var reason ipc.Reason
		return nil, errors.Join(m.Decode(&reason), reason.Err(), worker.ErrNoBypass)
	}
	return nil, outboard.Errorf(outboard.Protocol, "bypass", "unexpected message of type %.40q", m.Type)
}
