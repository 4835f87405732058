package shared

import (
	"testing"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
)

// A long message is copied by little, and gets memory for its claim only after a part of
// it has come.
func TestLongMessagesGrowByTheirClaim(t *testing.T) {
	const total = 16<<20 + 9
	a := assembly{stream: &stream{e: &laneEnd{conn: &Conn{}}}, total: total}
	piece, copied := make([]byte, chunkSize), 0
	for a.have < total {
		before, had := a.buf, a.have
		a.add(&call.Message{Data: piece[:min(total-a.have, len(piece))]})
		if a.buf != before {
			copied += had
		}
		if a.have < total/buffers.ClaimFactor && len(a.buf.Data) > 2*buffers.ClaimFactor*a.have {
			t.Fatalf("%d bytes have come, and there is room for %d", a.have, len(a.buf.Data))
		}
	}
	if a.have != total || copied > total/4 {
		t.Errorf("%d bytes of %d, %d of them copied once more", a.have, total, copied)
	}
}

// The buffers of long messages are used again: of a hundred, each freed before the next, a few are
// allocated.
func TestLongMessagesReuseBuffers(t *testing.T) {
	s := &stream{e: &laneEnd{conn: &Conn{}}}
	piece := &call.Message{Data: make([]byte, 2<<20)}
	places := map[*byte]bool{}
	for range 100 {
		a := assembly{stream: s, total: uint64(len(piece.Data))}
		a.add(piece)
		m := a.message()
		places[&m.Data[0]] = true
		m.Free()
	}
	s.e.conn.buffers.Close()
	if len(places) > 2 { // the pool may have let one go, where the test was held up
		t.Errorf("100 messages lay at %d places", len(places))
	}
}
