package compress

import (
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/train/collective"
)

const (
	// maxResidual bounds the elements of all residuals that share a Memory: 4 GiB.
	maxResidual = 1 << 30
	// pieceBytes is the size of the temporary buffer of one sum, whose pieces are sent one after the
	// other: 64 MiB, so that the latency of a piece does not count.
	pieceBytes = 64 << 20
)

// Memory counts what Reducers hold in the memory of this process, rather than in that of the ranks.
// The Reducers of a job share a Memory, since a program chooses how many groups and buffers it has.
type Memory struct {
	// Buffers counts the temporary buffers of running sums.
	Buffers   collective.Buffers
	residuals atomic.Int64 // elements
}

// reserveResidual adds n elements if they fit.
func (h *Memory) reserveResidual(n int) bool {
	if h.residuals.Add(int64(n)) <= maxResidual {
		return true
	}
	h.residuals.Add(-int64(n))
	return false
}
