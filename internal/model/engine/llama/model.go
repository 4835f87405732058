package llama

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/gguf"
)

// A textModel is a loaded GGUF model.
type textModel struct {
	lib        *library
	header     *gguf.File
	info       engine.Info
	model      uintptr   // llama_model
	vocabulary uintptr   // llama_vocab
	alphabet   *alphabet // of the vocabulary, nil if it can express every text
	context    uintptr   // llama_context, 0 for a model that only makes embeddings
	memory     uintptr   // llama_memory_t of the context
	cells      int       // tokens of attention state
	sequences  int       // sequences that run at once
	cached     int       // sequences that are kept at most
	parked     int64     // bytes of states that are kept outside the cells at most
	chunk      int       // tokens of a micro-batch
	threads    int
	abort      abortFlag   // of the context
	pool       *threadPool // of the context, nil if the library's build has no pools
	pieces     []string    // text of tokens, owned by the scheduler's goroutine

	scheduler *scheduler
	afterStep func() // nil for none; called by the scheduler's goroutine
	closing   sync.Once

	// mu is held by Close, and for reading by all that use the model. embedMu also guards the context for
	// embeddings, which is created at the first use.
	mu       sync.RWMutex
	embedMu  sync.Mutex
	embedder uintptr
	closed   bool

	longestOnce sync.Once
	longest     int // the length of the longest token, in bytes; 0: unknown

	templateOnce sync.Once
	template     templateResult
}

var _ engine.TextModel = (*textModel)(nil)

// Info describes the model.
func (m *textModel) Info() engine.Info { return m.info }

// maxText is the longest text that is tokenized.
const maxText = 16 << 20

// Tokenize returns the tokens of text, with the beginning-of-sequence token if the model expects
// one and text does not have it. A character that the vocabulary cannot express is an error.
func (m *textModel) Tokenize(_ context.Context, t engine.Text) ([]int32, error) {
	text := t.Content
	if size := len(text) + len(t.Suffix); size > maxText {
		return nil, outboard.Errorf(outboard.Invalid, "prompt", "it has %d bytes: %d are accepted", size, maxText)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, errClosed
	}
	if size := len(text) + len(t.Suffix); t.Bounded && size > freeText {
		if least := m.leastTokens(size); least > m.info.Context {
			return nil, engine.ErrTooLong(fmt.Sprintf("at least %d", least), m.info.Context)
		}
	}
	if t.Suffix != "" {
		return m.infill(text, t.Suffix)
	}
	tokens, err := m.split(text, true, t.Special)
	return m.oneBeginning(tokens), err
}

// split returns the tokens of a text. With begin they start with the beginning-of-sequence token if the
// model expects one. The caller holds mu.
func (m *textModel) split(text string, begin, special bool) ([]int32, error) {
	if err := m.alphabet.check(text, special); err != nil {
		return nil, err
	}
	source := pin([]byte(text))
	defer source.free()
	n := len(text) + 2
	for {
		tokens := pin(make([]int32, n))
		r := int32(m.lib.call(fnTokenize, m.vocabulary, source.address(), uintptr(len(text)), tokens.address(), uintptr(n), truth(begin), truth(special)))
		tokens.free()
		if r >= 0 {
			return tokens.values[:r], nil
		}
		if n = int(-r); n > 2*maxText {
			return nil, outboard.Errorf(outboard.Invalid, "prompt", "it cannot be split into tokens")
		}
	}
}

// freeText is the length up to which the tokens of a text are counted, in bytes.
const freeText = 64 << 10

// leastTokens returns how many tokens a text of size bytes has at least, 0 if its vocabulary has
// tokens that stand for texts of any length. The caller holds mu.
func (m *textModel) leastTokens(size int) int {
	m.longestOnce.Do(func() {
		switch int32(m.lib.call(fnVocabType, m.vocabulary)) {
		case vocabularySentencePiece, vocabularyBytePairs:
		default:
			return
		}
		m.longest = utf8.UTFMax // an unknown token stands for a character
		for i := range m.info.Vocabulary {
			m.longest = max(m.longest, len(goString(m.lib.call(fnTokenText, m.vocabulary, uintptr(i)))))
		}
	})
	if m.longest == 0 {
		return 0
	}
	return size / m.longest
}

// oneBeginning removes the first of two beginning-of-sequence tokens: both chat templates and the
// tokenizer write one.
func (m *textModel) oneBeginning(tokens []int32) []int32 {
	adds := m.lib.bool(fnVocabAddBOS, m.vocabulary)
	if adds && len(tokens) > 1 && tokens[0] == tokens[1] {
		return tokens[1:]
	}
	return tokens
}

func truth(v bool) uintptr {
	if v {
		return 1
	}
	return 0
}

// piece returns the bytes of a token; control tokens have none. Only the scheduler calls it.
func (m *textModel) piece(token int32) string {
	if s := m.pieces[token]; s != "" {
		return s
	}
	n := 64
	for {
		buffer := pin(make([]byte, n))
		r := int32(m.lib.call(fnPiece, m.vocabulary, uintptr(token), buffer.address(), uintptr(n), 0, 0))
		buffer.free()
		if r >= 0 {
			m.pieces[token] = string(buffer.values[:r])
			return m.pieces[token]
		}
		n = int(-r)
	}
}

func (m *textModel) isEnd(token int32) bool {
	return m.lib.bool(fnVocabIsEnd, m.vocabulary, uintptr(token))
}

// Generate continues a prompt.
func (m *textModel) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	if m.scheduler == nil {
		return engine.Usage{}, outboard.Errorf(outboard.Invalid, "generate", "the model makes embeddings and no text")
	}
	s, err := m.newSequence(ctx, g, emit)
	if err != nil {
		return engine.Usage{}, err
	}
	if err := m.scheduler.submit(s); err != nil {
		return engine.Usage{}, err
	}
	defer s.cancel(nil)
	stop := context.AfterFunc(s.ctx, m.scheduler.interrupt)
	defer stop()
	<-s.done
	return s.usage, s.err
}

// AfterSteps implements engine.SteppedModel.
func (m *textModel) AfterSteps(f func()) { m.afterStep = f }

// newSequence checks a request.
func (m *textModel) newSequence(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (*sequence, error) {
	if err := checkTokens(g.Prompt, m.info.Vocabulary); err != nil {
		return nil, err
	}
	if g.Continued < 0 || g.Continued >= len(g.Prompt) || g.MaxTokens < 0 {
		return nil, outboard.Errorf(outboard.Invalid, "generate", "%d of %d tokens are continued, at most %d are to come", g.Continued, len(g.Prompt), g.MaxTokens)
	}
	available := m.info.Context - len(g.Prompt)
	if available < 1 {
		return nil, engine.ErrTooLong(strconv.Itoa(len(g.Prompt)), m.info.Context)
	}
	if g.MaxTokens == 0 || g.MaxTokens > available {
		g.MaxTokens = available
	}
	for _, stop := range g.Stop {
		if strings.TrimSpace(stop) == "" && stop == "" {
			return nil, outboard.Errorf(outboard.Invalid, "stop", "a stop text is empty")
		}
	}
	const maxLogProbs = 100
	if g.LogProbs > maxLogProbs {
		return nil, outboard.Errorf(outboard.Invalid, "logprobs", "%d are asked for: %d are possible", g.LogProbs, maxLogProbs)
	}
	return newSequence(ctx, g, emit), nil
}

// Stats describes the model's present load.
func (m *textModel) Stats() engine.TextStats {
	if m.scheduler == nil {
		return engine.TextStats{}
	}
	return m.scheduler.stats()
}
