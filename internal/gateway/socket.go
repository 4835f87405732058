package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/outboard-run/outboard"
)

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
	for m := range s.inbox { // the reader has closed it
		s.discard(m)
	}
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
			err := s.event(ctx, "message", m, 0)
			s.inbound.remove(len(m.data))
			s.discard(m)
			if outboard.KindOf(err) == outboard.Busy {
				s.end(&eventError{err})
			}
		case <-ctx.Done():
			return true
		}
	}
}

// read receives messages until the connection ends.
func (s *socket) read(ctx context.Context) {
	defer close(s.inbox)
	for {
		m, err := s.receive(context.WithoutCancel(ctx))
		if err != nil {
			s.readError = err
			return
		}
		s.stalled.Store(true)
		if !s.inbound.add(ctx, len(m.data)) {
			s.discard(m)
			return
		}
		select {
		case s.inbox <- m:
			s.stalled.Store(false)
		case <-ctx.Done():
			s.discard(m)
			return
		}
	}
}

// receive reads one message, of which it reserves the bytes as they come.
func (s *socket) receive(ctx context.Context) (m incoming, err error) {
	defer func() {
		if err != nil {
			s.handler.gateway.buffers.release(m.reserved)
		}
	}()
	kind, reader, err := s.conn.Reader(ctx)
	if err != nil {
		return m, protocolError(err)
	}
	m.binary = kind == websocket.MessageBinary
	for {
		if len(m.data) == cap(m.data) {
			bigger := max(512, 2*cap(m.data))
			if err := s.handler.gateway.buffers.reserve(ctx, int64(bigger-cap(m.data))); err != nil {
				return m, &eventError{err}
			}
			m.reserved += int64(bigger - cap(m.data))
			m.data = append(make([]byte, 0, bigger), m.data...)
		}
		n, err := reader.Read(m.data[len(m.data):cap(m.data)])
		m.data = m.data[:len(m.data)+n]
		switch {
		case errors.Is(err, io.EOF) && !m.binary && !utf8.Valid(m.data):
			return m, errNotUTF8
		case errors.Is(err, io.EOF):
			return m, nil
		case err != nil:
			return m, protocolError(err)
		}
	}
}

// protocolError finds the one error of the protocol that the library does not answer with a
// close frame.
func protocolError(err error) error {
	if strings.Contains(err.Error(), "received unmasked frame") {
		return errUnmasked
	}
	return err
}

// discard drops a message that no function gets.
func (s *socket) discard(m incoming) { s.handler.gateway.buffers.release(m.reserved) }

// inbound counts the bytes of the messages that wait for the function.
type inbound struct {
	bytes atomic.Int64
	freed chan struct{} // capacity 1
}

// add waits until a message fits: beside others only if all together have at most inboxBytes.
// It returns false when ctx ends.
func (b *inbound) add(ctx context.Context, size int) bool {
	for b.bytes.Load() > 0 && b.bytes.Load()+int64(size) > inboxBytes {
		select {
		case <-b.freed:
		case <-ctx.Done():
			return false
		}
	}
	b.bytes.Add(int64(size))
	return true
}

// remove frees the bytes of a message.
func (b *inbound) remove(size int) {
	b.bytes.Add(-int64(size))
	select {
	case b.freed <- struct{}{}:
	default: // the reader is awake already
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
	case errors.Is(why, errNotUTF8):
		return websocket.StatusInvalidFramePayloadData, why.Error()
	case errors.Is(why, errUnmasked):
		return websocket.StatusProtocolError, why.Error()
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
	case key == "ws.protocol":
		return s.conn.Subprotocol(), s.conn.Subprotocol() != ""
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
