package ranks

import "github.com/outboard-run/outboard/internal/train/compress"

// joined is the reply to join.
type joined struct {
	// Piece is the size in bytes of the parts in which ranks make a larger all-reduce, as calls that
	// follow each other without waiting; 0: they make it in one call.
	Piece int `json:"piece,omitempty"`
}

// exchangePiece is the size of the parts of an all-reduce between two nodes: while one part is on the
// link, ranks copy the next one into their memory and the last one back.
const exchangePiece = 2 << 20

// piece returns the size of the parts of an all-reduce of the group. Only the calls of two nodes
// overlap; compressed sums are chosen among the elements of a whole call.
func (g *group) piece(s compress.Spec) int {
	if g.remote == nil || len(g.remote.nodes) != 2 || s.Method != compress.None {
		return 0
	}
	return exchangePiece
}
