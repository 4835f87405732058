package llama

import (
	"context"
	"time"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/turns"
)

// A sequence is one generation. The scheduler's goroutine owns it until done is closed.
type sequence struct {
	ctx     context.Context //nolint:containedctx // of this one call
	cancel  context.CancelCauseFunc
	request engine.Generation
	emit    func(engine.Token) error
	turn    turns.Turn

	slot      int32   // the library's identifier of the sequence
	tokens    []int32 // the prompt and the generated tokens
	computed  int     // tokens whose attention state is computed
	kept      int     // the same without the present micro-batch
	generated int
	output    int // index of the logits in the micro-batch, -1 for none
	text      textStream
	grammar   *grammar

	usage                     engine.Usage
	queued, started, decoding time.Time

	done chan struct{}
	err  error // set before done is closed
}

func newSequence(ctx context.Context, g engine.Generation, emit func(engine.Token) error) *sequence {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &sequence{
		ctx: ctx, cancel: cancel, request: g, emit: emit, output: -1, queued: time.Now(),
		tokens: append(make([]int32, 0, len(g.Prompt)+min(g.MaxTokens, 4096)), g.Prompt...),
		text:   textStream{stop: g.Stop},
		done:   make(chan struct{}),
	}
	s.usage.PromptTokens = len(g.Prompt)
	return s
}

// cells returns the number of cells of attention state that the generation may need.
func (s *sequence) cells() int { return len(s.request.Prompt) + s.request.MaxTokens }

// maxReplayed is the most generated tokens that are computed again one by one, which takes as long
// as generating them.
const maxReplayed = 1024

// chunkLimit returns the number of tokens from the next one on that may be computed in a
// micro-batch. Tokens that another node has generated are computed as they were there, one by one:
// the library's kernels for several tokens round differently, which could change the tokens that
// follow.
func (s *sequence) chunkLimit() int {
	switch {
	case s.request.Continued > maxReplayed:
		return len(s.tokens)
	case s.replays():
		return 1
	}
	return len(s.request.Prompt) - s.request.Continued - s.computed
}

// replays reports whether the next token is one that another node has generated.
func (s *sequence) replays() bool {
	return s.request.Continued <= maxReplayed && s.computed >= len(s.request.Prompt)-s.request.Continued
}

// remaining returns the number of tokens that are not computed yet.
func (s *sequence) remaining() int { return len(s.tokens) - s.computed }

// finish ends the generation for its caller.
func (s *sequence) finish(err error) {
	now := time.Now()
	switch {
	case s.started.IsZero():
		s.usage.Queued = now.Sub(s.queued)
	case s.decoding.IsZero():
		s.usage.Prefill = now.Sub(s.started)
	default:
		s.usage.Decode = now.Sub(s.decoding)
	}
	s.usage.GeneratedTokens = s.generated
	s.err = err
	close(s.done)
}
