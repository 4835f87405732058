package framed

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/outboard-run/outboard"
)

// readLoop does the handshake, and then reads the connection until it ends or another goroutine
// takes over the reading. It blocks neither on a stream's consumer nor on writing.
func (c *Conn) readLoop() {
	if err := c.handshake(); err != nil {
		close(c.readEnded)
		c.fail(err)
		return
	}
	c.handshaken.Store(true)
	close(c.ready)
	c.out.queue.wake()
	r := newReader(c)
	c.loops.Go(func() { c.watchLoop(r) })
	c.read(r, r.readPreface())
}

func (c *Conn) handshake() error {
	for _, nc := range []net.Conn{c.rw, c.socket.Conn} {
		t, ok := nc.(*tls.Conn)
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.o.DeadAfter)
		err := t.HandshakeContext(ctx)
		cancel()
		if err != nil {
			return handshakeError(err)
		}
	}
	return nil
}

// handshakeError classifies a failed handshake. An error that is neither a broken connection nor a
// foreign protocol is the rejection of a certificate.
func handshakeError(err error) error {
	kind := outboard.Denied
	op, isOp := errors.AsType[*net.OpError](err)
	_, isNet := errors.AsType[net.Error](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case isOp && op.Op == "remote error":
		err = fmt.Errorf("%w: the other node refuses the certificate, and its log says why; do the clocks of the two machines agree?", err)
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
	work Receiver // a receiver with work to do after this frame
}

// recordSize exceeds one TLS record slightly: larger reads bypass the buffer.
const recordSize = 17 << 10

func newReader(c *Conn) *reader { return &reader{c: c, in: bufio.NewReaderSize(c.rw, recordSize)} }

// mayBlock reports whether reading the next frame may block.
func (r *reader) mayBlock() bool { return r.in.Buffered() < headerSize && len(r.c.socket.readBuf) == 0 }

func (r *reader) readPreface() error {
	head, err := r.in.Peek(headerSize)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
			return handshakeError(err) // TLS 1.3: the server rejects this side's certificate late
		}
		return connectionLost(err)
	}
	if string(head) != preface {
		return violation("peer does not speak this version of the fabric")
	}
	_, err = r.in.Discard(headerSize)
	return err
}

// connectionLost converts the error of a connection that ended without GOAWAY.
func connectionLost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &outboard.Error{Op: "fabric", Kind: outboard.Unreachable, Err: errors.New("peer hung up")}
	}
	return err
}

func (r *reader) readFrame() error {
	head, err := r.in.Peek(headerSize)
	if err != nil {
		return connectionLost(err)
	}
	h, err := parseHeader(head)
	if err != nil {
		return err
	}
	_, _ = r.in.Discard(headerSize)
	if h.typ == frameData {
		return r.handleData(h)
	}
	payload, err := r.payload(h.length)
	if err != nil {
		return err
	}
	return r.handleControl(h, payload)
}

// handleControl processes all frames except DATA. The payload is valid until it returns.
func (r *reader) handleControl(h header, payload []byte) (err error) {
	switch h.typ {
	case frameOpen:
		return r.handleOpen(h.stream, payload)
	case frameCredit:
		return r.handleCredit(h.stream, binary.LittleEndian.Uint32(payload))
	case frameEnd:
		r.work, err = r.handleEnd(h.stream)
		return err
	case frameReset:
		return r.handleReset(h.stream, payload)
	case framePing:
		return r.c.out.queue.push(func(b []byte) []byte {
			return appendPing(b, framePong, binary.LittleEndian.Uint64(payload))
		}, false)
	case framePong:
		r.c.live.handlePong(binary.LittleEndian.Uint64(payload))
		return nil
	default: // frameGoAway
		return parseGoAway(payload)
	}
}

// payload reads a small payload, which is valid until the next read.
func (r *reader) payload(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if n <= recordSize {
		p, err := r.in.Peek(n)
		if err != nil {
			return nil, connectionLost(err)
		}
		_, err = r.in.Discard(n)
		return p, err
	}
	p := make([]byte, n)
	_, err := io.ReadFull(r.in, p)
	return p, connectionLostUnlessNil(err)
}

func connectionLostUnlessNil(err error) error {
	if err == nil {
		return nil
	}
	return connectionLost(err)
}

// errPeerClosed is the error of a connection that the peer closed in good order.
var errPeerClosed = errors.New("peer closed the connection")

func parseGoAway(p []byte) error {
	kind, text, err := parseError(p)
	if err != nil {
		return err
	}
	if kind == outboard.Other {
		kind = outboard.Unreachable
	}
	if text == "" {
		return &outboard.Error{Op: "fabric", Kind: kind, Err: errPeerClosed}
	}
	return &outboard.Error{Op: "fabric", Kind: kind, Err: errors.New(text)}
}

// lookup returns the stream, or nil if it has ended: frames for it may still arrive. An id that was
// never opened is a violation.
func (r *reader) lookup(id uint32) (*Stream, error) {
	c := r.c
	c.mu.Lock()
	s, remote := c.streams[id], c.lastPeerID
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if !c.isOwn(id) && id <= remote || c.isOwn(id) && id < c.out.queue.next.Load() {
		return nil, nil
	}
	return nil, violation("stream %d was never opened", id)
}

func (r *reader) handleOpen(id uint32, payload []byte) error {
	c := r.c
	method, head, err := parseOpen(payload)
	if err != nil {
		return err
	}
	if c.isOwn(id) {
		return violation("peer opened stream %d, whose ids are ours", id)
	}
	c.mu.Lock()
	if id <= c.lastPeerID {
		c.mu.Unlock()
		return violation("stream %d opened after %d", id, c.lastPeerID)
	}
	c.lastPeerID = id
	to := c.acceptors[string(method)]
	full := int(c.peerStreams.Load()) >= c.o.MaxStreams || to == nil && len(c.accepts) == cap(c.accepts)
	ended := c.streams == nil
	var s *Stream
	if !full && !ended {
		s = newPeersStream(c, id, to, method, head)
		c.peerStreams.Add(1)
		c.streams[id] = s
		if full = to == nil && !r.enqueueAccept(s); full {
			c.peerStreams.Add(-1)
			delete(c.streams, id)
		}
	}
	c.mu.Unlock()
	c.o.Observer.StreamOpened(false)
	switch {
	case ended:
		return c.Err()
	case full:
		return c.out.queue.push(func(b []byte) []byte {
			return appendError(b, frameReset, id, outboard.Exhausted, errTooMany.Err.Error())
		}, false)
	case to != nil:
		s.acceptWith(to.accept, head)
	}
	return nil
}

// enqueueAccept queues s for Accept, or for an acceptor that Handle adds later. It runs under the
// lock under which the acceptor was looked up, so that Handle, which takes that lock first, finds
// s. It returns false if the queue is full.
func (r *reader) enqueueAccept(s *Stream) bool {
	c := r.c
	select {
	case c.accepts <- s:
		return true
	default:
		return false
	}
}

// newPeersStream returns the stream of an OPEN, whose bytes still belong to the reader.
func newPeersStream(c *Conn, id uint32, to *acceptor, method, head []byte) *Stream {
	if to != nil {
		return newStream(c, id, to.method, nil)
	}
	return newStream(c, id, string(method), bytes.Clone(head))
}

// acceptWith passes a new stream to its acceptor.
func (s *Stream) acceptWith(accept Acceptor, head []byte) {
	to, err := accept(s, head)
	if err != nil {
		s.Refuse(err)
		return
	}
	s.mu.Lock()
	s.in.receiver = to
	failed := s.failure()
	s.mu.Unlock()
	if failed != nil {
		to.Failed(failed)
	}
}

func (r *reader) handleCredit(id, n uint32) error {
	s, err := r.lookup(id)
	if s == nil || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == 0 || n > maxCredit || s.out.credit+int(n) > maxCredit {
		return violation("credit of %d on top of %d", n, s.out.credit)
	}
	s.out.credit += int(n)
	s.changed.Broadcast()
	return nil
}

// handleEnd processes an END. It returns the stream's receiver if that has work to do now.
func (r *reader) handleEnd(id uint32) (Receiver, error) {
	s, err := r.lookup(id)
	if s == nil || err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.in.eof {
		s.mu.Unlock()
		return nil, violation("stream %d ended twice", id)
	}
	s.in.eof = true
	to := s.in.receiver
	s.updatedUnlock()
	if to != nil && to.Ended() {
		return to, nil
	}
	return nil, nil
}

func (r *reader) handleReset(id uint32, payload []byte) error {
	kind, text, err := parseError(payload)
	if err != nil {
		return err
	}
	s, err := r.lookup(id)
	if s != nil {
		s.peerReset(kind, text)
	}
	return err
}

// handleData reads a DATA frame: into the slice of a waiting Read, else into chunks; it discards
// data of a stream that has ended.
func (r *reader) handleData(h header) error {
	s, err := r.lookup(h.stream)
	if err != nil {
		return err
	}
	if s == nil {
		_, err := r.in.Discard(h.length)
		return connectionLostUnlessNil(err)
	}
	into, to, err := s.in.acceptData(h.length)
	if err != nil {
		return err
	}
	if to != nil {
		return r.readInto(s, to, h.length)
	}
	rest := h.length
	if into != nil {
		n, err := io.ReadFull(r.in, into)
		if full := s.in.dataRead(n); full != nil {
			return full
		}
		if err != nil {
			return connectionLost(err)
		}
		rest -= n
	}
	return r.buffer(s, rest)
}

// buffer reads n bytes into chunks.
func (r *reader) buffer(s *Stream, n int) error {
	for n > 0 {
		c := chunkPool.Get().(*chunk)
		c.from, c.to = 0, min(n, chunkSize)
		if _, err := io.ReadFull(r.in, c.data[:c.to]); err != nil {
			chunkPool.Put(c)
			return connectionLost(err)
		}
		n -= c.to
		if to := s.in.storeChunk(c); to != nil {
			took := deliverTo(to, c.data[:c.to])
			chunkPool.Put(c)
			if err := r.returnCredit(s, took); err != nil {
				return err
			}
		}
	}
	return nil
}
