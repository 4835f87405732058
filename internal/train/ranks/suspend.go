package ranks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
)

// suspended has the states of ranks whose processes end because of their time limit, and continue
// as other processes. A state is a file that only this server and the rank's processes have.
type suspended struct {
	mu     sync.Mutex
	states map[int]*savedState // by rank
}

// A savedState is the last state that a process of a rank has saved.
type savedState struct {
	file    *os.File
	pending bool // no process has been started for it
	count   int  // states saved by the rank so far
}

// close closes all states.
func (s *suspended) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.states {
		_ = state.file.Close() // It was only read.
	}
	s.states = nil
}

// put replaces the state of a rank.
func (s *suspended) put(rank int, state *savedState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil {
		s.states = make(map[int]*savedState)
	}
	if old := s.states[rank]; old != nil {
		state.count += old.count
		_ = old.file.Close() // It was only read.
	}
	s.states[rank] = state
}

// RestoreState makes a file the state with which the first process of a rank continues: a process on
// another server has saved it (Options.Moved), as processes of all other ranks of the job have. The
// server closes the file.
func (s *Server) RestoreState(rank int, f *os.File) {
	s.suspended.put(rank, &savedState{file: f})
}

// Continues reports whether a rank whose process has ended is to be started again: the process has
// saved its state for another one. It returns true once for each state.
func (s *Server) Continues(rank int) bool {
	s.suspended.mu.Lock()
	defer s.suspended.mu.Unlock()
	state := s.suspended.states[rank]
	if state == nil || !state.pending {
		return false
	}
	state.pending = false
	return true
}

// Ended records that a rank of this node has ended, and is not started again. It fails the groups
// that wait for a rank which has not joined them, if too few ranks are left: no other event would end
// their calls.
func (s *Server) Ended(int) {
	s.mu.Lock()
	s.ended++
	left, groups := s.opts.Ranks-s.ended, slices.Collect(maps.Values(s.groups))
	s.mu.Unlock()
	for _, g := range groups {
		g.failIncomplete(left)
	}
}

// left returns the number of this node's ranks that have not ended; the first value is false if the
// server does not know them.
func (s *Server) left() (known bool, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Ranks > 0, s.opts.Ranks - s.ended
}

// failIncomplete fails the group if one of its ranks on this node has not joined, or has left for
// another process, and fewer processes are left than the group has ranks here.
func (g *group) failIncomplete(left int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil || g.locals <= left {
		return
	}
	for rank, m := range g.members {
		if m == nil && (g.remote == nil || g.remote.home[rank] == g.remote.self) {
			g.fail(outboard.Errorf(outboard.Unreachable, "", "rank %d has not joined the group, and a rank of its node has ended", rank))
			return
		}
	}
}

// suspend stores the state of a rank whose process is about to end. The file comes with the
// request. If the rank continues on this server, its process has left its groups by detach; a state
// that moves is for a server of the job's next attempt.
func (m *member) suspend(msg *ipc.Message, r *request) error {
	const op = "save the state of a stage"
	s := m.server
	if r.Moves && s.opts.Moved == nil {
		return outboard.Errorf(outboard.Invalid, op, "%w", errStays)
	}
	if r.Moves {
		return m.keepFile(msg, op, func(ctx context.Context, f *os.File) error {
			if _, err := m.checkState(f, r.Rank); err != nil {
				return outboard.Errorf(outboard.Invalid, op, "%w", err)
			}
			return s.opts.Moved(ctx, f, r.Rank)
		})
	}
	f := msg.File()
	if f == nil {
		return outboard.Errorf(outboard.Invalid, op, "no file")
	}
	size, err := m.checkState(f, r.Rank)
	if err != nil {
		_ = f.Close() // It was only received.
		return outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	state := &savedState{file: f, pending: true, count: 1}
	s.suspended.put(r.Rank, state)
	if s.opts.Decided != nil {
		text := fmt.Sprintf("%d processes have ended because of the limit of %v; the last one left a state of %v", state.count, s.opts.StageLimit, outboard.Bytes(size))
		s.opts.Decided(Decision{Rank: r.Rank, Subject: SubjectLimit, Text: text})
	}
	m.reply(msg, nil)
	return nil
}

// checkState returns the size of a state.
func (m *member) checkState(f *os.File, rank int) (int64, error) {
	o := &m.server.opts
	if o.StageLimit <= 0 || rank < o.FirstRank || rank >= o.FirstRank+o.Ranks {
		return 0, fmt.Errorf("rank %d has no time limit here: start the job with --stage-limit", rank)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is no file", info.Mode().Type())
	}
	return info.Size(), nil
}

// errStays says that the ranks of a server continue on its node.
var errStays = errors.New("the stages of this job stay on their nodes: start it with --device and --stage-limit TIME,elsewhere")

// maxExpired bounds the ranks that an elsewhere request may name.
const maxExpired = maxRanks

// elsewhere asks whether the next processes of ranks whose time is over run on other nodes. All
// ranks have agreed on the step after which they end if the answer is yes.
func (m *member) elsewhere(msg *ipc.Message, expired []int) error {
	const op = "continue on another node"
	s := m.server
	if s.opts.Elsewhere == nil {
		return outboard.Errorf(outboard.Invalid, op, "%w", errStays)
	}
	if len(expired) == 0 || len(expired) > maxExpired {
		return outboard.Errorf(outboard.Invalid, op, "%d ranks: want 1 to %d", len(expired), maxExpired)
	}
	if !m.saving.CompareAndSwap(false, true) {
		return outboard.Errorf(outboard.Exhausted, op, "another request of this rank is in progress")
	}
	request := pending(msg)
	s.working.Go(func() {
		moves, err := s.opts.Elsewhere(s.life, expired)
		m.saving.Store(false)
		_ = m.conn.Reply(request, moving{Moves: moves}, err)
	})
	return nil
}

// moving is the reply to an elsewhere request.
type moving struct {
	Moves bool `json:"moves"`
}

// resume sends a rank the state that its previous process has saved, without a file if there is
// none.
func (m *member) resume(msg *ipc.Message, rank int) error {
	s := &m.server.suspended
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[rank]
	if state == nil {
		return m.conn.Reply(msg, nil, nil)
	}
	return m.conn.Reply(msg, nil, nil, state.file)
}

// detach makes room in the group for the rank's next process, which joins under the same number:
// messages to the rank and calls of other ranks wait for it.
func (m *member) detach(msg *ipc.Message) error {
	g := m.group
	if m.server.opts.StageLimit <= 0 {
		return outboard.Errorf(outboard.Invalid, "leave a group for another process", "the job has no --stage-limit")
	}
	if err := g.detach(m); err != nil {
		return err
	}
	m.group = nil
	m.reply(msg, nil)
	return nil
}

// detach removes a member that has no pending calls and messages of its own.
func (g *group) detach(m *member) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil {
		return g.failed
	}
	if g.uses(m) {
		return outboard.Errorf(outboard.Conflict, "leave a group for another process", "rank %d has calls or messages in progress", m.rank)
	}
	g.members[m.rank] = nil
	return nil
}

// uses reports whether a call or a message of a member waits for other ranks: it refers to the
// member's memory. g.mu is held.
func (g *group) uses(m *member) bool {
	for _, r := range g.waiting {
		if p := r.posts[m.rank]; p != nil && p.member == m {
			return true
		}
	}
	for _, letters := range g.mail {
		for _, l := range letters {
			if l.member != nil && l.member.rank == m.rank {
				return true
			}
		}
	}
	return false
}
