package shared

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/fifo"
)

const (
	// window is the flow-control window of a stream in bytes, each way.
	window = 1 << 20
	// overhead is the cost of a message in the window in addition to its bytes.
	overhead = slotSize
	// chunkSize is the size of the chunks of a message that exceeds a heap block.
	chunkSize = 256 << 10
)

// A stream is the state that both sides of a streaming call have in common. The end's mutex guards
// the fields from recv to overflow.
type stream struct {
	e        *laneEnd
	id       callID
	priority call.Priority
	limit    int

	recv, send waiter
	chunks     fifo.Queue[chunk]
	uncredited int  // cost of the chunks that were received and not credited
	consumed   int  // the part of uncredited that has been read
	credit     int  // cost of the chunks that this side may still send
	closed     bool // no more chunks are received
	over       bool // no more chunks are sent
	overflow   bool // more was received than the connection may buffer

	sending sync.Mutex
}

// A chunk is a message, or a part of a message.
type chunk struct {
	m     *call.Message
	more  bool
	total uint64
	// counted is the chunk's part of laneEnd.buffered.
	counted int
}

func cost(length int) int { return length + overhead }

func (s *stream) init(e *laneEnd, id callID, limit int) {
	s.e, s.id, s.limit, s.credit = e, id, limit, window
	s.recv, s.send = newWaiter(), newWaiter()
}

// push adds a received chunk. The reader calls it with the mutex held.
func (s *stream) push(d *desc, m *call.Message) error {
	if s.overflow {
		m.Free()
		return nil
	}
	if s.closed || s.uncredited >= window {
		m.Free()
		return outboard.Errorf(outboard.Protocol, "stream", "a message after the half-close, or without credit")
	}
	n := cost(len(m.Data))
	if s.e.buffered+n > s.e.conn.options.MaxBuffered {
		m.Free()
		s.overflow = true
		s.discard()
		return nil
	}
	s.e.buffered += n
	s.uncredited += n
	s.chunks.Push(chunk{m: m, more: d.flags&flagMore != 0, total: d.extra, counted: n})
	s.e.markReady(&s.recv)
	return nil
}

// addCredit adds credit. The reader calls it with the mutex held.
func (s *stream) addCredit(n uint64) error {
	if n == 0 || n > 2*window || s.credit+int(n) > window {
		return outboard.Errorf(outboard.Protocol, "stream", "credit of %d bytes", n)
	}
	s.credit += int(n)
	s.e.markReady(&s.send)
	return nil
}

// next returns the next message, or io.EOF if there is none.
func (s *stream) next(ctx context.Context) (*call.Message, error) {
	first, err := s.pop(ctx)
	if err != nil || !first.more {
		return first.m, err
	}
	message, err := s.assemble(ctx, first)
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Internal, "the call ended within a message")
	}
	return message, err
}

// assemble receives the rest of a message that was sent in chunks.
func (s *stream) assemble(ctx context.Context, c chunk) (*call.Message, error) {
	compressed, total := c.m.Compressed, c.total
	if total > uint64(s.limit) {
		c.m.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "message of %d bytes: %d are allowed", total, s.limit)
	}
	a := assembly{stream: s, total: total}
	for {
		a.add(c.m)
		if have := uint64(len(a.bytes())); have > total || !c.more && have != total {
			a.drop()
			return nil, s.e.closeOnViolation(outboard.Errorf(outboard.Protocol, "stream", "chunks of %d bytes for a message of %d", have, total))
		}
		if !c.more {
			m := a.message()
			m.Compressed = compressed
			return m, nil
		}
		var err error
		if c, err = s.pop(ctx); err != nil {
			a.drop()
			return nil, err
		}
	}
}

// pop waits for a chunk and returns credit for it.
func (s *stream) pop(ctx context.Context) (chunk, error) {
	s.e.mu.Lock()
	for s.chunks.Len() == 0 {
		if s.overflow {
			s.e.mu.Unlock()
			return chunk{}, status.Errorf(codes.ResourceExhausted, "more than %d bytes were received on the connection and not read", s.e.conn.options.MaxBuffered)
		}
		if s.closed {
			s.e.mu.Unlock()
			return chunk{}, io.EOF
		}
		s.recv.ready = false
		if err := s.e.awaitLocked(ctx, &s.recv); err != nil && s.chunks.Len() == 0 {
			s.e.mu.Unlock()
			return chunk{}, err
		}
	}
	c := s.chunks.Pop()
	s.e.buffered -= c.counted
	n := s.creditFor(cost(len(c.m.Data)))
	s.e.mu.Unlock()
	if n == 0 {
		return c, nil
	}
	err := s.e.send(ctx, call.High, &desc{kind: kindCredit, call: s.id, extra: uint64(n)}, nil, nil)
	if err != nil {
		s.e.mu.Lock()
		s.consumed += n // the next pop sends it
		s.uncredited += n
		s.e.mu.Unlock()
	}
	return c, nil
}

// creditFor counts n as read, and returns the credit to send now.
func (s *stream) creditFor(n int) int {
	if s.consumed += n; s.consumed < window/2 || s.closed {
		return 0
	}
	n = min(s.consumed, window)
	s.consumed -= n
	s.uncredited -= n
	return n
}

// write sends a message, which it takes over, in chunks when it is large.
func (s *stream) write(ctx context.Context, m *call.Message) error {
	defer m.Free()
	data, err := m.Bytes()
	if err != nil {
		return err
	}
	d := desc{kind: kindData, call: s.id}
	if m.Compressed {
		d.flags = flagCompressed
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.writeChunks(ctx, d, data)
}

// writeChunks sends data in as many chunks as it needs.
func (s *stream) writeChunks(ctx context.Context, d desc, data []byte) error {
	if len(data) <= s.e.heap.maxBlock() {
		return s.writeChunk(ctx, d, data)
	}
	run, size, err := s.runFor(data)
	if err != nil {
		return err
	}
	defer run.Free()
	d.extra = uint64(len(data))
	for len(data) > 0 {
		size = min(size, len(data))
		piece := data[:size]
		if data = data[size:]; len(data) > 0 {
			d.flags |= flagMore
		} else {
			d.flags &^= flagMore
		}
		if run != nil {
			copy(run.Data, piece)
			piece, run.Data = run.Data[:size], run.Data[size:]
		}
		if err := s.writeChunk(ctx, d, piece); err != nil {
			return err
		}
		d.extra = 0
	}
	return nil
}

// runFor returns adjacent blocks to which data that exceeds a block is copied, nil if data lies in such
// blocks or there are none, and the size of the chunks.
func (s *stream) runFor(data []byte) (*call.Message, int, error) {
	size := s.e.heap.maxBlock()
	if _, lent := s.e.heap.owner(data); lent {
		return nil, size, nil
	}
	run, err := lendRun(s.e, len(data))
	if run == nil {
		size = min(chunkSize, size)
	}
	return run, size, err
}

// closeSend half-closes the stream.
func (s *stream) closeSend(ctx context.Context) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.e.send(ctx, s.priority, &desc{kind: kindEnd, call: s.id}, nil, nil)
}

// writeChunk sends one chunk.
func (s *stream) writeChunk(ctx context.Context, d desc, data []byte) error {
	if err := s.acquireCredit(ctx, cost(len(data))); err != nil {
		return err
	}
	return s.e.send(ctx, s.priority, &d, nil, data)
}

// acquireCredit waits for credit. The last message may overdraw it, so that no message is too
// large.
func (s *stream) acquireCredit(ctx context.Context, n int) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for s.credit <= 0 && !s.over {
		s.send.ready = false
		if err := s.e.awaitLocked(ctx, &s.send); err != nil {
			return err
		}
	}
	if s.over {
		return io.EOF
	}
	if s.e.closeErr != nil {
		return s.e.closeErr
	}
	s.credit -= n
	return ctx.Err()
}

// discard frees messages that will not be read; the mutex is held.
func (s *stream) discard() {
	for _, c := range s.chunks.All() {
		s.e.buffered -= c.counted
		c.m.Free()
	}
	s.chunks.Clear()
	s.closed, s.over = true, true
	s.e.markReady(&s.recv)
	s.e.markReady(&s.send)
}
