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
	s := &stream{e: &laneEnd{conn: &Conn{}}}
	piece, copied := make([]byte, chunkSize), 0
	var buf *buffers.Buffer
	have := 0
	for have < total {
		before, had := buf, have
		buf, have = s.appendTo(buf, have, chunk{m: &call.Message{Data: piece[:min(total-have, len(piece))]}}, total)
		if buf != before {
			copied += had
		}
		if have < total/buffers.ClaimFactor && len(buf.Data) > 2*buffers.ClaimFactor*have {
			t.Fatalf("%d bytes have come, and there is room for %d", have, len(buf.Data))
		}
	}
	if have != total || copied > total/4 {
		t.Errorf("%d bytes of %d, %d of them copied once more", have, total, copied)
	}
}

// The buffers of long messages are used again: of a hundred, each freed before the next, a few are
// allocated.
func TestLongMessagesReuseBuffers(t *testing.T) {
	s := &stream{e: &laneEnd{conn: &Conn{}}}
	piece := &call.Message{Data: make([]byte, 2<<20)}
	places := map[*byte]bool{}
	for range 100 {
		buf, have := s.appendTo(nil, 0, chunk{m: piece}, uint64(len(piece.Data)))
		places[&buf.Data[0]] = true
		s.e.conn.buffers.Message(buf, buf.Data[:have], false).Free()
	}
	s.e.conn.buffers.Close()
	if len(places) > 2 { // the pool may have let one go, where the test was held up
		t.Errorf("100 messages lay at %d places", len(places))
	}
}
