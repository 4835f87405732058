package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

const (
	// pairLimit is how long the second stream of a pair may take to arrive.
	pairLimit = 10 * time.Second
	// maxUnpaired bounds the streams of an owner that wait for their session or its other stream. A
	// stream holds up to 256 KiB that nothing has read yet, and a node has 256 sessions at most.
	maxUnpaired = 512
)

// A Host holds the sessions on a device's node, and passes each stream to its session. The zero
// value has no sessions.
type Host struct {
	mu       sync.Mutex
	sessions map[Token]*Hosted
	unpaired map[string]int // the waiting streams by their owner
	changed  chan struct{}  // closed when a session is added
}

// beginWait counts a stream that waits, and returns an error if its owner has too many of them.
// Locks: h.mu is held.
func (h *Host) beginWait(owner string) error {
	if h.unpaired[owner] >= maxUnpaired {
		return outboard.Errorf(outboard.Exhausted, "session", "%d streams of this node wait for the beginning of their sessions, the most at once: try again", maxUnpaired)
	}
	if h.unpaired == nil {
		h.unpaired = map[string]int{}
	}
	h.unpaired[owner]++
	return nil
}

func (h *Host) endWait(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unpaired[owner]--; h.unpaired[owner] == 0 {
		delete(h.unpaired, owner)
	}
}

// Hosted is a session on its device's node.
type Hosted struct {
	host     *Host
	token    Token
	owner    string
	patience time.Duration
	offers   chan offer // of complete pairs
	began    sync.Once  // ends the wait of the stream that began the session

	mu   sync.Mutex
	next offer // of which one stream may be missing
	half *Half // set by Run
}

// An offer is a pair of streams of a connection with the position of the program's side.
type offer struct {
	conn     *framed.Conn
	streams  Streams
	received uint64
	resumed  bool // the stream of the ring's bytes is of kind Resume
}

// Add adds a session that a stream of kind Open begins. owner is the peer's identity: no other peer
// may continue the session. The caller must call Remove.
func (h *Host) Add(o Opening, owner string, data *framed.Stream) (*Hosted, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[o.Token] != nil {
		return nil, outboard.Errorf(outboard.Conflict, "session", "there is one with that token")
	}
	if err := h.beginWait(owner); err != nil {
		return nil, err
	}
	if h.sessions == nil {
		h.sessions = map[Token]*Hosted{}
	}
	d := &Hosted{
		host: h, token: o.Token, owner: owner, patience: o.Patience, offers: make(chan offer, 1),
		next: offer{conn: data.Conn(), streams: Streams{Data: data}},
	}
	h.sessions[o.Token] = d
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
	return d, nil
}

// Pass passes a stream of kind Resume or Acks to its session.
func (h *Host) Pass(ctx context.Context, o Opening, owner string, s *framed.Stream) error {
	h.mu.Lock()
	d := h.sessions[o.Token]
	wait := d == nil && o.Kind != Resume // a resumed session began before
	var err error
	if wait {
		err = h.beginWait(owner)
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	if wait {
		d = h.find(ctx, o.Token, s.Conn().Done())
		h.endWait(owner)
	}
	if d == nil || d.owner != owner {
		return errEnded
	}
	return d.offer(o, s)
}

var errEnded = outboard.Errorf(outboard.NotFound, "session", "it has ended on the device's node")

// find waits for a session, and returns nil if there is none within pairLimit.
func (h *Host) find(ctx context.Context, t Token, hungUp <-chan struct{}) *Hosted {
	timer := time.NewTimer(pairLimit)
	defer timer.Stop()
	for {
		h.mu.Lock()
		d := h.sessions[t]
		if h.changed == nil {
			h.changed = make(chan struct{})
		}
		changed := h.changed
		h.mu.Unlock()
		if d != nil {
			return d
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-hungUp:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// offer adds a stream to the pair of its connection. A newer connection replaces an older one.
func (d *Hosted) offer(o Opening, s *framed.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next.conn != s.Conn() {
		d.next.reset(errSuperseded)
		d.next = offer{conn: s.Conn()}
	}
	acknowledged := &d.next.streams.Acks
	if o.Kind == Resume {
		acknowledged, d.next.received, d.next.resumed = &d.next.streams.Data, o.Received, true
	}
	if *acknowledged != nil {
		return outboard.Errorf(outboard.Protocol, "session", "it has two streams of kind %d on a connection", o.Kind)
	}
	*acknowledged = s
	if d.next.streams.Data == nil || d.next.streams.Acks == nil {
		return nil
	}
	select {
	case old := <-d.offers:
		old.reset(errSuperseded)
	default:
	}
	complete := d.next
	d.next = offer{}
	d.offers <- complete // never blocks: d.mu is held, and the channel was emptied above
	if d.half != nil {
		d.half.Interrupt(complete.streams)
	}
	return nil
}

// reset ends the streams that are set; the peer gets the error.
func (o offer) reset(err error) {
	for _, s := range []*framed.Stream{o.streams.Data, o.streams.Acks} {
		if s != nil {
			s.Reset(err)
		}
	}
}

// Run moves the session's bytes until the session ends, and returns the reason: see Half.Run. ctx
// is done when the session's end has begun.
func (d *Hosted) Run(ctx context.Context, half *Half) error {
	first, err := d.first(ctx)
	if err != nil {
		return err
	}
	d.endWait()
	d.mu.Lock()
	d.half = half
	d.mu.Unlock()
	return half.Run(ctx, first.streams, func(received uint64, cause error) (Streams, uint64, error) {
		for {
			o, err := d.await(ctx, d.patience, cause)
			if err != nil {
				return Streams{}, 0, err
			}
			if err = writePosition(o.streams.Data, received); err == nil {
				return o.streams, o.received, nil
			}
		}
	})
}

// first returns the streams with which the session begins. If the connection was lost before that,
// they are those of another one, whose program waits for the number of bytes that have arrived.
func (d *Hosted) first(ctx context.Context) (offer, error) {
	for {
		o, err := d.await(ctx, pairLimit, errNoPair)
		if err != nil || !o.resumed {
			return o, err
		}
		if o.received > 0 {
			o.reset(errNotSent)
			return o, errNotSent
		}
		if writePosition(o.streams.Data, 0) == nil {
			return o, nil
		}
	}
}

var errNotSent = outboard.Errorf(outboard.Protocol, "session", "the program has received bytes before the session has sent any")

// endWait ends the wait of the stream that began the session.
func (d *Hosted) endWait() { d.began.Do(func() { d.host.endWait(d.owner) }) }

var errNoPair = outboard.Errorf(outboard.Protocol, "session", "its stream of acknowledgements is missing")

// await waits for the streams of a connection. late is the error after the limit.
func (d *Hosted) await(ctx context.Context, limit time.Duration, late error) (offer, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case o := <-d.offers:
		return o, nil
	case <-timer.C:
		return offer{}, late
	case <-ctx.Done():
		return offer{}, context.Cause(ctx)
	}
}

// Remove removes the session, which ended with or was refused with err.
func (d *Hosted) Remove(err error) {
	if err == nil {
		err = errEnded
	}
	d.endWait()
	d.host.mu.Lock()
	delete(d.host.sessions, d.token)
	d.host.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next.reset(err)
	select {
	case o := <-d.offers:
		o.reset(err)
	default:
	}
}
