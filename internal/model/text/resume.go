package text

import (
	"context"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A Replica is a model on one node.
type Replica struct {
	Model
	Node outboard.NodeID
	// Release releases the replica when it is no longer needed.
	Release func()
}

// An Opener opens a replica on the best node that is not excluded.
type Opener func(ctx context.Context, exclude []outboard.NodeID) (Replica, error)

// maxReplicas bounds the number of nodes on which a generation is tried.
const maxReplicas = 4

// A Resuming model is a replica whose generations continue on another one when its node or worker
// is lost, with the same tokens: the next replica continues the prompt and the generated tokens.
type Resuming struct {
	Replica
	open Opener
	// Place returns the replica where the first token of a prompt is expected soonest; with nil the
	// first replica executes all generations.
	Place func(ctx context.Context, prompt []int32) (Replica, error)
	// Resumed is called when a generation continues on another node. It may be nil.
	Resumed func(lost, next outboard.NodeID)
}

// OpenResuming opens the first replica.
func OpenResuming(ctx context.Context, open Opener) (*Resuming, error) {
	first, err := open(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &Resuming{Replica: first, open: open}, nil
}

// Generate continues a prompt, on another replica if one is lost.
func (m *Resuming) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	var total engine.Usage
	prompt := len(g.Prompt)
	g.Prompt = slices.Clip(g.Prompt) // the caller's array stays as it is
	current, own := m.openSoonest(ctx, g.Prompt)
	defer func() { own() }()
	var lost []outboard.NodeID
	for {
		before := len(g.Prompt)
		var refused error
		finished := false
		usage, err := current.Generate(ctx, g, func(t engine.Token) error {
			g.Prompt = append(g.Prompt, t.ID)
			finished = t.Last != ""
			refused = emit(t)
			return refused
		})
		produced := len(g.Prompt) - before
		g.Continued += produced
		add(&total, usage)
		total.PromptTokens, total.GeneratedTokens = prompt, len(g.Prompt)-prompt
		if finished && refused == nil {
			return total, nil // the tokens are complete: later errors do not matter
		}
		if err == nil || refused != nil || ctx.Err() != nil || outboard.KindOf(err) != outboard.Unreachable {
			return total, err
		}
		if g.MaxTokens > 0 {
			g.MaxTokens -= produced
		}
		lost = append(lost, current.Node)
		if len(lost) == maxReplicas {
			return total, err
		}
		next, failed := m.open(ctx, slices.Clone(lost))
		if failed != nil {
			return total, err
		}
		if m.Resumed != nil {
			m.Resumed(current.Node, next.Node)
		}
		own()
		current, own = next, next.Release
	}
}

// openSoonest returns the replica for a prompt, and a function that releases it unless it is the
// first replica.
func (m *Resuming) openSoonest(ctx context.Context, prompt []int32) (_ Replica, release func()) {
	if m.Place == nil {
		return m.Replica, func() {}
	}
	placed, err := m.Place(ctx, prompt)
	switch {
	case err != nil:
		return m.Replica, func() {}
	case placed.Node == m.Node:
		placed.Release()
		return m.Replica, func() {}
	}
	return placed, placed.Release
}

func add(total *engine.Usage, u engine.Usage) {
	if total.GeneratedTokens == 0 {
		total.CachedTokens = u.CachedTokens
	}
	total.Queued += u.Queued
	total.Prefill += u.Prefill
	total.Decode += u.Decode
}
