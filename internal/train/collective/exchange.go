package collective

import "context"

// An exchange is the all-reduce of two ranks: each sends its elements and adds those of the other.
// What a rank sends does not depend on what it receives, so the elements of the next call are sent
// while those of the last one arrive: between the calls of a sequence the link is never idle.
type exchange struct {
	execution

	// sent receives the number of bytes of the buffer that have been written each time that it grows,
	// and is closed when no more are written, because of err if that is not nil.
	sent chan int
	err  error
	// before is closed when the exchanges before this one have received their elements, and received
	// when this one has.
	before   <-chan struct{}
	received chan struct{}
}

// exchanges reports whether the call is an exchange.
func (g *Group) exchanges(c *Call) bool {
	return g.n == 2 && c.Operation == AllReduce && c.Loss == 0 && !c.Store && g.algorithm(c) == Doubling
}

// startExchange begins to send the elements of a call and to receive those of the other rank, and
// returns the function that waits for the end. The turn is held, and released when all elements have
// been written.
func (g *Group) startExchange(c *Call, buf []byte) (wait func() error, err error) {
	release, err := g.reserve(c)
	if err != nil {
		g.failTurn(err)
		return nil, err
	}
	a := announced{*c, Doubling}
	number, err := g.calls.begin(a, g.n)
	if err != nil {
		g.failTurn(err)
		release()
		return nil, err
	}
	x := &exchange{
		execution: execution{g: g, call: c, number: number, announced: a, size: c.Element.Size(), buf: buf},
		sent:      make(chan int, len(buf)/pieceSize+1), before: g.received, received: make(chan struct{}),
	}
	g.received = x.received
	go func() {
		x.send()
		<-g.turn
	}()
	result := make(chan error, 1)
	go func() {
		defer release()
		defer close(x.received)
		result <- x.receiveInTurn()
	}()
	return func() error { return <-result }, nil
}

// failTurn ends the group before the next call has the turn: that call would receive the elements of
// this one, and the group would end by the wrong error.
func (g *Group) failTurn(err error) {
	g.fail(err)
	<-g.turn
}

// peer returns the connection to the other rank.
func (x *exchange) peer() *peer { return x.g.peers[1-x.g.rank] }

// send writes the elements. If that fails it ends the group, since the other rank waits for them.
func (x *exchange) send() {
	defer close(x.sent)
	x.err = x.peer().sendPieces(x.number, x.announced, x.buf, func(written int) { x.sent <- written })
	if x.err != nil {
		x.g.fail(x.err)
	}
}

// receiveInTurn receives the elements of the other rank after those of the exchanges before.
func (x *exchange) receiveInTurn() error {
	if x.before != nil {
		<-x.before
	}
	return x.receive()
}

// receive adds the elements of the other rank piece by piece, each after the rank's own elements of
// the piece have been written. That never blocks both ranks: each can only wait for a piece that the
// other one has not received, and no rank has received more than the other has written.
func (x *exchange) receive() error {
	piece, written := x.g.aside(min(pieceSize, len(x.buf))), 0
	err := x.peer().receive(x.number, len(x.buf),
		func(_, n int) []byte { return piece[:min(n, len(piece))] },
		func(at int, got []byte) {
			written = x.awaitSent(written, at+len(got))
			combine(x.buf[at:at+len(got)], got, x.call.Element, x.call.Reduction)
		})
	if err != nil {
		x.g.fail(err) // Ends a send that hangs: nothing reads the buffer after the call.
	}
	for range x.sent { // until it is closed
	}
	if err == nil && x.err == nil {
		x.finish()
	}
	if err != nil {
		return err
	}
	return x.err
}

// awaitSent waits until n bytes have been written, or no more are, and returns how many have; before
// are known to have been.
func (x *exchange) awaitSent(before, n int) (written int) {
	written = before
	for written < n {
		now, ok := <-x.sent
		if !ok {
			break
		}
		written = now
	}
	return written
}

// Start begins a call as Do does, and returns the function that waits until this rank has its
// result. Calls begin in the order of Start; an exchange of two ranks overlaps with the next one, any
// other call has ended when Start returns.
func (g *Group) Start(ctx context.Context, c Call, buf []byte) (wait func() error) {
	failed := func(err error) func() error { return func() error { return err } }
	if err := g.checkBuffer(&c, buf); err != nil {
		return failed(err)
	}
	g.turn <- struct{}{}
	if err := g.open(ctx); err != nil {
		<-g.turn
		return failed(err)
	}
	stop := g.endWith(ctx, &c)
	if !g.exchanges(&c) {
		defer func() { <-g.turn }()
		defer stop()
		return failed(g.perform(ctx, &c, buf))
	}
	receive, err := g.startExchange(&c, buf)
	if err != nil {
		receive = failed(err)
	}
	return func() error {
		defer stop()
		return g.endIf(ctx, receive())
	}
}
