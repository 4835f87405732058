package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxRanks bounds the ranks of a group.
const maxRanks = 1 << 16

// Options configures a Group; the zero value works.
type Options struct {
	// Link is the link for which algorithms are chosen. It must be the same for all ranks.
	Link Link
	// Store is the object store for calls that ask for it; nil Objects: none.
	Store Store
	// Buffers counts the temporary memory of calls; nil: it has no limit.
	Buffers *Buffers
	// Datagrams has a connection to the next and to the previous rank of the ring, by rank, for calls
	// with a Loss; nil: these use the streams. They belong to the group, as conns of NewGroup.
	Datagrams []*Datagrams
	// Name returns the number by which errors name a rank; nil: its number in the group.
	Name func(rank int) int
}

// A Group is one rank's end of a group of ranks. Its calls are made one after the other, in the
// order in which Do is called; a call that fails ends the group for all ranks.
type Group struct {
	rank, n int
	link    Link
	store   Store
	stored  stored // the last call through the store
	name    func(rank int) int
	peers   []*peer      // nil for the rank itself
	paths   []*chunkPath // by rank; nil without datagrams

	calls *ledger
	turn  chan struct{} // full while a call is running that is no exchange, or an exchange is being sent
	// received is closed when the last exchange has received its elements; nil: there was none. turn
	// guards it.
	received <-chan struct{}
	scratch  []byte // of the call that receives
	buffers  *Buffers
	// scratchHeld is how many bytes are counted for scratch; turn guards it.
	scratchHeld int64
	// dropped and offered count the parts that this rank has dropped, and could have sent, in steps
	// that may lose parts; repeated the chunks of datagrams that were sent again.
	dropped, offered, repeated atomic.Uint64

	ended context.Context //nolint:containedctx // ends with the group
	end   context.CancelCauseFunc
	once  sync.Once
}

// NewGroup returns the end of a rank. conns has a connection to each other rank, nil for the rank
// itself; they belong to the group from now on.
func NewGroup(rank int, conns []net.Conn, o Options) (*Group, error) {
	if len(conns) == 0 || len(conns) > maxRanks || rank < 0 || rank >= len(conns) {
		return nil, fmt.Errorf("rank %d of %d", rank, len(conns))
	}
	if o.Link == (Link{}) {
		o.Link = Link{Latency: 50 * time.Microsecond, Bandwidth: 1e9}
	}
	if o.Name == nil {
		o.Name = func(rank int) int { return rank }
	}
	g := &Group{rank: rank, n: len(conns), link: o.Link, store: o.Store, buffers: o.Buffers, name: o.Name, peers: make([]*peer, len(conns)), calls: newLedger(rank, o.Name), turn: make(chan struct{}, 1)}
	g.ended, g.end = context.WithCancelCause(context.Background())
	for i, c := range conns {
		if (c == nil) != (i == rank) {
			return nil, fmt.Errorf("rank %d has no connection to rank %d", rank, i)
		}
		if c != nil {
			g.peers[i] = newPeer(g, i, c)
		}
	}
	if err := g.addPaths(o.Datagrams); err != nil {
		return nil, err
	}
	for _, p := range g.peers {
		if p != nil {
			go p.read()
		}
	}
	return g, nil
}

// Rank returns the rank of this end.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.n }

// Err returns why the group has ended, nil before its end.
func (g *Group) Err() error { return context.Cause(g.ended) }

// Ended returns a channel that is closed when the group has ended.
func (g *Group) Ended() <-chan struct{} { return g.ended.Done() }

// ErrClosed says that a rank has closed the group.
var ErrClosed = errors.New("the group is closed")

// Close ends the group. Running calls end with an error, those of other ranks as well.
func (g *Group) Close() error {
	g.Abort(ErrClosed)
	return nil
}

// Abort ends the group as Close does. The error of running calls has why, also for other ranks.
func (g *Group) Abort(why error) { g.fail(why) }

// abortTime bounds how long the group tries to send a rank the reason of its end.
const abortTime = time.Second

// fail ends the group because of err, and sends the error to all ranks.
func (g *Group) fail(err error) {
	g.once.Do(func() {
		g.end(err)
		var told sync.WaitGroup
		for _, p := range g.peers {
			if p != nil {
				told.Go(func() { p.abort(err) })
			}
		}
		go func() {
			told.Wait()
			for _, p := range g.peers {
				if p != nil {
					p.close(err)
				}
			}
			for _, p := range g.paths {
				if p != nil {
					p.close() // Before the running call is awaited, which may wait for its stream.
				}
			}
			g.releaseScratch()
		}()
	})
}

// Do makes a call on buf, in place, and returns when this rank has its result. buf is aligned to
// the elements; AllToAll and Ordered calls make a temporary copy of it.
//
// It returns a *MismatchError if ranks disagree, and ctx's error if ctx ends first: then the group
// has ended, since the other ranks can't continue without this one.
func (g *Group) Do(ctx context.Context, c Call, buf []byte) error { return g.Start(ctx, c, buf)() }

// open returns an error if the group or ctx has ended.
func (g *Group) open(ctx context.Context) error { return errors.Join(ctx.Err(), g.Err()) }

// endWith ends the group when ctx ends before the call, until stop is called.
func (g *Group) endWith(ctx context.Context, c *Call) (stop func() bool) {
	return context.AfterFunc(ctx, func() { g.fail(fmt.Errorf("rank %d gave up in %s: %w", g.name(g.rank), *c, ctx.Err())) })
}

// perform makes a call that is no exchange, after the exchanges before it. The turn is held.
func (g *Group) perform(ctx context.Context, c *Call, buf []byte) error {
	if g.n == 1 {
		return nil
	}
	g.awaitExchanges()
	release, err := g.reserve(c)
	if err != nil {
		g.fail(err)
		return err
	}
	defer release()
	return g.endIf(ctx, g.run(c, buf))
}

// awaitExchanges waits until all exchanges have received their elements. The turn is held.
func (g *Group) awaitExchanges() {
	if g.received != nil {
		<-g.received
	}
}

// endIf ends the group if a call has failed with err, and returns the cause of the end.
func (g *Group) endIf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	g.fail(err)
	return g.cause(ctx)
}

// cause returns ctx's error if ctx has ended, else the error that ended the group.
func (g *Group) cause(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return g.Err()
}

func (g *Group) checkBuffer(c *Call, buf []byte) error {
	if err := c.Check(g.n); err != nil {
		return err
	}
	if c.Store && g.store.Objects == nil {
		return errors.New("there is no object store: start the nodes with `outboard up --objects`")
	}
	if want := c.Count * c.Element.Size(); len(buf) != want {
		return fmt.Errorf("%s: the buffer has %d bytes, want %d", c, len(buf), want)
	}
	if !aligned(buf, c.Element) {
		return fmt.Errorf("%s: the buffer is not aligned to its elements", c)
	}
	return nil
}
