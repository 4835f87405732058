package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Response is a parsed response message for tests.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// recorder takes what a response writes.
type recorder struct{ Response }

func (r *recorder) Header() http.Header         { return r.Response.Header }
func (r *recorder) WriteHeader(status int)      { r.Status = status }
func (r *recorder) Write(b []byte) (int, error) { r.Body = append(r.Body, b...); return len(b), nil }

// ParseResponse parses a message and writes it.
func ParseResponse(message []byte, method string) (Response, error) {
	var p response
	if err := p.parse(message, method); err != nil {
		return Response{}, err
	}
	r := recorder{Response{Header: http.Header{}}}
	err := p.write(&r, method)
	return r.Response, err
}

// AppendMessage builds a function's request message.
func AppendMessage(r *http.Request, app string, limit outboard.Bytes) ([]byte, error) {
	return appendMessage(nil, r, app, newSpanContext(), limit, func(int64) error { return nil })
}

// Lengths returns the lengths of the parts of a message's head.
func Lengths(message string) string { return string(appendLengths(nil, []byte(message))) }

// ReplaceError returns the problem document for an error of net/http's server.
func ReplaceError(b []byte) (response []byte, ok bool) { return replaceError(b) }

// ParseTraceparent says whether a header is valid, and what would be written of it.
func ParseTraceparent(s string) (string, bool) {
	c, ok := parseTraceparent(s)
	return string(appendTraceparent(nil, c)), ok
}

// LateSocket adds a socket to an app's hub after the app is gone, and says why it
// ended.
func LateSocket(g *Gateway, app string) error {
	h := g.sockets.hub(app)
	defer g.sockets.running.Done()
	g.sockets.closeApp(app)
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	h.add(&socket{id: "x.y", hub: h, end: end})
	return context.Cause(ctx)
}

// Envelope packs a message, or a part of one, between nodes.
func Envelope(name string, letter byte, data []byte) []byte { return envelope(name, letter, data) }

// ParseEnvelope unpacks it.
func ParseEnvelope(b []byte) (name string, letter byte, data []byte, ok bool) {
	return parseEnvelope(b)
}

// OpenEnvelope gives an app's hub an envelope of another node, and returns the size of the message
// that it completes.
func OpenEnvelope(g *Gateway, app string, b []byte) (size int, ok bool) {
	h := g.sockets.hub(app)
	defer g.sockets.running.Done()
	_, m, ok := h.openEnvelope(nil, b)
	return len(m.data), ok
}

// Partials returns how many incomplete messages of other nodes an app has.
func Partials(g *Gateway, app string) int {
	h := g.sockets.hub(app)
	defer g.sockets.running.Done()
	h.partials.mu.Lock()
	defer h.partials.mu.Unlock()
	return len(h.partials.byKey)
}

// RoomSubject returns the subject of a room.
func RoomSubject(g *Gateway, app, name string) string {
	h := g.sockets.hub(app)
	defer g.sockets.running.Done()
	return h.roomSubject(name)
}

// Orders are the rooms and receivers that an answer to an event names.
func Orders(answer []byte) (rooms, receivers []string, err error) {
	o, err := parseActions(answer)
	for _, s := range o.Send {
		receivers = append(receivers, s.To)
	}
	return append(o.Join, o.Leave...), receivers, err
}

// PlainConns is how many connections net/http does not have.
func PlainConns(g *Gateway) (n int) {
	w := &g.server.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.mu.Lock()
		if c.plain != nil {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// ParsePlain reads a request as the gateway does without net/http. It returns false if
// the request is left to net/http.
func ParsePlain(text string) (r *http.Request, size int, ok bool) {
	var h plainHead
	head, _, whole := strings.Cut(text, "\r\n\r\n")
	if !whole || !h.parse(head+"\r\n") {
		return nil, 0, false
	}
	length := max(h.length, 0)
	return &http.Request{
		Method: h.method, URL: &h.url, Header: h.header, Host: h.host, RequestURI: h.target, ContentLength: int64(length),
	}, len(head) + 4 + length, true
}

// Buffered is how many bytes of requests and messages the gateway holds.
func Buffered(g *Gateway) int64 { return g.opts.Buffers.Held() }

// LimitCompression bounds the memory of a gateway's compressed messages, before it has any.
func LimitCompression(g *Gateway, limit outboard.Bytes) {
	g.sockets.compressing = quota.NewBudget(quota.Requests, limit)
}

// Compressing returns how many bytes a gateway's compressed messages hold.
func Compressing(g *Gateway) int64 { return g.sockets.compressing.Held() }

// Queued is how many bytes wait for the clients of an app's WebSockets.
func Queued(g *Gateway, app string) (n int64) {
	h := g.sockets.hub(app)
	defer g.sockets.running.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.byID {
		n += s.queuedBytes.Load()
	}
	return n
}
