package ranks

import (
	"bufio"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/collective"
)

// connectLimit bounds how long the ranks of other nodes may take to join a group.
const connectLimit = 10 * time.Minute

// maxRounds bounds the calls of a group that wait for other nodes. A rank waits for its call, or
// has a few in progress.
const maxRounds = 1024

// serveRemote connects a group to other nodes, and makes its calls with them until it ends.
func (s *Server) serveRemote(g *group, name string) {
	ctx, cancel := context.WithTimeout(s.life, connectLimit)
	err := g.remote.connect(ctx, s.opts.Mesh, name, &s.opts, &s.held)
	cancel()
	g.mu.Lock()
	if err != nil {
		g.fail(outboard.Errorf(outboard.Unreachable, "", "connect the ranks of several nodes: %w", err))
	} else if g.failed != nil {
		g.remote.close(g.failed)
	}
	g.remote.rounds = make(chan *round, maxRounds)
	failed := g.failed
	close(g.ready)
	g.mu.Unlock()
	if failed != nil {
		return
	}
	var mail sync.WaitGroup
	for i, m := range g.remote.mail {
		if m != nil {
			mail.Go(m.write)
			mail.Go(func() { s.receiveMail(g, i) })
		}
	}
	s.addSums(g.remote.sums)
	g.makeCalls(s.life, s.reportFailure)
	mail.Wait()
}

func (s *Server) reportFailure(err error) {
	if s.opts.Failed != nil {
		s.opts.Failed(err)
	}
}

// maxStarted bounds the rounds of a group that have been started and have not ended.
const maxStarted = 4

// A startedRound is a round and the function that waits for its end.
type startedRound struct {
	round *round
	wait  func() error
}

// makeCalls makes the calls of a group, in order, until the group or the server ends. A call may
// start before the last one has ended.
func (g *group) makeCalls(life context.Context, failed func(error)) {
	started := make(chan startedRound, maxStarted)
	var ending sync.WaitGroup
	ending.Go(func() {
		for s := range started {
			g.endCall(s, failed)
		}
	})
	if err := g.startCalls(life, started); err != nil {
		g.endRemote(err, failed)
	} else {
		g.endRemote(errors.New("the job has ended"), func(error) {})
	}
	close(started)
	ending.Wait() // The calls that have been started end with the group.
}

// startCalls starts the calls of a group until the group ends with an error, or, without one, the
// server.
func (g *group) startCalls(life context.Context, started chan<- startedRound) error {
	ended := g.remote.group.Ended()
	for {
		select {
		case r := <-g.remote.rounds:
			started <- startedRound{r, g.remote.start(r.call(), r.bufs(), r.key())}
		case <-ended:
			return g.remote.group.Err()
		case <-life.Done():
			return nil
		}
	}
}

// endRemote fails the group, and the calls that are still queued.
func (g *group) endRemote(err error, failed func(error)) {
	g.mu.Lock()
	if g.failed == nil {
		failed(err)
	}
	g.fail(g.nameLoss(err))
	g.mu.Unlock()
	for {
		select {
		case r := <-g.remote.rounds:
			g.finish(r, g.failed)
		default:
			return
		}
	}
}

// endCall waits for the end of a round, and answers its ranks.
func (g *group) endCall(s startedRound, failed func(error)) {
	err := s.wait()
	if err != nil {
		g.mu.Lock()
		if g.failed == nil {
			failed(err)
		}
		g.fail(g.nameLoss(err))
		err = g.failed
		g.mu.Unlock()
	}
	g.finish(s.round, err)
}

// finish answers the ranks of a round.
func (g *group) finish(r *round, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	r.reply(err)
	for _, p := range r.posts {
		if p != nil {
			p.member.busy.Done()
		}
	}
}

// nameLoss returns an error of the group of nodes with a kind.
func (g *group) nameLoss(err error) error {
	if _, ok := errors.AsType[*outboard.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*collective.MismatchError](err); ok {
		return outboard.Errorf(outboard.Conflict, "", "%w", err)
	}
	return outboard.Errorf(outboard.Unreachable, "", "%w", err)
}

// enqueue queues a round that is made with the other nodes. g.mu is held.
func (g *group) enqueue(r *round) error {
	g.remote.calls++
	if err := g.afterLeave(g.remote.calls); err != nil {
		g.fail(err)
		r.reply(err)
		return nil
	}
	for _, p := range r.posts {
		if p != nil {
			p.member.busy.Add(1)
		}
	}
	g.running++
	select {
	case g.remote.rounds <- r:
	default:
		g.running--
		for _, p := range r.posts {
			if p != nil {
				p.member.busy.Done()
			}
		}
		// The other nodes make the call, and would take the next one of this node for it.
		g.fail(outboard.Errorf(outboard.Exhausted, "", "more than %d calls of a group are under way: wait for the earlier ones first", maxRounds))
		r.reply(g.failed)
	}
	return nil
}

// afterLeave returns an error if ranks of another node have left the group before the call with this
// number.
func (g *group) afterLeave(number uint64) error {
	for rank, calls := range g.remote.left {
		if number > calls {
			return outboard.Errorf(outboard.Unreachable, "", "rank %d has left the group", rank)
		}
	}
	return nil
}

// announceLeft tells the other nodes that a rank of this node makes no further calls and sends no
// further messages. g.mu is held.
func (g *group) announceLeft(rank int, announced bool) {
	if !g.isReady() {
		return // It fails while it is being connected.
	}
	mark := uint32(endMark)
	if announced {
		mark = leaveMark
	}
	for _, m := range g.remote.mail {
		if m != nil {
			m.post(&outgoing{from: uint32(rank), to: mark, tag: g.remote.calls, sent: func(error) {}})
		}
	}
}

// sendAway sends a message to a rank of another node. g.mu is held.
func (g *group) sendAway(a address, l *pendingMessage) error {
	l.member.busy.Add(1)
	sent := func(err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if err != nil {
			err = g.remote.describeLoss(g.remote.home[a.to], "is lost")
		}
		l.reply(err)
		l.member.busy.Done()
	}
	o := &outgoing{from: uint32(a.from), to: uint32(a.to), tag: uint64(a.tag), buf: l.buf, sent: sent}
	if !g.remote.mail[g.remote.home[a.to]].post(o) {
		l.member.busy.Done()
		return outboard.Errorf(outboard.Exhausted, "", "more than %d messages wait for rank %d", maxLetters, a.to)
	}
	return nil
}

// receiveMail matches the messages of another node with their receivers until the mailbox is
// closed.
func (s *Server) receiveMail(g *group, index int) {
	m := g.remote.mail[index]
	in := bufio.NewReaderSize(m.conn, 8<<10)
	for {
		i, err := m.read(in)
		_, ends := errors.AsType[*mailError](err)
		if err == nil {
			if i.to == endMark {
				s.noteLeftElsewhere() // Before ranks are told.
			}
			if err = g.deliver(index, &i); err == nil {
				continue
			}
			ends = true
		}
		g.mu.Lock()
		// The loss of the connection also ends the group of nodes, which reports the cause.
		if ends && g.failed == nil {
			s.reportFailure(err)
			g.fail(g.nameLoss(err))
		}
		m.close() // Under the lock, so that no message is posted meanwhile.
		g.mu.Unlock()
		return
	}
}

// deliver matches a message of another node with its receiver.
func (g *group) deliver(index int, i *incoming) error {
	m := g.remote.mail[index]
	if i.isMark() && int(i.from) < g.size && g.remote.home[i.from] == index {
		g.noteLeft(int(i.from), i.tag)
		return nil
	}
	if int(i.from) >= g.size || int(i.to) >= g.size || g.remote.home[i.from] != index || g.remote.home[i.to] != g.remote.self {
		return mailErrorf("a message from rank %d to rank %d on the wrong connection", i.from, i.to)
	}
	l := &pendingMessage{buf: i.buf, received: func() { m.release(len(i.buf)) }}
	return g.exchange(address{from: int(i.from), to: int(i.to), tag: int(i.tag)}, l)
}

// noteLeft records that a rank of another node has left after that many calls. It fails the group if a
// running call needs the rank, and the messages that wait for the rank.
func (g *group) noteLeft(rank int, calls uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remote.left[rank] = calls
	if g.running > 0 {
		if err := g.afterLeave(g.remote.calls); err != nil {
			g.fail(err)
			return
		}
	}
	for a, letters := range g.mail {
		if a.from == rank && letters[0].receive {
			g.failMail(a, outboard.Errorf(outboard.Unreachable, "", "rank %d has left the group", rank))
		}
	}
}
