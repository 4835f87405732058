package llama

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
)

// Types of vocabularies (llama_vocab_type) and attributes of tokens (llama_token_attr).
const (
	vocabularyNone          = 0
	vocabularySentencePiece = 1
	vocabularyBytePairs     = 2

	attributeUnknown     = 1 << 0
	attributeControl     = 1 << 3
	attributeUserDefined = 1 << 4
)

// space is the character by which SentencePiece represents a space.
const space = "\u2581"

// An alphabet is the set of texts that a SentencePiece vocabulary without a token for each byte can
// express. Its tokenizer aborts the process at any other text, while tokenizers of other types use
// an unknown token or pass over it. (llama.cpp 0.5.0, src/llama-vocab.cpp:
// llm_tokenizer_spm_session and tokenizer_st_partition.)
type alphabet struct {
	bytes      [256]bool
	characters map[string]bool // characters that are tokens
	special    map[string]bool // texts recognized before others; true for user-defined tokens
	lengths    []int           // lengths of the texts in special, distinct
	first      [256]bool       // bytes with which the texts in special begin
	prefixed   bool            // the tokenizer puts a space before each stretch of text
}

// newAlphabet returns the alphabet of a model's vocabulary, nil if it can express every text.
func (m *textModel) newAlphabet() (*alphabet, error) {
	switch int32(m.lib.call(fnVocabType, m.vocabulary)) {
	case vocabularyNone:
		return nil, outboard.Errorf(outboard.Invalid, "load model", "the file has no vocabulary (tokenizer.ggml.model is %q)", m.header.Text("tokenizer.ggml.model"))
	case vocabularySentencePiece:
	default:
		return nil, nil //nolint:nilnil // every text can be expressed
	}
	a := &alphabet{characters: map[string]bool{}, special: map[string]bool{}}
	a.prefixed = m.header.Lookup("tokenizer.ggml.add_space_prefix") != false
	for i := range int32(m.lib.call(fnVocabTokens, m.vocabulary)) {
		text := goString(m.lib.call(fnTokenText, m.vocabulary, uintptr(i)))
		a.add(text, int32(m.lib.call(fnTokenAttributes, m.vocabulary, uintptr(i))))
		if a.expressible() { // the bytes come first in most vocabularies
			return nil, nil //nolint:nilnil // every text can be expressed
		}
	}
	for text := range a.special {
		if !utf8.ValidString(text) {
			return nil, outboard.Errorf(outboard.Invalid, "load model", "the special token %q is not UTF-8, and the vocabulary lacks tokens for some bytes", text)
		}
	}
	return a, nil
}

// add adds a token with its attributes.
func (a *alphabet) add(text string, attributes int32) {
	if text == "" {
		return
	}
	if b, ok := byteOf(text); ok {
		a.bytes[b] = true
	}
	if len(text) <= utf8.UTFMax {
		a.characters[text] = true
	}
	if attributes&(attributeUnknown|attributeControl|attributeUserDefined) == 0 {
		return
	}
	a.special[text] = a.special[text] || attributes&(attributeUnknown|attributeControl) == 0
	a.first[text[0]] = true
	if !slices.Contains(a.lengths, len(text)) {
		a.lengths = append(a.lengths, len(text))
	}
}

// byteOf returns the byte that a token stands for: <0x0A> or the byte itself.
func byteOf(text string) (byte, bool) {
	if len(text) == 1 {
		return text[0], true
	}
	if len(text) != len("<0x0A>") || !strings.HasPrefix(text, "<0x") {
		return 0, false
	}
	n, err := strconv.ParseUint(text[3:5], 16, 8)
	return byte(n), err == nil && text == fmt.Sprintf("<0x%02X>", n)
}

// expressible reports whether every byte has a token.
func (a *alphabet) expressible() bool {
	for _, known := range &a.bytes {
		if !known {
			return false
		}
	}
	return true
}

// check returns an error that names the first character of a text that has no token. Special
// reports whether the texts of control tokens are recognized.
func (a *alphabet) check(text string, special bool) error {
	if a == nil {
		return nil
	}
	if !utf8.ValidString(text) {
		return outboard.Errorf(outboard.Invalid, "prompt", "it is not UTF-8, and the model's vocabulary lacks tokens for some bytes")
	}
	for part := range a.plain(text, special) {
		if a.prefixed && !a.has(' ') {
			return errCharacter(' ')
		}
		for _, c := range part {
			if !a.has(c) {
				return errCharacter(c)
			}
		}
	}
	return nil
}

func errCharacter(c rune) error {
	return outboard.Errorf(outboard.Invalid, "prompt",
		"the model's vocabulary has no token for %q (%U): leave the character out, or use a model whose vocabulary has a token for each byte", c, c)
}

// has reports whether a character is a token, or all its bytes are.
func (a *alphabet) has(c rune) bool {
	text := string(c)
	if c == ' ' {
		text = space
	}
	if a.characters[text] {
		return true
	}
	for i := range len(text) {
		if !a.bytes[text[i]] {
			return false
		}
	}
	return true
}

// plain returns the parts of a text that are certainly or possibly outside of special tokens. The
// library recognizes special tokens in an unspecified order, and may drop spaces beside them: a
// special token is certain only where no other special token overlaps it.
func (a *alphabet) plain(text string, special bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		from := 0
		for i := 0; i < len(text); {
			end, count := a.specialAt(text, i, special)
			if count == 0 {
				i++
				continue
			}
			start := i
			for i++; i < end; i++ {
				e, n := a.specialAt(text, i, special)
				end, count = max(end, e), count+n
			}
			if found := text[start:end]; count > 1 || strings.TrimSpace(found) != found {
				continue
			}
			if start > from && !yield(text[from:start]) {
				return
			}
			from = end
		}
		if from < len(text) {
			yield(text[from:])
		}
	}
}

// specialAt returns the number of special tokens that begin at byte i of a text, and the end of the
// longest.
func (a *alphabet) specialAt(text string, i int, special bool) (end, count int) {
	if !a.first[text[i]] {
		return i, 0
	}
	end = i
	for _, n := range a.lengths {
		if i+n > len(text) {
			continue
		}
		if always, known := a.special[text[i:i+n]]; known && (always || special) {
			end, count = max(end, i+n), count+1
		}
	}
	return end, count
}
