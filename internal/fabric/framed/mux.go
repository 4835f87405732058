package framed

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/outboard-run/outboard"
)

// maxJSON bounds a request or a response of Call.
const maxJSON = 16 << 20

// A Handler serves one stream. When it returns nil the stream is closed, else
// reset with the error. ctx ends when the peer resets the stream, when the
// connection ends, and when the server stops.
type Handler func(ctx context.Context, s *Stream) error

// A Mux serves the streams of connections by their method. The zero value is
// ready. Handlers are added before Serve.
type Mux struct {
	mu       sync.RWMutex
	handlers map[string]Handler
}

// Handle makes h serve the streams that are opened with method.
func (m *Mux) Handle(method string, h Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handlers == nil {
		m.handlers = make(map[string]Handler)
	}
	m.handlers[method] = h
}

// Serve serves the peer's streams until the connection or ctx ends, and waits for
// the handlers. It does not close the connection. It returns nil when ctx ended.
func (m *Mux) Serve(ctx context.Context, c *Conn) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		s, err := c.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		handlers.Go(func() { m.serve(ctx, s) })
	}
}

func (m *Mux) serve(ctx context.Context, s *Stream) {
	m.mu.RLock()
	h := m.handlers[s.Method()]
	m.mu.RUnlock()
	if h == nil {
		s.Reset(outboard.Errorf(outboard.NotFound, s.Method(), "peer has no such method"))
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.whenGone(cancel)
	// A handler that waits in Read or Write learns of the server's end too.
	stop := context.AfterFunc(ctx, func() { s.Reset(context.Cause(ctx)) })
	err := h(ctx, s)
	stop()
	s.Reset(err) // closes it when err is nil
}

// JSON makes a Handler of a function from request to response, the other end of
// Call.
func JSON[Request, Response any](f func(ctx context.Context, s *Stream, request Request) (Response, error)) Handler {
	return func(ctx context.Context, s *Stream) error {
		var request Request
		if err := receiveJSON(s, &request); err != nil {
			return err
		}
		response, err := f(ctx, s, request)
		if err != nil {
			return err
		}
		return sendJSON(s, response)
	}
}

// Call sends request as JSON to the peer's method and decodes the answer into
// response, which may be nil. An error of the peer's handler comes back with its
// kind and text.
func Call(ctx context.Context, c *Conn, method string, request, response any) error {
	s, err := c.Open(ctx, method, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Reset(context.Cause(ctx)) })
	defer stop()
	if err = sendJSON(s, request); err == nil || errors.Is(err, io.ErrClosedPipe) {
		err = receiveJSON(s, response)
	}
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	return err
}

func sendJSON(s *Stream, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return outboard.Errorf(outboard.Invalid, s.method, "encode: %w", err)
	}
	if len(b) > maxJSON {
		return outboard.Errorf(outboard.Exhausted, s.method, "message of %d bytes: at most %d", len(b), maxJSON)
	}
	_, err = s.send(nil, b, true)
	return err
}

func receiveJSON(s *Stream, v any) error {
	b, err := io.ReadAll(io.LimitReader(s, maxJSON+1))
	if err != nil {
		return err
	}
	if len(b) > maxJSON {
		return outboard.Errorf(outboard.Exhausted, s.method, "message is longer than %d bytes", maxJSON)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return outboard.Errorf(outboard.Invalid, s.method, "decode: %w", err)
	}
	return nil
}
