package transit

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// A Caller is the caller's side of a stream that can move: a [call.ClientStream].
type Caller struct {
	ctx     context.Context //nolint:containedctx // the stream's
	head    *call.Head      // as received
	openLeg OpenFunc
	// forwarding reports that a process nearer to the caller named the stream, and may move it too;
	// forwardingMove reports that such a move opened this leg.
	forwarding, forwardingMove bool
	name                       string

	mu      sync.Mutex
	unwatch func() bool // undoes the watch of ctx
	set     *StreamSet
	pos     position // position of the leg that is sent on
	closed  bool     // CloseSend was called
	ended   bool
	decided chan struct{} // not nil: a move is in progress; closed when its outcome is known
	abandon context.CancelFunc
	next    *leg // the leg after the one that is read

	sending sync.Mutex
	out     *leg // under sending

	legReader[*leg]
	// Guarded by reading, as the fields of legReader.
	header      metadata.MD
	headerKnown chan struct{} // closed when the header is known
	headerOnce  sync.Once     // closes headerKnown
	first       *leg
}

var _ call.ClientStream = (*Caller)(nil)

// A leg carries the stream between two moves: one call.
type leg struct {
	call.ClientStream
	cancel       context.CancelFunc
	sendClosed   bool          // under sending
	headerInBand bool          // its first message is the header; for the reader only
	empty        chan struct{} // closed when it has been read to its end
}

func (l *leg) drained() <-chan struct{} { return l.empty }

// Open opens a stream that can move. A name and a position in h come from the process that forwards
// the stream. The stream ends with ctx.
func Open(ctx context.Context, h *call.Head, openLeg OpenFunc) (*Caller, error) {
	c := &Caller{
		ctx: ctx, head: h, openLeg: openLeg, forwarding: true, forwardingMove: IsMove(h), pos: parsePosition(h.Metadata),
		headerKnown: make(chan struct{}),
	}
	if c.pos.name == "" {
		c.forwarding, c.pos = false, position{name: newName(time.Now())}
	}
	c.name, c.pos = c.pos.name, c.pos.below(0)
	l, set, err := c.open(ctx, c.pos, c.forwardingMove)
	if err != nil {
		return nil, err
	}
	c.out, c.first, c.legReader = l, l, newLegReader(l)
	c.mu.Lock()
	c.set = set
	c.unwatch = context.AfterFunc(ctx, c.end)
	c.mu.Unlock()
	c.join(set)
	return c, nil
}

// join adds the stream to a set, unless it has ended meanwhile.
func (c *Caller) join(set *StreamSet) {
	set.add(c)
	c.mu.Lock()
	over := c.ended
	c.mu.Unlock()
	if over {
		set.remove(c)
	}
}

// open opens a leg at a position; moves reports that the leg continues the stream.
func (c *Caller) open(ctx context.Context, at position, moves bool) (*leg, *StreamSet, error) {
	h := c.head.Clone()
	h.Metadata = h.Metadata.Copy()
	if h.Metadata == nil {
		h.Metadata = metadata.MD{}
	}
	h.Metadata[StreamKey] = []string{at.String()}
	if moves {
		h.Metadata[MoveKey] = []string{moved}
	}
	ctx, cancel := context.WithCancel(ctx)
	s, set, err := c.openLeg(ctx, h)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return &leg{ClientStream: s, cancel: cancel, empty: make(chan struct{})}, set, nil
}

// Name returns the stream's name.
func (c *Caller) Name() string { return c.name }

// Send implements call.ClientStream.
func (c *Caller) Send(m *call.Message) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.out.Send(m)
}

// CloseSend implements call.ClientStream.
func (c *Caller) CloseSend() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.out.close()
}

func (l *leg) close() error {
	if l.sendClosed {
		return nil
	}
	l.sendClosed = true
	return l.CloseSend()
}

// Recv implements call.ClientStream.
func (c *Caller) Recv() (*call.Message, error) {
	c.reading <- struct{}{}
	defer func() { <-c.reading }()
	if m := c.dequeue(); m != nil {
		return m, nil
	}
	return c.read()
}

// read reads the next message of the stream. The goroutine holds reading.
func (c *Caller) read() (*call.Message, error) {
	for c.err == nil {
		m, err := c.in.Recv()
		switch {
		case err != nil:
			c.advance(err)
		case c.in.headerInBand:
			c.decodeHeader(m)
		default:
			return m, nil
		}
	}
	return nil, c.err
}

// decodeHeader decodes the header from the message that carries it in band.
func (c *Caller) decodeHeader(m *call.Message) bool {
	c.in.headerInBand = false
	md, err := ParseHeader(m)
	if err != nil {
		c.finish(status.Error(codes.Internal, err.Error()))
		return false
	}
	c.setHeader(md)
	return true
}

// advance switches to the next leg, or ends the stream if there is none.
func (c *Caller) advance(err error) {
	if !errors.Is(err, io.EOF) || !MovedOn(c.in.Trailer()) {
		c.finish(err)
		return
	}
	c.mu.Lock()
	decided := c.decided
	c.mu.Unlock()
	if decided != nil {
		<-decided
	}
	c.mu.Lock()
	next := c.next
	c.next = nil
	c.mu.Unlock()
	switch {
	case next != nil:
		c.in.cancel()
		close(c.in.empty)
		c.in = next
	case c.forwarding:
		c.finish(err) // the process that forwards the stream has moved it
	default:
		c.finish(status.Error(codes.Unavailable, "the stream moved without its caller"))
	}
}

func (c *Caller) finish(err error) {
	c.err = err
	close(c.in.empty)
	c.setHeader(nil)
	c.end()
}

func (c *Caller) setHeader(md metadata.MD) {
	c.headerOnce.Do(func() {
		c.header = md
		close(c.headerKnown)
	})
}

// Header implements call.ClientStream.
func (c *Caller) Header() (metadata.MD, error) {
	md, err := c.first.Header()
	if md != nil || err != nil {
		return md, err
	}
	// The callee sent none, or the stream moved before the header: then a later leg carries it.
	for !c.isHeaderKnown() {
		select {
		case <-c.headerKnown:
		case c.reading <- struct{}{}:
			c.readHeader()
			<-c.reading
		}
	}
	return c.header, nil
}

func (c *Caller) isHeaderKnown() bool {
	select {
	case <-c.headerKnown:
		return true
	default:
		return false
	}
}

// readHeader reads on until the header is known: it comes before the first message, which a move may
// have queued already.
func (c *Caller) readHeader() {
	if c.isHeaderKnown() {
		return
	}
	if len(c.queued) > 0 {
		c.setHeader(metadata.MD{})
		return
	}
	if m, err := c.read(); err == nil {
		c.queued = append(c.queued, m)
		c.setHeader(metadata.MD{})
	}
}

// Trailer implements call.ClientStream.
func (c *Caller) Trailer() metadata.MD {
	c.reading <- struct{}{}
	defer func() { <-c.reading }()
	return c.in.Trailer()
}

// Lend returns a message in memory that the leg sends without a copy, if it has such memory.
func (c *Caller) Lend(size int) (*call.Message, error) {
	c.sending.Lock()
	lender, ok := c.out.ClientStream.(interface {
		Lend(int) (*call.Message, error)
	})
	c.sending.Unlock()
	if !ok {
		return &call.Message{Data: make([]byte, size)}, nil
	}
	return lender.Lend(size)
}

// end marks the stream as ended, and cancels a move in progress.
func (c *Caller) end() {
	c.mu.Lock()
	c.ended = true
	set, abandon, unwatch := c.set, c.abandon, c.unwatch
	c.set = nil
	c.mu.Unlock()
	unwatch()
	set.remove(c)
	if abandon != nil {
		abandon()
	}
}
