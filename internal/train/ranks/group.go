package ranks

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/train/collective"
)

// A group is a set of ranks that make the same calls in the same order.
type group struct {
	size   int
	locals int // ranks of this node
	// remote is the part on other nodes, nil for none; ready is closed when it is connected, or the
	// group has failed before that.
	remote *remote
	ready  chan struct{}
	held   *heldMemory // of all groups of the job

	mu      sync.Mutex
	members []*member // by rank; nil: has not joined
	running int       // rounds in progress with other nodes
	left    int       // members that have left
	gone    []error   // by rank: why there are no further messages of the member
	parted  error     // a member has left: there are no further calls, but messages of the others
	number  []uint64  // calls that each rank has made
	waiting map[uint64]*round
	mail    map[address][]*pendingMessage
	failed  error
}

// A round is one call of all ranks.
type round struct {
	posts  []*post // by rank; nil: has not called
	posted int
	held   int64 // bytes that are counted for it while it waits
}

// A post is a rank's part in a round.
type post struct {
	member  *member
	request *ipc.Message
	call    collective.Call
	buf     []byte
	key     uint64 // names the program's buffer
}

// An address names messages from a rank to another.
type address struct{ from, to, tag int }

// A pendingMessage is one side of a message that waits for the other side.
type pendingMessage struct {
	member  *member // nil: it came from another node
	request *ipc.Message
	buf     []byte
	receive bool
	site    string // of the call; "" if it is not known
	// received, if not nil, is called when the message is not needed any more.
	received func()
}

func newGroup(size int, r *remote, held *heldMemory) *group {
	locals, ready := size, make(chan struct{})
	if r == nil {
		close(ready)
	} else {
		locals = r.localRanks()
	}
	return &group{
		size: size, locals: locals, remote: r, ready: ready, held: held, members: make([]*member, size), number: make([]uint64, size), gone: make([]error, size),
		waiting: make(map[uint64]*round), mail: make(map[address][]*pendingMessage),
	}
}

// join adds a rank.
func (g *group) join(rank, size int, m *member) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case size != g.size:
		return outboard.Errorf(outboard.Invalid, "join", "rank %d says that the group has %d ranks, another one said %d", rank, size, g.size)
	case rank < 0 || rank >= size:
		return outboard.Errorf(outboard.Invalid, "join", "rank %d of %d", rank, size)
	case g.remote != nil && g.remote.home[rank] != g.remote.self:
		return outboard.Errorf(outboard.Invalid, "join", "rank %d is on another node", rank)
	case g.members[rank] != nil:
		return outboard.Errorf(outboard.Conflict, "join", "rank %d has joined already", rank)
	}
	g.members[rank] = m
	return g.failed
}

// leave records that a rank's process has ended its connection, and reports whether all ranks of
// this node have left. The other ranks can make no further calls, but may exchange messages.
// announced says that the process goes on without the group.
func (g *group) leave(rank int, announced bool) (empty bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left++
	left := outboard.Errorf(outboard.Unreachable, "", "rank %d has left the group", rank)
	if len(g.waiting) > 0 || g.running > 0 {
		g.fail(errLost(rank))
	}
	g.endMessages(rank, left)
	g.parted = cmp.Or(g.parted, error(left))
	if g.failed == nil && !g.isReady() {
		g.failed = g.parted
	}
	if g.remote != nil {
		g.announceLeft(rank, announced)
	}
	return g.left == g.locals
}

func errLost(rank int) error {
	return outboard.Errorf(outboard.Unreachable, "", "rank %d is lost", rank)
}

// isReady reports whether the group is connected, or has failed before that.
func (g *group) isReady() bool {
	select {
	case <-g.ready:
		return true
	default:
		return false
	}
}

// endMessages ends the messages that wait for a rank or are its own; later ones get the error why.
// g.mu is held.
func (g *group) endMessages(rank int, why error) {
	g.gone[rank] = cmp.Or(g.gone[rank], why)
	for a := range g.mail {
		if a.from == rank || a.to == rank {
			g.failMail(a, errLost(rank))
		}
	}
}

// failMail ends the messages that wait between two ranks. g.mu is held.
func (g *group) failMail(a address, err error) {
	for _, l := range g.mail[a] {
		g.held.requests.Add(-l.held())
		l.reply(err)
	}
	delete(g.mail, a)
}

// hasJoined reports whether a rank of this node has joined, and the group is connected.
func (g *group) hasJoined(rank int) bool {
	if !g.isReady() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return rank >= 0 && rank < g.size && g.members[rank] != nil
}

// leaveMessages records that a connection for messages has ended. Its rank is lost if one of them
// waits for its other side.
func (g *group) leaveMessages(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, letters := range g.mail {
		for _, l := range letters {
			if l.member == m {
				g.endMessages(m.rank, errLost(m.rank))
				return
			}
		}
	}
}

// fail ends all calls.
func (g *group) fail(err error) {
	if g.failed == nil {
		g.failed = err
	}
	if g.remote != nil {
		g.remote.close(g.failed)
	}
	for number, r := range g.waiting {
		for _, p := range r.posts {
			if p != nil {
				p.reply(g.failed)
			}
		}
		g.removeWaiting(number)
	}
	for a := range g.mail {
		g.failMail(a, g.failed)
	}
}

// call adds a rank's part of a call. That of the last rank executes the call and answers all ranks.
func (g *group) call(rank int, p *post) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := cmp.Or(g.failed, g.parted); err != nil {
		return err
	}
	number := g.number[rank] + 1
	r, cost := g.waiting[number], int64(requestBytes+len(p.call.Site))
	if r == nil {
		cost += int64(g.size) * pointerBytes
	}
	if err := g.held.holdRequest(cost); err != nil {
		return err
	}
	g.number[rank] = number
	if r == nil {
		r = &round{posts: make([]*post, g.size)}
		g.waiting[number] = r
	}
	r.held += cost
	r.posts[rank] = p
	if r.posted++; r.posted < g.locals {
		return g.disagree(number, r, rank)
	}
	if err := g.disagree(number, r, rank); err != nil {
		return err
	}
	g.removeWaiting(number)
	if g.remote != nil {
		return g.enqueue(r)
	}
	r.reply(collective.Local(p.call, r.bufs()))
	return nil
}

// removeWaiting removes a call that waits for ranks. g.mu is held.
func (g *group) removeWaiting(number uint64) {
	g.held.requests.Add(-g.waiting[number].held)
	delete(g.waiting, number)
}

// bufs returns the buffers of a round, by rank; those of other nodes are nil.
func (r *round) bufs() [][]byte {
	bufs := make([][]byte, len(r.posts))
	for i, p := range r.posts {
		if p != nil {
			bufs[i] = p.buf
		}
	}
	return bufs
}

// call returns the call, which is that of each rank of this node.
func (r *round) call() collective.Call {
	for _, p := range r.posts {
		if p != nil {
			return p.call
		}
	}
	return collective.Call{}
}

// key returns the name of the buffer of the first rank of this node.
func (r *round) key() uint64 {
	for _, p := range r.posts {
		if p != nil {
			return p.key
		}
	}
	return 0
}

func (r *round) reply(err error) {
	for _, p := range r.posts {
		if p != nil {
			p.reply(err)
		}
	}
}

func (p *post) reply(err error) { p.member.reply(p.request, err) }

// held returns the memory that the message holds while it waits.
func (l *pendingMessage) held() int64 { return int64(requestBytes + len(l.site)) }

// at returns where the program makes the call, for errors.
func (l *pendingMessage) at() string {
	if l.site == "" {
		return ""
	}
	return " at " + l.site
}

// reply answers a rank of this node; a message from another node needs no answer.
func (l *pendingMessage) reply(err error) {
	if l.member != nil {
		l.member.reply(l.request, err)
	}
	if l.received != nil {
		l.received()
	}
}

// disagree ends the group if a rank's call differs from that of another rank.
func (g *group) disagree(number uint64, r *round, rank int) error {
	for other, p := range r.posts {
		if p == nil || other == rank {
			continue
		}
		if mine := r.posts[rank].call; !mine.Same(p.call) {
			r.posts[rank] = nil // The caller answers it.
			err := &collective.MismatchError{Number: number, RankA: other, A: p.call, RankB: rank, B: mine}
			g.fail(outboard.Errorf(outboard.Conflict, "", "%w", err))
			return g.failed
		}
		return nil
	}
	return nil
}

// maxLetters bounds the messages of a group that wait for their other side.
const maxLetters = 4096

// exchange matches a message with its other side, in order, and copies it once both sides are
// present.
func (g *group) exchange(a address, l *pendingMessage) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil {
		return g.failed
	}
	switch gone := cmp.Or(g.gone[a.from], g.gone[a.to]); {
	case gone != nil && l.member == nil:
		l.reply(nil) // It is dropped: its sender, on another node, does not wait.
		return nil
	case gone != nil:
		return gone
	}
	if g.remote != nil && g.remote.rounds == nil {
		return outboard.Errorf(outboard.Protocol, "", "a message before the reply to join")
	}
	if g.remote != nil && !l.receive && l.member != nil && g.remote.home[a.to] != g.remote.self {
		return g.sendAway(a, l)
	}
	queue := g.mail[a]
	if len(queue) == 0 || queue[0].receive == l.receive {
		// A mailbox bounds the messages of another node.
		if l.member != nil && len(g.mail)+len(queue) >= maxLetters {
			return outboard.Errorf(outboard.Exhausted, "", "more than %d messages wait for their receiver", maxLetters)
		}
		if l.receive && g.remote != nil {
			if _, left := g.remote.left[a.from]; left {
				return outboard.Errorf(outboard.Unreachable, "", "rank %d has left the group", a.from)
			}
		}
		if err := g.held.holdRequest(l.held()); err != nil {
			return err
		}
		g.mail[a] = append(queue, l)
		return nil
	}
	other := queue[0]
	g.held.requests.Add(-other.held())
	if g.mail[a] = queue[1:]; len(queue) == 1 {
		delete(g.mail, a)
	}
	from, to := l, other
	if l.receive {
		from, to = other, l
	}
	var err error
	if len(from.buf) != len(to.buf) {
		err = outboard.Errorf(outboard.Conflict, "", "rank %d sends %d bytes%s to rank %d, which expects %d%s", a.from, len(from.buf), from.at(), a.to, len(to.buf), to.at())
	} else {
		copy(to.buf, from.buf)
	}
	other.reply(err)
	l.reply(err)
	return nil
}

var errNotJoined = errors.New("the first message must be join")

// span returns bytes of memory, checked.
func span(memory []byte, offset, size int) ([]byte, error) {
	if offset < 0 || size < 0 || offset > len(memory) || size > len(memory)-offset {
		return nil, fmt.Errorf("bytes %d to %d of a memory of %d", offset, offset+size, len(memory))
	}
	return memory[offset : offset+size : offset+size], nil
}
