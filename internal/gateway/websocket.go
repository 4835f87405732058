package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Limits of a WebSocket.
const (
	maxRooms     = 256
	maxRoomName  = 256
	inboxSize    = 16      // messages that wait for the function
	inboxBytes   = 1 << 20 // and their bytes, besides one larger message
	outboxSize   = 256     // messages that wait for the client
	outboxBytes  = 4 << 20 // and their bytes, besides one message that is larger
	writeLimit   = 10 * time.Second
	pingInterval = 30 * time.Second
	closeLimit   = 30 * time.Second // for the event "close"
	busyLimit    = 30 * time.Second // for an event that is refused as Busy
)

// Reasons for which the gateway ends a socket.
var (
	errSlowReader       = errors.New("it did not read what was sent")
	errStopping         = errors.New("the node stops")
	errAppRemoved       = errors.New("the app was removed")
	errClosedByFunction = errors.New("the function closed it")
	errSilent           = errors.New("it did not answer a ping")
	errNotUTF8          = errors.New("the text is not UTF-8")
	errSlowSender       = errors.New("the message came too slowly")
	errUnmasked         = errors.New("a frame of a client is not masked")
)

// eventError is the error of a call that ends its socket.
type eventError struct{ error }

func (e *eventError) Unwrap() error { return e.error }

// sockets holds all WebSockets of the gateway.
type sockets struct {
	gateway *Gateway
	open    limiter
	running sync.WaitGroup
	// compressing bounds the memory of messages that are compressed.
	compressing *quota.Budget

	mu     sync.Mutex
	hubs   map[string]*hub
	closed bool
}

func newSockets(g *Gateway) *sockets {
	s := &sockets{gateway: g, compressing: quota.NewBudget(quota.Requests, compressionBytes), hubs: map[string]*hub{}}
	s.open.limit.Store(int64(g.opts.Sockets))
	return s
}

func (s *sockets) node() string { return s.gateway.opts.Node }

// hub returns the app's hub, or nil if the gateway is stopping.
func (s *sockets) hub(app string) *hub {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.hubs[app] == nil {
		s.hubs[app] = newHub(app, s)
	}
	s.running.Add(1)
	return s.hubs[app]
}

func (s *sockets) closeApp(app string) {
	s.mu.Lock()
	h := s.hubs[app]
	delete(s.hubs, app)
	s.mu.Unlock()
	if h != nil {
		h.closeAll(errAppRemoved)
	}
}

// close ends all sockets and waits for them.
func (s *sockets) close() {
	s.mu.Lock()
	s.closed = true
	for _, h := range s.hubs {
		h.closeAll(errStopping)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// socket is an open WebSocket.
type socket struct {
	id      string
	handler *handler
	hub     *hub
	request *http.Request
	conn    *websocket.Conn
	// compressed says that messages from compressFrom bytes on are compressed.
	compressed bool
	end        context.CancelCauseFunc
	rooms      map[string]struct{} // guarded by the hub's lock

	inbox         chan incoming
	outbox        chan outgoing
	outboxFreed   chan struct{} // has a signal after a message left the outbox
	writerDone    chan struct{} // closed when the writer has returned
	eventsDone    chan struct{} // closed when the socket has ended and no event but "close" follows
	queuedBytes   atomic.Int64  // bytes of the waiting messages that are not larger than outboxBytes
	largeQueued   atomic.Bool   // a larger one waits
	unwritable    atomic.Bool   // no more messages can be sent
	readError     error         // why reading ended; set before inbox is closed
	readerBlocked atomic.Bool   // the reader waits for space in inbox, and can't receive a pong
	inbound       inbound       // bytes of messages that wait for the function
}

type incoming struct {
	data     []byte
	binary   bool
	reserved int64 // bytes of the gateway's budget
}

func (m incoming) kind() string {
	if m.binary {
		return "binary"
	}
	return "text"
}

// serveSocket is the handler of a route for WebSockets. It returns when the socket ends.
func (h *handler) serveSocket(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	status := h.openSocket(w, r)
	h.metric.count(status, time.Since(begin))
}

func (h *handler) openSocket(w http.ResponseWriter, r *http.Request) int {
	if !headerHas(r.Header, "Upgrade", "websocket") || !headerHas(r.Header, "Connection", "upgrade") {
		w.Header().Set("Upgrade", "websocket")
		return refuse(w, problem(http.StatusUpgradeRequired, "this route takes WebSockets only"))
	}
	all := h.gateway.sockets
	if !all.open.tryAcquire() {
		return refuse(w, NewProblem(outboard.Errorf(outboard.Busy, "open a WebSocket", "%d are open on this node", h.gateway.opts.Sockets)))
	}
	defer all.open.release()
	hub := all.hub(h.state.name)
	if hub == nil {
		return refuse(w, problem(http.StatusServiceUnavailable, errStopping.Error()))
	}
	defer all.running.Done()
	conn, status := h.accept(w, r)
	if conn == nil {
		return status
	}
	h.runSocket(hub, conn, isCompressed(w.Header()), r)
	return http.StatusSwitchingProtocols
}

// headerHas reports whether a list in a header field has a word.
func headerHas(h http.Header, name, word string) bool {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), word) {
				return true
			}
		}
	}
	return false
}

// accept performs the handshake. Refusals become problem documents.
func (h *handler) accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, int) {
	catch := &catcher{ResponseWriter: w, request: r}
	conn, err := websocket.Accept(catch, r, &websocket.AcceptOptions{
		OriginPatterns: h.Origins, Subprotocols: h.Subprotocols, CompressionMode: websocket.CompressionNoContextTakeover, CompressionThreshold: compressFrom,
	})
	if err != nil {
		w.Header().Del("X-Content-Type-Options")
		return nil, refuse(w, problem(max(catch.status, http.StatusBadRequest), detailOf(err)))
	}
	conn.SetReadLimit(int64(h.maxBody))
	return conn, 0
}

// catcher discards the body of an error response, and completes the response to a handshake.
type catcher struct {
	http.ResponseWriter
	request *http.Request
	status  int
}

// WriteHeader implements http.ResponseWriter.
func (c *catcher) WriteHeader(status int) {
	if c.status = status; status < http.StatusBadRequest {
		nameWindow(c.Header(), c.request.Header)
		c.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (c *catcher) Write(b []byte) (int, error) {
	if c.status >= http.StatusBadRequest {
		return len(b), nil
	}
	return c.ResponseWriter.Write(b)
}

// Unwrap allows the connection to be hijacked.
func (c *catcher) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (h *handler) runSocket(hub *hub, conn *websocket.Conn, compressed bool, r *http.Request) {
	gauge := h.gateway.metrics.sockets.WithLabelValues(h.state.name)
	gauge.Inc()
	defer gauge.Dec()
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	s := &socket{
		id: h.gateway.opts.Node + "." + randomName(), handler: h, hub: hub, request: r, conn: conn, compressed: compressed, end: end,
		rooms: map[string]struct{}{}, inbox: make(chan incoming, inboxSize), outbox: make(chan outgoing, outboxSize),
		outboxFreed: make(chan struct{}, 1), writerDone: make(chan struct{}), eventsDone: make(chan struct{}),
		inbound: inbound{freed: make(chan struct{}, 1)},
	}
	s.run(ctx)
}
