package shared

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

const (
	// window is how many bytes of a stream each way nobody has read yet.
	window = 1 << 20
	// overhead is what a message costs beside its bytes.
	overhead = slotSize
	// chunkSize is how a message that is larger than a block is cut.
	chunkSize = 256 << 10
)

// A stream is what both sides of a call with many messages have. All but the
// first block is under the end's mutex.
type stream struct {
	e        *end
	id       callID
	priority call.Priority
	limit    int

	recv, send waiter
	chunks     []chunk
	owed       int  // cost of what came and was not credited yet
	due        int  // the part of it that has been read
	credit     int  // what we may still send
	closed     bool // nothing more comes
	over       bool // nothing more goes either

	sending sync.Mutex
}

// A chunk is a message, or a part of one.
type chunk struct {
	m     *call.Message
	more  bool
	total uint64
}

func cost(length int) int { return length + overhead }

func (s *stream) init(e *end, id callID, limit int) {
	s.e, s.id, s.limit, s.credit = e, id, limit, window
	s.recv, s.send = newWaiter(), newWaiter()
}

// push takes a chunk in. The reader calls it with the mutex held.
func (s *stream) push(d *desc, m *call.Message) error {
	if s.closed || s.owed >= window {
		m.Free()
		return outboard.Errorf(outboard.Protocol, "stream", "a message after the last, or without credit for it")
	}
	s.owed += cost(len(m.Data))
	s.chunks = append(s.chunks, chunk{m: m, more: d.flags&flagMore != 0, total: d.extra})
	s.e.satisfy(&s.recv)
	return nil
}

// grant adds credit. The reader calls it with the mutex held.
func (s *stream) grant(n uint64) error {
	if n == 0 || n > 2*window || s.credit+int(n) > window {
		return outboard.Errorf(outboard.Protocol, "stream", "credit of %d bytes", n)
	}
	s.credit += int(n)
	s.e.satisfy(&s.send)
	return nil
}

// next returns the next message, and io.EOF when there is none.
func (s *stream) next(ctx context.Context) (*call.Message, error) {
	first, err := s.pop(ctx)
	if err != nil || !first.more {
		return first.m, err
	}
	whole, err := s.assemble(ctx, first)
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Internal, "the call ended within a message")
	}
	return whole, err
}

func (s *stream) assemble(ctx context.Context, c chunk) (*call.Message, error) {
	compressed, total := c.m.Compressed, c.total
	if total > uint64(s.limit) {
		c.m.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "message of %d bytes: %d are allowed", total, s.limit)
	}
	// What is not there yet may never come: memory follows what comes.
	whole := make([]byte, 0, min(total, 4*chunkSize))
	for {
		whole = append(believe(whole, len(c.m.Data), total), c.m.Data...)
		c.m.Free()
		if uint64(len(whole)) > total || !c.more && uint64(len(whole)) != total {
			return nil, s.e.judge(outboard.Errorf(outboard.Protocol, "stream", "chunks of %d bytes for a message of %d", len(whole), total))
		}
		if !c.more {
			return &call.Message{Data: whole, Compressed: compressed}, nil
		}
		var err error
		if c, err = s.pop(ctx); err != nil {
			return nil, err
		}
	}
}

// believed is which part of a long message must have come before there is memory for all
// of it: a tenth.
const believed = 10

// believe makes room for n bytes more of a message, and for all of it once enough has come.
func believe(whole []byte, n int, total uint64) []byte {
	if len(whole)+n <= cap(whole) {
		return whole
	}
	room := total
	if uint64(len(whole)) < total/believed {
		room = uint64(len(whole)+n) + min(3*uint64(len(whole)), total/believed)
	}
	return append(make([]byte, 0, room), whole...)
}

// pop waits for a chunk, and gives credit for it.
func (s *stream) pop(ctx context.Context) (chunk, error) {
	s.e.mu.Lock()
	for len(s.chunks) == 0 {
		if s.closed {
			s.e.mu.Unlock()
			return chunk{}, io.EOF
		}
		s.recv.ready = false
		if err := s.e.awaitLocked(ctx, &s.recv); err != nil && len(s.chunks) == 0 {
			s.e.mu.Unlock()
			return chunk{}, err
		}
	}
	c := s.chunks[0]
	s.chunks = slices.Delete(s.chunks, 0, 1)
	n := s.settle(cost(len(c.m.Data)))
	s.e.mu.Unlock()
	if n == 0 {
		return c, nil
	}
	err := s.e.send(ctx, call.High, &desc{kind: kindCredit, call: s.id, extra: uint64(n)}, nil, nil)
	if err != nil {
		s.e.mu.Lock()
		s.due += n // the next one tells
		s.owed += n
		s.e.mu.Unlock()
	}
	return c, nil
}

// settle counts what was read, and returns the credit to give now.
func (s *stream) settle(n int) int {
	if s.due += n; s.due < window/2 || s.closed {
		return 0
	}
	n = min(s.due, window)
	s.due -= n
	s.owed -= n
	return n
}

// write sends a message, in chunks when it is large, and takes it over.
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
	return s.cut(ctx, d, data)
}

// cut sends data in as many parts as it takes.
func (s *stream) cut(ctx context.Context, d desc, data []byte) error {
	size := s.e.heap.maxBlock()
	if len(data) > size {
		d.extra = uint64(len(data))
		size = min(chunkSize, size)
	}
	for ; len(data) > size; d.extra = 0 {
		more := d
		more.flags |= flagMore
		if err := s.part(ctx, more, data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	return s.part(ctx, d, data)
}

// end says that no message follows.
func (s *stream) end(ctx context.Context) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.e.send(ctx, s.priority, &desc{kind: kindEnd, call: s.id}, nil, nil)
}

// part sends one chunk.
func (s *stream) part(ctx context.Context, d desc, data []byte) error {
	if err := s.spend(ctx, cost(len(data))); err != nil {
		return err
	}
	return s.e.send(ctx, s.priority, &d, nil, data)
}

// spend waits for credit. A little more than there is may be taken, so that one
// message is never too large.
func (s *stream) spend(ctx context.Context, n int) error {
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
	if s.e.dead != nil {
		return s.e.dead
	}
	s.credit -= n
	return ctx.Err()
}

// drop frees what nobody will read; the mutex is held.
func (s *stream) drop() {
	for _, c := range s.chunks {
		c.m.Free()
	}
	s.chunks, s.closed, s.over = nil, true, true
	s.e.satisfy(&s.recv)
	s.e.satisfy(&s.send)
}
