package remote

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/outboard-run/outboard/internal/fabric/buffers"
)

// pass gives a parser a message in pieces, and returns it with where it lies and how much
// was copied from one room to the next.
func pass(t *testing.T, p *parser, message []byte, piece int) (data []byte, lies *buffers.Buffer, copied int) {
	t.Helper()
	var head [recordSize]byte
	head[0] = byte(recordMessage)
	binary.LittleEndian.PutUint32(head[1:], uint32(len(message)))
	rest := append(head[:], message...)
	for {
		before := cap(p.data)
		into := p.space()
		if cap(p.data) != before && p.headBytes == recordSize {
			copied += len(p.data)
		}
		n := copy(into[:min(len(into), piece)], rest)
		rest = rest[n:]
		complete, err := p.filled(n)
		if err != nil {
			t.Fatal(err)
		}
		if complete {
			data, lies = p.nextRecord()
			return data, lies, copied
		}
	}
}

// A long message is copied by little, and gets memory for its claim only after a part of
// it has come.
func TestLongMessagesGrowByTheirClaim(t *testing.T) {
	for _, length := range []int{0, 1, buffers.FirstSize - 1, buffers.FirstSize, buffers.FirstSize + 1, 1 << 20, 16<<20 + 9, 64 << 20} {
		for name, rooms := range map[string]*buffers.Pool{"in rooms": {}, "in memory of its own": nil} {
			p := &parser{maxMessage: maxLength, buffers: rooms}
			message := make([]byte, length)
			for i := 0; i < length; i += 4096 {
				message[i] = byte(rand.Uint32())
			}
			data, _, copied := pass(t, p, message, 100_000)
			if !bytes.Equal(data, message) || cap(data) != length {
				t.Errorf("%d bytes %s: they are not what was sent, or there is room for %d", length, name, cap(data))
			}
			if most := length/4 + buffers.FirstSize; copied > most {
				t.Errorf("%d bytes %s: %d bytes were copied, more than %d", length, name, copied, most)
			}
		}
	}
}

// The messages of a stream lie in the same memory one after the other.
func TestRoomsAreUsedAgain(t *testing.T) {
	var r buffers.Pool
	p := &parser{maxMessage: maxLength, buffers: &r}
	message := make([]byte, 3<<20)
	places := map[*byte]bool{}
	for range 10 {
		data, lies, _ := pass(t, p, message, 1<<20)
		places[&data[0]] = true
		r.Message(lies, data, false).Free()
	}
	r.Close()
	if len(places) != 1 {
		t.Errorf("10 messages lay at %d places", len(places))
	}
}
