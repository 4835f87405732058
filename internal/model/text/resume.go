package text

import (
	"context"
	"slices"
	"sync"

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
// Other calls are repeated on another replica.
type Resuming struct {
	// Replica is the first one; its other calls are those of the current one.
	Replica
	// Name is the model's name, for errors.
	Name string
	open Opener

	mu sync.Mutex
	// opened are the replicas so far, after the first. The last one is the current one; calls may
	// still use the others.
	opened []Replica

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

// Release releases all replicas.
func (m *Resuming) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range append(slices.Clone(m.opened), m.Replica) {
		r.Release()
	}
	m.opened = nil
}

// current returns the replica that executes calls at present.
func (m *Resuming) current() Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.opened); n > 0 {
		return m.opened[n-1]
	}
	return m.Replica
}

// replace makes another replica than the lost ones the current one, unless that is another one
// already.
func (m *Resuming) replace(ctx context.Context, lost []outboard.NodeID) error {
	if !slices.Contains(lost, m.current().Node) {
		return nil
	}
	next, err := m.open(ctx, slices.Clone(lost))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened = append(m.opened, next)
	return nil
}

// repeat calls a model, and calls it again on another replica when one is lost.
func repeat[T any](ctx context.Context, m *Resuming, call func(Model) (T, error)) (T, error) {
	var lost []outboard.NodeID
	crashes := 0
	for {
		r := m.current()
		result, err := call(r.Model)
		if err == nil || ctx.Err() != nil || outboard.KindOf(err) != outboard.Unreachable {
			return result, err
		}
		if engine.IsCrash(err) {
			if crashes++; crashes == engine.MaxCrashes {
				return result, engine.ErrCrashes("", m.Name, err)
			}
		}
		lost = append(lost, r.Node)
		if len(lost) == maxReplicas || m.replace(ctx, lost) != nil {
			return result, err
		}
	}
}

// Tokenize implements Model.
func (m *Resuming) Tokenize(ctx context.Context, t engine.Text) ([]int32, error) {
	return repeat(ctx, m, func(r Model) ([]int32, error) { return r.Tokenize(ctx, t) })
}

// Render implements Model.
func (m *Resuming) Render(ctx context.Context, c engine.Conversation) (string, error) {
	return repeat(ctx, m, func(r Model) (string, error) { return r.Render(ctx, c) })
}

// Embed implements Model.
func (m *Resuming) Embed(ctx context.Context, tokens []int32) ([]float32, error) {
	return repeat(ctx, m, func(r Model) ([]float32, error) { return r.Embed(ctx, tokens) })
}

// Generate continues a prompt, on another replica if one is lost.
func (m *Resuming) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	var total engine.Usage
	prompt := len(g.Prompt)
	g.Prompt = slices.Clip(g.Prompt) // the caller's array stays as it is
	current, own := m.openSoonest(ctx, g.Prompt)
	defer func() { own() }()
	var lost []outboard.NodeID
	crashes := 0 // since the last token
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
		if produced > 0 {
			crashes = 0
		}
		if engine.IsCrash(err) {
			if crashes++; crashes == engine.MaxCrashes {
				return total, engine.ErrCrashes("", m.Name, err)
			}
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

// openSoonest returns the replica for a prompt, and a function that the caller calls when the prompt's
// generation has ended there.
func (m *Resuming) openSoonest(ctx context.Context, prompt []int32) (_ Replica, release func()) {
	current := m.current()
	if m.Place == nil {
		return current, func() {}
	}
	placed, err := m.Place(ctx, prompt)
	switch {
	case err != nil:
		return current, func() {}
	case placed.Node == current.Node: // the node's work counts for other prompts until placed is released
		return current, placed.Release
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
