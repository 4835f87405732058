package llama

import (
	"cmp"
	"math"
	"slices"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// penaltyWindow is the number of a sequence's last tokens that penalties count.
const penaltyWindow = engine.PenaltyWindow

// negligible is the distance from the largest logit, after temperature, beyond which a token is not
// a candidate: its probability is below 1e-13 of that of the most likely token.
const negligible = 30

// A candidate is a token that may be chosen.
type candidate struct {
	id    int32
	logit float64
}

// A sampler chooses tokens. It keeps memory between calls, but no state.
type sampler struct {
	logits     []float32
	candidates []candidate
}

// choose returns the token to follow sequence, given the logits of all tokens. The result
// depends on its arguments alone.
func (s *sampler) choose(logits []float32, sequence []int32, p *engine.Sampling) int32 {
	logits = s.adjust(logits, sequence, p)
	if p.Temperature <= 0 {
		return int32(argmax(logits))
	}
	list := s.filter(logits, p)
	var sum float64
	for _, c := range list {
		sum += math.Exp(c.logit - list[0].logit)
	}
	point := uniform(p.Seed, uint64(len(sequence))) * sum
	for _, c := range list {
		if point -= math.Exp(c.logit - list[0].logit); point < 0 {
			return c.id
		}
	}
	return list[0].id
}

// adjust returns the logits after biases and penalties.
func (s *sampler) adjust(logits []float32, sequence []int32, p *engine.Sampling) []float32 {
	repeat := p.RepeatPenalty
	if repeat == 0 {
		repeat = 1
	}
	penalized := repeat != 1 || p.FrequencyPenalty != 0 || p.PresencePenalty != 0
	if !penalized && len(p.Bias) == 0 {
		return logits
	}
	s.logits = append(s.logits[:0], logits...)
	if penalized {
		s.penalize(sequence[max(0, len(sequence)-penaltyWindow):], repeat, p)
	}
	for id, bias := range p.Bias {
		if id >= 0 && int(id) < len(s.logits) {
			s.logits[id] += bias
		}
	}
	return s.logits
}

func (s *sampler) penalize(window []int32, repeat float32, p *engine.Sampling) {
	counts := make(map[int32]int, len(window))
	for _, id := range window {
		counts[id]++
	}
	for id, n := range counts {
		if int(id) >= len(s.logits) {
			continue
		}
		if l := &s.logits[id]; *l > 0 {
			*l /= repeat
		} else {
			*l *= repeat
		}
		s.logits[id] -= float32(n)*p.FrequencyPenalty + p.PresencePenalty
	}
}

func argmax(logits []float32) int {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	return best
}

// filter returns the candidates that TopK, TopP and MinP leave, most likely first, with logits
// divided by the temperature. There is at least one candidate.
func (s *sampler) filter(logits []float32, p *engine.Sampling) []candidate {
	most, scale := float64(logits[argmax(logits)]), 1/float64(p.Temperature)
	list := s.candidates[:0]
	for i, l := range logits {
		if c := (float64(l) - most) * scale; c > -negligible || float64(l) == most {
			list = append(list, candidate{int32(i), c})
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
	})
	s.candidates = list
	if p.TopK > 0 {
		list = list[:min(p.TopK, len(list))]
	}
	list = cutTop(list, float64(p.TopP))
	for i, c := range list {
		if i > 0 && math.Exp(c.logit-list[0].logit) < float64(p.MinP) {
			return list[:i]
		}
	}
	return list
}

// cutTop returns the fewest of the most likely candidates whose probabilities sum to top or more.
func cutTop(list []candidate, top float64) []candidate {
	if top <= 0 || top >= 1 {
		return list
	}
	var sum, before float64
	for _, c := range list {
		sum += math.Exp(c.logit)
	}
	for i, c := range list {
		if before += math.Exp(c.logit); before >= top*sum {
			return list[:i+1]
		}
	}
	return list
}

// uniform returns a number in [0, 1) that depends on seed and position alone (SplitMix64,
// Steele, Lea and Flood 2014, whose state after n steps is known without the steps).
func uniform(seed, position uint64) float64 {
	z := mix(seed) + (position+1)*0x9e3779b97f4a7c15
	return float64(mix(z)>>11) / (1 << 53)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// logProbabilities returns the logarithm of the probability of token, and the n most likely tokens
// with their logarithms, by the model's own logits: before temperature, biases and penalties.
func logProbabilities(logits []float32, token int32, n int) (float32, []candidate) {
	most := float64(logits[argmax(logits)])
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l) - most)
	}
	norm := most + math.Log(sum)
	var top []candidate
	for i, l := range logits {
		c := candidate{int32(i), float64(l) - norm}
		if len(top) == n && (n == 0 || c.logit <= top[n-1].logit) {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, c, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
		})
		top = slices.Insert(top, at, c)
		top = top[:min(n, len(top))]
	}
	return float32(float64(logits[token]) - norm), top
}
