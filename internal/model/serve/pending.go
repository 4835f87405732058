package serve

import (
	"time"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// A pendingPrompt is the prompt of a generation in flight that has no token yet.
type pendingPrompt struct {
	tokens int // to compute: those whose state is not cached, as far as the node knows
	hashes engine.Prefixes
}

// pendingPrompts estimate how long a model computes the prompts of the generations in flight.
type pendingPrompts struct {
	perToken time.Duration // to compute a token of a prompt; 0 if it is not known
	list     map[*pendingPrompt]struct{}
	left     float64 // tokens that are not computed at the time at
	at       time.Time
}

// add adds the prompt of a generation that was admitted.
func (p *pendingPrompts) add(q *pendingPrompt, now time.Time) {
	p.elapse(now)
	if p.list == nil {
		p.list = map[*pendingPrompt]struct{}{}
	}
	p.list[q] = struct{}{}
	p.left += float64(q.tokens)
}

// remove removes a prompt that is computed, or whose generation has ended. It may be called again.
func (p *pendingPrompts) remove(q *pendingPrompt, now time.Time) {
	p.elapse(now)
	delete(p.list, q)
	p.bound()
}

// elapse subtracts the tokens that were computed since the last call.
func (p *pendingPrompts) elapse(now time.Time) {
	if p.perToken > 0 {
		p.left -= float64(now.Sub(p.at)) / float64(p.perToken)
	}
	p.at = now
	p.bound()
}

// bound corrects the estimate by what is certain: no more is left than all tokens of the prompts.
func (p *pendingPrompts) bound() {
	most := 0
	for q := range p.list {
		most += q.tokens
	}
	p.left = max(0, min(p.left, float64(most)))
}

// wait returns how long others are computed before the last token of a prompt. Half of each
// micro-batch is for the prompts with the fewest tokens, so a short prompt waits for those that are as
// short, and as long again (llama.fillPrompts).
func (p *pendingPrompts) wait(tokens int, now time.Time) time.Duration {
	p.elapse(now)
	short := 0
	for q := range p.list {
		if q.tokens <= tokens {
			short += q.tokens
		}
	}
	return time.Duration(min(p.left, float64(2*short+tokens)) * float64(p.perToken))
}

// observe updates the gate by a measurement of its model.
func (g *textGate) observe(l *TextLoad) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.prompts.elapse(time.Now())
	g.prompts.perToken, g.prefixes = l.PerToken, l.Prefixes
}

// promptOf returns the prompt of a generation. Prefixes of prompts that were admitted recently count as
// cached, since a measurement may not have them yet.
func (g *textGate) promptOf(r *engine.Generation) *pendingPrompt {
	hashes := engine.PrefixHashes(r.CacheScope, r.Prompt, engine.MaxPrefixes)
	g.mu.Lock()
	defer g.mu.Unlock()
	known := make(map[uint32]struct{}, len(g.prefixes))
	for _, h := range g.prefixes {
		known[h] = struct{}{}
	}
	recent, _ := g.admitted.recent(nodeContent{})
	cached := cachedTokens(hashes, func(h uint32) bool {
		_, ok := known[h]
		return ok || recent(h)
	})
	return &pendingPrompt{tokens: len(r.Prompt) - cached, hashes: hashes}
}

// computed removes a prompt whose generation has a token, or has ended.
func (g *textGate) computed(q *pendingPrompt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.prompts.remove(q, time.Now())
}
