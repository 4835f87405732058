package lend

import (
	"math"
	"testing"

	"github.com/outboard-run/outboard"
)

// A weight from another node is bounded, whatever its claim says.
func TestWeightIsBounded(t *testing.T) {
	for weight, want := range map[int]int{math.MinInt: 1, 0: 1, 7: 7, outboard.MaxWeight + 1: outboard.MaxWeight, math.MaxInt: outboard.MaxWeight} {
		s := &Session{Spec: Spec{Lease: outboard.Lease{Grant: outboard.Grant{Weight: weight}}}}
		if got := s.weight(); got != want {
			t.Errorf("weight %d: got %d, want %d", weight, got, want)
		}
	}
}
