package framed

import (
	"bufio"
	"bytes"
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
	if err := c.handshake(); err != nil {
		close(c.readEnded)
		c.fail(err)
		return
	}
	c.isAgreed.Store(true)
	close(c.ready)
	c.queue.wake()
	r := newReader(c)
	c.loops.Go(func() { c.watchLoop(r) })
	c.read(r, r.greeting())
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

// reader decodes frames. One goroutine at a time uses it.
type reader struct {
	c    *Conn
	in   *bufio.Reader
	work Receiver // has something to do after this frame
}

// recordSize is a little more than one TLS record: larger reads go past the
// buffer.
const recordSize = 17 << 10

func newReader(c *Conn) *reader { return &reader{c: c, in: bufio.NewReaderSize(c.rw, recordSize)} }

// dry says whether the next frame may have to be waited for.
func (r *reader) dry() bool { return r.in.Buffered() < headerSize && len(r.c.pipe.in) == 0 }

func (r *reader) greeting() error {
	head, err := r.in.Peek(headerSize)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
			return refused(err) // TLS 1.3: the server's verdict on our certificate comes late
		}
		return hungUp(err)
	}
	if string(head) != preface {
		return broken("peer does not speak this version of the fabric")
	}
	_, err = r.in.Discard(headerSize)
	return err
}

// hungUp names the end of a connection that nobody announced.
func hungUp(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &outboard.Error{Op: "fabric", Kind: outboard.Unreachable, Err: errors.New("peer hung up")}
	}
	return err
}

func (r *reader) frame() error {
	head, err := r.in.Peek(headerSize)
	if err != nil {
		return hungUp(err)
	}
	h, err := parseHeader(head)
	if err != nil {
		return err
	}
	_, _ = r.in.Discard(headerSize)
	if h.typ == frameData {
		return r.data(h)
	}
	payload, err := r.payload(h.length)
	if err != nil {
		return err
	}
	return r.control(h, payload)
}

// control treats all frames but DATA. The payload is valid until it returns.
func (r *reader) control(h header, payload []byte) (err error) {
	switch h.typ {
	case frameOpen:
		return r.c.opened(h.stream, payload)
	case frameCredit:
		return r.c.credited(h.stream, binary.LittleEndian.Uint32(payload))
	case frameEnd:
		r.work, err = r.c.ended(h.stream)
		return err
	case frameReset:
		return r.c.wasReset(h.stream, payload)
	case framePing:
		return r.c.queue.push(func(b []byte) []byte {
			return appendPing(b, framePong, binary.LittleEndian.Uint64(payload))
		}, false)
	case framePong:
		r.c.ponged(binary.LittleEndian.Uint64(payload))
		return nil
	default: // frameGoAway
		return farewell(payload)
	}
}

// payload reads a small payload. It is valid until the next read.
func (r *reader) payload(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if n <= recordSize {
		p, err := r.in.Peek(n)
		if err != nil {
			return nil, hungUp(err)
		}
		_, err = r.in.Discard(n)
		return p, err
	}
	p := make([]byte, n)
	_, err := io.ReadFull(r.in, p)
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
	if !c.own(id) && id <= remote || c.own(id) && id < c.queue.next.Load() {
		return nil, nil
	}
	return nil, broken("stream %d was never opened", id)
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
	to := c.acceptors[string(method)]
	full := int(c.peers.Load()) >= c.o.MaxStreams || to == nil && len(c.accepts) == cap(c.accepts)
	ended := c.streams == nil
	var s *Stream
	if !full && !ended {
		s = newPeersStream(c, id, to, method, head)
		c.peers.Add(1)
		c.streams[id] = s
		if full = to == nil && !c.await(s); full {
			c.peers.Add(-1)
			delete(c.streams, id)
		}
	}
	c.mu.Unlock()
	c.o.Observer.StreamOpened(false)
	switch {
	case ended:
		return c.Err()
	case full:
		return c.queue.push(func(b []byte) []byte {
			return appendVerdict(b, frameReset, id, outboard.Exhausted, errTooMany.Err.Error())
		}, false)
	case to != nil:
		s.offer(to.accept, head)
	}
	return nil
}

// await keeps s for Accept, or for an acceptor that Handle brings: that happens
// under the lock under which the acceptor was looked for, so that Handle, which
// takes the lock first, sees it. It returns false where there is no room.
func (c *Conn) await(s *Stream) bool {
	select {
	case c.accepts <- s:
		return true
	default:
		return false
	}
}

// newPeersStream makes a stream of an OPEN, whose bytes stay the reader's.
func newPeersStream(c *Conn, id uint32, to *acceptor, method, head []byte) *Stream {
	if to != nil {
		return newStream(c, id, to.method, nil)
	}
	return newStream(c, id, string(method), bytes.Clone(head))
}

// offer gives a new stream to its acceptor.
func (s *Stream) offer(accept Acceptor, head []byte) {
	to, err := accept(s, head)
	if err != nil {
		s.Refuse(err)
		return
	}
	s.mu.Lock()
	s.receiver = to
	failed := s.failure()
	s.mu.Unlock()
	if failed != nil {
		to.Failed(failed)
	}
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

// ended returns a receiver that has work to do now.
func (c *Conn) ended(id uint32) (Receiver, error) {
	s, err := c.find(id)
	if s == nil || err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.inEnd {
		s.mu.Unlock()
		return nil, broken("stream %d ended twice", id)
	}
	s.inEnd = true
	to := s.receiver
	s.settled()
	if to != nil && to.Ended() {
		return to, nil
	}
	return nil, nil
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
		_, err := r.in.Discard(h.length)
		return hungUpUnlessNil(err)
	}
	into, to, err := s.admit(h.length)
	if err != nil {
		return err
	}
	if to != nil {
		return r.deliver(s, to, h.length)
	}
	rest := h.length
	if into != nil {
		n, err := io.ReadFull(r.in, into)
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
func (s *Stream) admit(n int) (into []byte, to Receiver, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inEnd || n > s.credit {
		return nil, nil, broken("%d bytes on stream %d: credit is %d, ended %t", n, s.id, s.credit, s.inEnd)
	}
	s.credit -= n
	if s.receiver != nil {
		return nil, s.receiver, nil
	}
	if s.filled == len(s.into) || s.kept.size > 0 || s.inErr != nil {
		return nil, nil, nil
	}
	s.filling = true
	return s.into[s.filled:min(s.filled+n, len(s.into))], nil, nil
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
		if _, err := io.ReadFull(r.in, c.room[:c.to]); err != nil {
			chunkPool.Put(c)
			return hungUp(err)
		}
		n -= c.to
		if to := s.store(c); to != nil {
			took := hand(to, c.room[:c.to])
			chunkPool.Put(c)
			if err := r.regrant(s, took); err != nil {
				return err
			}
		}
	}
	return nil
}

// store keeps c, unless a receiver was attached while it was read.
func (s *Stream) store(c *chunk) Receiver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receiver != nil {
		return s.receiver
	}
	if s.inErr != nil { // given up meanwhile
		chunkPool.Put(c)
		return nil
	}
	s.kept.push(c)
	s.changed.Broadcast()
	return nil
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

func (c *Conn) ping() { _ = c.queue.push(c.appendPing, true) }

func (c *Conn) appendPing(b []byte) []byte {
	return appendPing(b, framePing, uint64(time.Since(c.start)))
}

// ponged learns from the answer to a ping. What a peer invents is ignored.
func (c *Conn) ponged(stamp uint64) {
	sample := int64(time.Since(c.start)) - int64(stamp)
	if sample <= 0 || sample > int64(c.o.DeadAfter) {
		return
	}
	c.o.Observer.RoundTrip(time.Duration(sample))
	if least := c.minTrip.Load(); least == 0 || sample < least {
		c.minTrip.Store(sample)
	}
	if old := c.rtt.Load(); old > 0 {
		sample = old + (sample-old)/8
	}
	c.rtt.Store(sample)
	if c.pongs++; c.pongs < firstPings {
		_ = c.queue.push(c.appendPing, false)
	}
}

// firstPings follow each other at the beginning, while little else is under way: later
// answers come behind other streams' frames, and what looks like a long round trip gives
// streams windows that make it one.
const firstPings = 8
