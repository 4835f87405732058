package gguf

import "math"

// A Bigram is a model that counts: the probability of a token depends on the preceding token alone,
// and is the share of that pair among the pairs of a text. The file computes it by a one-hot
// embedding of the vocabulary's size, a layer whose weights are zero, since llama.cpp requires one,
// and an output matrix of logarithms. An engine's answers are known in closed form.
type Bigram struct {
	// Letters are the distinct bytes of the text, in order; token First+i is Letters[i].
	Letters []byte
	// Probability[a][b] is the probability of token b after token a.
	Probability [][]float64
	context     int
	template    string
}

// smoothing is added to the count of each pair, so that no logarithm is infinite.
const smoothing = 1e-3

// CountBigram counts the pairs of adjacent bytes of text, whose end is followed by the end
// token. The model continues sequences of at most context tokens.
func CountBigram(text string, context int, chatTemplate string) *Bigram {
	m := &Bigram{context: context, template: chatTemplate}
	index := make(map[byte]int)
	for c := range 256 {
		for i := range len(text) {
			if text[i] == byte(c) {
				index[byte(c)] = First + len(m.Letters)
				m.Letters = append(m.Letters, byte(c))
				break
			}
		}
	}
	n := First + len(m.Letters)
	m.Probability = make([][]float64, n)
	for a := range m.Probability {
		m.Probability[a] = make([]float64, n)
		for b := range n {
			m.Probability[a][b] = smoothing
		}
	}
	for i := range len(text) {
		next := End
		if i+1 < len(text) {
			next = index[text[i+1]]
		}
		m.Probability[index[text[i]]][next]++
	}
	for a := range m.Probability {
		normalize(m.Probability[a])
	}
	return m
}

func normalize(row []float64) {
	var sum float64
	for _, p := range row {
		sum += p
	}
	for i := range row {
		row[i] /= sum
	}
}

// Greedy returns the most likely tokens after token, the end token included, at most n.
func (m *Bigram) Greedy(token int32, n int) []int32 {
	var out []int32
	for range n {
		row, best := m.Probability[token], 0
		for b := range row {
			if row[b] > row[best] {
				best = b
			}
		}
		token = int32(best)
		out = append(out, token)
		if token == End {
			break
		}
	}
	return out
}

// Builder returns the model as a file. The width of its embedding is the size of the
// vocabulary, rounded up to a multiple of 32.
func (m *Bigram) Builder() *Builder {
	b := &Builder{}
	n := len(m.Probability)
	width := (n + 31) / 32 * 32
	s := Shape{Layers: 1, Width: width, FeedForward: 32, Heads: 1, SharedHeads: 1, Context: m.context}
	s.describe(b, n)
	v := &vocabulary{}
	v.add("<unk>", 0, tokenUnknown)
	v.add("<s>", 0, tokenControl)
	v.add("</s>", 0, tokenControl)
	for _, c := range m.Letters {
		piece := string(rune(c))
		if c == ' ' {
			piece = "\u2581" // SentencePiece's representation of a space
		}
		v.add(piece, 0, tokenNormal)
	}
	v.describe(b, m.template)

	embedding := make([]float32, width*n)
	output := make([]float32, width*n)
	// The norm divides by the root of the mean square: it multiplies a one-hot vector by the root
	// of width, apart from epsilon, which the norm's weight compensates.
	norm := constant(width, float32(math.Sqrt(1/float64(width)+epsilon)))
	for a := range n {
		embedding[a*width+a] = 1
		for b := range n {
			output[b*width+a] = float32(math.Log(m.Probability[a][b]))
		}
	}
	b.Add("token_embd.weight", F32, embedding, uint64(width), uint64(n))
	s.addLayer(b, 0, func(name string, columns, rows uint64) {
		b.Add(name, F32, make([]float32, columns*rows), columns, rows)
	})
	b.Add("output_norm.weight", F32, norm, uint64(width))
	b.Add("output.weight", F32, output, uint64(width), uint64(n))
	return b
}
