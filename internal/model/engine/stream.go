package engine

import (
	"time"

	"github.com/outboard-run/outboard"
)

// Limits of what another process or node may send.
const (
	// maxStreamed bounds the tokens of a generation, in bytes: the node keeps all of them for a client
	// that is answered at once.
	maxStreamed = 256 << 20
	// maxStage bounds the time of a stage: sums of such times do not overflow.
	maxStage = 365 * 24 * time.Hour
)

// A StreamCheck validates what another process or node sends for a generation. It may have been taken
// over: its tokens and counts are added up, kept and used to index.
type StreamCheck struct {
	most   int // tokens; 0: no limit
	tokens int
	bytes  int64
	ended  bool
}

// NewStreamCheck returns the check of a generation by a model with a context of that many tokens, 0
// if it is not known.
func NewStreamCheck(g *Generation, context int) *StreamCheck {
	most := g.MaxTokens
	if room := context - len(g.Prompt); context > 0 && (most == 0 || most > room) {
		most = max(room, 1)
	}
	return &StreamCheck{most: most}
}

// Token validates the next token.
func (c *StreamCheck) Token(t *Token) error {
	c.tokens++
	c.bytes += t.Size()
	switch {
	case c.ended:
		return wrongStream("a token follows the last one")
	case c.most > 0 && c.tokens > c.most:
		return wrongStream("it has more than the %d tokens that were requested", c.most)
	case c.bytes > maxStreamed:
		return wrongStream("its tokens have more than %v", outboard.Bytes(maxStreamed))
	case t.Last != "" && t.Last != FinishStop && t.Last != FinishLength:
		return wrongStream("it ends for the unknown reason %.40q", t.Last)
	}
	c.ended = t.Last != ""
	return nil
}

const (
	tokenSize     = 72 // of a Token without its texts and candidates
	candidateSize = 32 // of a Candidate without its text
)

// Size returns about what a token takes in memory, in bytes.
func (t *Token) Size() int64 {
	size := tokenSize + len(t.Text) + len(t.Last)
	for i := range t.Top {
		size += candidateSize + len(t.Top[i].Text)
	}
	return int64(size)
}

// Emit returns a function that validates tokens before it passes them to emit.
func (c *StreamCheck) Emit(emit func(Token) error) func(Token) error {
	return func(t Token) error {
		if err := c.Token(&t); err != nil {
			return err
		}
		return emit(t)
	}
}

func wrongStream(format string, args ...any) error {
	return outboard.Errorf(outboard.Protocol, "generate", "the model's process: "+format, args...)
}

// Validate returns an error unless the counts and times are such as an engine returns.
func (u *Usage) Validate() error {
	if !isCount(u.PromptTokens, u.CachedTokens, u.GeneratedTokens) || !isStage(u.Queued, u.Prefill, u.Decode) {
		return wrongStream("it reports %d tokens of a prompt, %d of them cached, and %d others, after %v, %v and %v",
			u.PromptTokens, u.CachedTokens, u.GeneratedTokens, u.Queued, u.Prefill, u.Decode)
	}
	return nil
}

// Validate returns an error unless the counts and times are such as an engine returns.
func (s *TextStats) Validate() error {
	sums := s.PromptTokens >= 0 && s.CachedTokens >= 0 && s.GeneratedTokens >= 0 && s.MicroBatches >= 0 && s.ParkedBytes >= 0
	if !sums || !isCount(s.Running, s.Waiting, s.Pending, s.Room, len(s.Prefixes)) || !isStage(s.PerToken, s.Lifetime) {
		return wrongStream("it reports statistics with a count or a time that is out of range")
	}
	if len(s.Prefixes) > MaxPrefixes {
		return wrongStream("it reports %d prefixes, at most %d are allowed", len(s.Prefixes), MaxPrefixes)
	}
	return nil
}

func isCount(counts ...int) bool {
	for _, n := range counts {
		if n < 0 || n > maxCount {
			return false
		}
	}
	return true
}

func isStage(times ...time.Duration) bool {
	for _, d := range times {
		if d < 0 || d > maxStage {
			return false
		}
	}
	return true
}
