package llama

import (
	"slices"

	"github.com/outboard-run/outboard"
)

// infill returns the prompt for the text between prefix and suffix, in the order prefix, suffix, middle, as
// llama-server's /infill has it (Bavarian et al., "Efficient Training of Language Models to Fill in the
// Middle", 2022). The caller holds mu.
func (m *textModel) infill(prefix, suffix string) ([]int32, error) {
	marks := [3]int32{}
	for i, function := range []int{fnVocabPrefix, fnVocabSuffix, fnVocabMiddle} {
		if marks[i] = int32(m.lib.call(function, m.vocabulary)); marks[i] < 0 {
			return nil, outboard.Errorf(outboard.Invalid, "suffix", "the model has no tokens for filling in the middle: leave it out")
		}
	}
	before, err := m.split(prefix, false, false)
	if err != nil {
		return nil, err
	}
	after, err := m.split(suffix, false, false)
	if err != nil {
		return nil, err
	}
	tokens := slices.Concat(marks[:1], before, marks[1:2], after, marks[2:])
	if m.lib.bool(fnVocabAddBOS, m.vocabulary) {
		tokens = slices.Insert(tokens, 0, int32(m.lib.call(fnVocabBOS, m.vocabulary)))
	}
	return tokens, nil
}
