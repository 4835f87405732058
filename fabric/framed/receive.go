package framed

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/outboard-run/outboard"
)

// readLoop is the only reader of the connection. It never waits for a stream's
// user, nor for room to write.
func (c *Conn) readLoop() {
	defer close(c.readEnded)
	if err := c.handshake(); err != nil {
		c.fail(err)
		return
	}
	close(c.ready)
	c.queue.wake()
	r := &reader{c: c}
	err := r.greeting()
	for err == nil {
		err = r.frame()
	}
	c.fail(gone(err))
}

func (c *Conn) handshake() error {
	for _, nc := range []net.Conn{c.rw, c.pipe.Conn} {
		t, ok := nc.(*tls.Conn)
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.o.DeadAfter)
		err := t.HandshakeContext(ctx)
		cancel()
		if err != nil {
			return refused(err)
		}
	}
	return nil
}

// refused classifies a failed handshake. What is neither a broken connection nor
// a peer that speaks something else is one side's verdict on the other's
// certificate.
func refused(err error) error {
	kind := outboard.Denied
	op, isOp := errors.AsType[*net.OpError](err)
	_, isNet := errors.AsType[net.Error](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case isOp && op.Op == "remote error":
	case noTLS:
		kind = outboard.Protocol
	case isNet, errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed):
		kind = outboard.Unreachable
	}
	return &outboard.Error{Op: "fabric handshake", Kind: kind, Err: err}
}

// reader decodes frames.
type reader struct {
	c    *Conn
	head [headerSize]byte
}

func (r *reader) greeting() error {
	if _, err := io.ReadFull(r.c.rw, r.head[:]); err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
			return refused(err) // TLS 1.3: the server's verdict on our certificate comes late
		}
		return hungUp(err)
	}
	if string(r.head[:]) != preface {
		return broken("peer does not speak this version of the fabric")
	}
	return nil
}

// hungUp names the end of a connection that nobody announced.
func hungUp(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &outboard.Error{Op: "fabric", Kind: outboard.Unreachable, Err: errors.New("peer hung up")}
	}
	return err
}

func (r *reader) frame() error {
	if _, err := io.ReadFull(r.c.rw, r.head[:]); err != nil {
		return hungUp(err)
	}
	h, err := parseHeader(r.head[:])
	if err != nil {
		return err
	}
	if h.typ == frameData {
		return r.data(h)
	}
	payload, err := r.payload(h.length)
	if err != nil {
		return err
	}
	switch h.typ {
	case frameOpen:
		return r.c.opened(h.stream, payload)
	case frameCredit:
		return r.c.credited(h.stream, binary.LittleEndian.Uint32(payload))
	case frameEnd:
		return r.c.ended(h.stream)
	case frameReset:
		return r.c.wasReset(h.stream, payload)
	case framePing:
		return r.c.queue.push(func(b []byte) []byte {
			return appendPing(b, framePong, binary.LittleEndian.Uint64(payload))
		})
	case framePong:
		r.c.ponged(binary.LittleEndian.Uint64(payload))
		return nil
	default: // frameGoAway
		return farewell(payload)
	}
}

// payload reads a small payload into memory of its own.
func (r *reader) payload(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	p := make([]byte, n)
	_, err := io.ReadFull(r.c.rw, p)
	return p, hungUpUnlessNil(err)
}

func hungUpUnlessNil(err error) error {
	if err == nil {
		return nil
	}
	return hungUp(err)
}

// errGoodbye is the end of a connection that the peer closed in good order.
var errGoodbye = errors.New("peer closed the connection")

func farewell(p []byte) error {
	kind, text, err := parseVerdict(p)
	if err != nil {
		return err
	}
	if kind == outboard.Other {
		kind = outboard.Unreachable
	}
	if text == "" {
		return &outboard.Error{Op: "fabric", Kind: kind, Err: errGoodbye}
	}
	return &outboard.Error{Op: "fabric", Kind: kind, Err: errors.New(text)}
}

// find returns the stream; nil for one that is over, whose frames may still be
// under way. An id that was never opened breaks the protocol.
func (c *Conn) find(id uint32) (*Stream, error) {
	c.mu.Lock()
	s, remote := c.streams[id], c.remote
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if !c.own(id) && id <= remote || c.own(id) && id < c.queue.upcoming() {
		return nil, nil
	}
	return nil, broken("stream %d was never opened", id)
}

func (q *queue) upcoming() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next
}

func (c *Conn) opened(id uint32, payload []byte) error {
	method, head, err := parseOpen(payload)
	if err != nil {
		return err
	}
	if c.own(id) {
		return broken("peer opened stream %d, whose ids are ours", id)
	}
	c.mu.Lock()
	if id <= c.remote {
		c.mu.Unlock()
		return broken("stream %d opened after %d", id, c.remote)
	}
	c.remote = id
	full := c.peers >= c.o.MaxStreams || len(c.accepts) == cap(c.accepts)
	ended := c.streams == nil
	s := newStream(c, id, method, head)
	if !full && !ended {
		c.peers++
		c.streams[id] = s
	}
	c.mu.Unlock()
	c.stats.stream(false)
	switch {
	case ended:
		return c.Err()
	case full:
		return c.queue.push(func(b []byte) []byte {
			return appendVerdict(b, frameReset, id, outboard.Exhausted, "too many streams on one connection")
		})
	}
	c.accepts <- s // only this goroutine sends, and there is room
	return nil
}

func (c *Conn) credited(id, n uint32) error {
	s, err := c.find(id)
	if s == nil || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == 0 || n > maxCredit || s.allowance+int(n) > maxCredit {
		return broken("credit of %d on top of %d", n, s.allowance)
	}
	s.allowance += int(n)
	s.changed.Broadcast()
	return nil
}

func (c *Conn) ended(id uint32) error {
	s, err := c.find(id)
	if s == nil || err != nil {
		return err
	}
	twice := false
	s.settle(func() { twice, s.inEnd = s.inEnd, true })
	if twice {
		return broken("stream %d ended twice", id)
	}
	return nil
}

func (c *Conn) wasReset(id uint32, payload []byte) error {
	kind, text, err := parseVerdict(payload)
	if err != nil {
		return err
	}
	s, err := c.find(id)
	if s != nil {
		s.reset(kind, text)
	}
	return err
}

// data takes in a DATA frame: into the slice of a Read that waits, else into
// chunks, else, when the stream is over, nowhere.
func (r *reader) data(h header) error {
	s, err := r.c.find(h.stream)
	if err != nil {
		return err
	}
	if s == nil {
		_, err := io.CopyN(io.Discard, r.c.rw, int64(h.length))
		return hungUpUnlessNil(err)
	}
	into, err := s.admit(h.length)
	if err != nil {
		return err
	}
	rest := h.length
	if into != nil {
		n, err := io.ReadFull(r.c.rw, into)
		if full := s.delivered(n); full != nil {
			return full
		}
		if err != nil {
			return hungUp(err)
		}
		rest -= n
	}
	return r.keep(s, rest)
}

// admit takes the credit for n bytes. When a Read waits, it returns the slice to
// read them into, and that Read stays where it is until delivered. A Read that was
// woken and has not run yet gets more.
func (s *Stream) admit(n int) (into []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inEnd || n > s.credit {
		return nil, broken("%d bytes on stream %d: credit is %d, ended %t", n, s.id, s.credit, s.inEnd)
	}
	s.credit -= n
	if s.filled == len(s.into) || s.kept.size > 0 || s.inErr != nil {
		return nil, nil
	}
	s.filling = true
	return s.into[s.filled:min(s.filled+n, len(s.into))], nil
}

func (s *Stream) delivered(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filling = false
	if s.sink != nil {
		return s.poured(n)
	}
	s.filled += n
	s.changed.Broadcast()
	return nil
}

// keep reads n bytes into chunks.
func (r *reader) keep(s *Stream, n int) error {
	for n > 0 {
		c := chunkPool.Get().(*chunk)
		c.from, c.to = 0, min(n, chunkSize)
		if _, err := io.ReadFull(r.c.rw, c.room[:c.to]); err != nil {
			chunkPool.Put(c)
			return hungUp(err)
		}
		n -= c.to
		s.store(c)
	}
	return nil
}

func (s *Stream) store(c *chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inErr != nil { // given up meanwhile
		chunkPool.Put(c)
		return
	}
	s.kept.push(c)
	s.changed.Broadcast()
}

// keepAlive pings, and ends the connection when the peer is silent. It counts
// its own ticks, not the clock: a process that was stopped for a while must not
// take its peer for dead.
func (c *Conn) keepAlive() {
	const ticks = 8
	tick := time.NewTicker(c.o.DeadAfter / ticks)
	defer tick.Stop()
	c.ping()
	for silent, n := 0, 1; ; n++ {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		silent++
		if c.pipe.heard.Swap(false) {
			silent = 0
		}
		if silent >= ticks-1 {
			c.fail(outboard.Errorf(outboard.Unreachable, "fabric", "peer has been silent for %v", c.o.DeadAfter))
			return
		}
		if n%2 == 0 {
			c.ping()
		}
	}
}

func (c *Conn) ping() {
	_ = c.queue.push(func(b []byte) []byte { return appendPing(b, framePing, uint64(time.Since(c.start))) })
}

// ponged learns from the answer to a ping. What a peer invents is ignored.
func (c *Conn) ponged(stamp uint64) {
	sample := int64(time.Since(c.start)) - int64(stamp)
	if sample <= 0 || sample > int64(c.o.DeadAfter) {
		return
	}
	c.stats.trip(sample)
	if old := c.rtt.Load(); old > 0 {
		sample = old + (sample-old)/8
	}
	c.rtt.Store(sample)
}
