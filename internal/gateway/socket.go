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
	// A read or ping that is cancelled closes the connection without a close frame, so they end
	// with the connection and not with ctx.
	helpers.Go(func() { s.read(ctx) })
	helpers.Go(func() {
		defer close(s.writerDone)
		s.write(ctx)
	})
	helpers.Go(func() { s.ping(ctx) })
	opened := s.events(ctx)
	close(s.eventsDone)
	code := s.close(context.Cause(ctx))
	helpers.Wait()
	for m := range s.inbox { // the reader has closed it
		s.discard(m)
	}
	s.hub.remove(s)
	s.discardOutbox()
	if !opened {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	// An error does not matter: the socket is closed.
	_ = s.event(last, "close", incoming{}, code)
}

// events calls the function for each event until the socket ends, and returns whether the function
// accepted the event "open". Messages that arrived before the close are delivered first.
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
			s.awaitOutbox(ctx)
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
		s.readerBlocked.Store(true)
		if !s.inbound.add(ctx, len(m.data)) {
			s.discard(m)
			return
		}
		select {
		case s.inbox <- m:
			s.readerBlocked.Store(false)
		case <-ctx.Done():
			s.discard(m)
			return
		}
	}
}

// receive reads one message, and reserves its bytes as they arrive.
func (s *socket) receive(ctx context.Context) (m incoming, err error) {
	defer func() {
		if err != nil {
			s.handler.gateway.opts.Buffers.Release(m.reserved)
		}
	}()
	kind, reader, err := s.conn.Reader(ctx)
	if err != nil {
		return m, protocolError(err)
	}
	m.binary = kind == websocket.MessageBinary
	if s.compressed {
		if err := s.handler.gateway.opts.Buffers.Reserve(ctx, inflateState); err != nil {
			return m, &eventError{err}
		}
		defer s.handler.gateway.opts.Buffers.Release(inflateState)
	}
	pace := s.newMessagePace()
	defer pace.stop()
	for {
		if len(m.data) == cap(m.data) {
			bigger := max(512, 2*cap(m.data))
			if err := s.handler.gateway.opts.Buffers.Reserve(ctx, int64(bigger-cap(m.data))); err != nil {
				return m, &eventError{err}
			}
			m.reserved += int64(bigger - cap(m.data))
			m.data = append(make([]byte, 0, bigger), m.data...)
		}
		pace.await()
		n, err := reader.Read(m.data[len(m.data):cap(m.data)])
		pace.received(n)
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

// A messagePace ends a socket whose client sends a message too slowly, like the body of a request:
// beyond the client timeout beside a second for each 64 KiB. The client would otherwise hold the
// bytes of a message that it has begun for ever. One goroutine uses it.
type messagePace struct {
	patience patience
	since    time.Time
	timer    *time.Timer
}

func (s *socket) newMessagePace() *messagePace {
	timeout := s.handler.gateway.opts.ClientTimeout
	p := &messagePace{
		patience: newPatience(timeout, slowest),
		timer:    time.AfterFunc(timeout, func() { s.end(errSlowSender) }),
	}
	p.timer.Stop()
	return p
}

// await starts the time that the client takes.
func (p *messagePace) await() {
	p.since = time.Now()
	p.timer.Reset(p.patience.left)
}

// received ends it after n bytes.
func (p *messagePace) received(n int) {
	p.timer.Stop()
	p.patience.charge(n, time.Since(p.since))
}

func (p *messagePace) stop() { p.timer.Stop() }

// protocolError replaces the one error of the protocol to which the library does not reply with a
// close frame.
func protocolError(err error) error {
	if strings.Contains(err.Error(), "received unmasked frame") {
		return errUnmasked
	}
	return err
}

// discard releases the reserved bytes of a message that is no longer needed.
func (s *socket) discard(m incoming) { s.handler.gateway.opts.Buffers.Release(m.reserved) }

// inbound counts the bytes of the messages that wait for the function.
type inbound struct {
	bytes atomic.Int64
	freed chan struct{} // capacity 1
}

// add waits until a message fits: any message alone, several only up to inboxBytes together. It
// returns false if ctx ends.
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

// write sends the messages of the outbox until the socket has ended and no event is in progress,
// whose call may still answer, and then the remaining ones.
func (s *socket) write(ctx context.Context) {
	for {
		select {
		case m := <-s.outbox:
			if err := s.writeOne(context.WithoutCancel(ctx), m); errors.Is(err, context.DeadlineExceeded) {
				s.drop()
				return
			} else if err != nil {
				s.unwritable.Store(true) // the reader notices the end
				return
			}
		case <-s.eventsDone:
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
	defer m.release()
	s.leaveOutbox(m)
	select {
	case s.outboxFreed <- struct{}{}:
	default: // a signal is pending already
	}
	return s.sendMessage(ctx, kind, m.data)
}

// drain sends the remaining messages when a function or the node ends the socket.
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

// ping ends a socket whose client disappeared without a close.
func (s *socket) ping(ctx context.Context) {
	ticks := time.NewTicker(pingInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		if !s.readerBlocked.Load() && !s.answersPing(ctx) {
			return
		}
	}
}

// answersPing sends a ping, and ends the socket if no pong comes back. It returns false if the
// socket has ended.
func (s *socket) answersPing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingInterval)
	defer cancel()
	err := s.conn.Ping(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		if s.readerBlocked.Load() {
			return true // the pong may be queued behind messages
		}
		s.end(errSilent)
	}
	return err == nil
}

// drop ends a socket whose client does not read.
func (s *socket) drop() {
	if s.unwritable.Swap(true) {
		return
	}
	s.handler.gateway.metrics.dropped.WithLabelValues(s.hub.app).Inc()
	s.end(errSlowReader)
}

// close ends the connection, with a close frame unless the connection failed, and returns the code
// for the function.
func (s *socket) close(why error) websocket.StatusCode {
	if code := websocket.CloseStatus(why); code != -1 {
		_ = s.conn.CloseNow() // the client closed, and the library has replied
		return code
	}
	code, reason := codeOf(why)
	if code == websocket.StatusAbnormalClosure {
		_ = s.conn.CloseNow()
		return code
	}
	<-s.writerDone
	_ = s.conn.Close(code, reason) // it is closed even if the client does not reply
	return code
}

// codeOf returns the code of the close frame (RFC 6455, section 7.4.1).
func codeOf(why error) (websocket.StatusCode, string) {
	switch {
	case websocket.CloseStatus(why) != -1:
		return websocket.StatusAbnormalClosure, "" // the client closed: there is no close frame
	case errors.Is(why, errClosedByFunction):
		return websocket.StatusNormalClosure, ""
	case errors.Is(why, errStopping), errors.Is(why, errAppRemoved):
		return websocket.StatusGoingAway, why.Error()
	case errors.Is(why, errNotUTF8):
		return websocket.StatusInvalidFramePayloadData, why.Error()
	case errors.Is(why, errUnmasked):
		return websocket.StatusProtocolError, why.Error()
	case errors.Is(why, errSlowSender):
		return websocket.StatusPolicyViolation, why.Error()
	case errors.Is(why, websocket.ErrMessageTooBig):
		return websocket.StatusMessageTooBig, "the message is larger than the route takes"
	}
	if _, ok := errors.AsType[*eventError](why); !ok {
		return websocket.StatusAbnormalClosure, "" // the connection failed
	}
	switch status := Status(why); {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return websocket.StatusTryAgainLater, http.StatusText(status)
	case status < http.StatusInternalServerError:
		return websocket.StatusPolicyViolation, http.StatusText(status)
	}
	return websocket.StatusInternalError, "the function failed"
}

// event calls the function and applies its response. While the call is refused as Busy it retries:
// back-pressure slows the client down.
func (s *socket) event(ctx context.Context, name string, m incoming, code websocket.StatusCode) error {
	deadline := time.Now().Add(busyLimit)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.call(ctx, name, m, code)
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

func (s *socket) call(ctx context.Context, name string, m incoming, code websocket.StatusCode) error {
	g, h := s.handler.gateway, s.handler
	if err := g.acquireCall(h.state); err != nil {
		return err
	}
	defer g.releaseCall(h.state)
	call := Call{
		App: h.state.name, Function: h.Function, Body: m.data, Trigger: WebSocket, Route: h.name,
		Meta: func(key string) (string, bool) { return s.meta(key, name, m, code) },
	}
	// A call that has begun is not cancelled when its client disconnects.
	answer, err := g.invoke(context.WithoutCancel(ctx), &call, h.state, never, func(a *Answer) error { return s.apply(ctx, a.Body) })
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
