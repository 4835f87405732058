package ollama

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// A turn is one request for text while it is being answered.
type turn struct {
	name  string
	begin time.Time
	load  time.Duration
	reply func(*part) map[string]any
	out   *lines
	// context are the tokens of prompt and answer, in the last line of a reply that can be continued.
	context []int32
}

// A part is a part of an answer, or all of it.
type part struct {
	content  string
	thinking string
	calls    []toolCall
	probs    []tokenProb
	reason   string // for which the answer ends, in its last part
}

// A tokenProb is an element of logprobs.
type tokenProb struct {
	text.TokenProb
	Top []text.TokenProb `json:"top_logprobs,omitempty"`
}

func (p *part) add(next *part) {
	p.content += next.content
	p.thinking += next.thinking
	p.calls = append(p.calls, next.calls...)
	p.probs = append(p.probs, next.probs...)
	p.reason = next.reason
}

// withoutReason returns the part as a line before the last one.
func (p part) withoutReason() *part {
	p.reason = ""
	return &p
}

func (p *part) empty() bool {
	return p.content == "" && p.thinking == "" && len(p.calls) == 0 && len(p.probs) == 0
}

func (s *Server) newTurn(w http.ResponseWriter, q *request, reply func(*part) map[string]any) *turn {
	return &turn{name: q.Model, begin: time.Now(), reply: reply, out: newLines(w)}
}

// answer generates the text of a turn. A request without a prompt loads the model, or unloads it.
func (s *Server) answer(r *http.Request, q *request, t *turn, makePrompt func(context.Context, text.Model) (prompt, error)) error {
	g, err := q.generation()
	if err != nil {
		return err
	}
	if !q.hasPrompt() && q.Model != "" && q.Keep != nil && *q.Keep == 0 {
		return s.unload(r, t)
	}
	m, release, err := s.open(r, q.Model)
	if err != nil {
		return err
	}
	defer s.keep(r, q.Model, q.Keep)
	defer release()
	t.load = time.Since(t.begin)
	p, err := makePrompt(r.Context(), m)
	if err != nil {
		return err
	}
	if p.tokens == nil {
		return t.out.last(t.line(&part{reason: "load"}, engine.Usage{}))
	}
	if g.Grammar != "" {
		p.thoughts = nil // the grammar has no marks that could end them
	}
	g.Prompt = p.tokens
	if err := q.Options.limitContext(&g); err != nil {
		return err
	}
	return t.run(r.Context(), m, g, &p, q.streamed())
}

func (t *turn) run(ctx context.Context, m text.Model, g engine.Generation, p *prompt, streamed bool) error {
	split := text.Splitter{Thoughts: p.thoughts, Calls: text.Calls{Tools: p.tools}}
	var all part
	if p.continued {
		t.context = slices.Clone(g.Prompt)
	}
	usage, err := m.Generate(ctx, g, func(token engine.Token) error {
		if p.continued {
			t.context = append(t.context, token.ID)
		}
		piece := split.Push(&token)
		next := newPart(&piece, &token, g.LogProbs >= 0)
		if streamed && !next.empty() {
			if err := t.out.send(t.line(next.withoutReason(), engine.Usage{})); err != nil {
				return err
			}
		}
		if streamed {
			all.reason = next.reason
			return nil
		}
		all.add(&next)
		return nil
	})
	if err != nil {
		return t.out.fail(err)
	}
	return t.out.last(t.line(&all, usage))
}

// newPart returns what a token adds, with its probabilities if probs is set.
func newPart(p *text.Piece, t *engine.Token, probs bool) part {
	next := part{content: p.Content, thinking: p.Thoughts, calls: encodeCalls(p.Calls), reason: string(t.Last)}
	if probs {
		own, top := text.Probs(*t)
		next.probs = []tokenProb{{own, top}}
	}
	return next
}

func encodeCalls(calls []text.Call) []toolCall {
	var list []toolCall
	for _, c := range calls {
		var t toolCall
		t.Function.Name, t.Function.Arguments = c.Name, c.Arguments
		list = append(list, t)
	}
	return list
}

// line returns a line of a reply; the last line has a reason and counts.
func (t *turn) line(p *part, u engine.Usage) map[string]any {
	v := t.reply(p)
	v["model"], v["created_at"], v["done"] = t.name, time.Now().UTC(), p.reason != ""
	if len(p.probs) > 0 {
		v["logprobs"] = p.probs
	}
	if p.reason == "" {
		return v
	}
	v["done_reason"] = p.reason
	if slices.Contains([]string{"load", "unload"}, p.reason) {
		return v
	}
	if t.context != nil {
		v["context"] = t.context
	}
	v["total_duration"], v["load_duration"] = time.Since(t.begin), t.load
	v["prompt_eval_count"], v["prompt_eval_duration"] = u.PromptTokens, cmp.Or(u.Prefill, 1)
	v["eval_count"], v["eval_duration"] = u.GeneratedTokens, cmp.Or(u.Decode, 1)
	return v
}
