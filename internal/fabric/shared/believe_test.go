package shared

import "testing"

// A long message is copied by little, and gets memory for its claim only after a part of
// it has come.
func TestLongMessagesGrowByTheirClaim(t *testing.T) {
	const total = 16<<20 + 9
	piece, copied := make([]byte, chunkSize), 0
	whole := make([]byte, 0, 4*chunkSize)
	for left := total; left > 0; left -= len(piece) {
		before, had := cap(whole), len(whole)
		whole = append(growFor(whole, min(left, len(piece)), total), piece[:min(left, len(piece))]...)
		if cap(whole) != before {
			copied += had
		}
		if had < total/claimFactor && cap(whole) > 4*(had+chunkSize) {
			t.Fatalf("%d bytes have come, and there is room for %d", had, cap(whole))
		}
	}
	if len(whole) != total || copied > total/4 {
		t.Errorf("%d bytes of %d, %d of them copied once more", len(whole), total, copied)
	}
}
