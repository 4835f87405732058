package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/outboard-run/outboard"
)

// The bounds of a WebSocket.
const (
	maxRooms     = 256
	maxRoomName  = 256
	inboxSize    = 16      // messages that wait for the function
	outboxSize   = 256     // messages that wait for the client
	outboxBytes  = 4 << 20 // and their bytes
	writeLimit   = 10 * time.Second
	pingInterval = 30 * time.Second
	closeLimit   = 30 * time.Second // for the event "close"
	busyLimit    = 30 * time.Second // for an event that finds no room
)

// Why a socket ends by us.
var (
	errSlowReader = errors.New("it did not read what was sent")
	errStopping   = errors.New("the node stops")
	errAppGone    = errors.New("the app is gone")
	errAsked      = errors.New("the function closed it")
	errSilent     = errors.New("it did not answer a ping")
)

// An eventError is a call that failed so that its socket can't go on.
type eventError struct{ error }

func (e *eventError) Unwrap() error { return e.error }

// sockets are all WebSockets of the gateway.
type sockets struct {
	gateway *Gateway
	open    permits
	running sync.WaitGroup

	mu     sync.Mutex
	hubs   map[string]*hub
	closed bool
}

func newSockets(g *Gateway) *sockets {
	s := &sockets{gateway: g, hubs: map[string]*hub{}}
	s.open.limit.Store(int64(g.opts.Sockets))
	return s
}

func (s *sockets) node() string { return s.gateway.opts.Node }

// hub returns the app's hub, or nil when the gateway stops.
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
		h.closeAll(errAppGone)
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

// A socket is one open WebSocket.
type socket struct {
	id      string
	handler *handler
	hub     *hub
	request *http.Request
	conn    *websocket.Conn
	end     context.CancelCauseFunc
	rooms   map[string]struct{} // guarded by the hub's lock

	inbox     chan incoming
	outbox    chan outgoing
	written   chan struct{} // closed when nothing more is written
	waiting   atomic.Int64  // bytes in outbox
	deaf      atomic.Bool   // nothing more can be sent to it
	readError error         // why reading ended; set before inbox is closed
	stalled   atomic.Bool   // the reader waits for room in inbox, and sees no pong
}

type incoming struct {
	data   []byte
	binary bool
}

func (m incoming) kind() string {
	if m.binary {
		return "binary"
	}
	return "text"
}

type outgoing struct {
	data   []byte
	binary bool
}

func (m outgoing) letter() byte {
	if m.binary {
		return 'b'
	}
	return 't'
}

// serveSocket is the handler of a route that takes WebSockets. It lasts as long as
// the socket.
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
	if !all.open.take() {
		return refuse(w, NewProblem(outboard.Errorf(outboard.Busy, "open a WebSocket", "%d are open on this node", h.gateway.opts.Sockets)))
	}
	defer all.open.give()
	hub := all.hub(h.state.name)
	if hub == nil {
		return refuse(w, problem(http.StatusServiceUnavailable, errStopping.Error()))
	}
	defer all.running.Done()
	conn, status := h.accept(w, r)
	if conn == nil {
		return status
	}
	h.runSocket(hub, conn, r)
	return http.StatusSwitchingProtocols
}

// headerHas looks for a word in a list.
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

// accept makes the handshake. Its refusals become problem documents.
func (h *handler) accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, int) {
	catch := &catcher{ResponseWriter: w}
	conn, err := websocket.Accept(catch, r, &websocket.AcceptOptions{OriginPatterns: h.Origins})
	if err != nil {
		w.Header().Del("X-Content-Type-Options")
		return nil, refuse(w, problem(max(catch.status, http.StatusBadRequest), detailOf(err)))
	}
	conn.SetReadLimit(int64(h.maxBody))
	return conn, 0
}

// A catcher holds back what is an error.
type catcher struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (c *catcher) WriteHeader(status int) {
	if c.status = status; status < http.StatusBadRequest {
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

// Unwrap lets the connection be taken over.
func (c *catcher) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (h *handler) runSocket(hub *hub, conn *websocket.Conn, r *http.Request) {
	gauge := h.gateway.metrics.sockets.WithLabelValues(h.state.name)
	gauge.Inc()
	defer gauge.Dec()
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	s := &socket{
		id: h.gateway.opts.Node + "." + randomName(), handler: h, hub: hub, request: r, conn: conn, end: end,
		rooms: map[string]struct{}{}, inbox: make(chan incoming, inboxSize), outbox: make(chan outgoing, outboxSize),
		written: make(chan struct{}),
	}
	s.run(ctx)
}

func (s *socket) run(ctx context.Context) {
	s.hub.add(s)
	var helpers sync.WaitGroup
	// A read or ping that is given up closes the connection without a word, so they end
	// with the connection and not with ctx.
	helpers.Go(func() { s.read(ctx) })
	helpers.Go(func() {
		defer close(s.written)
		s.write(ctx)
	})
	helpers.Go(func() { s.ping(ctx) })
	opened := s.events(ctx)
	code := s.close(context.Cause(ctx))
	helpers.Wait()
	s.hub.remove(s)
	if !opened {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	// Whatever comes of it: the socket is closed.
	_ = s.event(last, "close", incoming{}, code)
}

// events calls the function for each event until the socket ends, and says whether it
// was opened. What the other side sent before it closed comes before that.
func (s *socket) events(ctx context.Context) (opened bool) {
	if err := s.event(ctx, "open", incoming{}, 0); err != nil {
		s.end(&eventError{err})
		return false
	}
	for {
		select {
		case m, ok := <-s.inbox:
			if !ok {
				s.end(s.readError)
				return true
			}
			if err := s.event(ctx, "message", m, 0); outboard.KindOf(err) == outboard.Busy {
				s.end(&eventError{err})
			}
		case <-ctx.Done():
			return true
		}
	}
}

// read takes messages until the connection ends.
func (s *socket) read(ctx context.Context) {
	defer close(s.inbox)
	for {
		kind, data, err := s.conn.Read(context.WithoutCancel(ctx))
		if err != nil {
			s.readError = err
			return
		}
		m := incoming{data, kind == websocket.MessageBinary}
		s.stalled.Store(true)
		select {
		case s.inbox <- m:
			s.stalled.Store(false)
		case <-ctx.Done():
			return
		}
	}
}

// write sends what is in the outbox, and when the socket ends what is left of it.
func (s *socket) write(ctx context.Context) {
	for {
		select {
		case m := <-s.outbox:
			if err := s.writeOne(context.WithoutCancel(ctx), m); errors.Is(err, context.DeadlineExceeded) {
				s.drop()
				return
			} else if err != nil {
				s.deaf.Store(true) // the reader sees the end
				return
			}
		case <-ctx.Done():
			s.drain(context.WithoutCancel(ctx), context.Cause(ctx))
			return
		}
	}
}

func (s *socket) writeOne(ctx context.Context, m outgoing) error {
	kind := websocket.MessageText
	if m.binary {
		kind = websocket.MessageBinary
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	defer s.waiting.Add(-int64(len(m.data)))
	return s.conn.Write(ctx, kind, m.data)
}

// drain sends what is in the outbox before a function or the node ends the socket.
func (s *socket) drain(ctx context.Context, why error) {
	if code, _ := codeOf(why); code == websocket.StatusAbnormalClosure {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	for {
		select {
		case m := <-s.outbox:
			if s.writeOne(ctx, m) != nil {
				return
			}
		default:
			return
		}
	}
}

// ping ends a socket whose other side is gone without a word.
func (s *socket) ping(ctx context.Context) {
	ticks := time.NewTicker(pingInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		if !s.stalled.Load() && !s.answersPing(ctx) {
			return
		}
	}
}

// answersPing sends one, and ends the socket if nothing comes back. It says whether
// there is any use in another one.
func (s *socket) answersPing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingInterval)
	defer cancel()
	err := s.conn.Ping(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		if s.stalled.Load() {
			return true // the answer may wait behind messages
		}
		s.end(errSilent)
	}
	return err == nil
}

// send puts a message into the outbox. A socket whose outbox is full is ended: what
// it missed can't be made up. It is called under the hub's lock and does not wait.
func (s *socket) send(m outgoing) {
	if s.deaf.Load() {
		return
	}
	if s.waiting.Add(int64(len(m.data))) <= outboxBytes {
		select {
		case s.outbox <- m:
			return
		default:
		}
	}
	s.waiting.Add(-int64(len(m.data)))
	s.drop()
}

// drop ends a socket that does not read.
func (s *socket) drop() {
	if s.deaf.Swap(true) {
		return
	}
	s.handler.gateway.metrics.dropped.WithLabelValues(s.hub.app).Inc()
	s.end(errSlowReader)
}

// close ends the connection, with a word to the other side where that is of use, and
// returns the code that the function is told.
func (s *socket) close(why error) websocket.StatusCode {
	if code := websocket.CloseStatus(why); code != -1 {
		_ = s.conn.CloseNow() // the other side closed, and was answered
		return code
	}
	code, reason := codeOf(why)
	if code == websocket.StatusAbnormalClosure {
		_ = s.conn.CloseNow()
		return code
	}
	<-s.written
	_ = s.conn.Close(code, reason) // it is closed even if nobody answers
	return code
}

// codeOf is what the other side is told (RFC 6455, section 7.4.1).
func codeOf(why error) (websocket.StatusCode, string) {
	switch {
	case websocket.CloseStatus(why) != -1:
		return websocket.StatusAbnormalClosure, "" // it said goodbye, and hears nothing
	case errors.Is(why, errAsked):
		return websocket.StatusNormalClosure, ""
	case errors.Is(why, errStopping), errors.Is(why, errAppGone):
		return websocket.StatusGoingAway, why.Error()
	case errors.Is(why, websocket.ErrMessageTooBig):
		return websocket.StatusMessageTooBig, "the message is larger than the route takes"
	}
	if _, ok := errors.AsType[*eventError](why); !ok {
		return websocket.StatusAbnormalClosure, "" // the connection is no good any more
	}
	switch status := Status(why); {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return websocket.StatusTryAgainLater, http.StatusText(status)
	case status < http.StatusInternalServerError:
		return websocket.StatusPolicyViolation, http.StatusText(status)
	}
	return websocket.StatusInternalError, "the function failed"
}

// event calls the function and does what it answers. Where there is no room for the
// call it waits, and with it the client.
func (s *socket) event(ctx context.Context, name string, m incoming, code websocket.StatusCode) error {
	deadline := time.Now().Add(busyLimit)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.try(ctx, name, m, code)
		if outboard.KindOf(err) != outboard.Busy || time.Now().Add(pause).After(deadline) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *socket) try(ctx context.Context, name string, m incoming, code websocket.StatusCode) error {
	g, h := s.handler.gateway, s.handler
	if err := g.enter(h.state); err != nil {
		return err
	}
	defer g.leave(h.state)
	call := Call{
		App: h.state.name, Function: h.Function, Body: m.data, Trigger: WebSocket, Route: h.name,
		Meta: func(key string) (string, bool) { return s.meta(key, name, m, code) },
	}
	// A call that began is not given up because its client left.
	answer, err := g.invoke(context.WithoutCancel(ctx), &call, h.state, func(a *Answer) error { return s.obey(ctx, a.Body) })
	answer.release()
	return err
}

// meta implements Call.Meta.
func (s *socket) meta(key, event string, m incoming, code websocket.StatusCode) (string, bool) {
	switch {
	case key == "ws.event":
		return event, true
	case key == "ws.id":
		return s.id, true
	case key == "ws.kind" && event == "message":
		return m.kind(), true
	case key == "ws.code" && event == "close":
		return strconv.Itoa(int(code)), true
	}
	if value, ok := requestMeta(s.request, s.handler.name, key); ok {
		return value, true
	}
	return paramOrHeader(s.request, s.handler.params, key)
}

// orders are what a function answers to an event.
type orders struct {
	Send  []order  `json:"send"`
	Join  []string `json:"join"`
	Leave []string `json:"leave"`
	Close bool     `json:"close"`
}

type order struct {
	To   string  `json:"to"`
	Text *string `json:"text"`
	// Data is bytes in base64, for a binary message.
	Data []byte `json:"data"`
}

func (o *order) message() outgoing {
	if o.Text == nil {
		return outgoing{data: o.Data, binary: true}
	}
	return outgoing{data: []byte(*o.Text)}
}

// obey does what the function answered. An answer is checked as a whole first.
func (s *socket) obey(ctx context.Context, answer []byte) error {
	if len(answer) == 0 {
		return nil
	}
	var o orders
	if err := json.Unmarshal(answer, &o); err != nil {
		return wrongOrders("want JSON like {\"send\": [{\"to\": \"self\", \"text\": \"hello\"}]}: %w", err)
	}
	if err := o.validate(); err != nil {
		return err
	}
	for _, name := range o.Leave {
		s.hub.leave(s, name)
	}
	for _, name := range o.Join {
		if !s.hub.join(s, name) && ctx.Err() == nil {
			return wrongOrders("join %q: a connection is in at most %d rooms", name, maxRooms)
		}
	}
	err := s.sendAll(ctx, o.Send)
	if o.Close {
		s.end(errAsked)
	}
	return err
}

func wrongOrders(format string, args ...any) error {
	return outboard.Errorf(outboard.Protocol, "answer to an event", format, args...)
}

func (o *orders) validate() error {
	for _, name := range append(append([]string(nil), o.Join...), o.Leave...) {
		if name == "" || len(name) > maxRoomName {
			return wrongOrders("room %q: want a name of 1 to %d bytes", clip([]byte(name)), maxRoomName)
		}
	}
	for _, order := range o.Send {
		if kind, name, _ := strings.Cut(order.To, ":"); order.To != "self" && (kind != "room" && kind != "id" || name == "" || len(name) > maxRoomName) {
			return wrongOrders("send to %q: want room:NAME, id:ID or self", clip([]byte(order.To)))
		}
	}
	return nil
}

func (s *socket) sendAll(ctx context.Context, all []order) error {
	var errs []error
	for i := range all {
		kind, name, _ := strings.Cut(all[i].To, ":")
		switch m := all[i].message(); kind {
		case "self":
			s.hub.tellID(s.id, m)
		case "room":
			errs = append(errs, s.hub.toRoom(context.WithoutCancel(ctx), name, m))
		case "id":
			errs = append(errs, s.hub.toID(context.WithoutCancel(ctx), name, m))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &outboard.Error{Op: "tell other nodes", Kind: outboard.Unreachable, Err: fmt.Errorf("send: %w", err)}
	}
	return nil
}
