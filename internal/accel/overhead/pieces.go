package overhead

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// Sizes of the pieces in which a worker handles large transfers, in bytes.
const (
	// pieceSize is the largest piece that the worker has the driver write to the ring at a time
	// (internal/accel/opencl/stream.go).
	pieceSize = ringArea / 8
	// piecewiseRead is the size from which the worker sends any read in pieces. A smaller read is sent
	// from staging memory after its end, unless no other thread of the program could wait meanwhile
	// (internal/accel/opencl/reads.go).
	piecewiseRead = 1 << 20
	// piecewiseWrite is the size beyond which the worker passes a write to the driver while it arrives,
	// if nothing on the queue delays it (internal/accel/opencl/writes.go).
	piecewiseWrite = 64 << 10
)

// firstPiece returns the part of a transfer's work that is done when its first piece is.
func firstPiece(work cost.Time, bytes uint64) cost.Time {
	if bytes <= pieceSize {
		return work
	}
	return cost.Time(float64(work) * float64(pieceSize) / float64(bytes))
}

// alone reports whether the caller is the program's only thread so far: the worker may then block in
// the driver on its behalf.
func alone(m *model) bool { return len(m.threads) == 1 }

// writesPieces reports whether the worker executes the call while its bytes arrive. Other calls with
// much data wait for all of it: programs, buffers with contents, writes that may be delayed.
func writesPieces(m *model, r *trace.Record) bool {
	return r.Command && r.Forward > piecewiseWrite && (alone(m) || len(r.Waits) == 0 && m.known.idle(r))
}

// firstRead returns the part of a command's work after which its first bytes are sent.
func firstRead(m *model, work cost.Time, r *trace.Record) cost.Time {
	if r.Backward >= piecewiseRead || r.Class == trace.WaitedFor && alone(m) {
		return firstPiece(work, r.Backward)
	}
	return work
}
