package engine

import "github.com/outboard-run/outboard"

// Limits of a generation. The engines compare each token with the stop texts, and the logits of each
// step are changed by the biases, so both cost all generations of a model time.
const (
	// MaxStops bounds the stop texts, MaxStopBytes all of them together.
	MaxStops     = 16
	MaxStopBytes = 4 << 10
	// MaxBiases bounds the tokens with a bias.
	MaxBiases = 1024
	// PenaltyWindow is the number of the last tokens that penalties count.
	PenaltyWindow = 64
)

// Check returns an error of the kind outboard.Invalid if the generation exceeds a limit.
func (g *Generation) Check() error {
	size := 0
	for _, s := range g.Stop {
		size += len(s)
	}
	switch {
	case len(g.Stop) > MaxStops:
		return outboard.Errorf(outboard.Invalid, "stop", "%d stop texts are given: at most %d are accepted", len(g.Stop), MaxStops)
	case size > MaxStopBytes:
		return outboard.Errorf(outboard.Invalid, "stop", "the stop texts have %d bytes together: at most %d are accepted", size, MaxStopBytes)
	case g.IgnoreEnd && g.Grammar != "":
		return outboard.Errorf(outboard.Invalid, "ignore_eos", "it is not supported beside a grammar, whose text has an end")
	case len(g.Sampling.Bias) > MaxBiases:
		return outboard.Errorf(outboard.Invalid, "logit_bias", "%d tokens have a bias: at most %d are accepted", len(g.Sampling.Bias), MaxBiases)
	}
	return nil
}
