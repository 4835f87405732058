package job

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/data"
)

// statesDir is the folder of a run in which the states of its ranks are restored.
const statesDir = "states"

// elsewhereRequest asks the manager for devices of other nodes, once at a time.
type elsewhereRequest struct {
	asking sync.Mutex

	mu     sync.Mutex
	answer chan bool // of the request in progress
}

// expectAnswer returns the channel that receives the manager's answer.
func (e *elsewhereRequest) expectAnswer() <-chan bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = make(chan bool, 1)
	return e.answer
}

// finish passes the manager's answer on. An answer without a request is ignored.
func (e *elsewhereRequest) finish(m *moves) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answer != nil {
		e.answer <- m.Granted
		e.answer = nil
	}
}

// askElsewhere asks the manager whether the next processes of ranks run on other nodes.
func (r *run) askElsewhere(ctx context.Context, ranks []int) (bool, error) {
	const op = "continue on another node"
	if r.start.First != 0 {
		return false, outboard.Errorf(outboard.Invalid, op, "rank 0, which asks for all ranks, is on another node")
	}
	r.elsewhere.asking.Lock()
	defer r.elsewhere.asking.Unlock()
	answer := r.elsewhere.expectAnswer()
	if err := r.out.send(message{Expired: &expired{Ranks: ranks}}); err != nil {
		return false, err
	}
	select {
	case granted := <-answer:
		return granted, nil
	case <-ctx.Done():
		return false, outboard.Errorf(outboard.Unreachable, op, "the job was stopped")
	}
}

// sendState keeps the state of a rank as chunks, and tells the manager. As for profiles, no answer is
// needed.
func (r *run) sendState(ctx context.Context, f *os.File, rank int) error {
	digest, err := r.keepFile(ctx, stateName(rank), f)
	if err != nil {
		return err
	}
	return r.out.send(message{Suspended: &suspended{Rank: rank, Digest: digest}})
}

// restoreStates gives the server the states with which the ranks of this node continue. The files
// have no names any more then: they occupy space until the server closes them.
func (r *run) restoreStates(ctx context.Context) (err error) {
	if r.start.States == "" {
		return nil
	}
	own, err := r.ownStates(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.dir, statesDir)
	if err := own.Restore(ctx, r.host.opts.Chunks, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for i := range r.start.Count {
		rank := r.start.First + i
		f, err := os.Open(filepath.Join(dir, stateName(rank)))
		if err != nil {
			return err
		}
		r.server.RestoreState(rank, f)
	}
	return nil
}

// ownStates returns the manifest of the states of this node's ranks.
func (r *run) ownStates(ctx context.Context) (*data.Manifest, error) {
	all, err := data.Load(ctx, r.host.opts.Chunks, r.start.States)
	if err != nil {
		return nil, err
	}
	if len(all.Files) != r.start.World {
		return nil, outboard.Errorf(outboard.Protocol, "", "%d states for %d ranks", len(all.Files), r.start.World)
	}
	return &data.Manifest{Files: all.Files[r.start.First : r.start.First+r.start.Count]}, nil
}
