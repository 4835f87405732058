package text

import "github.com/outboard-run/outboard/internal/model/engine"

// A TokenProb is a token with the logarithm of its probability, in the form that the interfaces of
// OpenAI and Ollama share.
type TokenProb struct {
	Token   string  `json:"token"`
	LogProb float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// minLogProb stands for the logarithm of a probability of 0, which JSON has no number for. It is
// OpenAI's value.
const minLogProb = -9999

// FiniteLogProb returns p, or the value that stands for an infinite one.
func FiniteLogProb(p float32) float32 {
	if !(p > minLogProb) { // also NaN
		return minLogProb
	}
	return min(p, 0)
}

// Probs returns the probability of a token, and those of the most likely tokens.
func Probs(t engine.Token) (own TokenProb, top []TokenProb) {
	top = []TokenProb{}
	for _, c := range t.Top {
		top = append(top, newTokenProb(c.Text, c.LogProb))
	}
	return newTokenProb(TokenText(t), t.LogProb), top
}

func newTokenProb(token string, p float32) TokenProb {
	t := TokenProb{Token: token, LogProb: FiniteLogProb(p), Bytes: []int{}}
	for _, b := range []byte(token) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}

// TokenText returns the text of a token, even if it added nothing to the answer's text.
func TokenText(t engine.Token) string {
	for _, c := range t.Top {
		if c.ID == t.ID {
			return c.Text
		}
	}
	return t.Text
}
