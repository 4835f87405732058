package llama

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A grammar constrains the tokens of one generation (llama.cpp's grammar sampler).
type grammar struct {
	lib     *library
	sampler uintptr
	// tokens is an array of llama_token_data: identifier, logit, probability, 4 bytes each.
	tokens *pinned[tokenData]
	array  *pinned[uint64] // llama_token_data_array: data, size, selected, sorted
	// partial is a UTF-8 sequence that the last token began. The library does not check the
	// form of sequences.
	partial []byte
	piece   func(token int32) string
}

type tokenData struct {
	id    int32
	logit float32
	_     float32 // the probability, which grammars do not read
}

// newGrammar parses a grammar (GBNF) whose first rule is root.
func (m *textModel) newGrammar(text string) (*grammar, error) {
	if strings.ContainsRune(text, 0) {
		return nil, outboard.Errorf(outboard.Invalid, "grammar", "it contains a zero byte")
	}
	messages.drain()
	source, root := newCString(text), newCString("root")
	defer source.free()
	defer root.free()
	sampler := m.lib.call(fnGrammarInit, m.vocabulary, source.address(), root.address())
	if sampler == 0 {
		return nil, outboard.Errorf(outboard.Invalid, "grammar", "it is not valid: %s", lastMessage("its syntax is wrong or it lacks a rule root"))
	}
	g := &grammar{lib: m.lib, sampler: sampler, tokens: pin(make([]tokenData, m.info.Vocabulary)), array: pin(make([]uint64, 4)), piece: m.piece}
	return g, nil
}

func (g *grammar) close() {
	if g == nil {
		return
	}
	g.lib.call(fnSamplerFree, g.sampler)
	g.tokens.free()
	g.array.free()
}

// apply sets the logits of the first n tokens to minus infinity where the grammar forbids them.
func (g *grammar) apply(n int) {
	a := g.array.values
	a[0], a[1], a[2] = uint64(g.tokens.address()), uint64(n), math.MaxUint64
	var sorted [8]byte
	a[3] = binary.LittleEndian.Uint64(sorted[:])
	g.lib.call(fnSamplerApply, g.sampler, g.array.address())
}

// allows reports whether the token may come next.
func (g *grammar) allows(token int32) bool {
	g.tokens.values[0] = tokenData{id: token}
	g.apply(1)
	return !math.IsInf(float64(g.tokens.values[0].logit), -1) && g.keepsUTF8(token)
}

// keepsUTF8 reports whether the text is still valid, or the beginning of a valid text, with the
// token.
func (g *grammar) keepsUTF8(token int32) bool {
	_, ok := cutRunes(append(slices.Clone(g.partial), g.piece(token)...))
	return ok
}

// cutRunes returns the incomplete sequence at the end of b, and reports whether the bytes before it
// are valid UTF-8.
func cutRunes(b []byte) (rest []byte, ok bool) {
	for len(b) > 0 && utf8.FullRune(b) {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return nil, false
		}
		b = b[n:]
	}
	return b, true
}

// accept advances the grammar by a token that it allows.
func (g *grammar) accept(token int32) {
	g.lib.call(fnSamplerAccept, g.sampler, uintptr(token))
	g.partial, _ = cutRunes(append(g.partial, g.piece(token)...))
}

// choose returns a token that the grammar allows: the sampler's choice among all tokens if it is
// allowed, which is cheap, and otherwise its choice among the allowed tokens.
func (g *grammar) choose(s *sampler, logits []float32, sequence []int32, p *engine.Sampling) (int32, error) {
	token := s.choose(logits, sequence, p)
	if !g.allows(token) {
		for i, l := range logits {
			g.tokens.values[i] = tokenData{id: int32(i), logit: l}
		}
		g.apply(len(logits))
		masked := make([]float32, len(logits))
		possible := false
		for i := range masked {
			masked[i] = g.tokens.values[i].logit
			if math.IsInf(float64(masked[i]), -1) {
				continue
			}
			if g.keepsUTF8(int32(i)) {
				possible = true
			} else {
				masked[i] = float32(math.Inf(-1))
			}
		}
		if !possible {
			return 0, outboard.Errorf(outboard.Invalid, "grammar", "no token of the model continues the text within the grammar")
		}
		token = s.choose(masked, sequence, p)
	}
	g.accept(token)
	return token, nil
}
