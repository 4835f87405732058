package serve

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// defaultQueue is the default number of generations that may wait for a slot.
const defaultQueue = 256

// A textGate admits generations to a model: it bounds the waiting ones, and refuses generations
// whose first token can't come in time.
type textGate struct {
	slots, size int
	// timeout bounds the time to the first token, 0 for no bound.
	timeout time.Duration

	mu       sync.Mutex
	inFlight int
	clients  map[string]int // generations in flight of each client (engine.Generation.CacheScope)
	lifetime time.Duration  // of a generation, a moving average
	counts   TextCounts

	prompts  pendingPrompts
	prefixes engine.Prefixes // whose state the model has, by its last measurement
	admitted sentPrompts     // prompts that were admitted after it
}

// TextCounts count the generations of a model on this node. Each generation is eventually counted
// in exactly one field.
type TextCounts struct {
	Done, Failed uint64
	// Late counts generations whose first token did not come in time; RefusedFull and
	// RefusedDeadline count generations that were refused at once.
	Late, RefusedFull, RefusedDeadline uint64
}

// newTextGate returns the gate of a model that decodes so many sequences at once; 0 means that the
// number is not known.
func newTextGate(c *repository.Config, sequences int) *textGate {
	return &textGate{slots: cmp.Or(sequences, c.Sequences, 1), size: cmp.Or(c.Queue.Size, defaultQueue), timeout: time.Duration(c.Queue.Timeout)}
}

// enter admits a generation of a client, or refuses it with the kind outboard.Exhausted.
func (g *textGate) enter(ctx context.Context, client string, prompt *pendingPrompt) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refuse(ctx, g.capacity(client), prompt); err != nil {
		return err
	}
	g.prompts.add(prompt, time.Now())
	g.admitted.add(nodeContent{}, prompt.hashes, 0)
	g.inFlight++
	if g.clients == nil {
		g.clients = map[string]int{}
	}
	g.clients[client]++
	return nil
}

// reservedShare is the inverse share of the generations that may wait which a named client with as
// many generations or more can't fill: another client is admitted.
const reservedShare = 8

// capacity returns how many generations may wait when one of a client arrives. mu must be held.
func (g *textGate) capacity(client string) int {
	if reserved := g.size / reservedShare; client != "" && g.clients[client] >= reserved {
		return g.size - reserved
	}
	return g.size
}

// check refuses a generation that enter would refuse at present. The refusal is counted: the caller
// does not call enter afterwards.
func (g *textGate) check(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refuse(ctx, g.size, &pendingPrompt{})
}

// refuse returns the error for a generation that can't be admitted while so many wait, and counts it.
// mu must be held.
func (g *textGate) refuse(ctx context.Context, capacity int, prompt *pendingPrompt) error {
	limit := cmp.Or(g.timeout, defaultTimeout)
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	ahead := g.inFlight - g.slots + 1
	if ahead > capacity {
		g.counts.RefusedFull++
		return outboard.Errorf(outboard.Exhausted, "generate", "the queue is full: %d generations wait", ahead-1)
	}
	if wait := g.lifetime * time.Duration(max(ahead, 0)) / time.Duration(g.slots); wait > limit {
		g.counts.RefusedDeadline++
		return outboard.Errorf(outboard.Exhausted, "generate", "the first token within %v can't be had: %d generations wait, %v are expected",
			limit.Round(time.Millisecond), ahead-1, wait.Round(time.Millisecond))
	}
	if wait := g.prompts.wait(prompt.tokens, time.Now()); wait > limit {
		g.counts.RefusedDeadline++
		return outboard.Errorf(outboard.Exhausted, "generate", "the first token within %v can't be had: %d prompts are computed before, %v are expected",
			limit.Round(time.Millisecond), len(g.prompts.list), wait.Round(time.Millisecond))
	}
	return nil
}

// leave counts a generation that has ended.
func (g *textGate) leave(client string, u engine.Usage, late bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if g.clients[client]--; g.clients[client] == 0 {
		delete(g.clients, client)
	}
	switch {
	case late:
		g.counts.Late++
	case err != nil:
		g.counts.Failed++
	default:
		g.counts.Done++
		took := u.Prefill + u.Decode
		if g.lifetime == 0 {
			g.lifetime = took
		}
		g.lifetime += (took - g.lifetime) / 8
	}
}

func (g *textGate) stats() TextCounts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts
}

// admitted is a model whose generations must be admitted by a gate.
type admitted struct {
	engine.TextModel
	gate     *textGate
	instance *instance
}

// Render implements engine.TextModel. It refuses a conversation whose generation would be refused,
// before the worker, which is busy then, renders the prompt and counts its tokens.
func (a *admitted) Render(ctx context.Context, c engine.Conversation) (string, error) {
	if c.Prompt {
		if err := a.gate.check(ctx); err != nil {
			return "", err
		}
	}
	return a.TextModel.Render(ctx, c)
}

// Tokenize implements engine.TextModel. It refuses a prompt whose generation would be refused, before
// the worker, which is busy then, counts its tokens.
func (a *admitted) Tokenize(ctx context.Context, t engine.Text) ([]int32, error) {
	if t.Prompt {
		if err := a.gate.check(ctx); err != nil {
			return nil, err
		}
	}
	return a.TextModel.Tokenize(ctx, t)
}

// Generate implements engine.TextModel.
func (a *admitted) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	prompt := a.gate.promptOf(&g)
	if err := a.gate.enter(ctx, g.CacheScope, prompt); err != nil {
		return engine.Usage{}, err
	}
	defer a.gate.computed(prompt)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := outboard.Errorf(outboard.Exhausted, "generate", "the first token did not come within %v", a.gate.timeout)
	stop := func() bool { return true }
	if a.gate.timeout > 0 {
		stop = time.AfterFunc(a.gate.timeout, func() { cancel(late) }).Stop
	}
	defer stop()
	ctx, span := startSpan(ctx, a.instance)
	began, first := time.Now(), time.Duration(0)
	usage, err := a.TextModel.Generate(ctx, g, func(t engine.Token) error {
		if first == 0 {
			stop()
			a.gate.computed(prompt)
			first = time.Since(began)
		}
		return emit(t)
	})
	span.endText(usage, first, err)
	isLate := errors.Is(context.Cause(ctx), late)
	if err != nil && isLate {
		err = late
	}
	a.gate.leave(g.CacheScope, usage, err != nil && isLate, err)
	return usage, err
}
