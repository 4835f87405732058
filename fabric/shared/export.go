package shared

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// ErrMoved is what a call's methods return once [Conn.Export] has begun to hand the
// connection to a successor. The call goes on there: a message that Recv would have
// returned waits there, and one that Send was given is sent there. A handler that
// returns ErrMoved leaves its call open; one that returns anything else has ended it.
// Contexts of calls do not end before the handlers have returned.
var ErrMoved error = moved{}

type moved struct{}

func (moved) Error() string { return "the connection has moved to a successor" }

// GRPCStatus is for those who don't know about successors.
func (m moved) GRPCStatus() *status.Status { return status.New(codes.Unavailable, m.Error()) }

// A MovedError is ErrMoved for a call that [Conn.Unary] made: the successor finds it
// with [Conn.Opened].
type MovedError struct{ Call uint64 }

func (e *MovedError) Error() string { return ErrMoved.Error() }

// Unwrap makes it an ErrMoved.
func (e *MovedError) Unwrap() error { return ErrMoved }

// GRPCStatus is as of ErrMoved.
func (e *MovedError) GRPCStatus() *status.Status { return moved{}.GRPCStatus() }

func (id callID) number() uint64 { return uint64(id.gen)<<32 | uint64(id.slot) }

func idOf(n uint64) callID { return callID{slot: uint32(n), gen: uint32(n >> 32)} }

// A State is what a successor has to know of a connection besides the region. It
// is for encoding/gob; strings in it may be any bytes.
type State struct {
	Acceptor, Serves bool
	Peer             Peer
	Heap, Slots      int
	Caller, Callee   EndState
	Methods          map[string]uint32 // our numbers for methods
	Known            []string          // the peer's
	Places           []uint32          // the generation of each place in our table of calls
	Opened, Served   []CallState
	Cancelled        []uint64 // calls whose end could not be said yet
	Finals           []FinalState
}

// An EndState is the positions in one lane's rings and heaps.
type EndState struct {
	Head, Taken, Pos, Told, Returned, Gave uint32
	Generation                             uint32 // the greatest of a piece of our heap
	Posted                                 []PieceState
}

// A PieceState is a piece of our heap that the peer has.
type PieceState struct{ Unit, Generation, Order uint32 }

// A CallState is a call in flight.
type CallState struct {
	ID                uint64
	Priority          call.Priority
	Chunks            []ChunkState
	Owed, Due, Credit int
	Closed, Over      bool
	Unsent            []ChunkState // a message on its way, or what is left of it

	// Of a call of ours.
	Greeted bool
	Header  []byte
	Outcome []byte
	Code    codes.Code
	Text    bool

	// Of a call of the peer's.
	Head                     *call.Head
	Started, Single, Replied bool
	Pairs, Trailer           metadata.MD
	Held                     *ChunkState
	Token                    []byte
	Final                    *FinalState // the handler has ended
}

// A ChunkState is a message or a part of one.
type ChunkState struct {
	Data             []byte
	Compressed, More bool
	Paid             bool // credit was given for it
	Total            uint64
	End              bool // no message, but that none follows
}

// A FinalState is a call's end that could not be said yet.
type FinalState struct {
	ID         uint64
	Priority   call.Priority
	Status     bool
	Code       codes.Code
	Compressed bool
	Head, Data []byte
}

// Export stops everything here and returns what a successor needs to go on with
// [Import]: the state, and two files (the socket and the region) to pass along. The
// peer sees nothing but a pause. All methods of calls return ErrMoved then; Export
// waits, until ctx ends, for the handlers to return, and for messages that were
// received or lent to be freed. When it fails the connection is closed. A process
// that moves several connections exports all at once: a handler may wait for a call
// on another of them.
func (c *Conn) Export(ctx context.Context) (State, []*os.File, error) {
	c.freeze()
	if err := c.settled(ctx); err != nil {
		_ = c.Close()
		return State{}, nil, fmt.Errorf("export: %w", err)
	}
	socket, err := c.socket.File()
	if err != nil {
		_ = c.Close()
		return State{}, nil, fmt.Errorf("export: %w", err)
	}
	region, err := duplicate(c.region.file)
	if err != nil {
		_ = socket.Close()
		_ = c.Close()
		return State{}, nil, fmt.Errorf("export: %w", err)
	}
	s := c.snapshot()
	c.fail(ErrMoved)
	return s, []*os.File{socket, region}, nil
}

// freeze stops the readers, and all who wait.
func (c *Conn) freeze() {
	for _, e := range []*end{&c.caller.end, &c.callee.end} {
		e.mu.Lock()
		e.frozen.Store(true)
		if e.dead == nil {
			e.dead = ErrMoved
		}
		for w := e.parked.first; w != nil; w = w.next {
			w.signal()
		}
		e.mu.Unlock()
		e.kick()
	}
	c.callee.mu.Lock()
	for _, idle := range c.callee.idle {
		close(idle)
	}
	c.callee.idle = nil
	c.callee.mu.Unlock()
	_ = c.socket.SetReadDeadline(time.Unix(1, 0))
}

// settled waits until nobody uses the region any more.
func (c *Conn) settled(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { c.wait.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		return fmt.Errorf("handlers are still running: %w", context.Cause(ctx))
	}
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for c.copyChunks(); c.region.refs.Load() > 1; c.copyChunks() {
		select {
		case <-tick.C:
		case <-c.done:
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("%d messages or calls are still in use: %w", c.region.refs.Load()-1, context.Cause(ctx))
		}
	}
	return c.Err()
}

// copyChunks takes messages that nobody has read out of the peer's heap.
func (c *Conn) copyChunks() {
	c.caller.mu.Lock()
	for p := range c.caller.opened {
		p.privatize()
	}
	c.caller.mu.Unlock()
	c.callee.mu.Lock()
	for _, s := range c.callee.calls {
		s.privatize()
	}
	c.callee.mu.Unlock()
}

func (s *stream) privatize() {
	for i, k := range s.chunks {
		if k.m.Release == nil {
			continue
		}
		m := copied(k.m.Data)
		m.Compressed = k.m.Compressed
		k.m.Free()
		s.chunks[i].m = m
	}
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var failed error
	if err := raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (c *Conn) snapshot() State {
	s := State{
		Acceptor: c.side == acceptor, Serves: c.serves, Peer: c.peer, Heap: c.region.heap, Slots: c.region.slots,
		Caller: c.caller.snapshot(), Callee: c.callee.snapshot(),
		Methods: map[string]uint32{}, Known: c.callee.methods,
	}
	for name, m := range c.caller.methods {
		if m.told {
			s.Methods[name] = m.number
		}
	}
	for _, at := range c.caller.places {
		s.Places = append(s.Places, at.gen)
	}
	for p := range c.caller.opened {
		s.Opened = append(s.Opened, p.snapshot())
	}
	for _, served := range c.callee.calls {
		s.Served = append(s.Served, served.snapshot())
	}
	for _, id := range c.caller.unsaid {
		s.Cancelled = append(s.Cancelled, id.number())
	}
	s.Finals = c.callee.finals
	return s
}

func (e *end) snapshot() EndState {
	s := EndState{Head: e.out.head, Taken: e.out.taken, Pos: e.in.pos, Told: e.in.told, Returned: e.heap.taken, Gave: e.theirs.gave}
	for at, b := range e.heap.blocks {
		s.Generation = max(s.Generation, b.gen)
		if b.state == posted {
			s.Posted = append(s.Posted, PieceState{uint32(at), b.gen, uint32(b.order)})
		}
	}
	return s
}

func (s *stream) snapshot() CallState {
	k := CallState{ID: s.id.number(), Priority: s.priority, Owed: s.owed, Due: s.due, Credit: s.credit, Closed: s.closed, Over: s.over, Unsent: s.unsent}
	for _, one := range s.chunks {
		k.Chunks = append(k.Chunks, ChunkState{Data: one.m.Data, Compressed: one.m.Compressed, More: one.more, Total: one.total, Paid: one.paid})
	}
	return k
}

func (p *pending) snapshot() CallState {
	k := p.stream.snapshot()
	k.Greeted, k.Header, k.Outcome, k.Code, k.Text = p.greeted, p.header, p.outcome, p.code, p.text
	return k
}

func (s *served) snapshot() CallState {
	k := s.stream.snapshot()
	k.Head, k.Started, k.Single, k.Replied = s.head, s.started, s.single, s.sent
	k.Greeted, k.Pairs, k.Trailer, k.Token, k.Final = s.greeted, s.header, s.trailer, s.token, s.final
	if s.held != nil {
		k.Held = &ChunkState{Data: append([]byte(nil), s.held.Data...), Compressed: s.held.Compressed}
	}
	return k
}

// A Resumed is a call of the peer that a predecessor's handler left open. It is a
// call.ServerStream.
type Resumed interface {
	call.ServerStream
	// Token is what the predecessor's handler said with Keep.
	Token() []byte
}

// A Keeper lets a handler say what its successor has to know. The streams of this
// package are, and [KeeperFrom] finds that of a call.UnaryHandler's context, unless
// the call is served inline.
type Keeper interface{ Keep(token []byte) }

type keeperKey struct{}

// KeeperFrom is the Keeper of the call whose context ctx is.
func KeeperFrom(ctx context.Context) (Keeper, bool) {
	k, ok := ctx.Value(keeperKey{}).(Keeper)
	return k, ok
}

// Keep implements Keeper.
func (s *served) Keep(token []byte) {
	s.words.Lock()
	defer s.words.Unlock()
	s.token = append([]byte(nil), token...)
}

// Token implements Resumed.
func (s *served) Token() []byte {
	s.words.Lock()
	defer s.words.Unlock()
	return s.token
}

// final is a call's end for a successor to say.
func (c *callee) final(id callID, p call.Priority, response *call.Message, e call.End, err error) *FinalState {
	f := &FinalState{ID: id.number(), Priority: p}
	if response != nil && err == nil {
		f.Data, err = response.Bytes()
		f.Data, f.Compressed = append([]byte(nil), f.Data...), response.Compressed
	}
	if response != nil && err == nil {
		f.Head = appendOutcome(nil, e, nil)
		return f
	}
	s := status.New(codes.OK, "")
	if err != nil {
		s = statusOf(err)
	}
	f.Status, f.Code, f.Head, f.Data = true, s.Code(), appendOutcome(nil, e, s), nil
	return f
}

// say posts the end of a call that a predecessor could not say.
func (c *callee) say(f *FinalState) error {
	d := desc{kind: kindReply, call: idOf(f.ID), code: uint16(f.Code)}
	if f.Status {
		d.kind = kindStatus
	}
	if f.Compressed {
		d.flags = flagCompressed
	}
	err := c.send(c.base, f.Priority, &d, f.Head, f.Data)
	return c.explain(c.base, d.call, f.Priority, err)
}

// sayOrKeep leaves the end to the next successor when this one moves too.
func (c *callee) sayOrKeep(f FinalState) {
	if !isMoved(c.say(&f)) {
		return
	}
	c.mu.Lock()
	c.finals = append(c.finals, f)
	c.mu.Unlock()
}

func isMoved(err error) bool { return errors.Is(err, ErrMoved) }
