package engine

import (
	"strings"

	"github.com/outboard-run/outboard"
)

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

// beyondContext is what the errors of prompts that exceed a context have in common: another process or
// node returns only kind and text of an error.
const beyondContext = " tokens, and the model's context has "

// ErrTooLong returns the error of a prompt that exceeds a model's context. count is the number of its
// tokens, such as "at least 100".
func ErrTooLong(count string, context int) error {
	return outboard.Errorf(outboard.Invalid, "prompt", "it has %s%s%d: shorten the prompt or ask for fewer tokens", count, beyondContext, context)
}

// IsTooLong reports whether a prompt exceeds a model's context.
func IsTooLong(err error) bool {
	return outboard.KindOf(err) == outboard.Invalid && strings.Contains(err.Error(), beyondContext)
}
