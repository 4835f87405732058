package serve

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A TextLoad is a node's report on a model for text, from which other nodes estimate when the first
// token of a prompt would come there.
type TextLoad struct {
	// Running and Waiting count generations, Slots is the number that run at once; 0 means not
	// known.
	Running int `json:"running,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	Slots   int `json:"slots,omitempty"`
	// Pending counts the tokens of prompts that are not computed yet. PerToken is the time to
	// compute one of them, Lifetime the time that a generation runs.
	Pending  int           `json:"pending,omitempty"`
	PerToken time.Duration `json:"per_token,omitempty"`
	Lifetime time.Duration `json:"lifetime,omitempty"`
	// Prefixes identify beginnings of prompts whose state the node has.
	Prefixes engine.Prefixes `json:"prefixes,omitempty"`
	// Room is how many more tokens of state the node keeps before it loses state that was used Idle ago;
	// both are 0 if they are not known.
	Room int           `json:"room,omitempty"`
	Idle time.Duration `json:"idle,omitempty"`
	// StateUsage and ParkedBytes are as in engine.TextStats. Other nodes do not need them.
	StateUsage  float64 `json:"-"`
	ParkedBytes int64   `json:"-"`
}

func newTextLoad(info *engine.Info, s *engine.TextStats) *TextLoad {
	return &TextLoad{
		Running: s.Running, Waiting: s.Waiting, Slots: info.Sequences,
		Pending: s.Pending, PerToken: s.PerToken, Lifetime: s.Lifetime, Prefixes: s.Prefixes,
		Room: s.Room, Idle: idleTime(s.OldestUse),
		StateUsage: s.StateUsage, ParkedBytes: s.ParkedBytes,
	}
}

// idleTime returns how long ago a time was, 0 if it is zero. It is a power of two of seconds, since a
// report that changes is published. It is bounded by maxIdle, since the model's process states the
// time and powers of two beyond the longest time overflow.
func idleTime(used time.Time) time.Duration {
	if used.IsZero() {
		return 0
	}
	idle := time.Second
	for ago := time.Since(used); idle < ago && idle < maxIdle; idle *= 2 {
	}
	return idle
}

const maxIdle = 1 << 25 * time.Second // a year

// assumedToken is the time per token of a prompt if nothing was measured.
const assumedToken = time.Millisecond

// wait returns how long a new generation waits for a slot, and for the prompts ahead of it.
func (l *TextLoad) wait() time.Duration {
	wait := time.Duration(l.Pending) * l.perToken()
	if ahead := l.Running + l.Waiting - l.Slots + 1; l.Slots > 0 && ahead > 0 {
		wait += l.Lifetime * time.Duration(ahead) / time.Duration(l.Slots)
	}
	return wait
}

func (l *TextLoad) perToken() time.Duration {
	if l.PerToken > 0 {
		return l.PerToken
	}
	return assumedToken
}

// displaced returns how many tokens of state the node loses to keep so many others.
func (l *TextLoad) displaced(tokens int) int {
	if l.Room <= 0 && l.Idle <= 0 {
		return 0
	}
	return min(tokens, max(0, tokens-l.Room))
}

// cachedTokens returns the number of a prompt's tokens that have their state in a set of prefixes.
func cachedTokens(hashes engine.Prefixes, has func(uint32) bool) int {
	n := 0
	for n < len(hashes) && has(hashes[n]) {
		n++
	}
	return n * engine.PrefixBlock
}

// reportDelay is the greatest age of a node's report that does not yet include a generation that
// was sent there.
const reportDelay = 3 * publishInterval

// maxSent bounds the number of prefixes that are remembered for a node.
const maxSent = 4096

// A nodeContent is a content of a model on a node.
type nodeContent struct {
	node    outboard.NodeID
	content string
}

// sentPrompts remember the prompts that this node has sent to nodes whose reports do not include
// them yet. Its zero value is ready.
type sentPrompts struct {
	mu     sync.Mutex
	byNode map[nodeContent]*sentTo
}

type sentTo struct {
	last     time.Time            // at which a prompt was sent
	prefixes map[uint32]time.Time // times at which the last prompts with them were sent
	prompts  []*sentPrompt        // in the order of time
}

type sentPrompt struct {
	at     time.Time
	tokens int // that were not cached; 0 once the generation has ended
}

// add records a prompt of which so many tokens have to be computed. The caller calls ended when no
// token of the prompt is left to compute; its prefixes stay.
func (s *sentPrompts) add(key nodeContent, hashes engine.Prefixes, tokens int) (ended func()) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNode == nil {
		s.byNode = map[nodeContent]*sentTo{}
	}
	to := s.byNode[key]
	if to == nil { // a new content: those that it replaces get no more prompts
		maps.DeleteFunc(s.byNode, func(_ nodeContent, old *sentTo) bool { return now.Sub(old.last) > reportDelay })
	}
	if to == nil || len(to.prefixes) > maxSent {
		to = &sentTo{prefixes: map[uint32]time.Time{}}
		s.byNode[key] = to
	}
	to.last = now
	for _, h := range hashes {
		to.prefixes[h] = now
	}
	to.prompts = slices.DeleteFunc(to.prompts, func(p *sentPrompt) bool { return now.Sub(p.at) > reportDelay })
	sent := &sentPrompt{now, tokens}
	to.prompts = append(to.prompts, sent)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		sent.tokens = 0
	}
}

// recent returns the prompts that were sent so recently that no report includes them: whether a
// prefix was sent, and the number of tokens to compute.
func (s *sentPrompts) recent(key nodeContent) (has func(uint32) bool, tokens int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.byNode[key]
	if to == nil {
		return func(uint32) bool { return false }, 0
	}
	for _, p := range to.prompts {
		if now.Sub(p.at) < publishInterval {
			tokens += p.tokens
		}
	}
	return func(h uint32) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return now.Sub(to.prefixes[h]) <= reportDelay
	}, tokens
}
