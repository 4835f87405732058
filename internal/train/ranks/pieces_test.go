package ranks

import (
	"testing"

	"github.com/outboard-run/outboard/internal/train/compress"
)

// Ranks divide their all-reduces where their calls overlap: between two nodes, without compression.
func TestPiecesOfGroups(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []int
		spec  compress.Spec
		want  int
	}{
		"one node":    {[]int{0, 0}, compress.Spec{}, 0},
		"two nodes":   {[]int{0, 1, 1}, compress.Spec{}, exchangePiece},
		"three nodes": {[]int{0, 1, 2}, compress.Spec{}, 0},
		"compressed":  {[]int{0, 1}, compress.Spec{Method: compress.Half}, 0},
	} {
		r, err := newRemote(c.nodes, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := newGroup(len(c.nodes), r, &heldMemory{}).piece(c.spec); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}
