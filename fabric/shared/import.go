package shared

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// Import goes on with a connection that another process has exported. It owns the
// files. Calls of the peer that had not begun are served by Options.Handler, those
// that the predecessor's handler left open by Options.Resume. Our own calls wait for
// [Conn.Opened].
func Import(s State, files []*os.File, o Options) (*Conn, error) {
	c, again, err := adopt(s, files, o)
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	c.start()
	c.catchUp(s, again)
	return c, nil
}

func adopt(s State, files []*os.File, o Options) (c *Conn, again []func(), err error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, nil, err
	}
	g := geometry{heap: s.Heap, slots: s.Slots}
	if err := g.check(); err != nil || len(files) != 2 {
		return nil, nil, errors.Join(err, outboard.Errorf(outboard.Invalid, "state", "%d files: want 2", len(files)))
	}
	socket, err := socketOf(files[0])
	if err != nil {
		return nil, nil, err
	}
	r, err := remap(files[1], g)
	if err != nil {
		_ = socket.Close()
		return nil, nil, err
	}
	at := dialler
	if s.Acceptor {
		at = acceptor
	}
	c = newConn(socket, r, at, s.Serves, s.Peer, &o)
	if again, err = c.restore(s); err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c, again, nil
}

func socketOf(f *os.File) (*net.UnixConn, error) {
	generic, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	socket, ok := generic.(*net.UnixConn)
	if !ok {
		_ = generic.Close()
		return nil, outboard.Errorf(outboard.Invalid, "state", "the first file is no unix socket")
	}
	return socket, nil
}

func remap(f *os.File, g geometry) (*region, error) {
	own, err := duplicate(f)
	if err != nil {
		return nil, err
	}
	r, err := openRegion(own, g)
	if err != nil {
		_ = own.Close()
	}
	return r, err
}

func (c *Conn) restore(s State) ([]func(), error) {
	if err := errors.Join(c.caller.restore(s.Caller), c.callee.restore(s.Callee)); err != nil {
		return nil, err
	}
	for number, name := range s.Known {
		if name == "" {
			continue
		}
		if err := c.callee.define(uint32(number), name); err != nil {
			return nil, err
		}
	}
	if err := c.restoreCaller(s); err != nil {
		return nil, err
	}
	if len(s.Served) > 0 && c.callee.handler == nil {
		return nil, outboard.Errorf(outboard.Invalid, "state", "%d calls to serve need a handler", len(s.Served))
	}
	var again []func()
	for _, k := range s.Served {
		f, err := c.callee.readmit(k)
		if err != nil {
			return nil, err
		}
		again = append(again, f)
	}
	return again, nil
}

func (c *Conn) restoreCaller(s State) error {
	for name, number := range s.Methods {
		c.caller.methods[name] = &method{number: number, told: true}
	}
	for _, gen := range s.Places {
		c.caller.places = append(c.caller.places, place{gen: gen})
	}
	c.imported = map[uint64]*clientStream{}
	for _, k := range s.Opened {
		if err := c.caller.reopen(k); err != nil {
			return err
		}
	}
	for at := range c.caller.places {
		if c.caller.places[at].p == nil {
			c.caller.free = append(c.caller.free, uint32(at))
		}
	}
	return nil
}

// restore makes the tables of the heap anew around what the peer has.
func (e *end) restore(s EndState) error {
	e.out.head, e.out.taken, e.in.pos, e.in.told = s.Head, s.Taken, s.Pos, s.Told
	e.heap.taken, e.theirs.gave = s.Returned, s.Gave
	if s.Generation == 0 {
		return nil
	}
	return e.heap.restore(s)
}

func (a *allocator) restore(s EndState) error {
	a.blocks = make([]block, a.units())
	top := order(a.maxBlock())
	a.lists, a.keep = make([][]uint32, top+1), make([][]uint32, top+1)
	for at := range a.blocks {
		a.blocks[at].gen = s.Generation
	}
	slices.SortFunc(s.Posted, func(x, y PieceState) int { return int(x.Unit) - int(y.Unit) })
	for _, p := range s.Posted {
		if int(p.Order) > top || p.Unit%(1<<p.Order) != 0 || int(p.Unit)+1<<p.Order > a.units() {
			return outboard.Errorf(outboard.Invalid, "state", "piece at unit %d", p.Unit)
		}
		a.blocks[p.Unit] = block{gen: p.Generation, state: posted, order: uint8(p.Order)}
		a.used += 1 << p.Order
	}
	for at := a.units() - 1<<top; at >= 0; at -= 1 << top {
		a.carve(uint32(at), top, s.Posted)
	}
	return nil
}

// carve frees what is not posted of a block.
func (a *allocator) carve(at uint32, o int, pieces []PieceState) {
	from, _ := slices.BinarySearchFunc(pieces, at, func(p PieceState, at uint32) int { return int(p.Unit) - int(at) })
	switch {
	case from == len(pieces) || pieces[from].Unit >= at+1<<o:
		a.push(at, o)
	case int(pieces[from].Order) < o || pieces[from].Unit != at:
		a.carve(at+1<<(o-1), o-1, pieces)
		a.carve(at, o-1, pieces)
	}
}

func (s *stream) restore(k CallState) {
	s.priority, s.owed, s.due, s.credit, s.closed, s.over, s.unsent = k.Priority, k.Owed, k.Due, k.Credit, k.Closed, k.Over, k.Unsent
	for _, one := range k.Chunks {
		s.chunks = append(s.chunks, chunk{m: &call.Message{Data: one.Data, Compressed: one.Compressed}, more: one.More, total: one.Total, paid: one.Paid})
	}
}

// reopen makes one of our calls anew; its caller asks for it with Opened.
func (c *caller) reopen(k CallState) error {
	p := &pending{first: newWaiter()}
	id := idOf(k.ID)
	p.init(&c.end, id, c.limit)
	p.id = id
	p.restore(k)
	p.movable = true
	p.greeted, p.header, p.outcome, p.code, p.text = k.Greeted, k.Header, k.Outcome, k.Code, k.Text
	p.first.ready, p.recv.ready = p.greeted || p.closed, true
	if !p.over {
		if id.slot >= uint32(len(c.places)) || c.places[id.slot].gen != id.gen || c.places[id.slot].p != nil {
			return outboard.Errorf(outboard.Invalid, "state", "call %d has no place", k.ID)
		}
		c.places[id.slot].p = p
	}
	c.begun++
	c.opened[p] = true
	c.conn.imported[k.ID] = &clientStream{ctx: context.Background(), c: c, p: p, stop: func() bool { return true }, done: func() {}}
	return nil
}

// Opened is the call of ours that a predecessor had in flight, known by what its
// stream's ID or [MovedError] said. Each can be asked for once; ctx is the call's
// from now on.
func (c *Conn) Opened(ctx context.Context, id uint64) (call.ClientStream, bool) {
	c.mu.Lock()
	s := c.imported[id]
	delete(c.imported, id)
	c.mu.Unlock()
	if s == nil {
		return nil, false
	}
	s.watch(ctx)
	return s, true
}

// catchUp says what the predecessor could not say any more, and serves its calls.
func (c *Conn) catchUp(s State, again []func()) {
	for _, f := range s.Finals {
		c.spawn(func() { c.callee.sayOrKeep(f) })
	}
	for _, id := range s.Cancelled {
		c.caller.cancel(idOf(id), call.High)
	}
	for p := range c.caller.opened {
		if len(p.unsent) > 0 {
			c.spawn(func() { _ = p.flush(context.Background()) }) // what fails it fails the connection
		}
	}
	for _, again := range again {
		c.spawn(again)
	}
}

// readmit notes one of the peer's calls, and returns what goes on with it. It is
// called before the reader begins, so that nothing that comes for the call is lost.
func (c *callee) readmit(k CallState) (func(), error) {
	s, err := c.register(idOf(k.ID), k.Head, k.Head.Deadline)
	if err != nil || s == nil {
		return nil, errors.Join(err, outboard.Errorf(outboard.Invalid, "state", "%d calls in flight are too many", c.most))
	}
	s.restore(k)
	s.started, s.single, s.sent, s.greeted = k.Started, k.Single, k.Replied, k.Greeted
	s.header, s.trailer, s.token = k.Pairs, k.Trailer, k.Token
	if k.Held != nil {
		s.held = &call.Message{Data: k.Held.Data, Compressed: k.Held.Compressed}
	}
	return func() { s.resume(k.Final) }, nil
}

// resume goes on with the call: after what the predecessor could not send.
func (s *served) resume(final *FinalState) {
	s.final = final
	err := s.flush(s.ctx)
	switch {
	case err != nil:
		s.finish(nil, call.End{}, err)
	case final == nil:
		s.run()
	default:
		if s.leaves(s.c.say(final)) {
			s.finish(nil, call.End{}, ErrMoved)
			return
		}
		s.c.mu.Lock()
		s.cancelled = true // nothing is left to say
		s.c.mu.Unlock()
		s.finish(nil, call.End{}, nil)
	}
}
