package openai

import (
	"context"
	"errors"
	"sync"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// A job is the generations of one request: n for each prompt.
type job struct {
	id          string
	created     int64
	model       text.Model
	release     func()
	generations []engine.Generation
	prompts     int // the generations of one prompt are adjacent
	tools       map[string]bool
	single      bool           // an answer ends with its first call of a tool
	thoughts    *text.Thoughts // separates thoughts from the answer, from its beginning; nil for none
	generated   int            // tokens so far, of all generations
	tier        string
}

// newJob returns the job that generates a number of choices for each prompt.
func newJob(prefix string, m text.Model, release func(), choices int, prompts []engine.Generation) *job {
	j := &job{id: identifier(prefix), created: now(), model: m, release: release, prompts: len(prompts)}
	for _, g := range prompts {
		for i := range choices {
			// Each choice has its own seed; the first has the request's seed.
			g.Sampling.Seed += uint64(min(i, 1))
			j.generations = append(j.generations, g)
		}
	}
	return j
}

func (j *job) logprobs() bool { return j.generations[0].LogProbs >= 0 }

// An answer is one choice.
type answer struct {
	thoughts string
	content  string
	calls    []text.Call
	tokens   []engine.Token
	finish   string
	usage    engine.Usage
	thought  int // tokens of thoughts
}

// A piece is the part of an answer that one token adds.
type piece struct {
	text.Piece
	token  *engine.Token
	finish string
}

// collect runs all generations to their end.
func (j *job) collect(ctx context.Context) ([]*answer, error) {
	return j.run(ctx, nil, func(int, *answer, piece) error { return nil })
}

// run runs the generations concurrently. Calls of emit, one for each piece, are serialized; begin,
// which may be nil, is called before the first piece of each choice.
func (j *job) run(ctx context.Context, begin func(int) error, emit func(int, *answer, piece) error) ([]*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // serializes emit
	answers := make([]*answer, len(j.generations))
	var wait sync.WaitGroup
	for i := range j.generations {
		answers[i] = &answer{}
		wait.Go(func() {
			if err := j.runOne(ctx, i, answers[i], begin, emit, &mu); err != nil {
				cancel(err) // the first error ends the other generations
			}
		})
	}
	wait.Wait()
	return answers, context.Cause(ctx)
}

func (j *job) runOne(ctx context.Context, i int, a *answer, begin func(int) error, emit func(int, *answer, piece) error, mu *sync.Mutex) error {
	split := text.Splitter{Calls: text.Calls{Tools: j.tools}}
	if j.thoughts != nil {
		own := *j.thoughts
		split.Thoughts = &own
	}
	begun, ended := begin == nil, false
	usage, err := j.model.Generate(ctx, j.generations[i], func(t engine.Token) error {
		mu.Lock()
		defer mu.Unlock()
		if !begun {
			begun = true
			if err := begin(i); err != nil {
				return err
			}
		}
		j.generated++
		p := piece{Piece: split.Push(&t), token: &t}
		if j.single && len(p.Calls) > 0 {
			p.Calls = p.Calls[:1]
		}
		a.thoughts += p.Thoughts
		a.content += p.Content
		a.calls = append(a.calls, p.Calls...)
		if p.Thinking {
			a.thought++
		}
		if j.logprobs() {
			a.tokens = append(a.tokens, t)
		}
		if err := emit(i, a, p); err != nil {
			return err
		}
		ended = j.single && len(a.calls) > 0
		if t.Last == "" && !ended {
			return nil
		}
		a.finish = string(t.Last)
		if len(a.calls) > 0 {
			a.finish = "tool_calls"
		}
		err := emit(i, a, piece{finish: a.finish})
		if err == nil && t.Last == "" {
			return errEnded
		}
		return err
	})
	a.usage = usage
	if ended && errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// errEnded ends a generation whose answer is complete.
var errEnded = errors.New("the answer is complete")

// usageSoFar returns the counts of tokens while the generations run. emit of run may call it.
func (j *job) usageSoFar() map[string]any {
	prompt := 0
	for i := 0; i < len(j.generations); i += len(j.generations) / j.prompts {
		prompt += len(j.generations[i].Prompt)
	}
	return map[string]any{"prompt_tokens": prompt, "completion_tokens": j.generated, "total_tokens": prompt + j.generated}
}

// tokenCounts are the tokens of a request. Cached are those of the prompts whose state was reused,
// thought those of the thoughts among the generated ones.
type tokenCounts struct{ prompt, cached, generated, thought int }

// counts sums up the tokens of the request; each prompt counts once.
func (j *job) counts(answers []*answer) *tokenCounts {
	var c tokenCounts
	for i, a := range answers {
		if i%(len(answers)/j.prompts) == 0 {
			c.prompt += a.usage.PromptTokens
			c.cached += a.usage.CachedTokens
		}
		c.generated += a.usage.GeneratedTokens
		c.thought += a.thought
	}
	return &c
}

// completion returns the counts in the form of completions.
func (c *tokenCounts) completion() map[string]any {
	usage := map[string]any{
		"prompt_tokens": c.prompt, "completion_tokens": c.generated, "total_tokens": c.prompt + c.generated,
		"prompt_tokens_details": map[string]any{"cached_tokens": c.cached},
	}
	if c.thought > 0 {
		usage["completion_tokens_details"] = map[string]any{"reasoning_tokens": c.thought}
	}
	return usage
}
